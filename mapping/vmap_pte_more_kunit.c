// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_pte_more": page tables of vmalloc() and ioremap(), and pages of
 * vmalloc().
 */
#include <linux/cacheflush.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/set_memory.h>
#include <linux/uaccess.h>

#include "vmap_walk_kunit.h"

/* Expects that an area maps its pages, with entries of at most that size. */
static void expect_own_pages(struct kunit *test, const void *mem, unsigned int max_shift)
{
	/* The protection that vmalloc() maps pages with. */
	pgprot_t prot = kasan_hw_tags_enabled() ? arch_vmap_pgprot_tagged(PAGE_KERNEL) :
						  PAGE_KERNEL;
	struct vm_struct *vm = find_vm_area(mem);
	unsigned long *pfns;
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, vm);
	pfns = kvmalloc_array(vm->nr_pages, sizeof(*pfns), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, pfns);
	for (i = 0; i < vm->nr_pages; i++) {
		pfns[i] = page_to_pfn(vm->pages[i]);
		KUNIT_EXPECT_PTR_EQ_MSG(test, vm->pages[i], vmalloc_to_page(mem + i * PAGE_SIZE),
					"page %u", i);
	}

	vmap_walk_is(test, vmap_start(vm), pfns, vm->nr_pages, prot, max_shift, false, NULL);
	vmap_walk_is_empty(test, vmap_end(vm) - PAGE_SIZE, 1, "guard page");
	kvfree(pfns);
}

/* An area that grows and shrinks keeps its contents, and maps its pages. */
static void vmap_pte_vrealloc(struct kunit *test)
{
	static const unsigned int nr[] = { 1, 3, 1, 2, 7, 64, 20, 3, 1, 1, 5, 130, 12, 1 };
	unsigned int i, kept = 1;
	unsigned long start;
	void *mem, *next;

	mem = vmalloc(PAGE_SIZE);
	KUNIT_ASSERT_NOT_NULL(test, mem);
	vmap_pages_fill(mem, 1, 0);

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		struct vm_struct *vm;

		next = vrealloc(mem, nr[i] * PAGE_SIZE, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL_MSG(test, next, "vrealloc to %u pages", nr[i]);
		mem = next;
		vmap_pages_expect(test, mem, min(kept, nr[i]), 0);

		vm = find_vm_area(mem);
		KUNIT_ASSERT_NOT_NULL(test, vm);
		KUNIT_EXPECT_EQ_MSG(test, vm->requested_size, nr[i] * PAGE_SIZE, "step %u", i);
		KUNIT_EXPECT_EQ_MSG(test, vm->nr_pages, nr[i], "step %u", i);
		expect_own_pages(test, mem, PAGE_SHIFT);
		kept = nr[i];
		vmap_pages_fill(mem, kept, 0);
	}

	start = (unsigned long)kasan_reset_tag(mem);
	KUNIT_EXPECT_PTR_EQ(test, NULL, vrealloc(mem, 0, GFP_KERNEL));
	vmap_walk_is_empty(test, start, 3, "after it was freed");
}

