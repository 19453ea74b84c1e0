/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the KUnit suites of this folder share. Each vmap_NAME_kunit.c with cases
 * is a suite, vmap_NAME.
 *
 * The suites use only the interface of mm/vmalloc.c, so each case runs with any
 * vmap area allocator. A case that needs a range of addresses for itself
 * uses a "window": a free range far above the addresses of ordinary requests
 * and below those of percpu chunks.
 */
#ifndef _VMAP_AREA_KUNIT_H
#define _VMAP_AREA_KUNIT_H

#include <kunit/test.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/prandom.h>
#include <linux/sizes.h>
#include <linux/vmalloc.h>
#include "vmalloc.h"

/* Alignment of windows: alignment tests depend on it. */
#define VMAP_WIN_ALIGN	SZ_4M

/* Size of as many pages as @size bytes have with 4 KiB pages. */
#define VMAP_PAGES_OF(size)	((size) / SZ_4K * PAGE_SIZE)

/* The vmalloc space has only a few hundred MiB, as on 32-bit machines. */
#define VMAP_IS_SMALL	(VMALLOC_TOTAL < SZ_1G)

/*
 * Pages of an area that is too large for the blocks of the allocator in Rust,
 * so it is in the tree: see ../rust/state/class.rs.
 */
#define VMAP_TREE_PAGES	(VMAP_IS_SMALL ? 1024UL : 20481UL)

/*
 * An offset between percpu areas for which no block is large enough. Such
 * areas are in the tree.
 */
#define VMAP_FAR	((VMAP_IS_SMALL ? 4096UL : 262144UL) * PAGE_SIZE)

/* For requests that may sleep, purge and retry, and fail without a message. */
#define VMAP_GFP	(GFP_KERNEL | __GFP_NOWARN)

/*
 * For requests that must not sleep. Fault injection fails only allocations
 * that may not reclaim, see should_failslab() in mm/failslab.c.
 */
#define VMAP_GFP_FAILING	(GFP_NOWAIT | __GFP_NOWARN)

/* Pages of others in vmalloc space: stacks that a CPU keeps for new tasks, and of workers. */
#define VMAP_MAX_OTHERS	((long)(8 * (THREAD_SIZE / PAGE_SIZE) * num_online_cpus()))

/**
 * struct vmap_win - a range of addresses that only the running case uses
 * @start: first address, aligned to VMAP_WIN_ALIGN
 * @end: first address after it
 */
struct vmap_win {
	unsigned long start;
	unsigned long end;
};

/* ../rust/kernel_space.rs */
bool vmap_rust_validate(void);
const void *vmap_rust_cpu_memory(unsigned int cpu, unsigned int nth);

/* vmap_area_kunit.c */
u64 vmap_seed(struct kunit *test, struct rnd_state *rnd);
void vmap_suite_exit(struct kunit *test);
unsigned long vmap_start(const struct vm_struct *vm);
unsigned long vmap_end(const struct vm_struct *vm);
struct vmap_win vmap_std_win(void);
void vmap_drain(struct kunit *test);
struct vmap_win vmap_win_get(struct kunit *test, unsigned long size);
void vmap_win_expect_free(struct kunit *test, const struct vmap_win *win);
void vmap_win_expect_free_soon(struct kunit *test, const struct vmap_win *win);
struct vm_struct *vmap_area_get(const struct vmap_win *win, unsigned long size,
				unsigned long align, unsigned long flags, gfp_t gfp);
struct vm_struct *vmap_area_need(struct kunit *test, const struct vmap_win *win,
				 unsigned long size, unsigned long align, unsigned long flags);
void vmap_area_put(struct kunit *test, struct vm_struct *vm);
void vmap_area_refused(struct kunit *test, const struct vmap_win *win, unsigned long size,
		       unsigned long align, unsigned long flags, gfp_t gfp);
bool vmap_area_is_sound(struct kunit *test, const struct vm_struct *vm,
			const struct vmap_win *win, unsigned long align);
void vmap_area_is_whole(struct kunit *test, const struct vm_struct *vm);
void *vmap_mem_get(const struct vmap_win *win, unsigned long size, gfp_t gfp);
void *vmap_mem_need(struct kunit *test, const struct vmap_win *win, unsigned long nr_pages,
		    u64 seed);
void vmap_page_fill(void *p, unsigned long index, u64 seed);
void vmap_pages_fill(void *p, unsigned long nr_pages, u64 seed);
long vmap_pages_bad(const void *p, unsigned long nr_pages, u64 seed);
void vmap_pages_expect(struct kunit *test, const void *p, unsigned long nr_pages, u64 seed);
void *vmap_array(struct kunit *test, size_t nr, size_t size);
struct page **vmap_pages_get(struct kunit *test, unsigned int nr_pages);
long vmap_pages_count(void);
void vmap_fault_arm(unsigned int nth);
unsigned int vmap_fault_left(void);
bool vmap_fault_disarm(void);
void vmap_fault_need(struct kunit *test);

/**
 * VMAP_SUITE() - register the cases of a file as a KUnit suite
 * @suite: name of the suite; its cases are in an array of that name and "_cases"
 *
 * After each case, the invariants of the allocator are checked.
 */
#define VMAP_SUITE(suite)					\
	static struct kunit_suite suite##_suite = {		\
		.name = #suite,					\
		.exit = vmap_suite_exit,			\
		.test_cases = suite##_cases,			\
	};							\
	kunit_test_suite(suite##_suite)

#endif /* _VMAP_AREA_KUNIT_H */
