/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations shared by the files of the KUnit suite "vmap_area".
 *
 * The suite uses only the interface of mm/vmalloc.c, so each case runs with
 * any vmap area allocator. A case that needs a range of addresses for itself
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

/* For requests that may sleep, purge and retry, and fail without a message. */
#define VMAP_GFP	(GFP_KERNEL | __GFP_NOWARN)

/*
 * For requests that must not sleep. Fault injection fails only allocations
 * that may not reclaim, see should_failslab() in mm/failslab.c.
 */
#define VMAP_GFP_FAILING	(GFP_NOWAIT | __GFP_NOWARN)

/**
 * struct vmap_win - a range of addresses that only the running case uses
 * @start: first address, aligned to VMAP_WIN_ALIGN
 * @end: first address after it
 */
struct vmap_win {
	unsigned long start;
	unsigned long end;
};

/* What maps a page: levels from vmap_walk(). VMAP_ODD: what no case expects. */
enum vmap_level { VMAP_NONE, VMAP_PTE, VMAP_CONT, VMAP_PMD, VMAP_ODD };

/**
 * struct vmap_entry - how the page tables map one page
 * @level: the kind of entry; VMAP_CONT is one of a group of PTEs
 * @pfn: the page frame
 * @raw: the whole entry
 */
struct vmap_entry {
	enum vmap_level level;
	unsigned long pfn;
	u64 raw;
};

/**
 * struct vmap_block - contiguous pages, naturally aligned
 * @page: the first one
 * @nr: number of pages, a power of two
 */
struct vmap_block {
	struct page *page;
	unsigned long nr;
};

/* ../rust/ffi.rs */
bool vmap_rust_validate(void);
const void *vmap_rust_cpu_memory(unsigned int cpu, unsigned int nth);

/* vmap_area_kunit.c */
u64 vmap_seed(struct kunit *test, struct rnd_state *rnd);

/* vmap_help_kunit.c */
void vmap_drain(struct kunit *test);
struct vmap_win vmap_win_get(struct kunit *test, unsigned long size);
void vmap_win_expect_free(struct kunit *test, const struct vmap_win *win);
struct vm_struct *vmap_area_get(const struct vmap_win *win, unsigned long size,
				unsigned long align, unsigned long flags,
				gfp_t gfp);
void vmap_area_put(struct kunit *test, struct vm_struct *vm);
bool vmap_area_is_sound(struct kunit *test, const struct vm_struct *vm,
			const struct vmap_win *win, unsigned long align);
unsigned long vmap_start(const struct vm_struct *vm);
unsigned long vmap_end(const struct vm_struct *vm);
struct vmap_win vmap_std_win(void);
void vmap_page_fill(void *p, unsigned long index, u64 seed);
void vmap_pages_fill(void *p, unsigned long nr_pages, u64 seed);
long vmap_pages_bad(const void *p, unsigned long nr_pages, u64 seed);
struct page **vmap_pages_get(struct kunit *test, unsigned int nr_pages);
void vmap_fault_arm(unsigned int nth);
unsigned int vmap_fault_left(void);
bool vmap_fault_disarm(void);
void vmap_fault_need(struct kunit *test);

/* vmap_walk_kunit.c */
struct vmap_entry vmap_walk(unsigned long addr, unsigned long *span);
unsigned int vmap_group_shift(void);
unsigned int vmap_max_shift(void);
unsigned int vmap_io_max_shift(void);
unsigned int vmap_best_shift(const unsigned long *pfns, unsigned long nr,
			     pgprot_t prot, unsigned int max_shift,
			     unsigned long addr);
bool vmap_walk_is(struct kunit *test, unsigned long addr,
		  const unsigned long *pfns, unsigned long nr, pgprot_t prot,
		  unsigned int max_shift);
bool vmap_walk_is_empty(struct kunit *test, unsigned long addr,
			unsigned long nr, const char *what);
unsigned long vmap_walk_count(unsigned long pfn, unsigned long nr);
struct vmap_block vmap_block_get(struct kunit *test, unsigned long min_pages);

/* vmap_node_kunit.c */
void vmap_node_cpus(struct kunit *test);
void vmap_node_areas(struct kunit *test);

