// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_window": requests for a window of addresses.
 */
#include <linux/slab.h>

#include "vmap_area_kunit.h"

/* Returns the first @size bytes of a window. */
static struct vmap_win first_bytes(struct vmap_win win, unsigned long size)
{
	return (struct vmap_win){ win.start, win.start + size };
}

/* A window of exactly the requested size is enough at any alignment it has. */
static void vmap_window_exact(struct kunit *test)
{
	static const unsigned int nr[] = {
		1, 2, 3, 16, 17, 64, 255, 256, 257, SZ_4M / PAGE_SIZE,
	};
	const struct vmap_win win = vmap_win_get(test, SZ_4M);
	unsigned long align;
	int i;

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		unsigned long size = nr[i] * PAGE_SIZE;
		struct vmap_win exact = first_bytes(win, size);

		for (align = 1; align <= VMAP_WIN_ALIGN; align <<= 1) {
			struct vm_struct *vm;

			vm = vmap_area_get(&exact, size, align, VM_NO_GUARD,
					   VMAP_GFP);
			KUNIT_ASSERT_NOT_NULL_MSG(test, vm,
						  "%u pages aligned to %#lx in %#lx-%#lx",
						  nr[i], align, exact.start,
						  exact.end);
			vmap_area_is_sound(test, vm, &exact, align);
			vmap_area_put(test, vm);
		}
	}

	vmap_win_expect_free(test, &win);
}

/*
 * A window that is one page too small, with or without guard page, or that has
 * no aligned start, refuses the request. The request leaves nothing behind.
 */
static void vmap_window_too_small(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, SZ_4M);
	static const unsigned int nr[] = { 2, 3, 16, 64, 256, 1024 };
	struct vmap_win less, odd;
	struct vm_struct *vm;
	int i;

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		unsigned long size = nr[i] * PAGE_SIZE;

		less = first_bytes(win, size - PAGE_SIZE);
		vm = vmap_area_get(&less, size, 1, VM_NO_GUARD, VMAP_GFP);
		KUNIT_EXPECT_NULL_MSG(test, vm, "%u pages in %#lx-%#lx", nr[i],
				      less.start, less.end);

		less = first_bytes(win, size);
		vm = vmap_area_get(&less, size, 1, 0, VMAP_GFP);
		KUNIT_EXPECT_NULL_MSG(test, vm,
				      "%u pages and a guard page in %#lx-%#lx",
				      nr[i], less.start, less.end);
	}

	/* Large enough, but no aligned address has enough room after it. */
	odd.start = win.start + PAGE_SIZE;
	odd.end = win.start + SZ_2M - PAGE_SIZE;
	vm = vmap_area_get(&odd, SZ_1M, SZ_1M, VM_NO_GUARD, VMAP_GFP);
	KUNIT_EXPECT_NULL_MSG(test, vm, "1 MiB aligned to 1 MiB in %#lx-%#lx",
			      odd.start, odd.end);

	/* Empty, inverted, and at the end of the address space. */
	odd = first_bytes(win, 0);
	KUNIT_EXPECT_NULL(test, vmap_area_get(&odd, PAGE_SIZE, 1, VM_NO_GUARD,
					      VMAP_GFP));
	odd.end = odd.start - SZ_1M;
	KUNIT_EXPECT_NULL(test, vmap_area_get(&odd, PAGE_SIZE, 1, VM_NO_GUARD,
					      VMAP_GFP));
	odd.start = ULONG_MAX & PAGE_MASK;
	odd.end = ULONG_MAX;
	KUNIT_EXPECT_NULL(test, vmap_area_get(&odd, 4 * PAGE_SIZE, 1,
					      VM_NO_GUARD, VMAP_GFP));

	vmap_win_expect_free(test, &win);
}