/* vmalloc_huge() has entries as large as the pages that it has allocated. */
static void vmap_pte_huge(struct kunit *test)
{
	const unsigned long group = VMAP_GROUP * PAGE_SIZE;
	const unsigned long sizes[] = {
		PAGE_SIZE, 3 * PAGE_SIZE, group - PAGE_SIZE, group, group + PAGE_SIZE,
		3 * group + 5 * PAGE_SIZE, SZ_1M, SZ_2M - PAGE_SIZE, SZ_2M,
		SZ_2M + PAGE_SIZE, 3 * SZ_1M, SZ_4M, SZ_4M + 7 * PAGE_SIZE,
	};
	unsigned int i, nr_large = 0;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		void *mem = vmalloc_huge(sizes[i], GFP_KERNEL);
		unsigned long start, nr;
		struct vm_struct *vm;

		KUNIT_ASSERT_NOT_NULL_MSG(test, mem, "%#lx bytes", sizes[i]);
		vm = find_vm_area(mem);
		KUNIT_ASSERT_NOT_NULL_MSG(test, vm, "%#lx bytes", sizes[i]);
		start = vmap_start(vm);
		nr = vm->nr_pages;
		nr_large += get_vm_area_page_order(vm) > 0;
		KUNIT_EXPECT_GE(test, nr * PAGE_SIZE, sizes[i]);
		if (is_vm_area_hugepages(mem) && sizes[i] >= PMD_SIZE)
			KUNIT_EXPECT_TRUE_MSG(test, IS_ALIGNED(start, PMD_SIZE), "at %#lx", start);
		expect_own_pages(test, mem, PAGE_SHIFT + get_vm_area_page_order(vm));

		vmap_pages_fill(mem, PFN_UP(sizes[i]), i);
		vmap_pages_expect(test, mem, PFN_UP(sizes[i]), i);
		vfree(mem);
		vmap_walk_is_empty(test, start, nr, "after vfree");
	}
	kunit_info(test, "%u of %zu sizes have pages of higher order\n", nr_large,
		   ARRAY_SIZE(sizes));
}

/* What the cases of ioremap() share. */
struct io_trial {
	struct kunit *test;
	struct vm_struct *vm;
	unsigned long *pfns;
	pgprot_t prot;
};

static void io_trial_start(struct kunit *test, struct io_trial *t, unsigned long size,
			   unsigned long align)
{
	const struct vmap_win win = vmap_win_get(test, size + align);

	t->test = test;
	t->pfns = vmap_array(test, PFN_DOWN(size), sizeof(*t->pfns));
	t->vm = vmap_area_need(test, &win, size, align, VM_NO_GUARD);
}

/* Maps a part of the area, compares its page tables, and unmaps it. */
static bool io_map(struct io_trial *t, unsigned long offset, unsigned long pfn,
		   unsigned long nr, const struct vmap_block *block)
{
	unsigned long addr = vmap_start(t->vm) + offset * PAGE_SIZE;
	unsigned long end = addr + nr * PAGE_SIZE, i;
	bool good;
	int err;

	for (i = 0; i < nr; i++)
		t->pfns[i] = pfn + i;
	err = vmap_page_range(addr, end, PFN_PHYS(pfn), t->prot);
	if (err)
		KUNIT_FAIL(t->test, "%lu pages from pfn %#lx at %#lx: error %d", nr, pfn, addr,
			   err);
	good = !err && vmap_walk_is(t->test, addr, t->pfns, nr, t->prot, vmap_io_max_shift(),
				    false, block) &&
		vmap_walk_is_empty(t->test, end, 1, "page after") &&
		(!offset || vmap_walk_is_empty(t->test, addr - PAGE_SIZE, 1, "page before"));
	vunmap_range(addr, end);

	return vmap_walk_is_empty(t->test, addr, nr, "after vunmap_range") && good;
}

/* Runs around a group of PTEs, at all misalignments of addresses and pages. */
static void vmap_pte_ioremap(struct kunit *test)
{
	const unsigned long group = VMAP_GROUP;
	const unsigned long lengths[] = { 1, group - 1, group, group + 1, 2 * group };
	const unsigned long step = max(group / 16, 1UL);
	struct io_trial t = { .prot = PAGE_KERNEL };
	struct vmap_block block = vmap_block_get(test, 4 * group);
	unsigned long va, pa, first = page_to_pfn(block.page);
	struct vm_struct *vm;
	bool good = true;
	unsigned int i;

	io_trial_start(test, &t, 4 * group * PAGE_SIZE, group * PAGE_SIZE);
	for (va = 0; good && va < group; va += step)
		for (pa = 0; good && pa < group; pa += step)
			for (i = 0; good && i < ARRAY_SIZE(lengths); i++)
				good = io_map(&t, va, first + pa, lengths[i], &block);
	vmap_area_put(test, t.vm);

	/* The interface of drivers adds only checks of the area. */
	vm = get_vm_area(3 * group * PAGE_SIZE, VM_IOREMAP);
	KUNIT_ASSERT_NOT_NULL(test, vm);
	KUNIT_EXPECT_EQ(test, 0,
			ioremap_page_range(vmap_start(vm), vmap_start(vm) + 3 * group * PAGE_SIZE,
					   PFN_PHYS(first), PAGE_KERNEL));
	for (i = 0; i < 3 * group; i++)
		t.pfns[i] = first + i;
	vmap_walk_is(test, vmap_start(vm), t.pfns, 3 * group, PAGE_KERNEL, vmap_io_max_shift(),
		     false, &block);
	vmap_area_put(test, vm);
	vm_unmap_aliases();
}

