// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_map": functions that map memory.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/slab.h>

#include "vmap_area_kunit.h"

static const unsigned int sizes[] = {
	1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128,
	255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2048, 4096,
};

/*
 * Areas of sizes around every power of two, up to 16 MiB with 4 KiB pages,
 * exist together. Each keeps its contents, is found, and has all its pages.
 */
static void vmap_vmalloc_sizes(struct kunit *test)
{
	const struct vmap_win std = vmap_std_win();
	void *mem[ARRAY_SIZE(sizes)];
	int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		mem[i] = vmalloc(sizes[i] * PAGE_SIZE);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[i], "vmalloc of %u pages",
					  sizes[i]);
		KUNIT_EXPECT_TRUE_MSG(test, is_vmalloc_addr(mem[i]),
				      "%#lx is not a vmalloc address",
				      (unsigned long)mem[i]);
		vmap_pages_fill(mem[i], sizes[i], i);
	}

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct vm_struct *vm = find_vm_area(mem[i]);

		KUNIT_ASSERT_NOT_NULL_MSG(test, vm, "%u pages at %#lx not found",
					  sizes[i], (unsigned long)mem[i]);
		KUNIT_EXPECT_EQ_MSG(test, vm->nr_pages, sizes[i],
				    "pages of the area at %#lx",
				    (unsigned long)mem[i]);
		KUNIT_EXPECT_EQ_MSG(test, get_vm_area_size(vm),
				    sizes[i] * PAGE_SIZE, "size at %#lx",
				    (unsigned long)mem[i]);
		vmap_area_is_sound(test, vm, &std, PAGE_SIZE);
		KUNIT_EXPECT_EQ_MSG(test, -1,
				    vmap_pages_bad(mem[i], sizes[i], i),
				    "page of %u pages at %#lx with wrong contents",
				    sizes[i], (unsigned long)mem[i]);
	}

	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		vfree(mem[i]);
}

/* vzalloc() zeroes memory that was written before. */
static void vmap_vzalloc_zeroes(struct kunit *test)
{
	static const unsigned int pages[] = { 1, 3, 64, 300 };
	int i, round;

	for (i = 0; i < ARRAY_SIZE(pages); i++) {
		for (round = 0; round < 4; round++) {
			size_t size = pages[i] * PAGE_SIZE;
			void *mem = vzalloc(size);

			KUNIT_ASSERT_NOT_NULL_MSG(test, mem,
						  "vzalloc of %u pages",
						  pages[i]);
			KUNIT_EXPECT_NULL_MSG(test, memchr_inv(mem, 0, size),
					      "%u pages at %#lx, round %d: not zero",
					      pages[i], (unsigned long)mem,
					      round);
			memset(mem, 0xa5, size);
			vfree(mem);
		}
	}
}

/*
 * vmap() maps exactly the given pages in the given order, and two mappings of
 * one page show the same memory.
 */
static void vmap_vmap_pages(struct kunit *test)
{
	const unsigned int nr = 48;
	struct page **pages = vmap_pages_get(test, nr);
	struct page *reversed[48];
	void *up, *down;
	unsigned int i;

	for (i = 0; i < nr; i++)
		reversed[i] = pages[nr - 1 - i];

	up = vmap(pages, nr, VM_MAP, PAGE_KERNEL);
	down = vmap(reversed, nr, VM_MAP, PAGE_KERNEL);
	KUNIT_ASSERT_NOT_NULL_MSG(test, up, "vmap of %u pages", nr);
	KUNIT_ASSERT_NOT_NULL_MSG(test, down, "second vmap of %u pages", nr);

	vmap_pages_fill(up, nr, 77);
	for (i = 0; i < nr; i++) {
		KUNIT_EXPECT_PTR_EQ_MSG(test, pages[i],
					vmalloc_to_page(up + i * PAGE_SIZE),
					"page %u of the mapping at %#lx", i,
					(unsigned long)up);
		KUNIT_EXPECT_EQ_MSG(test, 0,
				    memcmp(up + i * PAGE_SIZE,
					   down + (nr - 1 - i) * PAGE_SIZE,
					   PAGE_SIZE),
				    "page %u differs between %#lx and %#lx", i,
				    (unsigned long)up, (unsigned long)down);
	}

	vunmap(up);
	KUNIT_EXPECT_PTR_EQ(test, NULL, find_vm_area(up));
	KUNIT_EXPECT_NOT_NULL(test, find_vm_area(down));
	vunmap(down);
	KUNIT_EXPECT_PTR_EQ(test, NULL, find_vm_area(down));
}

