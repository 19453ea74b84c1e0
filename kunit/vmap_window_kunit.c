// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_window": requests for a window of addresses.
 */
#include "vmap_area_kunit.h"

/* Returns the first @size bytes of a window. */
static struct vmap_win first_bytes(struct vmap_win win, unsigned long size)
{
	return (struct vmap_win){ win.start, win.start + size };
}

/*
 * A window of exactly the requested size is enough at any alignment it has. One
 * that is one page too small, with or without guard page, or that has no aligned
 * start, refuses the request. The request leaves nothing behind.
 */
static void vmap_window_exact(struct kunit *test)
{
	static const unsigned int nr[] = {
		1, 2, 3, 16, 17, 64, 255, 256, 257, 1024,
	};
	const struct vmap_win win = vmap_win_get(test, VMAP_PAGES_OF(SZ_4M));
	struct vmap_win odd;
	unsigned long align;
	int i;

	for (i = 0; i < ARRAY_SIZE(nr); i++) {
		unsigned long size = nr[i] * PAGE_SIZE;
		struct vmap_win exact = first_bytes(win, size);
		struct vmap_win less = first_bytes(win, size - PAGE_SIZE);

		for (align = 1; align <= VMAP_WIN_ALIGN; align <<= 1)
			vmap_area_put(test, vmap_area_need(test, &exact, size, align, VM_NO_GUARD));
		vmap_area_refused(test, &less, size, 1, VM_NO_GUARD, VMAP_GFP);
		vmap_area_refused(test, &exact, size, 1, 0, VMAP_GFP);
	}

	/* Large enough, but no aligned address has enough room after it. */
	odd.start = win.start + PAGE_SIZE;
	odd.end = win.start + SZ_2M - PAGE_SIZE;
	vmap_area_refused(test, &odd, SZ_1M, SZ_1M, VM_NO_GUARD, VMAP_GFP);

	/* Inverted, and at the end of the address space. */
	odd = (struct vmap_win){ win.start, win.start - SZ_1M };
	vmap_area_refused(test, &odd, PAGE_SIZE, 1, VM_NO_GUARD, VMAP_GFP);
	odd = (struct vmap_win){ ULONG_MAX & PAGE_MASK, ULONG_MAX };
	vmap_area_refused(test, &odd, 4 * PAGE_SIZE, 1, VM_NO_GUARD, VMAP_GFP);

	vmap_win_expect_free(test, &win);
}

/*
 * Refused without a message are alignments that are not a power of two, and
 * those that no address of the vmalloc space has; sizes of 0, above the vmalloc
 * space, and overflowing ones. The next request is not affected.
 */
static void vmap_window_refused(struct kunit *test)
{
	static const unsigned long aligns[] = {
		0, 3, PAGE_SIZE + 1, 3 * PAGE_SIZE, SZ_4M - 1, ULONG_MAX,
		1UL << (BITS_PER_LONG - 1),
	};
	const unsigned long bad_sizes[] = {
		0, VMALLOC_TOTAL, ULONG_MAX, ULONG_MAX - PAGE_SIZE,
		-2 * PAGE_SIZE, -3 * PAGE_SIZE, 1UL << (BITS_PER_LONG - 1),
	};
	static const gfp_t gfp[] = { VMAP_GFP, VMAP_GFP_FAILING };
	const struct vmap_win win = vmap_win_get(test, SZ_1M);
	const struct vmap_win std = vmap_std_win();
	int i, j;

	for (j = 0; j < ARRAY_SIZE(gfp); j++) {
		for (i = 0; i < ARRAY_SIZE(aligns); i++)
			vmap_area_refused(test, &std, PAGE_SIZE, aligns[i], 0, gfp[j]);
		for (i = 0; i < ARRAY_SIZE(bad_sizes); i++) {
			vmap_area_refused(test, &std, bad_sizes[i], 1, 0, gfp[j]);
			vmap_area_refused(test, &std, bad_sizes[i], SZ_4M, 0, gfp[j]);
		}
	}

	KUNIT_EXPECT_NULL(test, __vmalloc(ULONG_MAX / 2, VMAP_GFP));
	KUNIT_EXPECT_NULL(test, __vmalloc(VMALLOC_TOTAL, VMAP_GFP));

	if (IS_ENABLED(CONFIG_BUG)) {
		kunit_warning_suppress(test) {
			KUNIT_EXPECT_NULL(test, __vmalloc(0, VMAP_GFP));
			KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
		}
	}
	vmap_win_expect_free(test, &win);
}

