// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers of the KUnit suites for page tables: a walk of its own,
 * and what it must find.
 */
#include <linux/init.h>
#include <linux/string.h>

#include "vmap_walk_kunit.h"

/* Entries of these architectures can be computed, so they are compared whole. */
#if defined(CONFIG_ARM64) || defined(CONFIG_X86) || defined(CONFIG_UML) || \
	(defined(CONFIG_ARM) && !defined(CONFIG_ARM_LPAE))
#define VMAP_RAW_IS_KNOWN	1
#else
#define VMAP_RAW_IS_KNOWN	0
#endif

static u64 vmap_raw(u64 raw)
{
#ifdef CONFIG_UML
	/* Says whether the host knows the entry already. */
	raw &= ~(u64)_PAGE_NEEDSYNC;
#endif
	return raw;
}

/**
 * vmap_walk() - read the page tables of the kernel for one address
 * @addr: the address
 * @span: bytes that the entry, or the lack of a table, covers; or NULL
 */
struct vmap_entry vmap_walk(unsigned long addr, unsigned long *span)
{
	struct vmap_entry odd = { .level = VMAP_ODD }, none = {}, entry = {};
	unsigned long unused;
	pgd_t *pgd;
	p4d_t *p4d;
	pud_t *pud;
	pmd_t pmd;
	pte_t pte;

	/* A purge may take the table of a free range, and frees it after a grace period. */
	guard(rcu)();

	if (!span)
		span = &unused;

	*span = PGDIR_SIZE;
	pgd = pgd_offset_k(addr);
	if (pgd_none(*pgd) || pgd_leaf(*pgd))
		return pgd_none(*pgd) ? none : odd;

	*span = P4D_SIZE;
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(*p4d) || p4d_leaf(*p4d))
		return p4d_none(*p4d) ? none : odd;

	*span = PUD_SIZE;
	pud = pud_offset(p4d, addr);
	if (pud_none(*pud) || pud_leaf(*pud))
		return pud_none(*pud) ? none : odd;

	*span = PMD_SIZE;
	pmd = pmdp_get(pmd_offset(pud, addr));
	if (pmd_none(pmd))
		return none;
	if (pmd_leaf(pmd)) {
#ifdef CONFIG_HAVE_ARCH_HUGE_VMAP
		entry.level = VMAP_PMD;
		entry.pfn = pmd_pfn(pmd) + PFN_DOWN(addr & ~PMD_MASK);
		entry.raw = vmap_raw(pmd_val(pmd));
		return entry;
#else
		return odd;
#endif
	}

	*span = PAGE_SIZE;
	pte = ptep_get(pte_offset_kernel(&pmd, addr));
	if (pte_none(pte))
		return none;
	if (!pte_present(pte))
		return odd;

	entry.level = VMAP_PTE;
#ifdef CONFIG_ARM64
	if (pte_cont(pte))
		entry.level = VMAP_CONT;
#endif
	entry.pfn = pte_pfn(pte);
	entry.raw = vmap_raw(pte_val(pte));
	return entry;
}

/* Returns the entry that maps @pfn; @base is the first page of its PMD entry. */
static struct vmap_entry vmap_entry_of(enum vmap_level level, unsigned long pfn,
				       unsigned long base, pgprot_t prot)
{
	struct vmap_entry entry = { .level = level, .pfn = pfn };
	pte_t pte = pfn_pte(pfn, prot);

	if (level == VMAP_PMD) {
#if defined(CONFIG_ARM64)
		entry.raw = pmd_val(pfn_pmd(base, mk_pmd_sect_prot(prot)));
#elif defined(CONFIG_X86_64) && !defined(CONFIG_UML)
		prot = __pgprot(protval_4k_2_large(pgprot_val(prot)) | _PAGE_PSE);
		entry.raw = pmd_val(pfn_pmd(base, prot));
#endif
		return entry;
	}
#ifdef CONFIG_ARM64
	if (level == VMAP_CONT)
		pte = pte_mkcont(pte);
#endif
	entry.raw = vmap_raw(pte_val(pte));
	return entry;
}

/*
 * Returns log2 of the bytes that a group of PTEs maps as one; PAGE_SHIFT if the
 * walk knows no such groups.
 */
unsigned int vmap_group_shift(void)
{
#if defined(CONFIG_ARM64) && defined(CONFIG_HAVE_ARCH_HUGE_VMAP)
	return CONT_PTE_SHIFT;
#else
	return PAGE_SHIFT;
#endif
}

/* Returns log2 of the bytes that vmap() with VM_ALLOW_HUGE_VMAP maps with one entry at most. */
unsigned int vmap_max_shift(void)
{
	return IS_ENABLED(CONFIG_HAVE_ARCH_HUGE_VMALLOC) &&
		!strstr(saved_command_line, "nohugevmalloc") ? PMD_SHIFT : PAGE_SHIFT;
}

