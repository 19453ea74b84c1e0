/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What cases about page tables share: a walk of its own, what it must find, and
 * pages to map.
 */
#ifndef _VMAP_WALK_KUNIT_H
#define _VMAP_WALK_KUNIT_H

#include "../kunit/vmap_area_kunit.h"

/* Areas that vmap_walk_skip_tables() reserves where tables are left. */
#define VMAP_MAX_RESERVED	1024

/* Pages in the group of PTEs that cases are about, on any architecture. */
#define VMAP_GROUP	max(PFN_DOWN(1UL << vmap_group_shift()), 16UL)

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

struct vmap_entry vmap_walk(unsigned long addr, unsigned long *span);
unsigned int vmap_group_shift(void);
unsigned int vmap_max_shift(void);
unsigned int vmap_io_max_shift(void);
unsigned int vmap_best_shift(const unsigned long *pfns, unsigned long nr, pgprot_t prot,
			     unsigned int max_shift, unsigned long addr);
bool vmap_walk_is(struct kunit *test, unsigned long addr, const unsigned long *pfns,
		  unsigned long nr, pgprot_t prot, unsigned int max_shift, bool keeps_tables,
		  const struct vmap_block *block);
bool vmap_walk_is_empty(struct kunit *test, unsigned long addr, unsigned long nr,
			const char *what);
unsigned long vmap_walk_count(unsigned long pfn, unsigned long nr);
unsigned int vmap_walk_skip_tables(struct kunit *test, unsigned long nr,
				   struct vm_struct **reserved, unsigned int count);
struct vmap_block vmap_block_get(struct kunit *test, unsigned long min_pages);

#endif /* _VMAP_WALK_KUNIT_H */
