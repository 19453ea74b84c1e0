// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers of the KUnit suites: windows, areas, contents and faults.
 */
#include <linux/slab.h>

#include "vmap_area_kunit.h"

/**
 * vmap_start() - first address of an area, without a KASAN tag
 * @vm: the area
 */
unsigned long vmap_start(const struct vm_struct *vm)
{
	return (unsigned long)kasan_reset_tag(vm->addr);
}

/**
 * vmap_end() - first address after an area and its guard page
 * @vm: the area
 */
unsigned long vmap_end(const struct vm_struct *vm)
{
	return vmap_start(vm) + vm->size;
}

/**
 * vmap_std_win() - the range that vmalloc() and vmap() request
 *
 * Requests for exactly this range may be served from blocks, so cases run both
 * here and in a window.
 */
struct vmap_win vmap_std_win(void)
{
	return (struct vmap_win){ VMALLOC_START, VMALLOC_END };
}

/**
 * vmap_drain() - make the allocator free its empty blocks, or pools of ranges
 * @test: the running case
 *
 * The allocator may keep freed ranges for requests of similar sizes. A request
 * that cannot be served purges and drains them.
 */
void vmap_drain(struct kunit *test)
{
	const struct vmap_win std = vmap_std_win();
	struct vm_struct *vm;

	vm = vmap_area_get(&std, VMALLOC_TOTAL, 1, 0, VMAP_GFP);
	KUNIT_ASSERT_NULL_MSG(test, vm, "all %#lx bytes were handed out",
			      VMALLOC_TOTAL);
}

/**
 * vmap_win_get() - find a free range of @size bytes that nobody else uses
 * @test: the running case, which fails here if there is no such range
 * @size: bytes, a multiple of PAGE_SIZE
 *
 * Reserves the range and frees it again. It is in the last quarter of the
 * vmalloc space: ordinary requests get the lowest addresses, percpu chunks the
 * highest ones.
 */
struct vmap_win vmap_win_get(struct kunit *test, unsigned long size)
{
	struct vmap_win win = {
		VMALLOC_START + (VMALLOC_END - VMALLOC_START) / 4 * 3,
		VMALLOC_END,
	};
	struct vm_struct *vm;

	vm = vmap_area_get(&win, size, VMAP_WIN_ALIGN, VM_NO_GUARD, VMAP_GFP);
	KUNIT_ASSERT_NOT_NULL_MSG(test, vm, "no hole of %#lx bytes in %#lx-%#lx",
				  size, win.start, win.end);

	win.start = vmap_start(vm);
	win.end = win.start + size;
	vmap_area_put(test, vm);
	vm_unmap_aliases();

	return win;
}

/**
 * vmap_win_expect_free() - expect that the whole window is free
 * @test: the running case
 * @win: a window in which all areas were freed
 *
 * Makes one request that needs every page of the window.
 */
void vmap_win_expect_free(struct kunit *test, const struct vmap_win *win)
{
	unsigned long size = win->end - win->start;
	struct vm_struct *vm;

	vm = vmap_area_get(win, size, 1, VM_NO_GUARD, VMAP_GFP);
	KUNIT_EXPECT_NOT_NULL_MSG(test, vm,
				  "window %#lx-%#lx: freed, but not all %lu pages can be had again",
				  win->start, win->end, size >> PAGE_SHIFT);
	if (!vm)
		return;

	vmap_area_is_sound(test, vm, win, 1);
	vmap_area_put(test, vm);
	vm_unmap_aliases();
}

/**
 * vmap_area_get() - reserve addresses in a window without mapping anything
 * @win: the window
 * @size: bytes without the guard page
 * @align: bytes, a power of two
 * @flags: VM_NO_GUARD for areas without a guard page, else 0
 * @gfp: allocation flags
 *
 * Return: the area, or NULL.
 */
struct vm_struct *vmap_area_get(const struct vmap_win *win, unsigned long size,
				unsigned long align, unsigned long flags,
				gfp_t gfp)
{
	return __get_vm_area_node(size, align, PAGE_SHIFT, flags, win->start,
				  win->end, NUMA_NO_NODE, gfp,
				  __builtin_return_address(0));
}

/**
 * vmap_area_put() - free an area of vmap_area_get()
 * @test: the running case
 * @vm: the area
 *
 * Unlike free_vm_area() this does not BUG() if the area is not found.
 */
void vmap_area_put(struct kunit *test, struct vm_struct *vm)
{
	unsigned long start = vmap_start(vm), end = vmap_end(vm);
	struct vm_struct *removed = remove_vm_area(vm->addr);

	KUNIT_EXPECT_PTR_EQ_MSG(test, removed, vm,
				"area %#lx-%#lx: freeing it removed another one or none",
				start, end);
	if (removed == vm)
		kfree(vm);
}

/**
 * vmap_area_is_sound() - expect that an area fits its request and is found
 * @test: the running case
 * @vm: the area
 * @win: the requested range
 * @align: the requested alignment
 *
 * Return: false after the first failure, so that loops can stop.
 */
