// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_fault": requests that must not sleep and requests that
 * fail.
 */
#include <linux/dcache.h>
#include <linux/debugfs.h>
#include <linux/err.h>
#include <linux/notifier.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include "../mapping/vmap_walk_kunit.h"
#include "vmap_area_kunit.h"

/*
 * With preemption off, GFP_ATOMIC and GFP_NOWAIT requests do not sleep (or the
 * kernel log would show it), their areas are sound, and lookups work.
 */
static void vmap_atomic_requests(struct kunit *test)
{
	static const gfp_t gfp[] = { GFP_ATOMIC | __GFP_NOWARN, GFP_NOWAIT | __GFP_NOWARN };
	const struct vmap_win win = vmap_win_get(test, SZ_4M);
	const struct vmap_win std = vmap_std_win();
	unsigned int given = 0, wanted = 0, i, j;
	struct vm_struct *vm[64];
	void *mem[64];

	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		kunit_skip(test, "PREEMPT_RT does not allocate with preemption off");

	for (i = 0; i < ARRAY_SIZE(gfp); i++) {
		preempt_disable();
		for (j = 0; j < ARRAY_SIZE(vm); j++) {
			vm[j] = vmap_area_get(j % 2 ? &win : &std, (1 + j % 9) * PAGE_SIZE,
					      j % 4 ? 1 : SZ_64K, 0, gfp[i]);
			mem[j] = __vmalloc((1 + j % 5) * PAGE_SIZE, gfp[i]);
			wanted += 2;
			given += !!vm[j] + !!mem[j];
			if (mem[j])
				vmap_pages_fill(mem[j], 1 + j % 5, j);
			if (vm[j] && find_vm_area(vm[j]->addr) != vm[j])
				KUNIT_FAIL(test, "area %u at %#lx is not found", j,
					   vmap_start(vm[j]));
		}
		preempt_enable();

		for (j = 0; j < ARRAY_SIZE(vm); j++) {
			if (vm[j]) {
				vmap_area_is_sound(test, vm[j], j % 2 ? &win : &std,
						   j % 4 ? 1 : SZ_64K);
				vmap_area_put(test, vm[j]);
			}
			if (mem[j])
				vmap_pages_expect(test, mem[j], 1 + j % 5, j);
			vfree(mem[j]);
		}
	}

	/* Some may fail, but not most: there is memory and space. */
	KUNIT_EXPECT_GE_MSG(test, given, wanted / 2, "given, of %u", wanted);
	vmap_win_expect_free(test, &win);
}

struct reserve {
	struct notifier_block nb;
	struct kunit *test;
	struct vm_struct *vm;
	unsigned int nr_calls;
};

static int give_reserve(struct notifier_block *nb, unsigned long action, void *freed)
{
	struct reserve *r = container_of(nb, struct reserve, nb);

	r->nr_calls++;
	if (!r->vm)
		return NOTIFY_DONE;

	*(unsigned long *)freed += r->vm->size >> PAGE_SHIFT;
	vmap_area_put(r->test, r->vm);
	r->vm = NULL;

	return NOTIFY_OK;
}

/*
 * A request without room calls the purge notifiers before it fails, and uses
 * the ranges that they free.
 */
static void vmap_purge_notifier(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 16 * PAGE_SIZE);
	struct reserve r = { .nb.notifier_call = give_reserve, .test = test };
	struct vm_struct *vm;

	r.vm = vmap_area_need(test, &win, 16 * PAGE_SIZE, 1, VM_NO_GUARD);
	KUNIT_ASSERT_EQ(test, 0, register_vmap_purge_notifier(&r.nb));

	vmap_area_refused(test, &win, 2 * PAGE_SIZE, 1, 0, VMAP_GFP_FAILING);
	KUNIT_EXPECT_EQ_MSG(test, 0, r.nr_calls, "calls without sleeping");

	vm = vmap_area_get(&win, 2 * PAGE_SIZE, 1, 0, VMAP_GFP);
	KUNIT_EXPECT_NOT_NULL_MSG(test, vm, "%u calls", r.nr_calls);
	KUNIT_EXPECT_GE(test, r.nr_calls, 1);
	unregister_vmap_purge_notifier(&r.nb);

	if (vm) {
		vmap_area_is_sound(test, vm, &win, 1);
		vmap_area_put(test, vm);
	}
	if (r.vm)
		vmap_area_put(test, r.vm);
	vmap_win_expect_free(test, &win);
}

/*
 * Refused requests, as many for each page as with pages of 4 KiB, and the size in
 * bytes of the smallest object.
 */