/* Areas are inside random windows. */
static void vmap_window_inside(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, SZ_16M);
	struct rnd_state rnd;
	unsigned int i;

	vmap_seed(test, &rnd);
	for (i = 0; i < 1000; i++) {
		unsigned long nr = (win.end - win.start) / PAGE_SIZE;
		unsigned long from = prandom_u32_state(&rnd) % nr;
		unsigned long to = from + 1 + prandom_u32_state(&rnd) % (nr - from);
		unsigned long pages = 1 + prandom_u32_state(&rnd) % (to - from);
		unsigned long align = 1UL << (prandom_u32_state(&rnd) % 23);
		struct vmap_win sub = {
			win.start + from * PAGE_SIZE,
			win.start + to * PAGE_SIZE,
		};
		struct vm_struct *vm;

		vm = vmap_area_get(&sub, pages * PAGE_SIZE, align, VM_NO_GUARD,
				   VMAP_GFP);
		if (vm) {
			bool sound = vmap_area_is_sound(test, vm, &sub, align);

			vmap_area_put(test, vm);
			if (!sound)
				break;
			continue;
		}

		/* All of it is free, so only the alignment can prevent a fit. */
		KUNIT_EXPECT_GT_MSG(test,
				    ALIGN(sub.start, align) + pages * PAGE_SIZE,
				    sub.end,
				    "%lu pages aligned to %#lx refused in %#lx-%#lx",
				    pages, align, sub.start, sub.end);
	}

	vmap_win_expect_free(test, &win);
}

/* Reserves single pages until none is left. Returns their number. */
static unsigned int fill(struct kunit *test, const struct vmap_win *win,
			 struct vm_struct **vm, unsigned int max)
{
	unsigned int nr;

	for (nr = 0; nr < max; nr++) {
		vm[nr] = vmap_area_get(win, PAGE_SIZE, 1, VM_NO_GUARD, VMAP_GFP);
		if (!vm[nr] || !vmap_area_is_sound(test, vm[nr], win, 1))
			break;
	}

	return nr;
}

/*
 * The first and the last pages of the vmalloc space are used like all others:
 * every free page is handed out.
 */
static void vmap_window_ends(struct kunit *test)
{
	unsigned long last = VMALLOC_END & PAGE_MASK;
	struct vmap_win ends[2] = {
		{ VMALLOC_START, VMALLOC_START + 64 * PAGE_SIZE },
		{ last - 64 * PAGE_SIZE, last },
	};
	struct vm_struct *vm[64];
	int i;

	for (i = 0; i < ARRAY_SIZE(ends); i++) {
		unsigned int got = 0, tries = 5, left;
		unsigned long addr, hole = 0;

		/* Other users may free pages here meanwhile: try again. */
		do {
			got += fill(test, &ends[i], vm + got, 64 - got);
			for (left = 0, addr = ends[i].start; addr < ends[i].end;
			     addr += PAGE_SIZE) {
				if (find_vmap_area(addr))
					continue;
				hole = addr;
				left++;
			}
		} while (left && --tries);

		kunit_info(test, "%#lx-%#lx: %u of 64 pages were free\n",
			   ends[i].start, ends[i].end, got);
		KUNIT_EXPECT_EQ_MSG(test, 0, left,
				    "pages of %#lx-%#lx that nobody can have, one at %#lx",
				    ends[i].start, ends[i].end, hole);
		while (got--)
			vmap_area_put(test, vm[got]);
	}
	vm_unmap_aliases();
}

/*
 * Requests for a window outside the vmalloc space are served from it, and its
 * freed ranges are not used for requests for the vmalloc space.
 */
static void vmap_window_foreign(struct kunit *test)
{
#ifdef MODULES_VADDR
	const struct vmap_win mod = { MODULES_VADDR, MODULES_END };
	const struct vmap_win std = vmap_std_win();
	struct vm_struct *in[16], *out[16];
	unsigned int round, i;

	if (mod.end > std.start && mod.start < std.end)
		kunit_skip(test, "the module range is part of the vmalloc range");

	for (round = 0; round < 4; round++) {
		for (i = 0; i < ARRAY_SIZE(in); i++) {
			in[i] = vmap_area_get(&mod, PAGE_SIZE, 1, 0, VMAP_GFP);
			out[i] = vmap_area_get(&std, PAGE_SIZE, 1, 0, VMAP_GFP);
			KUNIT_ASSERT_NOT_NULL_MSG(test, in[i], "module area %u",
						  i);
			KUNIT_ASSERT_NOT_NULL_MSG(test, out[i], "area %u", i);
			vmap_area_is_sound(test, in[i], &mod, 1);
			vmap_area_is_sound(test, out[i], &std, 1);
		}
		for (i = 0; i < ARRAY_SIZE(in); i++) {
			vmap_area_put(test, in[i]);
			vmap_area_put(test, out[i]);
		}
		if (round % 2)
			vm_unmap_aliases();
	}
#else
	kunit_skip(test, "no range for modules");
#endif
}