/* Returns log2 of the bytes that ioremap() maps with one entry at most. */
unsigned int vmap_io_max_shift(void)
{
	return IS_ENABLED(CONFIG_HAVE_ARCH_HUGE_VMAP) &&
		!strstr(saved_command_line, "nohugeiomap") ? PMD_SHIFT : PAGE_SHIFT;
}

static bool vmap_pmd_allowed(pgprot_t prot, unsigned int max_shift)
{
#ifdef CONFIG_HAVE_ARCH_HUGE_VMAP
	return max_shift >= PMD_SHIFT && arch_vmap_pmd_supported(prot);
#else
	return false;
#endif
}

/* Tells whether one entry, or group, of that size can map the first pages. */
static bool vmap_whole(const unsigned long *pfns, unsigned long nr, unsigned int shift)
{
	unsigned long i, want = 1UL << (shift - PAGE_SHIFT);

	if (nr < want || !IS_ALIGNED(pfns[0], want))
		return false;
	for (i = 1; i < want; i++)
		if (pfns[i] != pfns[0] + i)
			return false;
	return true;
}

/**
 * vmap_best_shift() - log2 of the bytes of the entry that maps the first page
 * @pfns: the page frames to map
 * @nr: number of @pfns
 * @prot: protection
 * @max_shift: upper bound
 * @addr: address of the first page, 0: one with every alignment
 */
unsigned int vmap_best_shift(const unsigned long *pfns, unsigned long nr, pgprot_t prot,
			     unsigned int max_shift, unsigned long addr)
{
	unsigned int group = vmap_group_shift();

	if (vmap_pmd_allowed(prot, max_shift) && IS_ALIGNED(addr, PMD_SIZE) &&
	    vmap_whole(pfns, nr, PMD_SHIFT))
		return PMD_SHIFT;
	if (group > PAGE_SHIFT && max_shift >= group &&
	    IS_ALIGNED(addr, 1UL << group) && vmap_whole(pfns, nr, group))
		return group;
	return PAGE_SHIFT;
}

/* Expects that the pages have the contents of the block they come from. */
static bool vmap_walk_reads(struct kunit *test, unsigned long addr, const unsigned long *pfns,
			    unsigned long nr, const struct vmap_block *block)
{
	unsigned long i;

	for (i = 0; i < nr; i++) {
		unsigned long index = pfns[i] - page_to_pfn(block->page);

		if (vmap_pages_bad((void *)(addr + i * PAGE_SIZE), 1, index) == -1)
			continue;
		KUNIT_FAIL(test, "page %lu of %lu at %#lx: not page %lu of the block", i, nr, addr,
			   index);
		return false;
	}
	return true;
}

/**
 * vmap_walk_is() - expect that page tables map exactly that, in largest pieces
 * @test: the running case
 * @addr: address of the first page
 * @pfns: the page frames to map
 * @nr: number of @pfns
 * @prot: protection that the mapping was asked for
 * @max_shift: log2 of the bytes that one entry may map
 * @keeps_tables: PTEs are right where a PMD entry would fit: a table was there
 * @block: where the pages come from, to compare contents, too; or NULL
 *
 * Return: false after the first failure, so that loops can stop.
 */
bool vmap_walk_is(struct kunit *test, unsigned long addr, const unsigned long *pfns,
		  unsigned long nr, pgprot_t prot, unsigned int max_shift, bool keeps_tables,
		  const struct vmap_block *block)
{
	unsigned long i, j, step;

	prot = pgprot_nx(prot);
	for (i = 0; i < nr; i += step) {
		unsigned long start = addr + i * PAGE_SIZE;
		unsigned int shift = vmap_best_shift(pfns + i, nr - i, prot, max_shift, start);
		enum vmap_level level;

		if (shift == PMD_SHIFT && keeps_tables && vmap_walk(start, NULL).level != VMAP_PMD)
			shift = vmap_best_shift(pfns + i, nr - i, prot, vmap_group_shift(), start);
		level = shift == PAGE_SHIFT ? VMAP_PTE :
			shift == PMD_SHIFT ? VMAP_PMD : VMAP_CONT;
		step = 1UL << (shift - PAGE_SHIFT);
		for (j = i; j < i + step; j++) {
			struct vmap_entry want, got;

			want = vmap_entry_of(level, pfns[j], pfns[i], prot);
			got = vmap_walk(addr + j * PAGE_SIZE, NULL);
			if (got.level == want.level && got.pfn == want.pfn &&
			    (got.raw == want.raw || !VMAP_RAW_IS_KNOWN))
				continue;
			KUNIT_FAIL(test,
				   "page %lu of %lu at %#lx: level %d, pfn %#lx, entry %#llx; expected level %d, pfn %#lx, entry %#llx",
				   j, nr, addr, got.level, got.pfn, got.raw, want.level, want.pfn,
				   want.raw);
			return false;
		}
	}

	return !block || vmap_walk_reads(test, addr, pfns, nr, block);
}

