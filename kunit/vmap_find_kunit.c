// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_find": lookups and frees.
 */
#include <linux/slab.h>

#include "vmap_area_kunit.h"

/* get_vm_area() fills in the vm_struct, and free_vm_area() frees the area. */
static void vmap_get_vm_area(struct kunit *test)
{
	const unsigned int nr[] = { 1, 2, 17, 64, 256, 1024, VMAP_TREE_PAGES };
	const struct vmap_win std = vmap_std_win();
	struct vm_struct *vm[ARRAY_SIZE(nr)];
	int i;

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		vm[i] = get_vm_area(nr[i] * PAGE_SIZE, VM_MAP);
		KUNIT_ASSERT_NOT_NULL_MSG(test, vm[i], "get_vm_area, %u pages",
					  nr[i]);
		KUNIT_EXPECT_EQ_MSG(test, vm[i]->flags, VM_MAP, "flags");
		KUNIT_EXPECT_EQ_MSG(test, vm[i]->size, (nr[i] + 1) * PAGE_SIZE,
				    "size with guard page of %u pages", nr[i]);
		KUNIT_EXPECT_EQ_MSG(test, vm[i]->nr_pages, 0, "mapped pages");
		KUNIT_EXPECT_NOT_NULL_MSG(test, vm[i]->caller, "caller");
		vmap_area_is_sound(test, vm[i], &std, PAGE_SIZE);
	}

	for (i = 0; i < ARRAY_SIZE(nr); i++)
		free_vm_area(vm[i]);

	/* An ioremap area is aligned to its size, rounded up to a power of two. */
	vm[0] = get_vm_area(SZ_128K, VM_IOREMAP);
	KUNIT_ASSERT_NOT_NULL(test, vm[0]);
	vmap_area_is_sound(test, vm[0], &std, SZ_128K);
	free_vm_area(vm[0]);
}

/*
 * A lookup finds an area from its first byte to the last byte of its guard
 * page, and does not find it one byte before or after.
 */
static void vmap_find_bounds(struct kunit *test)
{
	static const unsigned int nr[] = { 1, 2, 15, 16, 17, 300 };
	const struct vmap_win win = vmap_win_get(test, VMAP_PAGES_OF(SZ_8M));
	struct vm_struct *vm[3];
	unsigned long addr;
	int i, j;

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		unsigned long hole[2];

		for (j = 0; j < ARRAY_SIZE(vm); j++) {
			vm[j] = vmap_area_get(&win, nr[i] * PAGE_SIZE, 1, 0,
					      VMAP_GFP);
			KUNIT_ASSERT_NOT_NULL_MSG(test, vm[j], "%u pages",
						  nr[i]);
			vmap_area_is_sound(test, vm[j], &win, 1);
		}

		/* Lookups just outside the middle area do not find it. */
		addr = vmap_start(vm[1]);
		KUNIT_EXPECT_PTR_NE_MSG(test, vm[1],
					find_vm_area((void *)(addr - 1)),
					"found one byte before %#lx", addr);
		addr = vmap_end(vm[1]);
		KUNIT_EXPECT_PTR_EQ_MSG(test, vm[1],
					find_vm_area((void *)(addr - 1)),
					"guard page before %#lx", addr);
		KUNIT_EXPECT_PTR_NE_MSG(test, vm[1], find_vm_area((void *)addr),
					"found one byte behind, at %#lx", addr);

		hole[0] = vmap_start(vm[1]);
		hole[1] = vmap_end(vm[1]);
		vmap_area_put(test, vm[1]);
		for (addr = hole[0]; addr < hole[1]; addr += PAGE_SIZE)
			KUNIT_EXPECT_NULL_MSG(test, find_vmap_area(addr),
					      "%#lx in the hole %#lx-%#lx", addr,
					      hole[0], hole[1]);
		vmap_area_is_sound(test, vm[0], &win, 1);
		vmap_area_is_sound(test, vm[2], &win, 1);
		vmap_area_put(test, vm[2]);
		vmap_area_put(test, vm[0]);
		vm_unmap_aliases();
	}

	KUNIT_EXPECT_NULL(test, find_vmap_area(0));
	KUNIT_EXPECT_NULL(test, find_vmap_area(ULONG_MAX));
	KUNIT_EXPECT_NULL(test, find_vmap_area(win.start - 1));
	KUNIT_EXPECT_NULL(test, find_vmap_area(win.end));
	vmap_win_expect_free(test, &win);
}

static void found_at_each_page(struct kunit *test, const struct vm_struct *vm)
{
	unsigned long addr;

	for (addr = vmap_start(vm); addr < vmap_end(vm); addr += PAGE_SIZE) {
		if (find_vm_area((void *)addr) == vm)
			continue;
		KUNIT_FAIL(test, "%#lx in %#lx-%#lx is not found", addr,
			   vmap_start(vm), vmap_end(vm));
		break;
	}
}

