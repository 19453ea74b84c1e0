// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_pte_keep": vmap() gives no table of PTEs up for a PMD entry.
 */
#include <linux/pgtable.h>
#include <linux/vmalloc.h>

#include "vmap_area_kunit.h"

/* Areas until one comes back to an address that was free before. */
#define MAX_AREAS	256

/* The level that maps the start of an area. */
static enum vmap_level level_of(const void *mem)
{
	return vmap_walk((unsigned long)kasan_reset_tag(mem), NULL).level;
}

/*
 * To replace a table would flush the TLBs of all CPUs for each PMD entry, and
 * take it away from readers of /proc/kcore, who walk tables without a lock.
 */
static void vmap_pte_keep_table(struct kunit *test)
{
	const unsigned int nr = PTRS_PER_PTE;
	bool back = false;
	unsigned int i, nr_held = 0;
	struct vmap_block block;
	struct page **pages;
	unsigned long addr;
	void **held, *mem;

	if (vmap_max_shift() < PMD_SHIFT || !IS_ENABLED(CONFIG_64BIT))
		kunit_skip(test, "vmap() has no PMD entries here");
	block = vmap_block_get(test, nr);
	pages = kunit_kmalloc_array(test, nr, sizeof(*pages), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, pages);
	held = kunit_kcalloc(test, MAX_AREAS, sizeof(*held), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, held);
	for (i = 0; i < nr; i++)
		pages[i] = block.page + i;

	/* Tables of earlier cases may be in the way of the first ones. */
	do {
		mem = vmap(pages, nr, VM_MAP, PAGE_KERNEL);
		KUNIT_EXPECT_NOT_NULL(test, mem);
		if (!mem)
			goto out;
		held[nr_held++] = mem;
		KUNIT_EXPECT_EQ(test, is_vm_area_hugepages(mem),
				level_of(mem) == VMAP_PMD);
	} while (level_of(mem) != VMAP_PMD && nr_held < MAX_AREAS / 2);
	KUNIT_EXPECT_EQ_MSG(test, level_of(mem), VMAP_PMD, "in %u areas", nr_held);

	addr = (unsigned long)kasan_reset_tag(mem);
	nr_held--;
	vunmap(mem);
	vm_unmap_aliases();
	/* As an area of one page would leave it. */
	KUNIT_EXPECT_NOT_NULL(test, pte_alloc_kernel(pmd_off_k(addr), addr));

	while (!back && nr_held < MAX_AREAS) {
		mem = vmap(pages, nr, VM_MAP, PAGE_KERNEL);
		KUNIT_EXPECT_NOT_NULL(test, mem);
		if (!mem)
			goto out;
		held[nr_held++] = mem;
		back = (unsigned long)kasan_reset_tag(mem) == addr;
		if (back)
			KUNIT_EXPECT_NE(test, level_of(mem), VMAP_PMD);
	}
out:
	while (nr_held--)
		vunmap(held[nr_held]);
	if (!back && test->status == KUNIT_SUCCESS)
		kunit_skip(test, "vmap() did not come back to the address of the PMD entry");
}

static struct kunit_case vmap_pte_keep_cases[] = {
	KUNIT_CASE(vmap_pte_keep_table),
	{}
};

VMAP_SUITE(vmap_pte_keep);