/* With VM_MAP_PUT_PAGES, vfree() drops the page references and the array. */
static void vmap_vmap_put_pages(struct kunit *test)
{
	const unsigned int nr = 8;
	struct page **keep = vmap_pages_get(test, nr);
	struct page **pages;
	unsigned int i;
	void *mem;

	pages = kmemdup_array(keep, nr, sizeof(*keep), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, pages);
	for (i = 0; i < nr; i++)
		get_page(pages[i]);

	mem = vmap(pages, nr, VM_MAP | VM_MAP_PUT_PAGES, PAGE_KERNEL);
	KUNIT_ASSERT_NOT_NULL_MSG(test, mem, "vmap of %u pages", nr);
	vmap_pages_fill(mem, nr, 5);
	KUNIT_EXPECT_EQ(test, -1, vmap_pages_bad(mem, nr, 5));
	vfree(mem);

	for (i = 0; i < nr; i++)
		KUNIT_EXPECT_EQ_MSG(test, 1, page_count(keep[i]),
				    "references to page %u", i);
}

/*
 * vm_map_ram() maps up to BITS_PER_LONG pages in vmap blocks: areas without a
 * vm_struct that outlive single mappings.
 */
static void vmap_map_ram_small(struct kunit *test)
{
	struct page **pages = vmap_pages_get(test, BITS_PER_LONG);
	void *mem[BITS_PER_LONG];
	unsigned int i;

	for (i = 0; i < BITS_PER_LONG; i++) {
		const struct vmap_area *va;
		unsigned long addr;

		mem[i] = vm_map_ram(pages, i + 1, NUMA_NO_NODE);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[i], "vm_map_ram of %u pages",
					  i + 1);
		addr = (unsigned long)kasan_reset_tag(mem[i]);
		va = find_vmap_area(addr);
		KUNIT_ASSERT_NOT_NULL_MSG(test, va, "no area holds %#lx", addr);
		KUNIT_EXPECT_LE_MSG(test, va->va_start, addr, "start of block");
		KUNIT_EXPECT_GE_MSG(test, va->va_end,
				    addr + (i + 1) * PAGE_SIZE,
				    "%#lx + %u pages leave the block at %#lx",
				    addr, i + 1, va->va_start);
		KUNIT_EXPECT_NULL_MSG(test, find_vm_area((void *)addr),
				      "a block at %#lx has a vm_struct", addr);
	}

	vmap_pages_fill(mem[BITS_PER_LONG - 1], BITS_PER_LONG, 9);
	for (i = 0; i < BITS_PER_LONG; i++)
		KUNIT_EXPECT_EQ_MSG(test, -1, vmap_pages_bad(mem[i], i + 1, 9),
				    "wrong page in the mapping of %u pages at %#lx",
				    i + 1, (unsigned long)mem[i]);

	for (i = 0; i < BITS_PER_LONG; i++)
		vm_unmap_ram(mem[i], i + 1);
}