/* A lookup finds a large area at every page, across all parts of the index. */
static void vmap_find_large(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, SZ_32M);
	const struct vmap_win std = vmap_std_win();
	const unsigned int max = VMAP_IS_SMALL ? 64 : 5000;
	struct vm_struct *vm, *in_block[20];
	unsigned int pages, i;

	vm = vmap_area_get(&win, SZ_16M + 3 * PAGE_SIZE, 1, 0, VMAP_GFP);
	KUNIT_ASSERT_NOT_NULL(test, vm);
	found_at_each_page(test, vm);
	vmap_area_put(test, vm);
	vmap_win_expect_free(test, &win);

	/* Several areas of each size, so that they are not only first in blocks. */
	for (pages = 1; pages <= max; pages += 1 + pages / 3) {
		for (i = 0; i < ARRAY_SIZE(in_block); i++) {
			vm = vmap_area_get(&std, pages * PAGE_SIZE, 1,
					   VM_NO_GUARD, VMAP_GFP);
			KUNIT_ASSERT_NOT_NULL_MSG(test, vm, "%u pages", pages);
			in_block[i] = vm;
		}
		for (i = 0; i < ARRAY_SIZE(in_block); i++)
			found_at_each_page(test, in_block[i]);
		for (i = 0; i < ARRAY_SIZE(in_block); i++)
			vmap_area_put(test, in_block[i]);
	}
	vm_unmap_aliases();
}

/* A freed area is not found, neither before nor after a purge. */
static void vmap_find_after_free(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, VMAP_PAGES_OF(SZ_1M));
	unsigned long addr[8];
	void *mem[8];
	int i;

	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		mem[i] = __vmalloc_node_range((i + 1) * PAGE_SIZE, 1, win.start,
					      win.end, GFP_KERNEL, PAGE_KERNEL,
					      0, NUMA_NO_NODE, __func__);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[i], "area %d", i);
		addr[i] = (unsigned long)kasan_reset_tag(mem[i]);
	}

	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		vfree(mem[i]);
		KUNIT_EXPECT_NULL_MSG(test, find_vmap_area(addr[i]),
				      "%#lx before the purge", addr[i]);
		KUNIT_EXPECT_NULL_MSG(test,
				      find_vmap_area(addr[i] + i * PAGE_SIZE),
				      "last page at %#lx before the purge",
				      addr[i] + i * PAGE_SIZE);
	}

	vm_unmap_aliases();
	for (i = 0; i < ARRAY_SIZE(mem); i++)
		KUNIT_EXPECT_NULL_MSG(test, find_vmap_area(addr[i]),
				      "%#lx after the purge", addr[i]);
	vmap_win_expect_free(test, &win);
}

/*
 * A free at any page-aligned address of an area frees all of it, because the
 * lookup is by containment.
 */
static void vmap_free_interior(struct kunit *test)
{
	struct page **pages = vmap_pages_get(test, 4);
	const struct vmap_win win = vmap_win_get(test, SZ_1M);
	struct vm_struct *vm, *removed;
	unsigned long start, page;
	void *mem;

	for (page = 0; page <= 9; page++) {
		vm = vmap_area_get(&win, 9 * PAGE_SIZE, 1, 0, VMAP_GFP);
		KUNIT_ASSERT_NOT_NULL_MSG(test, vm, "area for page %lu", page);
		start = vmap_start(vm);

		removed = remove_vm_area((void *)(start + page * PAGE_SIZE));
		KUNIT_EXPECT_PTR_EQ_MSG(test, removed, vm,
					"removing page %lu of 10 at %#lx", page,
					start);
		if (removed == vm)
			kfree(vm);
		KUNIT_EXPECT_NULL_MSG(test, find_vmap_area(start),
				      "start %#lx is left", start);
		KUNIT_EXPECT_NULL_MSG(test,
				      find_vmap_area(start + 10 * PAGE_SIZE - 1),
				      "the end of %#lx is left", start);
	}
	vmap_win_expect_free(test, &win);

	/* A mapped area can be freed at an inner page, too. */
	mem = vmap(pages, 4, VM_MAP, PAGE_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, mem);
	vunmap(mem + 2 * PAGE_SIZE);
	KUNIT_EXPECT_NULL_MSG(test, find_vm_area(mem), "%#lx is left",
			      (unsigned long)mem);
}

/*
 * A double free causes a warning and no damage: neighbours are unchanged, and
 * no range is handed out twice afterwards.
 */
