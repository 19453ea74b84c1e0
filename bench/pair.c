// SPDX-License-Identifier: GPL-2.0
/*
 * Get one and give it back: areas, vmalloc(), vmap() and vm_map_ram().
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

/* An area of each worker, which any worker takes over. */
static int remote_setup(struct bench_run *run)
{
	run->data = kcalloc(run->threads, sizeof(struct vm_struct *), GFP_KERNEL);
	return run->data ? 0 : -ENOMEM;
}

static void remote_teardown(struct bench_run *run)
{
	bench_free_areas(run->data, run->threads);
	kfree(run->data);
}

/* Reserve @arg pages and a guard page, and give back what some worker has reserved. */
static __always_inline bool area_remote_pair(const struct bench_case *c, struct bench_worker *w)
{
	struct vm_struct **vms = w->run->data, *vm = get_vm_area(c->arg * PAGE_SIZE, VM_ALLOC);

	if (!vm)
		return false;
	vm = xchg(&vms[prandom_u32_state(&w->rnd) % w->run->threads], vm);
	if (vm)
		free_vm_area(vm);
	return true;
}

/* @arg of a case with other areas: how many these are, and the pages of each area. */
#define OTHERS_SHIFT 16
#define ARG(others, pages) ((unsigned long)(others) << OTHERS_SHIFT | (pages))

static unsigned long arg_others(const struct bench_case *c)
{
	return c->arg >> OTHERS_SHIFT;
}

static unsigned long arg_pages(const struct bench_case *c)
{
	return c->arg & ((1 << OTHERS_SHIFT) - 1);
}

static void others_teardown(struct bench_run *run)
{
	bench_free_areas(run->data, arg_others(run->c));
	kvfree(run->data);
	run->data = NULL;
}

/* Areas as of modules that are loaded. */
static int window_setup(struct bench_run *run)
{
	unsigned long i, others = arg_others(run->c);
	struct vm_struct **vms = kvcalloc(others, sizeof(*vms), GFP_KERNEL);

	run->data = vms;
	for (i = 0; vms && i < others; i++) {
		vms[i] = bench_get_in_window(arg_pages(run->c));
		if (!vms[i])
			return -ENOSPC;
	}
	return vms ? 0 : -ENOMEM;
}

/* What a module takes and gives back. */
static __always_inline bool window_pair(const struct bench_case *c, struct bench_worker *w)
{
	struct vm_struct *vm = bench_get_in_window(arg_pages(c));

	if (!vm)
		return false;
	free_vm_area(vm);
	return true;
}

static u64 others_need(const struct bench_case *c, unsigned int threads)
{
	return arg_others(c) * 256ULL;
}

static int live_setup(struct bench_run *run)
{
	unsigned long others = arg_others(run->c);

	run->data = kvcalloc(others, sizeof(struct vm_struct *), GFP_KERNEL);
	return run->data && bench_get_areas(run->data, others, arg_pages(run->c)) ? 0 : -ENOMEM;
}

/* Free one of the areas at random, and reserve another one. */
static __always_inline bool live_pair(const struct bench_case *c, struct bench_worker *w)
{
	struct vm_struct **vms = w->run->data;
	unsigned long nr = prandom_u32_state(&w->rnd) % arg_others(c);

	free_vm_area(vms[nr]);
	vms[nr] = get_vm_area(arg_pages(c) * PAGE_SIZE, VM_ALLOC);
	return vms[nr];
}

static DEFINE_SPINLOCK(known_lock);
static atomic_t known_atomic;
static int known_word;

/* test_profile() in harness/bench/tests/test_bench.py knows its counts. */
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
	bench_free_pages(w->data, w->run->c->arg);
	kfree(w->data);
	w->data = NULL;
}