/* Larger mappings of vm_map_ram() are areas that are freed when unmapped. */
static void vmap_map_ram_large(struct kunit *test)
{
	static const unsigned int nr[] = { BITS_PER_LONG + 1, 100, 256, 700 };
	struct page **pages = vmap_pages_get(test, 700);
	int i;

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		void *mem = vm_map_ram(pages, nr[i], NUMA_NO_NODE);
		unsigned long addr = (unsigned long)kasan_reset_tag(mem);
		const struct vmap_area *va;

		KUNIT_ASSERT_NOT_NULL_MSG(test, mem, "vm_map_ram of %u pages",
					  nr[i]);
		va = find_vmap_area(addr + nr[i] * PAGE_SIZE - 1);
		KUNIT_ASSERT_NOT_NULL_MSG(test, va,
					  "no area holds the end of %#lx + %u pages",
					  addr, nr[i]);
		KUNIT_EXPECT_EQ_MSG(test, va->va_start, addr, "start of area");
		KUNIT_EXPECT_EQ_MSG(test, va->va_end, addr + nr[i] * PAGE_SIZE,
				    "end of the area at %#lx", addr);
		KUNIT_EXPECT_NULL(test, find_vm_area((void *)addr));

		vmap_pages_fill(mem, nr[i], i);
		KUNIT_EXPECT_EQ_MSG(test, -1, vmap_pages_bad(mem, nr[i], i),
				    "wrong page of %u at %#lx", nr[i], addr);
		vm_unmap_ram(mem, nr[i]);
		va = find_vmap_area(addr);
		KUNIT_EXPECT_TRUE_MSG(test, !va || va->vm,
				      "%#lx + %u pages: still found after vm_unmap_ram",
				      addr, nr[i]);
	}
}

/*
 * vmap blocks fill up and are freed and replaced while others are in use, with
 * purges in between. Contents do not change.
 */
static void vmap_map_ram_churn(struct kunit *test)
{
	struct page **pages = vmap_pages_get(test, 32);
	struct {
		void *mem;
		unsigned int nr;
	} slot[24] = {};
	struct rnd_state rnd;
	unsigned int i, step;

	vmap_seed(test, &rnd);
	for (i = 0; i < 32; i++)
		vmap_page_fill(page_address(pages[i]), i, 0);

	for (step = 0; step < 4000; step++) {
		i = prandom_u32_state(&rnd) % ARRAY_SIZE(slot);

		if (slot[i].mem) {
			long bad = vmap_pages_bad(slot[i].mem, slot[i].nr, 0);

			KUNIT_EXPECT_EQ_MSG(test, -1, bad,
					    "step %u: wrong page of %u at %#lx",
					    step, slot[i].nr,
					    (unsigned long)slot[i].mem);
			vm_unmap_ram(slot[i].mem, slot[i].nr);
			slot[i].mem = NULL;
			if (bad != -1)
				break;
		} else {
			slot[i].nr = 1 + prandom_u32_state(&rnd) % 32;
			slot[i].mem = vm_map_ram(pages, slot[i].nr,
						 NUMA_NO_NODE);
			KUNIT_ASSERT_NOT_NULL_MSG(test, slot[i].mem,
						  "step %u: vm_map_ram of %u pages",
						  step, slot[i].nr);
		}

		if (step % 512 == 511)
			vm_unmap_aliases();
	}

	for (i = 0; i < ARRAY_SIZE(slot); i++)
		if (slot[i].mem)
			vm_unmap_ram(slot[i].mem, slot[i].nr);
	vm_unmap_aliases();
}

/* vrealloc() keeps contents, and the area has the right number of pages. */
static void vmap_vrealloc(struct kunit *test)
{
	static const unsigned int nr[] = { 2, 7, 64, 20, 3, 1, 1, 5, 130, 12 };
	unsigned int kept = 1;
	void *mem, *bigger;
	int i;

	mem = vmalloc(PAGE_SIZE);
	KUNIT_ASSERT_NOT_NULL(test, mem);
	vmap_pages_fill(mem, 1, 0);

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		struct vm_struct *vm;

		bigger = vrealloc(mem, nr[i] * PAGE_SIZE, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL_MSG(test, bigger, "vrealloc to %u pages",
					  nr[i]);
		mem = bigger;
		kept = min(kept, nr[i]);
		KUNIT_EXPECT_EQ_MSG(test, -1, vmap_pages_bad(mem, kept, 0),
				    "step %d: wrong page of the %u kept at %#lx",
				    i, kept, (unsigned long)mem);

		vm = find_vm_area(mem);
		KUNIT_ASSERT_NOT_NULL_MSG(test, vm, "%#lx is not found",
					  (unsigned long)mem);
		KUNIT_EXPECT_EQ_MSG(test, vm->requested_size,
				    nr[i] * PAGE_SIZE, "step %d", i);
		KUNIT_EXPECT_GE_MSG(test, vm->nr_pages, nr[i],
				    "step %d: pages of the area", i);
		vmap_pages_fill(mem, nr[i], 0);
		kept = nr[i];
	}

	KUNIT_EXPECT_PTR_EQ(test, NULL, vrealloc(mem, 0, GFP_KERNEL));
}