/* Ranges around what PMD entries map, also where page tables are in the way. */
static void vmap_pte_ioremap_pmd(struct kunit *test)
{
	const unsigned long per_pmd = PFN_DOWN(PMD_SIZE);
	const unsigned long offsets[] = { 0, 1, 16, per_pmd - 1 };
	const unsigned long lengths[] = {
		per_pmd, per_pmd - 1, 2 * per_pmd + 17, per_pmd + 1, 2 * per_pmd,
		3 * per_pmd - 1,
	};
	const unsigned int nr_lengths = per_pmd > 512 ? 3 : ARRAY_SIZE(lengths);
	struct io_trial t = { .prot = pgprot_noncached(PAGE_KERNEL) };
	struct vmap_block block;
	unsigned long first;
	bool good = true;
	unsigned int i;

	if (!IS_ENABLED(CONFIG_HAVE_ARCH_HUGE_VMAP))
		kunit_skip(test, "needs CONFIG_HAVE_ARCH_HUGE_VMAP");
	block = vmap_block_get(test, 1);
	/* Nobody reads it: memory where there is none does not matter. */
	first = round_down(page_to_pfn(block.page), per_pmd);
	first -= min(first, 4 * per_pmd);

	io_trial_start(test, &t, 5 * PMD_SIZE, PMD_SIZE);
	for (i = 0; good && i < nr_lengths * 16; i++)
		good = io_map(&t, offsets[i % 4], first + offsets[i / 4 % 4],
			      lengths[i / 16], NULL);
	vmap_area_put(test, t.vm);
	vm_unmap_aliases();
}

/*
 * A mapping of physical memory is refused at a PTE that is in use, which stays until the
 * caller frees the area.
 */
static void vmap_pte_ioremap_in_use(struct kunit *test)
{
	const unsigned long nr = 2 * VMAP_GROUP;
	const unsigned long offsets[] = { 0, 1, nr / 2 + 1, nr - 1 };
	struct vmap_block block = vmap_block_get(test, 2 * nr);
	const unsigned long other = page_to_pfn(block.page) + nr;
	unsigned int i;

	if (!IS_ENABLED(CONFIG_BUG))
		kunit_skip(test, "needs CONFIG_BUG to count warnings");
	for (i = 0; i < ARRAY_SIZE(offsets); i++) {
		const struct vmap_win win = vmap_win_get(test, nr * PAGE_SIZE);
		struct vm_struct *vm = vmap_area_need(test, &win, nr * PAGE_SIZE, 1,
						      VM_IOREMAP | VM_NO_GUARD);
		unsigned long used = win.start + offsets[i] * PAGE_SIZE;

		KUNIT_EXPECT_EQ(test, 0, vmap_page_range(used, used + PAGE_SIZE, PFN_PHYS(other),
							 PAGE_KERNEL));
		kunit_warning_suppress(test) {
			KUNIT_EXPECT_EQ(test, -EBUSY,
					ioremap_page_range(win.start, win.end,
							   page_to_phys(block.page), PAGE_KERNEL));
			KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
		}
		KUNIT_EXPECT_EQ_MSG(test, vmap_walk(used, NULL).pfn, other, "PTE %lu", offsets[i]);
		vmap_area_put(test, vm);
		vm_unmap_aliases();
		vmap_walk_is_empty(test, win.start, nr, "after the area was freed");
	}
}