/* @arg pages, at w->data. */
static int pages_setup(struct bench_worker *w)
{
	w->data = kcalloc(w->run->c->arg, sizeof(struct page *), GFP_KERNEL);
	return w->data && bench_get_pages(w->data, w->run->c->arg) ? 0 : -ENOMEM;
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
PAIR_PHASE(area_pair)
PAIR_PHASE(area_remote_pair)
PAIR_PHASE(vmalloc_pair)
PAIR_PHASE(stack_pair)
PAIR_PHASE(align_pair)
PAIR_PHASE(ioremap_pair)
PAIR_PHASE(percpu_pair)
PAIR_PHASE(vmap_pair)
PAIR_PHASE(map_ram_pair)
PAIR_PHASE(window_pair)
PAIR_PHASE(live_pair)

#define PAIR(label, text, n, number, pair) \
	{ .name = label, .what = text, .ops = n, .arg = number, \
	  .phase = pair##_phase }
#define PAGES_PAIR(label, text, n, number, pair) \
	{ .name = label, .what = text, .ops = n, .arg = number, .phase = pair##_phase, \
	  .worker_setup = pages_setup, .worker_teardown = pages_teardown }

/* One worker: nothing protects the other areas. */
#define OTHERS(label, text, n, others, pages, kind) \
	{ .name = label, .what = text, .ops = n, .arg = ARG(others, pages), .max_threads = 1, \
	  .need = others_need, .setup = kind##_setup, .teardown = others_teardown, \
	  .phase = kind##_pair_phase }

const struct bench_case bench_pair_cases[] = {
	PAIR("known", "known atomics, barriers and instructions under a lock", 2000, 0, known_pair),
	/* Enough for several purges in each pass: 4096 pairs are 8192 lazy pages. */
	PAIR("area_pair", "get_vm_area() and free_vm_area() of a page", 20000, 1, area_pair),
	{ .name = "area_remote",
	  .what = "get_vm_area() of a page, and free_vm_area() of any worker's",
	  .ops = 20000, .arg = 1, .setup = remote_setup, .teardown = remote_teardown,
	  .phase = area_remote_pair_phase },
	PAIR("area_4", "get_vm_area() and free_vm_area() of 4 pages", 8000, 4, area_pair),
	PAIR("area_64", "get_vm_area() and free_vm_area() of 64 pages", 2000, 64, area_pair),
	PAIR("area_512", "get_vm_area() and free_vm_area() of 512 pages", 1000, 512, area_pair),
	PAIR("area_4096", "get_vm_area() and free_vm_area() of 4096 pages", 1000, 4096, area_pair),
	PAIR("area_25600", "get_vm_area() and free_vm_area() of 100 MiB", 100, 25600, area_pair),
	OTHERS("window_4", "an area of 16 KiB in the module window, with 20 others", 2000, 20,
	       4, window),
	OTHERS("window_256", "an area of 1 MiB in the module window, with 300 others", 100,
	       300, SZ_1M / PAGE_SIZE, window),
#ifdef CONFIG_64BIT
	PAIR("area_1m", "get_vm_area() and free_vm_area() of 4 GiB", 100, SZ_4G / PAGE_SIZE,
	     area_pair),
	OTHERS("live_1m", "replace one of a million areas of a page", 5000, 1000000, 1, live),
#endif
	PAIR("vmalloc_pair", "vmalloc() and vfree() of a page", 12500, 1, vmalloc_pair),
	PAIR("vmalloc_4", "vmalloc() and vfree() of 4 pages", 4000, 4, vmalloc_pair),
	PAIR("vmalloc_16", "vmalloc() and vfree() of 16 pages", 1500, 16, vmalloc_pair),
	PAIR("vmalloc_256", "vmalloc() and vfree() of 256 pages", 120, 256, vmalloc_pair),
	PAIR("stack", "vmalloc() of THREAD_SIZE at THREAD_ALIGN, as fork", 4000, 4, stack_pair),
	PAIR("align_64k", "vmalloc() of a page at a multiple of 64 KiB", 5000, SZ_64K, align_pair),
	PAIR("percpu", "two ranges, as the percpu allocator asks for", 1000, 0, percpu_pair),
	PAIR("ioremap_64k", "an area of 64 KiB for ioremap()", 4000, 16, ioremap_pair),
	PAGES_PAIR("vmap_16", "vmap() and vunmap() of 16 pages", 2000, 16, vmap_pair),
	PAGES_PAIR("vm_map_ram_16", "vm_map_ram() pair of 16 pages", 4000, 16, map_ram_pair),
	{ }
};
