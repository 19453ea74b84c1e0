// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suites vmap_*: guarantees to callers of mm/vmalloc.c. Here is what all of
 * them have in common: windows, areas, contents and faults.
 *
 * All cases run with every vmap area allocator. To compare two allocators,
 * boot one image with each of them.
 *
 * Reading order: vmap_area_kunit.h, this file, then any other. The comment above
 * each case says what it checks.
 */
#include <linux/delay.h>
#include <linux/moduleparam.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "vmap_area_kunit.h"

static unsigned long long seed_param;
module_param_named(seed, seed_param, ullong, 0444);
MODULE_PARM_DESC(seed, "seed of the random cases, 0: choose one and print it");

/**
 * vmap_seed() - seed the generator of a random case
 * @test: the running case
 * @rnd: generator to seed
 *
 * Prints the parameter that repeats the random numbers.
 *
 * Return: the seed, never 0.
 */
u64 vmap_seed(struct kunit *test, struct rnd_state *rnd)
{
	u64 seed = seed_param;

	while (!seed)
		seed = get_random_u64();

	kunit_info(test, "repeat with vmap_area_kunit.seed=%llu\n", seed);
	prandom_seed_state(rnd, seed);

	return seed;
}

/* Checks all invariants of the allocator after a case. */
void vmap_suite_exit(struct kunit *test)
{
	KUNIT_EXPECT_TRUE_MSG(test, vmap_rust_validate(), "see the kernel log");
}

/* Returns the first address of an area, without a KASAN tag. */
unsigned long vmap_start(const struct vm_struct *vm)
{
	return (unsigned long)kasan_reset_tag(vm->addr);
}

/* Returns the first address after an area and its guard page. */
unsigned long vmap_end(const struct vm_struct *vm)
{
	return vmap_start(vm) + vm->size;
}

/*
 * Returns the range that vmalloc() and vmap() request. Requests for exactly this
 * range may be served from blocks, so cases run both here and in a window.
 */
struct vmap_win vmap_std_win(void)
{
	return (struct vmap_win){ VMALLOC_START, VMALLOC_END };
}

/*
 * Makes the allocator free its empty blocks, or pools of ranges: a request that
 * cannot be served purges and drains them.
 */
void vmap_drain(struct kunit *test)
{
	const struct vmap_win std = vmap_std_win();

	vmap_area_refused(test, &std, VMALLOC_TOTAL, 1, 0, VMAP_GFP);
}

/**
 * vmap_win_get() - find a free range that nobody else uses
 * @test: the running case, which fails here if there is no such range
 * @size: bytes, a multiple of PAGE_SIZE
 *
 * The range is in the last quarter of the vmalloc space: ordinary requests get
 * the lowest addresses, percpu chunks the highest ones.
 */
struct vmap_win vmap_win_get(struct kunit *test, unsigned long size)
{
	struct vmap_win win = {
		VMALLOC_START + (VMALLOC_END - VMALLOC_START) / 4 * 3,
		VMALLOC_END,
	};
	struct vm_struct *vm;

