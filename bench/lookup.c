// SPDX-License-Identifier: GPL-2.0
/*
 * find_vm_area() of the first address of an area, and of one further in.
 */
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include <asm/sections.h>

#include "bench.h"

/* Addresses that one worker goes round. */
#define ADDRESSES 1024
/* Pages of an area that is looked up by an inner address. */
#define INNER_PAGES 16

struct lookup {
	unsigned long areas;
	struct vm_struct **vms;
};

/* @arg: areas, which address, and where: */
#define INNER BIT(31)
#define LARGE BIT(30)
/* In the window of modules. */
#define MODULE BIT(29)
/* In the kernel image; no areas are made. */
#define IMAGE BIT(28)

static unsigned long areas_of(const struct bench_case *c)
{
	return c->arg & ~(INNER | LARGE | MODULE | IMAGE);
}

static unsigned long pages_of(const struct bench_case *c)
{
	if (c->arg & LARGE)
		return SZ_64M / PAGE_SIZE;
	return c->arg & INNER ? INNER_PAGES : 1;
}

/* Some hundred bytes of metadata for each area. */
static u64 lookup_need(const struct bench_case *c, unsigned int threads)
{
	return areas_of(c) * 512ULL;
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

/* Areas where those of modules are. 0 or an error. */
static int get_module_areas(struct lookup *lookup)
{
#ifdef MODULES_VADDR
	unsigned long i;

	for (i = 0; i < lookup->areas; i++) {
		lookup->vms[i] = __get_vm_area_caller(INNER_PAGES * PAGE_SIZE, VM_MAP,
						      MODULES_VADDR, MODULES_END,
						      __builtin_return_address(0));
		if (!lookup->vms[i])
			return -ENOSPC;
	}
	return 0;
#else
	return -EOPNOTSUPP;
#endif
}

static int lookup_setup(struct bench_run *run)
{
	struct lookup *lookup = kzalloc_obj(*lookup, GFP_KERNEL);

	run->data = lookup;
	if (!lookup)
		return -ENOMEM;
	lookup->areas = areas_of(run->c);
	lookup->vms = kvcalloc(lookup->areas, sizeof(*lookup->vms), GFP_KERNEL);
	if (!lookup->vms)
		return -ENOMEM;
	if (run->c->arg & IMAGE)
		return find_vm_area(_stext) ? 0 : -EOPNOTSUPP;
	if (run->c->arg & MODULE)
		return get_module_areas(lookup);
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

		if (c->arg & IMAGE) {
			addresses[i] = _stext + prandom_u32_state(&w->rnd) % (_end - _stext);
			/* Between two areas of the image there may be a gap. */
			i -= !find_vm_area(addresses[i]);
			continue;
		}
		vm = lookup->vms[prandom_u32_state(&w->rnd) % lookup->areas];
		addresses[i] = vm->addr;
		if (c->arg & INNER)
			addresses[i] += PAGE_SIZE * (1 + prandom_u32_state(&w->rnd) %
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

#define LOOKUP(label, n) \
	{ .name = "lookup_" label, .ops = 20000, .arg = n, .need = lookup_need, \
	  .setup = lookup_setup, .teardown = lookup_teardown, \
	  .worker_setup = addresses_setup, .worker_teardown = addresses_teardown, \
	  .phase = lookup_phase }

const struct bench_case bench_lookup_cases[] = {
	LOOKUP("start_10", 10),
	LOOKUP("inner_10", 10 | INNER),
	LOOKUP("start_1k", 1000),
	LOOKUP("inner_1k", 1000 | INNER),
	LOOKUP("start_100k", 100000),
	LOOKUP("inner_100k", 100000 | INNER),
	LOOKUP("inner_64m", 1 | INNER | LARGE),
	LOOKUP("image", 1 | IMAGE),
	LOOKUP("module", 100 | INNER | MODULE),
	{ }
};
