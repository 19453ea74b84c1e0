// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_map": functions that map memory. The suites of
 * ../mapping/ compare their page tables.
 */
#include <linux/slab.h>

#include "vmap_area_kunit.h"

static const unsigned int sizes[] = {
	1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128,
	255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2048, 4096,
};

/*
 * Areas of sizes around every power of two, up to 16 MiB with 4 KiB pages,
 * exist together. Each keeps its contents, is found, and has all its pages.
 * Those of the second round are zeroed, in memory that the first one wrote; the
 * small ones among them are aligned to 1 to 4 MiB.
 */
static void vmap_vmalloc_sizes(struct kunit *test)
{
	const struct vmap_win std = vmap_std_win();
	unsigned long align[ARRAY_SIZE(sizes)];
	void *mem[ARRAY_SIZE(sizes)];
	int i, round;

	for (round = 0; round < 2; round++) {
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			size_t size = sizes[i] * PAGE_SIZE;

			align[i] = round && sizes[i] < 32 ? SZ_1M << i % 3 : PAGE_SIZE;
			mem[i] = __vmalloc_node(size, align[i],
						GFP_KERNEL | (round ? __GFP_ZERO : 0),
						NUMA_NO_NODE, __builtin_return_address(0));
			KUNIT_ASSERT_NOT_NULL_MSG(test, mem[i], "%u pages", sizes[i]);
			KUNIT_EXPECT_TRUE(test, is_vmalloc_addr(mem[i]));
			if (round)
				KUNIT_EXPECT_NULL_MSG(test, memchr_inv(mem[i], 0, size),
						      "%u pages: not zero", sizes[i]);
			else
				memset(mem[i], 0xa5, size);
			vmap_pages_fill(mem[i], sizes[i], i);
		}

		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct vm_struct *vm = find_vm_area(mem[i]);

			KUNIT_ASSERT_NOT_NULL_MSG(test, vm, "%u pages", sizes[i]);
			KUNIT_EXPECT_EQ(test, vm->nr_pages, sizes[i]);
			KUNIT_EXPECT_EQ(test, get_vm_area_size(vm), sizes[i] * PAGE_SIZE);
			vmap_area_is_sound(test, vm, &std, align[i]);
			vmap_pages_expect(test, mem[i], sizes[i], i);
		}

		for (i = 0; i < ARRAY_SIZE(sizes); i++)
			vfree(mem[i]);
	}
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
	KUNIT_ASSERT_NOT_NULL(test, mem);
	vmap_pages_expect(test, mem, nr, 0);
	vfree(mem);

	for (i = 0; i < nr; i++)
		KUNIT_EXPECT_EQ_MSG(test, 1, page_count(keep[i]), "references to page %u", i);
}

/*
 * vm_map_ram() maps up to BITS_PER_LONG pages in vmap blocks: areas that outlive
 * single mappings. Larger mappings are areas of exactly their size, which are
 * freed when they are unmapped. Neither has a vm_struct.
 */
static void vmap_map_ram(struct kunit *test)
{
	static const unsigned int large[] = { BITS_PER_LONG + 1, 100, 256, 700 };
	unsigned int nr[BITS_PER_LONG + ARRAY_SIZE(large)], i;
	struct page **pages = vmap_pages_get(test, 700);
	void *mem[ARRAY_SIZE(nr)];

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		const struct vmap_area *va;
		unsigned long addr, end;

		nr[i] = i < BITS_PER_LONG ? i + 1 : large[i - BITS_PER_LONG];
		mem[i] = vm_map_ram(pages, nr[i], NUMA_NO_NODE);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[i], "vm_map_ram of %u pages", nr[i]);
		addr = (unsigned long)kasan_reset_tag(mem[i]);
		end = addr + nr[i] * PAGE_SIZE;
		va = find_vmap_area(end - 1);
		KUNIT_ASSERT_NOT_NULL_MSG(test, va, "no area holds the end of %u pages", nr[i]);
		KUNIT_EXPECT_NULL(test, find_vm_area((void *)addr));
		if (nr[i] > BITS_PER_LONG) {
			KUNIT_EXPECT_EQ_MSG(test, va->va_start, addr, "%u pages", nr[i]);
			KUNIT_EXPECT_EQ_MSG(test, va->va_end, end, "%u pages", nr[i]);
		} else {
			KUNIT_EXPECT_LE_MSG(test, va->va_start, addr, "%u pages", nr[i]);
			KUNIT_EXPECT_GE_MSG(test, va->va_end, end, "%u pages", nr[i]);
		}
	}

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		unsigned long addr = (unsigned long)kasan_reset_tag(mem[i]);
		const struct vmap_area *va;

		vmap_pages_expect(test, mem[i], nr[i], 0);
		vm_unmap_ram(mem[i], nr[i]);
		va = find_vmap_area(addr);
		if (nr[i] > BITS_PER_LONG)
			KUNIT_EXPECT_TRUE_MSG(test, !va || va->vm,
					      "%u pages: found after vm_unmap_ram", nr[i]);
	}
}

/* vfree_atomic() with interrupts off frees soon afterwards, without a leak. */
static void vmap_vfree_atomic(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 64 * PAGE_SIZE);
	unsigned int i;
	void *mem[16];

	for (i = 0; i < ARRAY_SIZE(mem); i++)
		mem[i] = vmap_mem_need(test, &win, 1, i);

	local_irq_disable();
	for (i = 0; i < ARRAY_SIZE(mem); i++)
		vfree_atomic(mem[i]);
	local_irq_enable();

	vmap_win_expect_free_soon(test, &win);
}

static struct kunit_case vmap_map_cases[] = {
	KUNIT_CASE(vmap_vmalloc_sizes),
	KUNIT_CASE(vmap_vmap_put_pages),
	KUNIT_CASE(vmap_map_ram),
	KUNIT_CASE(vmap_vfree_atomic),
	{}
};

VMAP_SUITE(vmap_map);
