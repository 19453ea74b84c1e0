// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_fault": requests that must not sleep and requests that
 * fail.
 */
#include <linux/delay.h>
#include <linux/notifier.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include "vmap_area_kunit.h"

/*
 * With preemption off, GFP_ATOMIC and GFP_NOWAIT requests do not sleep (or the
 * kernel log would show it), their areas are sound, and lookups work.
 */
static void vmap_atomic_requests(struct kunit *test)
{
	static const gfp_t gfp[] = { GFP_ATOMIC, GFP_NOWAIT };
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
			vm[j] = vmap_area_get(j % 2 ? &win : &std,
					      (1 + j % 9) * PAGE_SIZE,
					      j % 4 ? 1 : SZ_64K, 0,
					      gfp[i] | __GFP_NOWARN);
			mem[j] = __vmalloc((1 + j % 5) * PAGE_SIZE,
					   gfp[i] | __GFP_NOWARN);
			wanted += 2;
			given += !!vm[j] + !!mem[j];
			if (mem[j])
				vmap_pages_fill(mem[j], 1 + j % 5, j);
			if (vm[j] && find_vm_area(vm[j]->addr) != vm[j])
				KUNIT_FAIL(test, "area %u at %#lx is not found",
					   j, vmap_start(vm[j]));
		}
		preempt_enable();

		for (j = 0; j < ARRAY_SIZE(vm); j++) {
			if (vm[j]) {
				vmap_area_is_sound(test, vm[j],
						   j % 2 ? &win : &std,
						   j % 4 ? 1 : SZ_64K);
				vmap_area_put(test, vm[j]);
			}
			if (mem[j])
				KUNIT_EXPECT_EQ_MSG(test, -1,
						    vmap_pages_bad(mem[j],
								   1 + j % 5, j),
						    "contents at %#lx",
						    (unsigned long)mem[j]);
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

static int give_reserve(struct notifier_block *nb, unsigned long action,
			void *freed)
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

	r.vm = vmap_area_get(&win, 16 * PAGE_SIZE, 1, VM_NO_GUARD, VMAP_GFP);
	KUNIT_ASSERT_NOT_NULL(test, r.vm);
	KUNIT_ASSERT_EQ(test, 0, register_vmap_purge_notifier(&r.nb));

	vm = vmap_area_get(&win, 2 * PAGE_SIZE, 1, 0, VMAP_GFP_FAILING);
	KUNIT_EXPECT_NULL_MSG(test, vm, "from a full window, without sleeping");
	KUNIT_EXPECT_EQ_MSG(test, 0, r.nr_calls, "calls without sleeping");

	vm = vmap_area_get(&win, 2 * PAGE_SIZE, 1, 0, VMAP_GFP);
	KUNIT_EXPECT_NOT_NULL_MSG(test, vm, "%u calls", r.nr_calls);
	KUNIT_EXPECT_GE_MSG(test, r.nr_calls, 1, "calls");
	unregister_vmap_purge_notifier(&r.nb);

	if (vm) {
		vmap_area_is_sound(test, vm, &win, 1);
		vmap_area_put(test, vm);
	}
	if (r.vm)
		vmap_area_put(test, r.vm);
	vmap_win_expect_free(test, &win);
}

/* Refused requests, and the size in bytes of the smallest object. */
#define NR_REFUSED	40000
#define MIN_OBJECT	32

/*
 * Requests refused for lack of space leak no slab memory. Many requests are
 * made because other users of slab memory add noise.
 */