/* Huge mappings are aligned or fall back to small pages; contents are right. */
static void vmap_vmalloc_huge(struct kunit *test)
{
	unsigned long nr = SZ_4M / PAGE_SIZE;
	void *mem[3];
	int i;

	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		mem[i] = vmalloc_huge(SZ_4M, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[i], "huge area %d", i);
		if (is_vm_area_hugepages(mem[i]) && PMD_SIZE <= SZ_4M)
			KUNIT_EXPECT_TRUE_MSG(test,
					      IS_ALIGNED((unsigned long)mem[i],
							 PMD_SIZE),
					      "huge area at %#lx",
					      (unsigned long)mem[i]);
		vmap_pages_fill(mem[i], nr, i);
	}

	for (i = 0; i < ARRAY_SIZE(mem); i++)
		KUNIT_EXPECT_EQ_MSG(test, -1, vmap_pages_bad(mem[i], nr, i),
				    "wrong page at %#lx",
				    (unsigned long)mem[i]);
	for (i = 0; i < ARRAY_SIZE(mem); i++)
		vfree(mem[i]);
}

/* vfree_atomic() with interrupts off frees soon afterwards, without a leak. */
static void vmap_vfree_atomic(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 64 * PAGE_SIZE);
	unsigned int nr = 0, left = 0, i;
	struct vm_struct *vm;
	void *mem[16];
	int wait;

	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		mem[i] = __vmalloc_node_range(PAGE_SIZE, 1, win.start, win.end,
					      GFP_KERNEL, PAGE_KERNEL, 0,
					      NUMA_NO_NODE, __func__);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[i], "area %u", i);
		nr++;
	}

	local_irq_disable();
	for (i = 0; i < nr; i++)
		vfree_atomic(mem[i]);
	local_irq_enable();

	for (wait = 0; wait < 200; wait++) {
		for (left = 0, i = 0; i < nr; i++)
			left += !!find_vm_area(mem[i]);
		if (!left)
			break;
		msleep(20);
	}
	KUNIT_EXPECT_EQ_MSG(test, 0, left, "of %u areas are still there", nr);

	/* An area that is not found any more may still be unmapped by the work. */
	for (wait = 0; wait < 200; wait++) {
		vm = vmap_area_get(&win, 64 * PAGE_SIZE, 1, VM_NO_GUARD, VMAP_GFP);
		if (vm) {
			vmap_area_put(test, vm);
			vm_unmap_aliases();
			break;
		}
		msleep(20);
	}
	vmap_win_expect_free(test, &win);
}

static struct kunit_case vmap_map_cases[] = {
	KUNIT_CASE(vmap_vmalloc_sizes),
	KUNIT_CASE(vmap_vzalloc_zeroes),
	KUNIT_CASE(vmap_vmap_pages),
	KUNIT_CASE(vmap_vmap_put_pages),
	KUNIT_CASE(vmap_map_ram_small),
	KUNIT_CASE(vmap_map_ram_large),
	KUNIT_CASE(vmap_map_ram_churn),
	KUNIT_CASE(vmap_vrealloc),
	KUNIT_CASE(vmap_vmalloc_huge),
	KUNIT_CASE(vmap_vfree_atomic),
	{}
};

VMAP_SUITE(vmap_map);
