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

/* Live areas, all of one page. */
#define LIVE 4096
/* Calls of vm_unmap_aliases() in one pass. */
#define CALLS 50
/* Before aliases_0_worn: pairs, and pages of each. */
#define WORN_PAIRS 20000
#define WORN_PAGES 4096

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

/* In a system that has reserved and freed many large areas. */
static int worn_setup(struct bench_run *run)
{
	struct vm_struct *vm;
	int i;

	for (i = 0; i < WORN_PAIRS; i++) {
		if (!bench_get_areas(&vm, 1, WORN_PAGES))
			return -ENOMEM;
		free_vm_area(vm);
		cond_resched();
	}
	return aliases_setup(run);
}

static int aliases_measure(struct bench_run *run)
{
	struct vm_struct **vms = run->data;
	u64 values[BENCH_PASSES];
	unsigned int pass, call;

	for (pass = 0; pass <= BENCH_PASSES; pass++) {
		u64 ns = 0;

		vm_unmap_aliases();
		for (call = 0; call < CALLS; call++) {
			/* Each area is freed once only: what takes its place may be a neighbour. */
			struct vm_struct **vm = &vms[pass * CALLS + call];
			u64 start;

			if (run->c->arg)
				free_vm_area(*vm);
			/* Nobody else's turn comes in between. */
			cond_resched();
			if (pass)
				bench_mark_begin(run->c->name, "", 1);
			start = ktime_get_ns();
			vm_unmap_aliases();
			ns += ktime_get_ns() - start;
			if (pass)
				bench_mark_end();
			if (run->c->arg && !bench_get_areas(vm, 1, 1))
				return -ENOMEM;
		}
		if (pass)
			values[pass - 1] = div_u64(ns * 1000, CALLS);
	}
	bench_report(run, "cost", "mns", values, BENCH_PASSES, CALLS);
	return 0;
}

/* @arg: free an area before each call? */
#define ALIASES(label, text, frees, before) \
	{ .name = label, .what = text, .arg = frees, .max_threads = 1, .setup = before, \
	  .teardown = aliases_teardown, .measure = aliases_measure }

const struct bench_case bench_aliases_cases[] = {
	ALIASES("aliases_0", "vm_unmap_aliases() after nothing was freed", false, aliases_setup),
	ALIASES("aliases_0_worn", "vm_unmap_aliases() after 20,000 pairs of 16 MiB", false,
		worn_setup),
	ALIASES("aliases_1", "vm_unmap_aliases() after one of 4,096 areas was freed", true,
		aliases_setup),
	{ }
};