/*
 * A size that is no multiple of a page is rounded up: all of the last page belongs
 * to the area, and the guard page follows it. Areas anywhere in vmalloc space are
 * in blocks, those in the window are in the tree.
 */
static void vmap_window_rounded(struct kunit *test)
{
	static const unsigned long sizes[] = {
		1, PAGE_SIZE - 1, PAGE_SIZE + 1, 3 * PAGE_SIZE + 17, 101 * PAGE_SIZE - 8,
	};
	const struct vmap_win wins[] = { vmap_std_win(), vmap_win_get(test, 512 * PAGE_SIZE) };
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(wins) * ARRAY_SIZE(sizes); i++) {
		const struct vmap_win *win = &wins[i % ARRAY_SIZE(wins)];
		const unsigned long size = sizes[i / ARRAY_SIZE(wins)];
		const unsigned long nr = DIV_ROUND_UP(size, PAGE_SIZE);
		struct vm_struct *vm[3];
		void *mem;

		for (j = 0; j < ARRAY_SIZE(vm); j++) {
			unsigned long flags = j ? 0 : VM_NO_GUARD;

			vm[j] = vmap_area_need(test, win, size, 1, flags);
			KUNIT_EXPECT_EQ_MSG(test, get_vm_area_size(vm[j]), nr * PAGE_SIZE,
					    "area of %lu bytes, flags %#lx", size, flags);
			KUNIT_EXPECT_EQ_MSG(test, vm[j]->size, (nr + !!j) * PAGE_SIZE,
					    "area of %lu bytes, flags %#lx", size, flags);
		}
		mem = vmap_mem_get(win, size, VMAP_GFP);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem, "%lu bytes", size);
		KUNIT_EXPECT_EQ_MSG(test, find_vm_area(mem)->nr_pages, nr, "%lu bytes", size);
		vmap_area_is_sound(test, find_vm_area(mem), win, 1);
		vfree(mem);
		for (j = 0; j < ARRAY_SIZE(vm); j++)
			vmap_area_put(test, vm[j]);
	}
	vmap_win_expect_free(test, &wins[1]);
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
		unsigned long size = (1 + prandom_u32_state(&rnd) % (to - from)) * PAGE_SIZE;
		unsigned long align = 1UL << (prandom_u32_state(&rnd) % 23);
		struct vmap_win sub = {
			win.start + from * PAGE_SIZE, win.start + to * PAGE_SIZE,
		};

		/* All of it is free, so only the alignment can prevent a fit. */
		if (ALIGN(sub.start, align) + size <= sub.end)
			vmap_area_put(test, vmap_area_need(test, &sub, size, align, VM_NO_GUARD));
		else
			vmap_area_refused(test, &sub, size, align, VM_NO_GUARD, VMAP_GFP);
		if (test->status != KUNIT_SUCCESS)
			break;
	}

	vmap_win_expect_free(test, &win);
}