#define NR_REFUSED	(40000 * (unsigned int)(PAGE_SIZE / SZ_4K))
#define MIN_OBJECT	32

/*
 * Requests refused for lack of space leak no slab memory. Many requests are
 * made because other users of slab memory add noise.
 */
static void vmap_failed_leaks_nothing(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 4 * PAGE_SIZE);
	const long limit = (long)NR_REFUSED * MIN_OBJECT / PAGE_SIZE / 2;
	struct vm_struct *all;
	long before, after;
	unsigned int i;

	if (IS_ENABLED(CONFIG_KASAN_GENERIC))
		kunit_skip(test, "the KASAN quarantine keeps freed memory");

	all = vmap_area_need(test, &win, 4 * PAGE_SIZE, 1, VM_NO_GUARD);
	rcu_barrier();
	before = global_node_page_state_pages(NR_SLAB_UNRECLAIMABLE_B);
	for (i = 0; i < NR_REFUSED && test->status == KUNIT_SUCCESS; i++) {
		/* One in 256 may sleep, so it purges and calls the notifiers. */
		vmap_area_refused(test, &win, PAGE_SIZE, 1, VM_NO_GUARD,
				  i % 256 ? VMAP_GFP_FAILING : VMAP_GFP);
		cond_resched();
	}
	rcu_barrier();
	after = global_node_page_state_pages(NR_SLAB_UNRECLAIMABLE_B);

	KUNIT_EXPECT_LT_MSG(test, after - before, limit,
			    "slab pages: %ld before, %ld after %u refused requests",
			    before, after, NR_REFUSED);
	vmap_area_put(test, all);
	vmap_win_expect_free(test, &win);
}

/*
 * Upper bound of the allocations of a request. A new block of one page for each
 * slot takes 270 with kmemleak, which has an object for each area's object.
 */
#define MAX_NTH		1024
/* That many of a purge fail. */
#define PURGE_NTH	64

enum where { WINDOW, EXACT, STD };

struct fault;

/*
 * An operation whose allocations fail one after the other. @try makes the n-th
 * one fail, cleans up, and returns whether the request was served.
 */
struct operation {
	const char *name;
	bool (*try)(struct fault *f);
	enum where where;
	unsigned int nr_pages;
	unsigned long align;
	unsigned long flags;
	/* Percpu areas that no block can have. */
	bool far;
	/* Also allocations of one page, such as page tables. */
	bool tables;
	/* At least that many allocations must fail, and requests be refused. */
	unsigned int min_hits, min_refused;
};

struct fault {
	struct kunit *test;
	const struct operation *op;
	struct vmap_win win[3];
	unsigned int nth;
	/* Whether the n-th allocation has failed. */
	bool hit;
	/* Base of the percpu areas of the last attempt. */
	unsigned long base;
	/* What arm() changed. */
	gfp_t allowed;
	/* With @tables: the same, areas with tables, pages to map. */
	u32 *order, least;
	struct vm_struct **reserved;
	unsigned int nr_reserved;
	struct vmap_block block;
	struct page **pages;
};

/*
 * Lets the n-th allocation of this task fail, also one that may reclaim. Those
 * with __GFP_NOFAIL do not count.
 */
static void arm(struct fault *f)
{
	f->allowed = READ_ONCE(gfp_allowed_mask);
	WRITE_ONCE(gfp_allowed_mask, f->allowed & ~__GFP_DIRECT_RECLAIM);
	if (f->op->tables) {
		f->least = READ_ONCE(*f->order);
		WRITE_ONCE(*f->order, 0);
	}
	vmap_fault_arm(f->nth);
}

static void disarm(struct fault *f)
{
	f->hit = vmap_fault_disarm();
	if (f->op->tables)
		WRITE_ONCE(*f->order, f->least);
	WRITE_ONCE(gfp_allowed_mask, f->allowed);
}

static bool try_area(struct fault *f)
{
	const struct operation *op = f->op;
	const struct vmap_win *win = &f->win[op->where];
	struct vm_struct *vm;

	/* So that a request in the vmalloc space needs a new block. */
	vmap_drain(f->test);
	arm(f);
	vm = vmap_area_get(win, op->nr_pages * PAGE_SIZE, op->align, op->flags, VMAP_GFP_FAILING);
	disarm(f);
	if (!vm)
		return false;

	vmap_area_is_sound(f->test, vm, win, op->align);
	vmap_area_put(f->test, vm);
	vm_unmap_aliases();
	return true;
}

