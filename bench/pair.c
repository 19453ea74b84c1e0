// SPDX-License-Identifier: GPL-2.0
/*
 * Get one and give it back: areas, vmalloc(), vmap(), vm_map_ram(), and
 * kmalloc() as a floor.
 */
#include <linux/atomic.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "bench.h"

/* Reserve @arg pages of address space and a guard page, and give them back. */
static __always_inline bool area_pair(const struct bench_case *c, struct bench_worker *w)
{
	struct vm_struct *vm = get_vm_area(c->arg * PAGE_SIZE, VM_ALLOC);

	if (!vm)
		return false;
	free_vm_area(vm);
	return true;
}

/* What ioremap() asks for: @arg pages, aligned to their size. */
static __always_inline bool ioremap_pair(const struct bench_case *c, struct bench_worker *w)
{
	struct vm_struct *vm = get_vm_area(c->arg * PAGE_SIZE, VM_IOREMAP);

	if (!vm)
		return false;
	free_vm_area(vm);
	return true;
}

/* @arg pages with memory behind them. */
static __always_inline bool vmalloc_pair(const struct bench_case *c, struct bench_worker *w)
{
	void *p = vmalloc(c->arg * PAGE_SIZE);

	if (!p)
		return false;
	vfree(p);
	return true;
}

static __always_inline bool aligned_pair(unsigned long size, unsigned long align)
{
	void *p = __vmalloc_node(size, align, GFP_KERNEL, NUMA_NO_NODE,
				 __builtin_return_address(0));

	if (!p)
		return false;
	vfree(p);
	return true;
}

/* One page at a multiple of @arg bytes. */
static __always_inline bool align_pair(const struct bench_case *c, struct bench_worker *w)
{
	return aligned_pair(PAGE_SIZE, c->arg);
}

/* Two ranges with a fixed distance, as the percpu allocator gets them for two nodes. */
static __always_inline bool percpu_pair(const struct bench_case *c, struct bench_worker *w)
{
	static const unsigned long offsets[] = { 0, SZ_16M };
	static const size_t sizes[] = { SZ_256K, SZ_256K };
	struct vm_struct **vms = pcpu_get_vm_areas(offsets, sizes, 2, SZ_64K,
						   GFP_KERNEL);

	if (!vms)
		return false;
	pcpu_free_vm_areas(vms, 2);
	return true;
}

/* A kernel stack as kernel/fork.c gets it: on arm64 four pages and a guard page at 32 KiB. */
static __always_inline bool stack_pair(const struct bench_case *c, struct bench_worker *w)
{
	return aligned_pair(THREAD_SIZE, THREAD_ALIGN);
}

/* What any object costs: the one that mm/vmalloc.c allocates for each area. */
static __always_inline bool kmalloc_pair(const struct bench_case *c, struct bench_worker *w)
{
	void *p = kzalloc_obj(struct vm_struct, GFP_KERNEL);

	if (!p)
		return false;
	/* Keep the compiler from removing the pair. */
	barrier_data(p);
	kfree(p);
	return true;
}

static DEFINE_SPINLOCK(known_lock);
static atomic_t known_atomic;
static int known_word;

/* test_profile() in bench/host/tests/test_bench.py knows its counts. */
static __always_inline bool known_pair(const struct bench_case *c, struct bench_worker *w)
{
	spin_lock(&known_lock);
	asm volatile(".rept 500\n\tnop\n\t.endr");
	spin_unlock(&known_lock);
	atomic_inc(&known_atomic);
	atomic_inc(&known_atomic);
	atomic_inc(&known_atomic);
	smp_mb(); /* two barriers to be counted, which order nothing */
	smp_mb(); /* the second one */
	smp_store_release(&known_word, 1); /* three releases to be counted */
	smp_store_release(&known_word, 2); /* the second one */
	smp_store_release(&known_word, 3); /* the third one */
	return true;
}

static void pages_teardown(struct bench_worker *w)
{
	struct page **pages = w->data;
	unsigned long i;

	for (i = 0; pages && i < w->run->c->arg && pages[i]; i++)
		__free_page(pages[i]);
	kfree(pages);
	w->data = NULL;
}

/* @arg pages, at w->data. */
static int pages_setup(struct bench_worker *w)
{
	struct page **pages = kcalloc(w->run->c->arg, sizeof(*pages), GFP_KERNEL);
	unsigned long i;

	w->data = pages;
	if (!pages)
		return -ENOMEM;
	for (i = 0; i < w->run->c->arg; i++) {
		pages[i] = alloc_page(GFP_KERNEL);
		if (!pages[i])
			return -ENOMEM;
	}
	return 0;
}