static void vmap_failed_leaks_nothing(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 4 * PAGE_SIZE);
	const long limit = (long)NR_REFUSED * MIN_OBJECT / PAGE_SIZE / 2;
	struct vm_struct *all, *vm;
	long before, after;
	unsigned int i;

	if (IS_ENABLED(CONFIG_KASAN_GENERIC))
		kunit_skip(test, "the KASAN quarantine keeps freed memory");

	all = vmap_area_get(&win, 4 * PAGE_SIZE, 1, VM_NO_GUARD, VMAP_GFP);
	KUNIT_ASSERT_NOT_NULL(test, all);

	rcu_barrier();
	before = global_node_page_state_pages(NR_SLAB_UNRECLAIMABLE_B);
	for (i = 0; i < NR_REFUSED; i++) {
		/* One in 256 may sleep, so it purges and calls the notifiers. */
		vm = vmap_area_get(&win, PAGE_SIZE, 1, VM_NO_GUARD,
				   i % 256 ? VMAP_GFP_FAILING : VMAP_GFP);
		if (vm) {
			KUNIT_FAIL(test, "request %u got %#lx in a full window",
				   i, vmap_start(vm));
			vmap_area_put(test, vm);
			break;
		}
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

/* An upper bound of the allocations of a request. */
#define MAX_NTH		64

/* Makes each allocation of a request fail once; the request must recover. */
static void fail_each(struct kunit *test, const struct vmap_win *win,
		      unsigned int nr_pages, unsigned long align,
		      unsigned long flags)
{
	unsigned int nth, nr_null = 0;

	for (nth = 1; nth <= MAX_NTH; nth++) {
		struct vm_struct *vm;
		bool hit;

		/* So that a request in the vmalloc space needs a new block. */
		vmap_drain(test);
		vmap_fault_arm(nth);
		vm = vmap_area_get(win, nr_pages * PAGE_SIZE, align, flags,
				   VMAP_GFP_FAILING);
		hit = vmap_fault_disarm();

		if (!hit)
			KUNIT_EXPECT_NOT_NULL_MSG(test, vm,
						  "%u pages aligned to %#lx refused without a fault",
						  nr_pages, align);
		nr_null += !vm;
		if (vm) {
			vmap_area_is_sound(test, vm, win, align);
			vmap_area_put(test, vm);
			vm_unmap_aliases();
		}
		if (!hit)
			break;
	}

	KUNIT_EXPECT_LE_MSG(test, nth, MAX_NTH, "allocations for %u pages",
			    nr_pages);
	KUNIT_EXPECT_GE_MSG(test, nr_null, 1,
			    "%u pages aligned to %#lx: no fault made it fail",
			    nr_pages, align);
}

/* Makes each allocation of mapped memory fail once; a work item cleans up. */
static void fail_each_mapped(struct kunit *test, const struct vmap_win *win)
{
	unsigned int nth;
	void *mem;
	bool hit;

	for (nth = 1; nth <= MAX_NTH; nth++) {
		unsigned long addr;
		int wait = 200;

		vmap_fault_arm(nth);
		mem = __vmalloc_node_range(3 * PAGE_SIZE, 1, win->start,
					   win->end, VMAP_GFP_FAILING, PAGE_KERNEL,
					   0, NUMA_NO_NODE, __func__);
		hit = vmap_fault_disarm();
		if (mem) {
			vmap_pages_fill(mem, 3, nth);
			KUNIT_EXPECT_EQ(test, -1, vmap_pages_bad(mem, 3, nth));
			vfree(mem);
		}

		for (addr = win->start; addr < win->end; addr += PAGE_SIZE)
			while (find_vmap_area(addr) && --wait)
				msleep(20);
		KUNIT_EXPECT_GT_MSG(test, wait, 0,
				    "fault %u: an area is left in %#lx-%#lx",
				    nth, win->start, win->end);
		vmap_win_expect_free(test, win);
		if (!hit)
			break;
	}

	KUNIT_EXPECT_LE_MSG(test, nth, MAX_NTH, "allocations");
}

/*
 * Makes each allocation of percpu areas fail once; no area must be left. Checks
 * the base if @from_top, that is, if no block serves them.
 */
static void fail_each_congruent(struct kunit *test, unsigned long distance,
				bool from_top)
{
	const unsigned long offsets[] = { 0, distance };
	static const size_t sizes[] = { SZ_64K, SZ_64K };
	unsigned long base = 0;
	unsigned int nth;
	bool hit;

	if (!IS_ENABLED(CONFIG_SMP))
		return;

	for (nth = 1; nth <= MAX_NTH; nth++) {
		struct vm_struct **vms;

		vmap_drain(test);
		vms = pcpu_get_vm_areas(offsets, sizes, 2, SZ_64K, VMAP_GFP);
		KUNIT_ASSERT_NOT_NULL_MSG(test, vms, "after fault %u", nth - 1);
		/* A leaked range would make the next base lower. */
		if (from_top)
			KUNIT_EXPECT_GE_MSG(test, vmap_start(vms[0]), base,
					    "fault %u left something", nth - 1);
		base = vmap_start(vms[0]);
		pcpu_free_vm_areas(vms, 2);
		vm_unmap_aliases();

		/* The rb-tree warns and recovers if it cannot split a range. */
		kunit_warning_suppress(test) {
			vmap_fault_arm(nth);
			vms = pcpu_get_vm_areas(offsets, sizes, 2, SZ_64K,
						VMAP_GFP_FAILING);
			hit = vmap_fault_disarm();
		}
		if (vms)
			pcpu_free_vm_areas(vms, 2);
		vm_unmap_aliases();
		if (!hit) {
			KUNIT_EXPECT_NOT_NULL_MSG(test, vms,
						  "refused without a fault");
			break;
		}
	}

	KUNIT_EXPECT_LE_MSG(test, nth, MAX_NTH, "allocations");
}

/*
 * Each slab allocation of a request is made to fail once. The request succeeds
 * or is refused, and no page of the window leaks.
 */
static void vmap_fail_each_alloc(struct kunit *test)
{
	const struct vmap_win std = vmap_std_win();
	struct vmap_win win, exact;

	vmap_fault_need(test);
	win = vmap_win_get(test, VMAP_PAGES_OF(SZ_16M));
	exact = win;
	exact.end = exact.start + SZ_64K;

	fail_each(test, &win, 1, 1, 0);
	fail_each(test, &win, 100, 1, VM_NO_GUARD);
	fail_each(test, &win, 700, SZ_1M, 0);
	vmap_win_expect_free(test, &win);
	fail_each(test, &exact, SZ_64K / PAGE_SIZE, SZ_64K, VM_NO_GUARD);
	fail_each(test, &std, 1, 1, 0);
	fail_each(test, &std, 300, SZ_64K, 0);
	vmap_win_expect_free(test, &win);
	fail_each_mapped(test, &exact);
	fail_each_congruent(test, SZ_1M, false);
	fail_each_congruent(test, VMAP_FAR, true);
	vmap_win_expect_free(test, &win);
}

/*
 * Freeing and purging work without memory: whichever slab allocation fails
 * meanwhile, all of the window is free afterwards.
 */
static void vmap_fail_each_free(struct kunit *test)
{
	struct vmap_win win;
	unsigned int nth;

	vmap_fault_need(test);
	win = vmap_win_get(test, VMAP_PAGES_OF(SZ_4M));

	for (nth = 1; nth <= MAX_NTH; nth++) {
		struct vm_struct *vm[24];
		unsigned int i;
		bool hit;

		for (i = 0; i < ARRAY_SIZE(vm); i++) {
			vm[i] = vmap_area_get(&win, (1 + i) * PAGE_SIZE, 1, 0,
					      VMAP_GFP);
			KUNIT_ASSERT_NOT_NULL_MSG(test, vm[i], "area %u", i);
		}

		/* Leave holes of all sizes, then close them. */
		vmap_fault_arm(nth);
		for (i = 0; i < ARRAY_SIZE(vm); i += 2)
			vmap_area_put(test, vm[i]);
		vm_unmap_aliases();
		for (i = 1; i < ARRAY_SIZE(vm); i += 2)
			vmap_area_put(test, vm[i]);
		vm_unmap_aliases();
		hit = vmap_fault_disarm();

		vmap_win_expect_free(test, &win);
		if (!hit)
			break;
	}

	kunit_info(test, "freeing %u areas and purging made %s%u allocations\n",
		   24, nth > MAX_NTH ? "more than " : "", nth - 1);
}

static struct kunit_case vmap_fault_cases[] = {
	KUNIT_CASE(vmap_atomic_requests),
	KUNIT_CASE(vmap_purge_notifier),
	KUNIT_CASE_SLOW(vmap_failed_leaks_nothing),
	KUNIT_CASE(vmap_fail_each_alloc),
	KUNIT_CASE(vmap_fail_each_free),
	{}
};

VMAP_SUITE(vmap_fault);