static void vmap_free_twice(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 64 * PAGE_SIZE);
	struct vm_struct *left, *right, *again[2];
	void *mem;
	int i;

	if (!IS_ENABLED(CONFIG_BUG))
		kunit_skip(test, "warnings need CONFIG_BUG");

	left = vmap_area_get(&win, 2 * PAGE_SIZE, 1, 0, VMAP_GFP);
	mem = __vmalloc_node_range(2 * PAGE_SIZE, 1, win.start, win.end,
				   GFP_KERNEL, PAGE_KERNEL, 0, NUMA_NO_NODE,
				   __func__);
	right = vmap_area_get(&win, 2 * PAGE_SIZE, 1, 0, VMAP_GFP);
	KUNIT_ASSERT_NOT_NULL(test, left);
	KUNIT_ASSERT_NOT_NULL(test, mem);
	KUNIT_ASSERT_NOT_NULL(test, right);
	vfree(mem);

	/* Once before the purge of the range, and once after it. */
	for (i = 0; i < 2; i++) {
		kunit_warning_suppress(test) {
			KUNIT_EXPECT_NULL_MSG(test, remove_vm_area(mem),
					      "%#lx was removed twice",
					      (unsigned long)mem);
			vfree(mem);
			KUNIT_EXPECT_GE_MSG(test,
					    KUNIT_SUPPRESSED_WARNING_COUNT(), 1,
					    "round %d: no warning", i);
		}
		vm_unmap_aliases();
	}

	vmap_area_is_sound(test, left, &win, 1);
	vmap_area_is_sound(test, right, &win, 1);

	again[0] = vmap_area_get(&win, 2 * PAGE_SIZE, 1, 0, VMAP_GFP);
	again[1] = vmap_area_get(&win, 2 * PAGE_SIZE, 1, 0, VMAP_GFP);
	KUNIT_ASSERT_NOT_NULL(test, again[0]);
	KUNIT_ASSERT_NOT_NULL(test, again[1]);
	KUNIT_EXPECT_NE_MSG(test, vmap_start(again[0]), vmap_start(again[1]),
			    "handed out twice after two frees");
	for (i = 0; i < 2; i++) {
		vmap_area_is_sound(test, again[i], &win, 1);
		vmap_area_put(test, again[i]);
	}
	vmap_area_put(test, left);
	vmap_area_put(test, right);
	vmap_win_expect_free(test, &win);
}

/*
 * A free of an address without an area warns and changes nothing. A lookup of
 * such an address does not warn.
 */
static void vmap_free_unknown(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, SZ_1M);
	void *inside = (void *)(win.start + SZ_64K);
	struct vm_struct *vm;

	if (!IS_ENABLED(CONFIG_BUG))
		kunit_skip(test, "warnings need CONFIG_BUG");

	KUNIT_EXPECT_NULL(test, find_vm_area(inside));
	kunit_warning_suppress(test) {
		KUNIT_EXPECT_NULL(test, remove_vm_area(inside));
		vfree(inside);
		KUNIT_EXPECT_GE_MSG(test, KUNIT_SUPPRESSED_WARNING_COUNT(), 1,
				    "vfree() of %#lx: no warning",
				    (unsigned long)inside);
	}
	kunit_warning_suppress(test) {
		vunmap(inside);
		KUNIT_EXPECT_GE_MSG(test, KUNIT_SUPPRESSED_WARNING_COUNT(), 1,
				    "vunmap() of %#lx: no warning",
				    (unsigned long)inside);
	}
	/* With KASAN, vm_unmap_ram() writes KASAN shadow before the lookup. */
	if (!IS_ENABLED(CONFIG_KASAN_VMALLOC)) {
		kunit_warning_suppress(test) {
			vm_unmap_ram(inside, BITS_PER_LONG + 1);
			KUNIT_EXPECT_GE_MSG(test,
					    KUNIT_SUPPRESSED_WARNING_COUNT(), 1,
					    "vm_unmap_ram() of %#lx: no warning",
					    (unsigned long)inside);
		}
	}

	/* An address that is not page-aligned is refused even in a busy area. */
	vm = vmap_area_get(&win, 4 * PAGE_SIZE, 1, 0, VMAP_GFP);
	KUNIT_ASSERT_NOT_NULL(test, vm);
	kunit_warning_suppress(test) {
		KUNIT_EXPECT_NULL(test, remove_vm_area(vm->addr + 8));
		KUNIT_EXPECT_GE_MSG(test, KUNIT_SUPPRESSED_WARNING_COUNT(), 1,
				    "remove_vm_area() of %#lx: no warning",
				    vmap_start(vm) + 8);
	}
	vmap_area_is_sound(test, vm, &win, 1);
	vmap_area_put(test, vm);
	vmap_win_expect_free(test, &win);
}

static struct kunit_case vmap_find_cases[] = {
	KUNIT_CASE(vmap_get_vm_area),
	KUNIT_CASE(vmap_find_bounds),
	KUNIT_CASE(vmap_find_large),
	KUNIT_CASE(vmap_find_after_free),
	KUNIT_CASE(vmap_free_interior),
	KUNIT_CASE(vmap_free_twice),
	KUNIT_CASE(vmap_free_unknown),
	{}
};

VMAP_SUITE(vmap_find);