	vm = vmap_area_need(test, &win, size, VMAP_WIN_ALIGN, VM_NO_GUARD);
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

/*
 * Like vmap_win_expect_free(), after work items have freed areas: vmalloc() leaves
 * that to one if it fails and must not sleep, and so does vfree_atomic().
 */
void vmap_win_expect_free_soon(struct kunit *test, const struct vmap_win *win)
{
	unsigned int tries = 3000;
	struct vm_struct *vm;

	while (!(vm = vmap_area_get(win, win->end - win->start, 1, VM_NO_GUARD, VMAP_GFP)) &&
	       --tries)
		msleep(20);
	if (vm)
		vmap_area_put(test, vm);
	vmap_win_expect_free(test, win);
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
				unsigned long align, unsigned long flags, gfp_t gfp)
{
	return __get_vm_area_node(size, align, PAGE_SHIFT, flags, win->start, win->end,
				  NUMA_NO_NODE, gfp, __builtin_return_address(0));
}

/* Like vmap_area_get(). The case fails here if there is no area, or it is not sound. */
struct vm_struct *vmap_area_need(struct kunit *test, const struct vmap_win *win,
				 unsigned long size, unsigned long align, unsigned long flags)
{
	struct vm_struct *vm = vmap_area_get(win, size, align, flags, VMAP_GFP);

	KUNIT_ASSERT_NOT_NULL_MSG(test, vm, "%#lx bytes aligned to %#lx in %#lx-%#lx, flags %#lx",
				  size, align, win->start, win->end, flags);
	vmap_area_is_sound(test, vm, win, align);
	return vm;
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

/* Calls vmap_area_get(), and expects NULL. */
void vmap_area_refused(struct kunit *test, const struct vmap_win *win, unsigned long size,
		       unsigned long align, unsigned long flags, gfp_t gfp)
{
	struct vm_struct *vm = vmap_area_get(win, size, align, flags, gfp);

	if (!vm)
		return;
	KUNIT_FAIL(test, "%#lx bytes aligned to %#lx in %#lx-%#lx, flags %#lx: got %#lx", size,
		   align, win->start, win->end, flags, vmap_start(vm));
	vmap_area_put(test, vm);
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
	unsigned long probe[] = { start, start + (end - start) / 2, end - 1 };
	int i;

	if (start < win->start || end > win->end || start >= end ||
	    !IS_ALIGNED(start, align) || !PAGE_ALIGNED(start)) {
		KUNIT_FAIL(test, "area %#lx-%#lx is not inside %#lx-%#lx, or not aligned to %#lx",
			   start, end, win->start, win->end, align);
		return false;
	}

	for (i = 0; i < ARRAY_SIZE(probe); i++) {
		const struct vmap_area *va = find_vmap_area(probe[i]);

		if (va && va->va_start == start && va->va_end == end && va->vm == vm &&
		    find_vm_area((void *)probe[i]) == vm)
			continue;
		KUNIT_FAIL(test, "area %#lx-%#lx: %#lx finds %#lx-%#lx, vm %s", start, end,
			   probe[i], va ? va->va_start : 0, va ? va->va_end : 0,
			   va && va->vm == vm ? "right" : "wrong");
		return false;
	}

	return true;
}

/* Expects that an area is found at each of its pages. */
void vmap_area_is_whole(struct kunit *test, const struct vm_struct *vm)
{
	unsigned long addr = vmap_start(vm);

	while (addr < vmap_end(vm) && find_vm_area((void *)addr) == vm)
		addr += PAGE_SIZE;
	KUNIT_EXPECT_EQ_MSG(test, addr, vmap_end(vm), "a page of %#lx-%#lx is not found",
			    vmap_start(vm), vmap_end(vm));
}

/**
 * vmap_mem_get() - vmalloc() in a window
 * @win: the window
 * @size: bytes
 * @gfp: allocation flags
 */
void *vmap_mem_get(const struct vmap_win *win, unsigned long size, gfp_t gfp)
{
	return __vmalloc_node_range(size, 1, win->start, win->end, gfp, PAGE_KERNEL, 0,
				    NUMA_NO_NODE, __builtin_return_address(0));
}

/**
 * vmap_mem_need() - vmalloc() in a window, with a pattern in each page
 * @test: the running case, which fails here without memory or room
 * @win: the window
 * @nr_pages: length
 * @seed: of the pattern, see vmap_pages_fill()
 */
void *vmap_mem_need(struct kunit *test, const struct vmap_win *win, unsigned long nr_pages,
		    u64 seed)
{
	void *mem = vmap_mem_get(win, nr_pages * PAGE_SIZE, VMAP_GFP);

	KUNIT_ASSERT_NOT_NULL_MSG(test, mem, "%lu pages in %#lx-%#lx", nr_pages, win->start,
				  win->end);
	vmap_pages_fill(mem, nr_pages, seed);
	return mem;
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

/* Calls vmap_pages_bad(), and expects that no page is wrong. */
void vmap_pages_expect(struct kunit *test, const void *p, unsigned long nr_pages, u64 seed)
{
	KUNIT_EXPECT_EQ_MSG(test, -1, vmap_pages_bad(p, nr_pages, seed),
			    "wrong page of %lu at %#lx", nr_pages, (unsigned long)p);
}

KUNIT_DEFINE_ACTION_WRAPPER(vmap_array_put, kvfree, const void *);

/**
 * vmap_array() - allocate a zeroed array, freed at the end of the case
 * @test: the running case, which fails here without memory
 * @nr: number of entries
 * @size: bytes of an entry
 */
void *vmap_array(struct kunit *test, size_t nr, size_t size)
{
	void *array = kvcalloc(nr, size, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL_MSG(test, array, "no memory for %zu entries", nr);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, vmap_array_put, array));
	return array;
}

static void vmap_page_put(void *data)
{
	__free_page(data);
}

/**
 * vmap_pages_get() - allocate single pages, freed at the end of the case
 * @test: the running case, which fails here without memory
 * @nr_pages: number of pages
 *
 * The pages, mapped in this order, have the pattern of vmap_pages_fill() with
 * seed 0.
 */
struct page **vmap_pages_get(struct kunit *test, unsigned int nr_pages)
{
	struct page **pages = vmap_array(test, nr_pages, sizeof(*pages));
	unsigned int i;

	for (i = 0; i < nr_pages; i++) {
		pages[i] = alloc_page(GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL_MSG(test, pages[i], "no memory for page %u", i);
		KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, vmap_page_put, pages[i]));
		vmap_page_fill(page_address(pages[i]), i, 0);
	}

	return pages;
}

/* Returns the pages of vmalloc() on all nodes, with those that each CPU counts for itself. */
long vmap_pages_count(void)
{
	long nr = global_node_page_state(NR_VMALLOC);
#ifdef CONFIG_SMP
	struct pglist_data *node;
	int cpu;

	for_each_online_pgdat(node) {
		for_each_online_cpu(cpu) {
			const struct per_cpu_nodestat *stat;

			stat = per_cpu_ptr(node->per_cpu_nodestats, cpu);
			nr += stat->vm_node_stat_diff[NR_VMALLOC];
		}
	}
#endif
	return nr;
}

/*
 * Makes the n-th slab or page allocation of this task fail; 0: none. See
 * should_fail_ex() in lib/fault-inject.c.
 */
void vmap_fault_arm(unsigned int nth)
{
#ifdef CONFIG_FAILSLAB
	WRITE_ONCE(current->fail_nth, nth);
#endif
}

/* Returns the number of allocations until one fails; 0 if it has failed. */
unsigned int vmap_fault_left(void)
{
#ifdef CONFIG_FAILSLAB
	return READ_ONCE(current->fail_nth);
#else
	return 0;
#endif
}

/* Undoes vmap_fault_arm(), and tells whether the allocation has failed. */
bool vmap_fault_disarm(void)
{
	bool hit = !vmap_fault_left();

	vmap_fault_arm(0);
	return hit;
}

/* Skips the case if allocations cannot be made to fail. */
void vmap_fault_need(struct kunit *test)
{
	if (!IS_ENABLED(CONFIG_FAILSLAB))
		kunit_skip(test, "needs CONFIG_FAULT_INJECTION and CONFIG_FAILSLAB");
}
