// SPDX-License-Identifier: GPL-2.0
/*
 * Many areas at once: bursts freed in order, in reverse or at random, a space
 * full of holes, and a mix of sizes as a booted system has them.
 */
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "bench.h"

/* The areas of one worker; order says which one is freed next. */
struct burst {
	u32 *order;
	struct vm_struct **vms;
};

enum burst_order { IN_ORDER, REVERSE, RANDOM, LARGE };
/* Pages of an area of the burst of large ones, which no allocator serves from a block. */
#define LARGE_PAGES 2048

static void burst_teardown(struct bench_worker *w)
{
	struct burst *burst = w->data;

	if (!burst)
		return;
	bench_free_areas(burst->vms, w->ops);
	kvfree(burst->order);
	kvfree(burst->vms);
	kfree(burst);
	w->data = NULL;
}

static void shuffle(struct rnd_state *rnd, u32 *order, u32 n)
{
	u32 i, other;

	for (i = n; i > 1; i--) {
		other = prandom_u32_state(rnd) % i;
		swap(order[i - 1], order[other]);
	}
}

static int burst_setup(struct bench_worker *w)
{
	struct burst *burst = kzalloc_obj(*burst, GFP_KERNEL);
	u32 i;

	w->data = burst;
	if (!burst)
		return -ENOMEM;
	burst->order = kvmalloc_array(w->ops, sizeof(*burst->order), GFP_KERNEL);
	burst->vms = kvcalloc(w->ops, sizeof(*burst->vms), GFP_KERNEL);
	if (!burst->order || !burst->vms)
		return -ENOMEM;
	for (i = 0; i < w->ops; i++)
		burst->order[i] = w->run->c->arg == REVERSE ? w->ops - 1 - i : i;
	if (w->run->c->arg == RANDOM)
		shuffle(&w->rnd, burst->order, w->ops);
	return 0;
}

static int burst_phase(struct bench_worker *w, unsigned int phase)
{
	struct burst *burst = w->data;
	unsigned long size = (w->run->c->arg == LARGE ? LARGE_PAGES : 1) * PAGE_SIZE;
	u32 i;

	for (i = 0; i < w->ops; i++) {
		if (phase) {
			free_vm_area(burst->vms[burst->order[i]]);
			burst->vms[burst->order[i]] = NULL;
		} else {
			burst->vms[i] = get_vm_area(size, VM_ALLOC);
			if (!burst->vms[i])
				return -ENOMEM;
		}
		if (!(i & 1023))
			cond_resched();
	}
	return 0;
}

static void purge(struct bench_run *run)
{
	vm_unmap_aliases();
}

/* Areas around holes: every second one of these is given back. */
#define HOLES 8000

static void holes_teardown(struct bench_run *run)
{
	bench_free_areas(run->data, 2 * HOLES);
	kvfree(run->data);
	run->data = NULL;
}

static int holes_setup(struct bench_run *run)
{
	struct vm_struct **vms = kvcalloc(2 * HOLES, sizeof(*vms), GFP_KERNEL);
	int i;

	run->data = vms;
	if (!vms)
		return -ENOMEM;
	if (!bench_get_areas(vms, 2 * HOLES, 1))
		return -ENOMEM;
	for (i = 0; i < 2 * HOLES; i += 2) {
		free_vm_area(vms[i]);
		vms[i] = NULL;
	}
	vm_unmap_aliases();
	return 0;
}

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

#define BURST(label, o, n) \
	{ .name = label, .ops = n, .arg = o, .phases = { "alloc", "free" }, \
	  .worker_setup = burst_setup, .worker_teardown = burst_teardown, \
	  .phase = burst_phase, .untimed = purge }
#define FRAGMENTED(pages) \
	{ .name = "fragmented_" #pages, .ops = 8000, .arg = pages, .setup = holes_setup, \
	  .teardown = holes_teardown, .phase = bench_area_pairs }

const struct bench_case bench_burst_cases[] = {
	BURST("burst_order", IN_ORDER, 3000),
	BURST("burst_reverse", REVERSE, 3000),
	BURST("burst_random", RANDOM, 3000),
	BURST("large_burst", LARGE, 300),
	FRAGMENTED(1),
	FRAGMENTED(4),
	{ .name = "mixed", .ops = 8000, .worker_setup = mixed_setup,
	  .worker_teardown = mixed_teardown, .phase = mixed_phase },
	{ }
};