/**
 * vmap_walk_is_empty() - expect that nothing is mapped
 * @test: the running case
 * @addr: first address
 * @nr: number of pages
 * @what: what the range is, for the message
 *
 * Return: false after the first failure, so that loops can stop.
 */
bool vmap_walk_is_empty(struct kunit *test, unsigned long addr, unsigned long nr,
			const char *what)
{
	unsigned long i;

	for (i = 0; i < nr; i++) {
		struct vmap_entry got = vmap_walk(addr + i * PAGE_SIZE, NULL);

		if (got.level == VMAP_NONE)
			continue;
		KUNIT_FAIL(test, "%s: page %lu of %lu at %#lx: level %d, entry %#llx",
			   what, i, nr, addr, got.level, got.raw);
		return false;
	}

	return true;
}

/**
 * vmap_walk_count() - count pages of the vmalloc space that map page frames
 * @pfn: first page frame
 * @nr: number of page frames
 */
unsigned long vmap_walk_count(unsigned long pfn, unsigned long nr)
{
	unsigned long addr = VMALLOC_START, count = 0, span;

	/* Nobody takes page tables away meanwhile, see vmap_try_huge_pmd(). */
	mmap_write_lock(&init_mm);
	while (addr >= VMALLOC_START && addr < VMALLOC_END) {
		struct vmap_entry entry = vmap_walk(addr, &span);

		if (entry.level == VMAP_PTE || entry.level == VMAP_CONT)
			count += entry.pfn >= pfn && entry.pfn < pfn + nr;
		/* A block may be larger or smaller than what a PMD entry maps. */
		else if (entry.level == VMAP_PMD)
			count += entry.pfn < pfn + nr &&
				 entry.pfn + PFN_DOWN(PMD_SIZE) > pfn;
		addr = ALIGN_DOWN(addr, span) + span;
	}
	mmap_write_unlock(&init_mm);

	return count;
}

static void vmap_block_put(void *data)
{
	struct page *page = data;

	__free_pages(page, compound_order(page));
}

/* Whether no page of the area is below a table of PTEs. */
static bool has_no_table(const struct vm_struct *vm)
{
	unsigned long addr = vmap_start(vm), span;

	while (addr < vmap_end(vm)) {
		struct vmap_entry entry = vmap_walk(addr, &span);

		if (entry.level != VMAP_NONE || span < PMD_SIZE)
			return false;
		addr = ALIGN_DOWN(addr, span) + span;
	}
	return true;
}

/**
 * vmap_walk_skip_tables() - let the next vmap() get addresses without a table
 * @test: the running case
 * @nr: pages that vmap() will map
 * @reserved: where to keep what is reserved, VMAP_MAX_RESERVED areas
 * @count: number of areas in @reserved
 *
 * Tables stay when nothing is mapped below them any more, and would leave a
 * vmap() nothing to allocate. So this reserves areas of @nr pages until it gets
 * one without a table, and gives that back: a vmap() of as many pages gets its
 * addresses. The caller frees the areas in @reserved.
 *
 * Return: the number of areas in @reserved.
 */
unsigned int vmap_walk_skip_tables(struct kunit *test, unsigned long nr,
				   struct vm_struct **reserved, unsigned int count)
{
	struct vm_struct *vm;

	/* A lazy range with tables must not become free only after the search. */
	vm_unmap_aliases();
	for (; count < VMAP_MAX_RESERVED; count++) {
		vm = get_vm_area(nr * PAGE_SIZE, VM_MAP);
		if (!vm)
			break;
		if (has_no_table(vm)) {
			free_vm_area(vm);
			vm_unmap_aliases();
			return count;
		}
		reserved[count] = vm;
	}
	KUNIT_FAIL(test, "no addresses without a table in %u areas", count);
	return count;
}

/**
 * vmap_block_get() - allocate contiguous pages, freed at the end of the case
 * @test: the running case, which is skipped if there are too few
 * @min_pages: number of pages to be had at least
 *
 * Page i of the block has the contents of vmap_page_fill(page, 0, i).
 */
struct vmap_block vmap_block_get(struct kunit *test, unsigned long min_pages)
{
	const gfp_t gfp = VMAP_GFP | __GFP_COMP | __GFP_NORETRY;
	struct vmap_block block = {};
	unsigned int order;
	unsigned long i;

	order = min(get_order(min(2 * PMD_SIZE, (unsigned long)SZ_64M)), MAX_PAGE_ORDER);
	for (; (1UL << order) >= min_pages; order--) {
		block.page = alloc_pages(gfp, order);
		if (block.page || !order)
			break;
	}
	if (!block.page)
		kunit_skip(test, "no %lu contiguous pages", min_pages);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, vmap_block_put, block.page));

	block.nr = 1UL << order;
	for (i = 0; i < block.nr; i++)
		vmap_page_fill(page_address(block.page + i), 0, i);
	return block;
}
