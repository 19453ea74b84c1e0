// SPDX-License-Identifier: GPL-2.0
/*
 * vm_unmap_aliases() after few areas were freed: what it costs, and with the
 * instrument "flushes" how many TLB flushes it takes.
 */
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "bench.h"

/*
 * Live areas, all of one page, and how far apart those are that are freed. Each
 * is freed once only: those that take their place may be neighbours.
 */
#define LIVE 4096
#define APART 700
/* Calls of vm_unmap_aliases() in one pass. */
#define CALLS 50

static void aliases_teardown(struct bench_run *run)
{
	bench_free_areas(run->data, LIVE);
	kvfree(run->data);
	run->data = NULL;
}

static int aliases_setup(struct bench_run *run)
{
	run->data = kvcalloc(LIVE, sizeof(struct vm_struct *), GFP_KERNEL);
	return run->data && bench_get_areas(run->data, LIVE, 1) ? 0 : -ENOMEM;
}

/* Free @arg areas, each in another block of areas than the others. */
static void free_apart(struct bench_run *run, unsigned int call)
{
	struct vm_struct **vms = run->data;
	unsigned int i;

	for (i = 0; i < run->c->arg; i++) {
		unsigned int nr = (i * APART + call) % LIVE;

		free_vm_area(vms[nr]);
		vms[nr] = NULL;
	}
}

static int get_again(struct bench_run *run)
{
	struct vm_struct **vms = run->data;
	unsigned int i;

	for (i = 0; i < LIVE; i++) {
		if (!vms[i] && !bench_get_areas(&vms[i], 1, 1))
			return -ENOMEM;
	}
	return 0;
}

static int aliases_measure(struct bench_run *run)
{
	u64 values[BENCH_PASSES];
	unsigned int pass, call;
	int err;

	for (pass = 0; pass <= BENCH_PASSES; pass++) {
		u64 ns = 0;

		vm_unmap_aliases();
		for (call = 0; call < CALLS; call++) {
			u64 start;

			free_apart(run, pass * CALLS + call);
			/* Nobody else's turn comes in between. */
			cond_resched();
			if (pass)
				bench_mark_begin(run->c->name, "", 1);
			start = ktime_get_ns();
			vm_unmap_aliases();
			ns += ktime_get_ns() - start;
			if (pass)
				bench_mark_end();
			err = get_again(run);
			if (err)
				return err;
		}
		if (pass)
			values[pass - 1] = div_u64(ns * 1000, CALLS);
	}
	bench_report(run, "cost", "mns", values, BENCH_PASSES, CALLS);
	return 0;
}

#define ALIASES(label, text, areas) \
	{ .name = label, .what = text, .arg = areas, .max_threads = 1, .setup = aliases_setup, \
	  .teardown = aliases_teardown, .measure = aliases_measure }

const struct bench_case bench_aliases_cases[] = {
	ALIASES("aliases_0", "vm_unmap_aliases() after nothing was freed", 0),
	ALIASES("aliases_1", "vm_unmap_aliases() after one of 4,096 areas was freed", 1),
	{ }
};