/* vmap_map_kunit.c */
void vmap_vmalloc_sizes(struct kunit *test);
void vmap_vzalloc_zeroes(struct kunit *test);
void vmap_vmap_pages(struct kunit *test);
void vmap_vmap_put_pages(struct kunit *test);
void vmap_map_ram_small(struct kunit *test);
void vmap_map_ram_large(struct kunit *test);
void vmap_map_ram_churn(struct kunit *test);
void vmap_vrealloc(struct kunit *test);
void vmap_vmalloc_huge(struct kunit *test);
void vmap_vfree_atomic(struct kunit *test);

/* vmap_pte_kunit.c */
void vmap_pte_runs(struct kunit *test);
void vmap_pte_random(struct kunit *test);
void vmap_pte_null_page(struct kunit *test);
void vmap_pte_no_table(struct kunit *test);

/* vmap_pte_more_kunit.c */
void vmap_pte_one_page(struct kunit *test);
void vmap_pte_huge(struct kunit *test);
void vmap_pte_ioremap(struct kunit *test);
void vmap_pte_ioremap_pmd(struct kunit *test);
void vmap_pte_reset_perms(struct kunit *test);
void vmap_pte_set_memory(struct kunit *test);

/* vmap_percpu_kunit.c */
void vmap_percpu_objects(struct kunit *test);
void vmap_percpu_congruent(struct kunit *test);

/* vmap_find_kunit.c */
void vmap_get_vm_area(struct kunit *test);
void vmap_find_bounds(struct kunit *test);
void vmap_find_large(struct kunit *test);
void vmap_find_after_free(struct kunit *test);
void vmap_free_interior(struct kunit *test);
void vmap_free_twice(struct kunit *test);
void vmap_free_unknown(struct kunit *test);

/* vmap_window_kunit.c */
void vmap_window_exact(struct kunit *test);
void vmap_window_too_small(struct kunit *test);
void vmap_window_inside(struct kunit *test);
void vmap_window_ends(struct kunit *test);
void vmap_window_foreign(struct kunit *test);
void vmap_window_exhaust(struct kunit *test);
void vmap_window_exhaust_mapped(struct kunit *test);
void vmap_window_reuse_lazy(struct kunit *test);

/* vmap_align_kunit.c */
void vmap_align_powers(struct kunit *test);
void vmap_align_window(struct kunit *test);
void vmap_align_mapped(struct kunit *test);
void vmap_align_refused(struct kunit *test);
void vmap_size_refused(struct kunit *test);

/* vmap_random_kunit.c */
void vmap_random_disjoint(struct kunit *test);
void vmap_random_window(struct kunit *test);
void vmap_leak_rounds(struct kunit *test);

/* vmap_concurrent_kunit.c */
void vmap_concurrent(struct kunit *test);

/* vmap_refill_kunit.c */
void vmap_refill_fragmented(struct kunit *test);
void vmap_refill_migrating(struct kunit *test);
void vmap_refill_offline(struct kunit *test);

/* vmap_tlb_kunit.c */
void vmap_tlb_window(struct kunit *test);
void vmap_tlb_vmap(struct kunit *test);
void vmap_tlb_map_ram(struct kunit *test);
void vmap_tlb_unmap(struct kunit *test);

/* vmap_order_kunit.c */
void vmap_order_window(struct kunit *test);
void vmap_order_std(struct kunit *test);

/* vmap_fault_kunit.c */
void vmap_atomic_requests(struct kunit *test);
void vmap_purge_notifier(struct kunit *test);
void vmap_failed_leaks_nothing(struct kunit *test);
void vmap_fail_each_alloc(struct kunit *test);
void vmap_fail_each_free(struct kunit *test);

/* vmap_attack_kunit.c */
void vmap_attack_foreign(struct kunit *test);
void vmap_attack_race(struct kunit *test);
void vmap_attack_ops(struct kunit *test);

/* vmap_inject_kunit.c */
void vmap_inject_one_in_2(struct kunit *test);
void vmap_inject_one_in_10(struct kunit *test);
void vmap_inject_one_in_100(struct kunit *test);
void vmap_inject_one_in_1000(struct kunit *test);

/* vmap_view_kunit.c */
void vmap_view_vmallocinfo(struct kunit *test);
void vmap_view_vread(struct kunit *test);
void vmap_view_dump_obj(struct kunit *test);

#endif /* _VMAP_AREA_KUNIT_H */
