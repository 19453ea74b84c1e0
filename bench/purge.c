// SPDX-License-Identifier: GPL-2.0
/* What a purge costs for each page that was freed. */
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "bench.h"

/* Areas of a pass that are freed, and pages of each. */
#define AREAS 15
#define AREA_PAGES 512
/* Guard pages included. */
#define OPS (AREAS * (AREA_PAGES + 1))

struct purge {
	struct bench_run *run;
	struct vm_struct *vms[AREAS];
	u64 ns;
	/* The first pass does not count. */
	bool counts;
};

/*
 * Called ahead of all ordinary threads of the CPU, or the worker that purges by
 * itself at some thousand pages would have done it before all are freed.
 */
static int free_and_purge(void *arg)
{
	struct purge *purge = arg;
	u64 start;

	bench_free_areas(purge->vms, AREAS);
	if (purge->counts)
		bench_mark_begin(purge->run->c->name, "per_page", OPS);
	start = ktime_get_ns();
	vm_unmap_aliases();
	purge->ns = ktime_get_ns() - start;
	if (purge->counts)
		bench_mark_end();
	return 0;
}

/* Small purges as they come up every now and then. */
static int purge_measure(struct bench_run *run)
{
	struct purge purge = { .run = run };
	u64 values[BENCH_PASSES];
	int pass, err = 0;

	for (pass = 0; !err && pass <= BENCH_PASSES; pass++) {
		purge.counts = pass;
		vm_unmap_aliases();
		err = bench_get_areas(purge.vms, AREAS, AREA_PAGES) ? 0 : -ENOMEM;
		if (!err)
			err = bench_first_cpu(free_and_purge, &purge);
		/* Thousandths of a nanosecond. */
		if (!err && pass)
			values[pass - 1] = div_u64(purge.ns * 1000, OPS);
	}
	if (!err)
		bench_report(run, "per_page", "mns", values, BENCH_PASSES, OPS);
	bench_free_areas(purge.vms, AREAS);
	return err;
}

const struct bench_case bench_purge_cases[] = {
	{ .name = "purge_512",
	  .what = "vm_unmap_aliases() after 15 areas of 512 pages were freed, per page",
	  .max_threads = 1, .measure = purge_measure },
	{ }
};