/* Areas that fill a window, after those pages at its start that are in use. */
static const struct full {
	const char *name;
	unsigned long size, align, flags, used;
	unsigned int areas;
} full[] = {
	{ "pages_1", PAGE_SIZE, 1, VM_NO_GUARD, 0, 64 },
	{ "pages_2", 2 * PAGE_SIZE, 1, VM_NO_GUARD, 0, 32 },
	{ "pages_4", 4 * PAGE_SIZE, 1, VM_NO_GUARD, 0, 16 },
	{ "pages_8", 8 * PAGE_SIZE, 1, VM_NO_GUARD, 0, 8 },
	{ "pages_32", 32 * PAGE_SIZE, 1, VM_NO_GUARD, 0, 2 },
	{ "guarded", PAGE_SIZE, 1, 0, 0, 32 },
	/* One page each, so that there is padding around every area. */
	{ "aligned_1m", PAGE_SIZE, SZ_1M, VM_NO_GUARD, PAGE_SIZE, 15 },
	{ "aligned_2m", PAGE_SIZE, SZ_2M, VM_NO_GUARD, PAGE_SIZE, 7 },
	{ "aligned_4m", PAGE_SIZE, SZ_4M, VM_NO_GUARD, PAGE_SIZE, 3 },
};

/* Reserves areas until none fits any more. Returns their number. */
static unsigned int fill(struct kunit *test, const struct vmap_win *win, const struct full *p,
			 struct vm_struct **vm, unsigned int max)
{
	unsigned int nr;

	for (nr = 0; nr < max; nr++) {
		vm[nr] = vmap_area_get(win, p->size, p->align, p->flags, VMAP_GFP);
		if (!vm[nr] || !vmap_area_is_sound(test, vm[nr], win, p->align))
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
			got += fill(test, &ends[i], &full[0], vm + got, 64 - got);
			for (left = 0, addr = ends[i].start; addr < ends[i].end;
			     addr += PAGE_SIZE) {
				if (find_vmap_area(addr))
					continue;
				hole = addr;
				left++;
			}
		} while (left && --tries);

		kunit_info(test, "%#lx-%#lx: %u of 64 pages were free\n", ends[i].start,
			   ends[i].end, got);
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
			in[i] = vmap_area_need(test, &mod, PAGE_SIZE, 1, 0);
			out[i] = vmap_area_need(test, &std, PAGE_SIZE, 1, 0);
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

KUNIT_ARRAY_PARAM_DESC(full, full, name);

/*
 * A full window refuses requests. Every freed range is handed out again, to a
 * request that purges by itself. A request that fits only into the sum of all
 * free ranges is refused. At the end the whole window is free.
 */
static void vmap_window_exhaust(struct kunit *test)
{
	const struct full *p = test->param_value;
	const unsigned long total = p->used ? SZ_16M : 64 * PAGE_SIZE;
	const struct vmap_win win = vmap_win_get(test, total);
	struct vm_struct *vm[65], *used = NULL;
	unsigned int i, round;

	if (p->used)
		used = vmap_area_need(test, &win, p->used, 1, VM_NO_GUARD);
	for (round = 0; round < 3; round++) {
		KUNIT_ASSERT_EQ_MSG(test, p->areas, fill(test, &win, p, vm, p->areas + 1),
				    "round %u: areas in a window", round);

		for (i = 0; i < p->areas; i += 2)
			vmap_area_put(test, vm[i]);
		if (!p->used)
			vmap_area_refused(test, &win, 2 * p->size, 1, p->flags, VMAP_GFP);
		for (i = 0; i < p->areas; i += 2)
			vm[i] = vmap_area_need(test, &win, p->size, p->align, p->flags);
		vmap_area_refused(test, &win, p->size, p->align, p->flags, VMAP_GFP);

		for (i = 0; i < p->areas; i++)
			vmap_area_put(test, vm[i]);
	}
	if (used)
		vmap_area_put(test, used);
	vmap_win_expect_free(test, &win);
}

static struct kunit_case vmap_window_cases[] = {
	KUNIT_CASE(vmap_window_exact),
	KUNIT_CASE(vmap_window_refused),
	KUNIT_CASE(vmap_window_rounded),
	KUNIT_CASE(vmap_window_inside),
	KUNIT_CASE(vmap_window_ends),
	KUNIT_CASE(vmap_window_foreign),
	KUNIT_CASE_PARAM(vmap_window_exhaust, full_gen_params),
	{}
};

VMAP_SUITE(vmap_window);