static int save_pte(pte_t *pte, unsigned long addr, void *data)
{
	*(pte_t **)data = pte;
	return 0;
}

/* set_ptes() maps consecutive pages. */
static void vmap_pte_set_ptes(struct kunit *test)
{
	const unsigned int max = 8;
	struct vmap_block block = vmap_block_get(test, max);
	const struct vmap_win win = vmap_win_get(test, max * PAGE_SIZE);
	struct vm_struct *vm = vmap_area_need(test, &win, max * PAGE_SIZE, 1, VM_NO_GUARD);
	unsigned long pfn = page_to_pfn(block.page);
	unsigned int nr, i;
	pte_t *pte = NULL;

	vmap_pages_fill(page_address(block.page), max, 0);
	KUNIT_ASSERT_EQ(test, 0, apply_to_page_range(&init_mm, win.start, PAGE_SIZE, save_pte,
						     &pte));
	for (nr = 1; nr <= max; nr++) {
		set_ptes(&init_mm, win.start, pte, pfn_pte(pfn, PAGE_KERNEL), nr);
		flush_cache_vmap(win.start, win.start + nr * PAGE_SIZE);
		for (i = 0; i < nr; i++)
			KUNIT_EXPECT_EQ_MSG(test, vmap_walk(win.start + i * PAGE_SIZE, NULL).pfn,
					    pfn + i, "page %u of %u", i, nr);
		vmap_pages_expect(test, (void *)win.start, nr, 0);
		vunmap_range(win.start, win.start + nr * PAGE_SIZE);
	}
	vmap_area_put(test, vm);
}

/* VM_FLUSH_RESET_PERMS: the area is unmapped, and its pages are usable. */
static void vmap_pte_reset_perms(struct kunit *test)
{
	static const unsigned int nr[] = { 1, 5, 1 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		void *mem = vmalloc(nr[i] * PAGE_SIZE);
		struct page *page;
		unsigned long start;

		KUNIT_ASSERT_NOT_NULL_MSG(test, mem, "%u pages", nr[i]);
		start = (unsigned long)kasan_reset_tag(mem);
		vmap_pages_fill(mem, nr[i], i);
		page = vmalloc_to_page(mem);
		set_vm_flush_reset_perms(mem);
		/* One page can be kept; several are freed whatever their count is. */
		if (nr[i] == 1)
			get_page(page);
		vfree(mem);
		vmap_walk_is_empty(test, start, nr[i], "after vfree");
		if (nr[i] == 1 && !PageHighMem(page))
			vmap_pages_expect(test, page_address(page), 1, i);
		if (nr[i] == 1)
			put_page(page);
	}
}

/* One page of an area becomes read-only and writable again. */
static void vmap_pte_set_memory(struct kunit *test)
{
	char *mem, *middle, c = 'x';

	if (!IS_ENABLED(CONFIG_ARCH_HAS_SET_MEMORY))
		kunit_skip(test, "needs CONFIG_ARCH_HAS_SET_MEMORY");
	mem = vmalloc(3 * PAGE_SIZE);
	KUNIT_ASSERT_NOT_NULL(test, mem);
	middle = mem + PAGE_SIZE;
	vmap_pages_fill(mem, 3, 1);
	KUNIT_EXPECT_EQ(test, 0, set_memory_ro((unsigned long)middle, 1));
	KUNIT_EXPECT_EQ(test, -EFAULT, copy_to_kernel_nofault(middle + 9, &c, 1));
	KUNIT_EXPECT_EQ(test, 0, copy_to_kernel_nofault(middle - 9, &c, 1));
	KUNIT_EXPECT_EQ(test, 0, copy_to_kernel_nofault(middle + PAGE_SIZE + 9, &c, 1));
	KUNIT_EXPECT_EQ(test, 0, set_memory_rw((unsigned long)middle, 1));
	KUNIT_EXPECT_EQ(test, 0, copy_to_kernel_nofault(middle + 9, &c, 1));
	KUNIT_EXPECT_EQ(test, 'x', middle[9]);
	expect_own_pages(test, mem, PAGE_SHIFT);
	vfree(mem);
}

