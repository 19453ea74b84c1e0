// SPDX-License-Identifier: GPL-2.0
/*
 * vm_unmap_aliases() after few areas were freed: what it costs, and under
 * scripts/bench profile and the instrument "counts" how many TLB flushes and
 * interrupts it takes.
 */
#include <linux/gfp.h>
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
/* Pages that vm_map_ram() maps. */
#define RAM_PAGES 16

struct aliases {
	struct vm_struct *vms[LIVE];
	struct page *pages[RAM_PAGES];
};

static void aliases_teardown(struct bench_run *run)
{
	struct aliases *a = run->data;
	int i;

	if (!a)
		return;
	bench_free_areas(a->vms, LIVE);
	for (i = 0; i < RAM_PAGES && a->pages[i]; i++)
		__free_page(a->pages[i]);
	kvfree(a);
	run->data = NULL;
}

static int aliases_setup(struct bench_run *run)
{
	struct aliases *a = kvzalloc_obj(*a, GFP_KERNEL);
	int i;

	run->data = a;
	if (!a)
		return -ENOMEM;
	for (i = 0; i < RAM_PAGES; i++) {
		a->pages[i] = alloc_page(GFP_KERNEL);
		if (!a->pages[i])
			return -ENOMEM;
	}
	return bench_get_areas(a->vms, LIVE, 1) ? 0 : -ENOMEM;
}

/* Free @arg areas, each in another block of areas than the others. */
static int free_apart(struct bench_run *run, unsigned int call)
{
	struct aliases *a = run->data;
	unsigned int i;

	for (i = 0; i < run->c->arg; i++) {
		unsigned int nr = (i * APART + call) % LIVE;

		free_vm_area(a->vms[nr]);
		a->vms[nr] = NULL;
	}
	return 0;
}

static int get_again(struct bench_run *run)
{
	struct aliases *a = run->data;
	unsigned int i;

	for (i = 0; i < LIVE; i++) {
		if (!a->vms[i] && !bench_get_areas(&a->vms[i], 1, 1))
			return -ENOMEM;
	}
	return 0;
}

static int map_ram(struct bench_run *run, unsigned int call)
{
	struct aliases *a = run->data;
	void *p = vm_map_ram(a->pages, RAM_PAGES, NUMA_NO_NODE);

	if (!p)
		return -ENOMEM;
	vm_unmap_ram(p, RAM_PAGES);
	return 0;
}

static int measure(struct bench_run *run, int (*prepare)(struct bench_run *run, unsigned int call))
{
	u64 values[BENCH_PASSES];
	unsigned int pass, call;
	int err = 0;

	for (pass = 0; pass <= BENCH_PASSES; pass++) {
		u64 ns = 0;

		vm_unmap_aliases();
		for (call = 0; call < CALLS; call++) {
			u64 start;

			err = prepare(run, pass * CALLS + call);
			if (err)
				return err;
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

static int areas_measure(struct bench_run *run)
{
	return measure(run, free_apart);
}

static int ram_measure(struct bench_run *run)
{
	return measure(run, map_ram);
}

#define ALIASES(areas) \
	{ .name = "aliases_" #areas, .arg = areas, .max_threads = 1, .setup = aliases_setup, \
	  .teardown = aliases_teardown, .measure = areas_measure }

const struct bench_case bench_aliases_cases[] = {
	ALIASES(0),
	ALIASES(1),
	ALIASES(2),
	ALIASES(3),
	ALIASES(4),
	ALIASES(5),
	{ .name = "aliases_ram", .max_threads = 1, .setup = aliases_setup,
	  .teardown = aliases_teardown, .measure = ram_measure },
	{ }
};