/*
 * A full window refuses requests. Every freed page is handed out again, to a
 * request that purges by itself. A request that fits only into the sum of all
 * free pages is refused. At the end the whole window is free.
 */
static void vmap_window_exhaust(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 64 * PAGE_SIZE);
	struct vm_struct *vm[65];
	unsigned int i, round;

	for (round = 0; round < 3; round++) {
		KUNIT_ASSERT_EQ_MSG(test, 64, fill(test, &win, vm, 65),
				    "round %u: pages in a window of 64", round);

		for (i = 0; i < 64; i += 2)
			vmap_area_put(test, vm[i]);

		KUNIT_EXPECT_NULL_MSG(test,
				      vmap_area_get(&win, 2 * PAGE_SIZE, 1,
						    VM_NO_GUARD, VMAP_GFP),
				      "round %u: two pages from single holes",
				      round);

		for (i = 0; i < 64; i += 2) {
			vm[i] = vmap_area_get(&win, PAGE_SIZE, 1, VM_NO_GUARD,
					      VMAP_GFP);
			KUNIT_ASSERT_NOT_NULL_MSG(test, vm[i],
						  "round %u: hole %u of 32",
						  round, i / 2);
			vmap_area_is_sound(test, vm[i], &win, 1);
		}
		KUNIT_EXPECT_NULL_MSG(test,
				      vmap_area_get(&win, PAGE_SIZE, 1,
						    VM_NO_GUARD, VMAP_GFP),
				      "round %u: a page from a full window",
				      round);

		for (i = 0; i < 64; i++)
			vmap_area_put(test, vm[i]);
		vmap_win_expect_free(test, &win);
	}
}

/* With mapped memory and guard pages, 32 areas of a page fit into 64 pages. */
static void vmap_window_exhaust_mapped(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 64 * PAGE_SIZE);
	unsigned int i, nr, round;
	void *mem[33];

	for (round = 0; round < 3; round++) {
		for (nr = 0; nr < ARRAY_SIZE(mem); nr++) {
			mem[nr] = __vmalloc_node_range(PAGE_SIZE, 1, win.start,
						       win.end, VMAP_GFP,
						       PAGE_KERNEL, 0,
						       NUMA_NO_NODE, __func__);
			if (!mem[nr])
				break;
			vmap_pages_fill(mem[nr], 1, nr);
		}
		KUNIT_EXPECT_EQ_MSG(test, 32, nr,
				    "round %u: areas in a window of 64 pages",
				    round);
		for (i = 0; i < nr; i++) {
			KUNIT_EXPECT_EQ_MSG(test, -1, vmap_pages_bad(mem[i], 1, i),
					    "contents of area %u at %#lx", i,
					    (unsigned long)mem[i]);
			vfree(mem[i]);
		}
	}

	vmap_win_expect_free(test, &win);
}

/*
 * A request that may sleep is served from a window whose pages are all lazy:
 * it purges by itself, for any size.
 */
static void vmap_window_reuse_lazy(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, SZ_1M);
	unsigned long size;

	for (size = PAGE_SIZE; size <= SZ_1M; size <<= 1) {
		unsigned int nr = SZ_1M / size, i;
		struct vm_struct **vm;

		vm = kunit_kcalloc(test, nr, sizeof(*vm), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, vm);
		for (i = 0; i < nr; i++) {
			vm[i] = vmap_area_get(&win, size, 1, VM_NO_GUARD,
					      VMAP_GFP);
			KUNIT_ASSERT_NOT_NULL_MSG(test, vm[i],
						  "area %u of %u, %#lx bytes each",
						  i, nr, size);
			if (!vmap_area_is_sound(test, vm[i], &win, 1))
				return;
		}
		for (i = 0; i < nr; i++)
			vmap_area_put(test, vm[i]);
	}

	vmap_win_expect_free(test, &win);
}

static struct kunit_case vmap_window_cases[] = {
	KUNIT_CASE(vmap_window_exact),
	KUNIT_CASE(vmap_window_too_small),
	KUNIT_CASE(vmap_window_inside),
	KUNIT_CASE(vmap_window_ends),
	KUNIT_CASE(vmap_window_foreign),
	KUNIT_CASE(vmap_window_exhaust),
	KUNIT_CASE(vmap_window_exhaust_mapped),
	KUNIT_CASE(vmap_window_reuse_lazy),
	{}
};

VMAP_SUITE(vmap_window);