bool vmap_area_is_sound(struct kunit *test, const struct vm_struct *vm,
			const struct vmap_win *win, unsigned long align)
{
	unsigned long start = vmap_start(vm), end = vmap_end(vm);
	const struct vmap_area *va;
	unsigned long probe[] = {
		start,
		start + (end - start) / 2,
		end - 1,
	};
	int i;

	if (start < win->start || end > win->end || start >= end) {
		KUNIT_FAIL(test, "area %#lx-%#lx is not inside %#lx-%#lx",
			   start, end, win->start, win->end);
		return false;
	}

	if (!IS_ALIGNED(start, align) || !PAGE_ALIGNED(start)) {
		KUNIT_FAIL(test, "area %#lx-%#lx is not aligned to %#lx", start,
			   end, align);
		return false;
	}

	for (i = 0; i < ARRAY_SIZE(probe); i++) {
		va = find_vmap_area(probe[i]);
		if (!va) {
			KUNIT_FAIL(test, "area %#lx-%#lx is not found at %#lx",
				   start, end, probe[i]);
			return false;
		}
		if (va->va_start != start || va->va_end != end || va->vm != vm) {
			KUNIT_FAIL(test,
				   "area %#lx-%#lx: %#lx finds %#lx-%#lx, vm %s",
				   start, end, probe[i], va->va_start,
				   va->va_end,
				   va->vm == vm ? "right" : "wrong");
			return false;
		}
		if (find_vm_area((void *)probe[i]) != vm) {
			KUNIT_FAIL(test,
				   "area %#lx-%#lx: find_vm_area(%#lx) is another one",
				   start, end, probe[i]);
			return false;
		}
	}

	return true;
}

/* Returns the pattern of word @word of page @page. */
static u64 vmap_stamp(u64 seed, unsigned long page, unsigned int word)
{
	return (seed ^ (page << 10) ^ word) * 0x9e3779b97f4a7c15ULL;
}

#define VMAP_LAST_WORD	(PAGE_SIZE / sizeof(u64) - 1)

/**
 * vmap_page_fill() - write a pattern to both ends of one page
 * @p: the page
 * @index: number of the page within the allocation
 * @seed: distinguishes the patterns of allocations
 */
void vmap_page_fill(void *p, unsigned long index, u64 seed)
{
	u64 *word = p;

	word[0] = vmap_stamp(seed, index, 0);
	word[VMAP_LAST_WORD] = vmap_stamp(seed, index, VMAP_LAST_WORD);
}

/**
 * vmap_pages_fill() - write a pattern to both ends of each page
 * @p: mapped memory
 * @nr_pages: its length
 * @seed: as for vmap_page_fill()
 */
void vmap_pages_fill(void *p, unsigned long nr_pages, u64 seed)
{
	unsigned long i;

	for (i = 0; i < nr_pages; i++)
		vmap_page_fill(p + i * PAGE_SIZE, i, seed);
}

/**
 * vmap_pages_bad() - check the pattern of vmap_pages_fill()
 * @p: mapped memory
 * @nr_pages: its length
 * @seed: the seed of vmap_pages_fill()
 *
 * Return: index of the first wrong page, or -1.
 */
long vmap_pages_bad(const void *p, unsigned long nr_pages, u64 seed)
{
	unsigned long i;

	for (i = 0; i < nr_pages; i++) {
		const u64 *word = p + i * PAGE_SIZE;

		if (word[0] != vmap_stamp(seed, i, 0) ||
		    word[VMAP_LAST_WORD] != vmap_stamp(seed, i, VMAP_LAST_WORD))
			return i;
	}

	return -1;
}

struct vmap_page_array {
	unsigned int nr_pages;
	struct page *pages[] __counted_by(nr_pages);
};

static void vmap_pages_put(void *data)
{
	struct vmap_page_array *array = data;
	unsigned int i;

	for (i = 0; i < array->nr_pages; i++)
		if (array->pages[i])
			__free_page(array->pages[i]);
	kvfree(array);
}

/**
 * vmap_pages_get() - allocate single pages, freed at the end of the case
 * @test: the running case, which fails here without memory
 * @nr_pages: number of pages
 */
struct page **vmap_pages_get(struct kunit *test, unsigned int nr_pages)
{
	struct vmap_page_array *array;
	unsigned int i;

	array = kvzalloc_flex(*array, pages, nr_pages);
	KUNIT_ASSERT_NOT_NULL_MSG(test, array, "no memory for %u pointers",
				  nr_pages);
	array->nr_pages = nr_pages;
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, vmap_pages_put, array));

	for (i = 0; i < nr_pages; i++) {
		array->pages[i] = alloc_page(GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL_MSG(test, array->pages[i],
					  "no memory for page %u of %u", i,
					  nr_pages);
	}

	return array->pages;
}

/**
 * vmap_fault_arm() - make one allocation of this task fail
 * @nth: the n-th slab or page allocation from now on fails; 0: none
 *
 * See should_fail_ex() in lib/fault-inject.c.
 */
void vmap_fault_arm(unsigned int nth)
{
#ifdef CONFIG_FAILSLAB
	WRITE_ONCE(current->fail_nth, nth);
#endif
}

/**
 * vmap_fault_left() - allocations until the failure
 *
 * Return: the number of the failing allocation, counted from now on; 0 if it
 * has failed.
 */
unsigned int vmap_fault_left(void)
{
#ifdef CONFIG_FAILSLAB
	return READ_ONCE(current->fail_nth);
#else
	return 0;
#endif
}

/**
 * vmap_fault_disarm() - undo vmap_fault_arm()
 *
 * Return: true if the allocation has failed.
 */
bool vmap_fault_disarm(void)
{
	bool hit = true;

#ifdef CONFIG_FAILSLAB
	hit = !READ_ONCE(current->fail_nth);
	WRITE_ONCE(current->fail_nth, 0);
#endif

	return hit;
}

/**
 * vmap_fault_need() - skip the case if allocations cannot be made to fail
 * @test: the running case
 */
void vmap_fault_need(struct kunit *test)
{
	if (!IS_ENABLED(CONFIG_FAILSLAB))
		kunit_skip(test, "needs CONFIG_FAULT_INJECTION and CONFIG_FAILSLAB");
}
