// SPDX-License-Identifier: GPL-2.0
/*
 * find_vm_area() of addresses inside areas.
 */
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "bench.h"

/* Addresses that one worker goes round. */
#define ADDRESSES 1024
/* @arg of a case: pages of an area, and how many areas there are. */
#define AREAS_BITS 10
#define ARG(areas, pages) ((unsigned long)(pages) << AREAS_BITS | (areas))

struct lookup {
	unsigned long areas;
	struct vm_struct **vms;
};

static unsigned long pages_of(const struct bench_case *c)
{
	return c->arg >> AREAS_BITS;
}

static void lookup_teardown(struct bench_run *run)
{
	struct lookup *lookup = run->data;

	if (!lookup)
		return;
	bench_free_areas(lookup->vms, lookup->areas);
	kvfree(lookup->vms);
	kfree(lookup);
	run->data = NULL;
}

static int lookup_setup(struct bench_run *run)
{
	struct lookup *lookup = kzalloc_obj(*lookup, GFP_KERNEL);

	run->data = lookup;
	if (!lookup)
		return -ENOMEM;
	lookup->areas = run->c->arg & ((1 << AREAS_BITS) - 1);
	lookup->vms = kvcalloc(lookup->areas, sizeof(*lookup->vms), GFP_KERNEL);
	if (!lookup->vms)
		return -ENOMEM;
	return bench_get_areas(lookup->vms, lookup->areas, pages_of(run->c)) ? 0 : -ENOSPC;
}

static void addresses_teardown(struct bench_worker *w)
{
	kfree(w->data);
	w->data = NULL;
}

/* Random addresses, each of which must be found. */
static int addresses_setup(struct bench_worker *w)
{
	const struct bench_case *c = w->run->c;
	struct lookup *lookup = w->run->data;
	void **addresses = kmalloc_array(ADDRESSES, sizeof(*addresses), GFP_KERNEL);
	int i;

	w->data = addresses;
	if (!addresses)
		return -ENOMEM;
	for (i = 0; i < ADDRESSES; i++) {
		struct vm_struct *vm;

		vm = lookup->vms[prandom_u32_state(&w->rnd) % lookup->areas];
		addresses[i] = vm->addr + PAGE_SIZE * (1 + prandom_u32_state(&w->rnd) %
							   (pages_of(c) - 1));
		if (find_vm_area(addresses[i]) != vm)
			return -ENOENT;
	}
	return 0;
}

static int lookup_phase(struct bench_worker *w, unsigned int phase)
{
	void **addresses = w->data;
	u32 i, missing = 0;

	for (i = 0; i < w->ops; i++) {
		missing += !find_vm_area(addresses[i % ADDRESSES]);
		if (!(i & 1023))
			cond_resched();
	}
	return missing ? -ENOENT : 0;
}

#define LOOKUP(label, text, areas, pages) \
	{ .name = label, .what = text, .ops = 20000, .arg = ARG(areas, pages), \
	  .setup = lookup_setup, .teardown = lookup_teardown, \
	  .worker_setup = addresses_setup, .worker_teardown = addresses_teardown, \
	  .phase = lookup_phase }

const struct bench_case bench_lookup_cases[] = {
	LOOKUP("lookup_inner_1k", "find_vm_area() inside of 1,000 areas of 16 pages", 1000, 16),
	LOOKUP("lookup_inner_64m", "find_vm_area() inside of an area of 64 MiB", 1,
	       SZ_64M / PAGE_SIZE),
#ifdef CONFIG_64BIT
	LOOKUP("lookup_inner_4g", "find_vm_area() inside of an area of 4 GiB", 1,
	       SZ_4G / PAGE_SIZE),
#endif
	{ }
};