static bool try_memory(struct fault *f)
{
	const struct vmap_win *win = &f->win[EXACT];
	void *mem;

	arm(f);
	mem = vmap_mem_get(win, f->op->nr_pages * PAGE_SIZE, VMAP_GFP_FAILING);
	disarm(f);
	if (mem) {
		vmap_pages_fill(mem, f->op->nr_pages, f->nth);
		vmap_pages_expect(f->test, mem, f->op->nr_pages, f->nth);
		vfree(mem);
	}

	vmap_win_expect_free_soon(f->test, win);
	return mem;
}

static bool try_percpu(struct fault *f)
{
	const unsigned long offsets[] = { 0, f->op->far ? VMAP_FAR : SZ_1M };
	static const size_t sizes[] = { SZ_64K, SZ_64K };
	struct kunit *test = f->test;
	struct vm_struct **vms;

	if (!IS_ENABLED(CONFIG_SMP))
		kunit_skip(test, "pcpu_get_vm_areas() needs CONFIG_SMP");

	vmap_drain(test);
	vms = pcpu_get_vm_areas(offsets, sizes, 2, SZ_64K, VMAP_GFP);
	KUNIT_ASSERT_NOT_NULL_MSG(test, vms, "after fault %u", f->nth - 1);
	/* A leaked range would make the next base lower, unless a block serves them. */
	if (f->op->far)
		KUNIT_EXPECT_GE_MSG(test, vmap_start(vms[0]), f->base, "fault %u left something",
				    f->nth - 1);
	f->base = vmap_start(vms[0]);
	pcpu_free_vm_areas(vms, 2);
	vm_unmap_aliases();

	/* The rb-tree warns and recovers if it cannot split a range. */
	kunit_warning_suppress(test) {
		arm(f);
		vms = pcpu_get_vm_areas(offsets, sizes, 2, SZ_64K, VMAP_GFP_FAILING);
		disarm(f);
	}
	if (vms)
		pcpu_free_vm_areas(vms, 2);
	vm_unmap_aliases();
	return vms;
}

/* Freeing and purging work without memory. */
static bool try_free(struct fault *f)
{
	struct vm_struct *vm[24];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(vm); i++)
		vm[i] = vmap_area_need(f->test, &f->win[WINDOW], (1 + i) * PAGE_SIZE, 1, 0);

	/* Leave holes of all sizes, then close them. */
	arm(f);
	for (i = 0; i < ARRAY_SIZE(vm); i += 2)
		vmap_area_put(f->test, vm[i]);
	vm_unmap_aliases();
	for (i = 1; i < ARRAY_SIZE(vm); i += 2)
		vmap_area_put(f->test, vm[i]);
	vm_unmap_aliases();
	disarm(f);

	/* There may be any number of allocations: of kmemleak, for example. */
	f->hit &= f->nth < PURGE_NTH;
	return true;
}

/*
 * Prepares an operation that needs page tables. min-order is the least order of
 * pages whose allocation can be made to fail, 1 by default.
 */
static void need_tables(struct fault *f)
{
	struct dentry *dir = debugfs_lookup("fail_page_alloc", NULL), *file;

	if (!IS_ERR_OR_NULL(dir)) {
		file = debugfs_lookup("min-order", dir);
		if (file)
			f->order = d_inode(file)->i_private;
		dput(file);
		dput(dir);
	}
	if (!f->order)
		kunit_skip(f->test, "needs CONFIG_FAIL_PAGE_ALLOC and its folder in debugfs");
	f->reserved = vmap_array(f->test, VMAP_MAX_RESERVED, sizeof(*f->reserved));
}

/* Each allocation of a vmap() fails once, those of page tables too: nothing stays mapped. */
static bool try_vmap(struct fault *f)
{
	const unsigned long nr = 3 * PFN_DOWN(PMD_SIZE);
	struct kunit *test = f->test;
	unsigned long i;
	void *mem;

	if (!f->pages) {
		f->block = vmap_block_get(test, 8);
		f->pages = vmap_array(test, nr, sizeof(*f->pages));
		/* Every second page: neither groups nor PMD entries, so tables. */
		for (i = 0; i < nr; i++)
			f->pages[i] = f->block.page + 2 * i % 8;
	}

	f->nr_reserved = vmap_walk_skip_tables(test, nr, f->reserved, f->nr_reserved);
	kunit_warning_suppress(test) {
		arm(f);
		mem = vmap(f->pages, nr, VM_MAP, PAGE_KERNEL);
		disarm(f);
	}
	if (mem)
		vunmap(mem);
	KUNIT_EXPECT_EQ_MSG(test, 0, vmap_walk_count(page_to_pfn(f->block.page), f->block.nr),
			    "pages left after fault %u", f->nth);
	return mem;
}

/*
 * Each allocation of a page table for a vmalloc() that must not fail fails once:
 * the next attempt maps all pages, and finds nothing of the one before.
 */