static __always_inline bool vmap_pair(const struct bench_case *c, struct bench_worker *w)
{
	void *p = vmap(w->data, c->arg, VM_MAP, PAGE_KERNEL);

	if (!p)
		return false;
	vunmap(p);
	return true;
}

static __always_inline bool map_ram_pair(const struct bench_case *c, struct bench_worker *w)
{
	void *p = vm_map_ram(w->data, c->arg, NUMA_NO_NODE);

	if (!p)
		return false;
	vm_unmap_ram(p, c->arg);
	return true;
}

/* Freed pages come back at once, so a few of them for each worker. */
static u64 pages_need(const struct bench_case *c, unsigned int threads)
{
	return 4ULL * threads * c->arg * PAGE_SIZE;
}

/* A loop of its own for each, so that nothing but the pair is in it. */
#define PAIR_PHASE(pair) \
static int pair##_phase(struct bench_worker *w, unsigned int nr) \
{ \
	const struct bench_case *c = w->run->c; \
	u32 i; \
\
	for (i = 0; i < w->ops; i++) { \
		if (!(pair)(c, w)) \
			return -ENOMEM; \
		if (!(i & 1023)) \
			cond_resched(); \
	} \
	return 0; \
}

PAIR_PHASE(known_pair)
PAIR_PHASE(kmalloc_pair)
PAIR_PHASE(area_pair)
PAIR_PHASE(vmalloc_pair)
PAIR_PHASE(stack_pair)
PAIR_PHASE(align_pair)
PAIR_PHASE(ioremap_pair)
PAIR_PHASE(percpu_pair)
PAIR_PHASE(vmap_pair)
PAIR_PHASE(map_ram_pair)

/* The same for cases in other files. */
int bench_area_pairs(struct bench_worker *w, unsigned int nr)
{
	return area_pair_phase(w, nr);
}

#define AREA(pages, n) \
	{ .name = "area_" #pages, .ops = n, .arg = pages, .phase = area_pair_phase }
#define VMALLOC(pages, n) \
	{ .name = "vmalloc_" #pages, .ops = n, .arg = pages, .phase = vmalloc_pair_phase, \
	  .need = pages_need }
#define IOREMAP(label, size, n) \
	{ .name = "ioremap_" label, .ops = n, .arg = (size) / PAGE_SIZE, \
	  .phase = ioremap_pair_phase }

const struct bench_case bench_pair_cases[] = {
	{ .name = "known", .ops = 2000, .phase = known_pair_phase },
	{ .name = "kmalloc_pair", .ops = 20000, .phase = kmalloc_pair_phase },
	/* Enough for several purges in each pass: 4096 pairs are 8192 lazy pages. */
	{ .name = "area_pair", .ops = 20000, .arg = 1, .phase = area_pair_phase },
	{ .name = "vmalloc_pair", .ops = 12500, .arg = 1, .phase = vmalloc_pair_phase,
	  .need = pages_need },
	AREA(4, 8000),
	AREA(16, 4000),
	AREA(64, 2000),
	AREA(100, 2000),
	AREA(256, 1000),
	AREA(512, 1000),
	AREA(4096, 1000),
	VMALLOC(4, 4000),
	VMALLOC(16, 1500),
	VMALLOC(64, 500),
	VMALLOC(100, 300),
	VMALLOC(256, 120),
	VMALLOC(512, 60),
	VMALLOC(4096, 8),
	{ .name = "stack", .ops = 4000, .phase = stack_pair_phase },
	{ .name = "align_64k", .ops = 5000, .arg = SZ_64K, .phase = align_pair_phase },
	{ .name = "align_2m", .ops = 2000, .arg = SZ_2M, .phase = align_pair_phase },
	{ .name = "percpu", .ops = 1000, .phase = percpu_pair_phase },
	IOREMAP("4k", SZ_4K, 8000),
	IOREMAP("64k", SZ_64K, 4000),
	IOREMAP("1m", SZ_1M, 1000),
	{ .name = "vmap_16", .ops = 2000, .arg = 16, .phase = vmap_pair_phase,
	  .worker_setup = pages_setup, .worker_teardown = pages_teardown },
	{ .name = "vm_map_ram_16", .ops = 4000, .arg = 16, .phase = map_ram_pair_phase,
	  .worker_setup = pages_setup, .worker_teardown = pages_teardown },
	/* Too large for the blocks of vm_map_ram(): an area of its own. */
	{ .name = "vm_map_ram_128", .ops = 400, .arg = 128, .phase = map_ram_pair_phase,
	  .worker_setup = pages_setup, .worker_teardown = pages_teardown },
	{ }
};