/* Allocates memory for at least @nr_pages pages in one of the ways that there are. */
static void *get_in_some_way(struct rnd_state *rnd, unsigned int nr_pages)
{
	const size_t size = nr_pages * PAGE_SIZE;
	void *mem;

	switch (prandom_u32_state(rnd) % 16) {
	case 0:
		return vmalloc_huge(SZ_2M + size, GFP_KERNEL);
	case 1 ... 4:
		return __vmalloc(size, GFP_KERNEL_ACCOUNT);
	case 5 ... 8:
		/* A chunk of which some pages are freed alone. */
		mem = vmalloc(2 * size);
		return mem ? vrealloc(mem, size, GFP_KERNEL) : NULL;
	default:
		return vmalloc_node(size, numa_node_id());
	}
}

/*
 * Pages of chunks of all orders are counted and freed once, also those after
 * which vrealloc() has shrunk. A page that somebody holds outlives vfree().
 */
static void vmap_pte_pages_are_counted(struct kunit *test)
{
	struct vm_struct *vms[12] = {};
	struct rnd_state rnd;
	unsigned int i, nth;
	struct page *held;
	long mine = 0, before, others;

	vmap_seed(test, &rnd);
	/* Stacks of tasks that have ended are freed by RCU, and then by a worker. */
	rcu_barrier();
	rcu_barrier();
	__flush_workqueue(system_percpu_wq);
	before = vmap_pages_count();
	for (i = 0; i < 1500 || mine; i++) {
		struct vm_struct **vm = &vms[i % ARRAY_SIZE(vms)];

		if (*vm) {
			nth = prandom_u32_state(&rnd) % (*vm)->nr_pages;
			held = (*vm)->pages[nth];
			get_page(held);
			mine -= (*vm)->nr_pages;
			vfree((*vm)->addr);
			*vm = NULL;
			KUNIT_EXPECT_EQ_MSG(test, 1, page_count(held), "page %u", nth);
			put_page(held);
		}
		if (i < 1500) {
			nth = prandom_u32_state(&rnd);
			/* Mostly a power of two: a chunk. */
			nth = nth % 3 ? 1 << nth % 7 : 1 + nth % 70;
			*vm = find_vm_area(get_in_some_way(&rnd, nth));
			KUNIT_ASSERT_NOT_NULL_MSG(test, *vm, "%u pages", nth);
			mine += (*vm)->nr_pages;
		}
		others = vmap_pages_count() - before - mine;
		if (i % 100 == 0 || !mine)
			KUNIT_EXPECT_LE_MSG(test, abs(others), VMAP_MAX_OTHERS, "step %u", i);
	}
}

static struct kunit_case vmap_pte_more_cases[] = {
	KUNIT_CASE(vmap_pte_vrealloc),
	KUNIT_CASE(vmap_pte_huge),
	KUNIT_CASE(vmap_pte_ioremap),
	KUNIT_CASE(vmap_pte_ioremap_pmd),
	KUNIT_CASE(vmap_pte_ioremap_in_use),
	KUNIT_CASE(vmap_pte_set_ptes),
	KUNIT_CASE(vmap_pte_reset_perms),
	KUNIT_CASE(vmap_pte_set_memory),
	KUNIT_CASE(vmap_pte_pages_are_counted),
	{}
};

VMAP_SUITE(vmap_pte_more);
