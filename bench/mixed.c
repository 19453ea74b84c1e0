// SPDX-License-Identifier: GPL-2.0
/* A mix of sizes as a booted system has them. */
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "bench.h"

/*
 * Sizes of areas on a booted arm64 system, busy and lazy, without their guard
 * page, in percent: /proc/vmallocinfo after 40 programs had been run. Four of
 * five are kernel stacks.
 */
static const struct {
	u8 percent;
	u16 pages;
} sizes[] = {
	{ 82, 4 }, { 6, 1 }, { 3, 3 }, { 5, 16 }, { 2, 64 }, { 1, 96 }, { 1, 368 },
};

/* Areas that one worker has at a time. */
#define LIVE 128

static void mixed_teardown(struct bench_worker *w)
{
	bench_free_areas(w->data, LIVE);
	kfree(w->data);
	w->data = NULL;
}

static int mixed_setup(struct bench_worker *w)
{
	w->data = kcalloc(LIVE, sizeof(struct vm_struct *), GFP_KERNEL);
	return w->data ? 0 : -ENOMEM;
}

/* Replace one of the live areas by another. */
static bool mixed_replace(struct bench_worker *w)
{
	struct vm_struct **vms = w->data;
	u32 random = prandom_u32_state(&w->rnd);
	int percent = (random >> 8) % 100, size = 0;
	unsigned int slot = random % LIVE;

	while (size < ARRAY_SIZE(sizes) - 1 && percent >= sizes[size].percent)
		percent -= sizes[size++].percent;
	if (vms[slot])
		free_vm_area(vms[slot]);
	vms[slot] = get_vm_area(sizes[size].pages * PAGE_SIZE, VM_ALLOC);
	return vms[slot];
}

static int mixed_phase(struct bench_worker *w, unsigned int phase)
{
	u32 i;

	for (i = 0; i < w->ops; i++) {
		if (!mixed_replace(w))
			return -ENOMEM;
		if (!(i & 1023))
			cond_resched();
	}
	return 0;
}

const struct bench_case bench_mixed_cases[] = {
	{ .name = "mixed",
	  .what = "replace one of 128 live areas of a worker, sizes as in a booted system",
	  .ops = 8000, .worker_setup = mixed_setup, .worker_teardown = mixed_teardown,
	  .phase = mixed_phase },
	{ }
};
