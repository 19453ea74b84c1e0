// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_find": lookups and frees.
 */
#include <linux/slab.h>

#include "vmap_area_kunit.h"

/*
 * get_vm_area() fills in the vm_struct, and free_vm_area() frees the area. Every
 * power of two is accepted as alignment, also below the page size.
 */
static void vmap_get_vm_area(struct kunit *test)
{
	const unsigned int nr[] = { 1, 2, 17, 64, 256, 1024, VMAP_TREE_PAGES };
	const struct vmap_win std = vmap_std_win();
	const unsigned long max = VMAP_IS_SMALL ? SZ_16M : SZ_1G;
	struct vm_struct *vm[ARRAY_SIZE(nr)];
	unsigned long align;
	int i;

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		vm[i] = get_vm_area(nr[i] * PAGE_SIZE, VM_MAP);
		KUNIT_ASSERT_NOT_NULL_MSG(test, vm[i], "get_vm_area, %u pages", nr[i]);
		KUNIT_EXPECT_EQ(test, vm[i]->flags, VM_MAP);
		/* With the guard page. */
		KUNIT_EXPECT_EQ(test, vm[i]->size, (nr[i] + 1) * PAGE_SIZE);
		KUNIT_EXPECT_EQ(test, vm[i]->nr_pages, 0);
		KUNIT_EXPECT_NOT_NULL(test, vm[i]->caller);
		vmap_area_is_sound(test, vm[i], &std, PAGE_SIZE);
	}

	for (i = 0; i < ARRAY_SIZE(nr); i++)
		free_vm_area(vm[i]);

	/* An ioremap area is aligned to its size, rounded up to a power of two. */
	vm[0] = get_vm_area(SZ_128K, VM_IOREMAP);
	KUNIT_ASSERT_NOT_NULL(test, vm[0]);
	vmap_area_is_sound(test, vm[0], &std, SZ_128K);
	free_vm_area(vm[0]);

	for (align = 1; align <= max; align <<= 1)
		vmap_area_put(test, vmap_area_need(test, &std, 40 * PAGE_SIZE, align, 0));
}

static void expect_free(struct kunit *test, unsigned long start, unsigned long end)
{
	unsigned long addr;

	for (addr = start; addr < end; addr += PAGE_SIZE)
		KUNIT_EXPECT_NULL_MSG(test, find_vmap_area(addr), "%#lx in the hole %#lx-%#lx",
				      addr, start, end);
}

/*
 * A lookup finds an area from its first byte to the last byte of its guard
 * page, and does not find it one byte before or after. A freed area is not
 * found, neither before nor after a purge.
 */
static void vmap_find_bounds(struct kunit *test)
{
	static const unsigned int nr[] = { 1, 2, 15, 16, 17, 300 };
	const struct vmap_win win = vmap_win_get(test, VMAP_PAGES_OF(SZ_8M));
	struct vm_struct *vm[3];
	int i, j;

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		unsigned long start, end;

		for (j = 0; j < ARRAY_SIZE(vm); j++)
			vm[j] = vmap_area_need(test, &win, nr[i] * PAGE_SIZE, 1, 0);

		start = vmap_start(vm[1]);
		end = vmap_end(vm[1]);
		KUNIT_EXPECT_PTR_NE(test, vm[1], find_vm_area((void *)(start - 1)));
		KUNIT_EXPECT_PTR_EQ(test, vm[1], find_vm_area((void *)(end - 1)));
		KUNIT_EXPECT_PTR_NE(test, vm[1], find_vm_area((void *)end));

		vmap_area_put(test, vm[1]);
		expect_free(test, start, end);
		vmap_area_is_sound(test, vm[0], &win, 1);
		vmap_area_is_sound(test, vm[2], &win, 1);
		vmap_area_put(test, vm[2]);
		vmap_area_put(test, vm[0]);
		vm_unmap_aliases();
		expect_free(test, win.start, win.end);
	}

	KUNIT_EXPECT_NULL(test, find_vmap_area(0));
	KUNIT_EXPECT_NULL(test, find_vmap_area(ULONG_MAX));
	KUNIT_EXPECT_NULL(test, find_vmap_area(win.start - 1));
	KUNIT_EXPECT_NULL(test, find_vmap_area(win.end));
	vmap_win_expect_free(test, &win);
}