static bool try_nofail(struct fault *f)
{
	const unsigned long nr = 2 * PFN_DOWN(PMD_SIZE);
	struct kunit *test = f->test;
	void *mem;

	if (PMD_SIZE > SZ_64M)
		kunit_skip(test, "two tables would map %lu MiB", 2 * PMD_SIZE / SZ_1M);
	/* With little memory, the page allocator warns of the mask that forbids reclaim. */
	if (f->nth == 1 && global_zone_page_state(NR_FREE_PAGES) < 4 * nr)
		kunit_skip(test, "needs %lu MiB of free memory", 4 * nr * PAGE_SIZE / SZ_1M);

	f->nr_reserved = vmap_walk_skip_tables(test, nr, f->reserved, f->nr_reserved);
	arm(f);
	mem = __vmalloc(nr * PAGE_SIZE, GFP_KERNEL | __GFP_NOFAIL | __GFP_NOWARN);
	disarm(f);
	KUNIT_EXPECT_NOT_NULL_MSG(test, mem, "refused with fault %u", f->nth);
	if (mem) {
		/* If a page were mapped twice, the second pattern would be in both. */
		vmap_pages_fill(mem, nr, f->nth);
		vmap_pages_expect(test, mem, nr, f->nth);
		vfree(mem);
	}
	return mem;
}

static const struct operation operations[] = {
	{ "window_1", try_area, WINDOW, 1, 1, .min_refused = 1 },
	{ "window_100", try_area, WINDOW, 100, 1, VM_NO_GUARD, .min_refused = 1 },
	{ "window_700", try_area, WINDOW, 700, SZ_1M, .min_refused = 1 },
	{ "exact", try_area, EXACT, 16, SZ_64K, VM_NO_GUARD, .min_refused = 1 },
	/* A vm_struct may have stayed there: nothing is allocated then. */
	{ "std_1", try_area, STD, 1, 1 },
	{ "std_300", try_area, STD, 300, SZ_64K },
	{ "memory", try_memory, .nr_pages = 3, .min_refused = 1 },
	{ "percpu_near", try_percpu, .min_refused = 1 },
	{ "percpu_far", try_percpu, .far = true, .min_refused = 1 },
	{ "free", try_free },
	/* Two tables or more. */
	{ "vmap_tables", try_vmap, .tables = true, .min_hits = 2, .min_refused = 2 },
	{ "vmalloc_nofail", try_nofail, .tables = true, .min_hits = 2 },
};

KUNIT_ARRAY_PARAM_DESC(operations, operations, name);

/*
 * Each allocation of an operation fails once. The operation succeeds or is
 * refused, and no page of the window leaks.
 */
static void vmap_fail_each(struct kunit *test)
{
	struct fault f = { .test = test, .op = test->param_value, .hit = true };
	unsigned int nr_hits = 0, nr_refused = 0;
	bool served;

	vmap_fault_need(test);
	if (f.op->tables)
		need_tables(&f);
	f.win[WINDOW] = vmap_win_get(test, VMAP_PAGES_OF(SZ_16M));
	f.win[EXACT] = f.win[WINDOW];
	f.win[EXACT].end = f.win[EXACT].start + 16 * PAGE_SIZE;
	f.win[STD] = vmap_std_win();

	for (f.nth = 1; f.hit && f.nth <= MAX_NTH; f.nth++) {
		served = f.op->try(&f);
		KUNIT_EXPECT_TRUE_MSG(test, served || f.hit, "refused without fault %u", f.nth);
		nr_hits += f.hit;
		nr_refused += !served;
		/* Areas that are reserved for their tables may be there. */
		if (!f.op->tables)
			vmap_win_expect_free(test, &f.win[WINDOW]);
	}

	while (f.nr_reserved)
		free_vm_area(f.reserved[--f.nr_reserved]);
	kunit_info(test, "%u allocations failed, %u requests refused\n", nr_hits, nr_refused);
	KUNIT_EXPECT_FALSE_MSG(test, f.hit, "more than %u allocations", MAX_NTH);
	KUNIT_EXPECT_GE(test, nr_hits, f.op->min_hits);
	KUNIT_EXPECT_GE(test, nr_refused, f.op->min_refused);
}

static struct kunit_case vmap_fault_cases[] = {
	KUNIT_CASE(vmap_atomic_requests),
	KUNIT_CASE(vmap_purge_notifier),
	KUNIT_CASE_SLOW(vmap_failed_leaks_nothing),
	KUNIT_CASE_PARAM(vmap_fail_each, operations_gen_params),
	{}
};

VMAP_SUITE(vmap_fault);