/* A lookup finds a large area at every page, across all parts of the index. */
static void vmap_find_large(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, SZ_32M);
	const struct vmap_win std = vmap_std_win();
	const unsigned int max = VMAP_IS_SMALL ? 64 : 5000;
	struct vm_struct *vm, *in_block[20];
	unsigned int pages, i;

	vm = vmap_area_need(test, &win, SZ_16M + 3 * PAGE_SIZE, 1, 0);
	vmap_area_is_whole(test, vm);
	vmap_area_put(test, vm);
	vmap_win_expect_free(test, &win);

	/* Several areas of each size, so that they are not only first in blocks. */
	for (pages = 1; pages <= max; pages += 1 + pages / 3) {
		for (i = 0; i < ARRAY_SIZE(in_block); i++)
			in_block[i] = vmap_area_need(test, &std, pages * PAGE_SIZE, 1, VM_NO_GUARD);
		for (i = 0; i < ARRAY_SIZE(in_block); i++)
			vmap_area_is_whole(test, in_block[i]);
		for (i = 0; i < ARRAY_SIZE(in_block); i++)
			vmap_area_put(test, in_block[i]);
	}
	vm_unmap_aliases();
}

/*
 * A free at any page-aligned address of an area frees all of it, because the
 * lookup is by containment. One at another address is refused with a warning.
 */
static void vmap_free_interior(struct kunit *test)
{
	struct page **pages = vmap_pages_get(test, 4);
	const struct vmap_win win = vmap_win_get(test, SZ_1M);
	struct vm_struct *vm, *removed;
	unsigned long start, page;
	void *mem;

	for (page = 0; page <= 9; page++) {
		vm = vmap_area_need(test, &win, 9 * PAGE_SIZE, 1, 0);
		start = vmap_start(vm);

		if (IS_ENABLED(CONFIG_BUG)) {
			kunit_warning_suppress(test) {
				KUNIT_EXPECT_NULL(test, remove_vm_area(vm->addr + 8));
				KUNIT_EXPECT_GE(test, KUNIT_SUPPRESSED_WARNING_COUNT(), 1);
			}
			vmap_area_is_sound(test, vm, &win, 1);
		}
		removed = remove_vm_area((void *)(start + page * PAGE_SIZE));
		KUNIT_EXPECT_PTR_EQ_MSG(test, removed, vm, "removing page %lu of 10 at %#lx", page,
					start);
		if (removed == vm)
			kfree(vm);
		KUNIT_EXPECT_NULL(test, find_vmap_area(start));
		KUNIT_EXPECT_NULL(test, find_vmap_area(start + 10 * PAGE_SIZE - 1));
	}
	vmap_win_expect_free(test, &win);

	/* A mapped area can be freed at an inner page, too. */
	mem = vmap(pages, 4, VM_MAP, PAGE_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, mem);
	vunmap(mem + 2 * PAGE_SIZE);
	KUNIT_EXPECT_NULL(test, find_vm_area(mem));
}

/*
 * A double free causes a warning and no damage: neighbours are unchanged, and
 * no range is handed out twice afterwards.
 */
static void vmap_free_twice(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 64 * PAGE_SIZE);
	struct vm_struct *vm[4];
	void *mem;
	int i;

	if (!IS_ENABLED(CONFIG_BUG))
		kunit_skip(test, "warnings need CONFIG_BUG");

	vm[0] = vmap_area_need(test, &win, 2 * PAGE_SIZE, 1, 0);
	mem = vmap_mem_need(test, &win, 2, 0);
	vm[1] = vmap_area_need(test, &win, 2 * PAGE_SIZE, 1, 0);
	vfree(mem);

	/* Once before the purge of the range, and once after it. */
	for (i = 0; i < 2; i++) {
		kunit_warning_suppress(test) {
			KUNIT_EXPECT_NULL(test, remove_vm_area(mem));
			vfree(mem);
			KUNIT_EXPECT_GE_MSG(test, KUNIT_SUPPRESSED_WARNING_COUNT(), 1,
					    "round %d: no warning", i);
		}
		vm_unmap_aliases();
	}

	vm[2] = vmap_area_need(test, &win, 2 * PAGE_SIZE, 1, 0);
	vm[3] = vmap_area_need(test, &win, 2 * PAGE_SIZE, 1, 0);
	KUNIT_EXPECT_NE(test, vmap_start(vm[2]), vmap_start(vm[3]));
	for (i = 0; i < ARRAY_SIZE(vm); i++)
		vmap_area_is_sound(test, vm[i], &win, 1);
	for (i = 0; i < ARRAY_SIZE(vm); i++)
		vmap_area_put(test, vm[i]);
	vmap_win_expect_free(test, &win);
}

static struct kunit_case vmap_find_cases[] = {
	KUNIT_CASE(vmap_get_vm_area),
	KUNIT_CASE(vmap_find_bounds),
	KUNIT_CASE(vmap_find_large),
	KUNIT_CASE(vmap_free_interior),
	KUNIT_CASE(vmap_free_twice),
	{}
};

VMAP_SUITE(vmap_find);
