// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_random": many random requests.
 */
#include <linux/slab.h>
#include <linux/sort.h>

#include "vmap_area_kunit.h"

/* An area, with its bounds for the checks after its free. */
struct track {
	struct vm_struct *vm;
	unsigned long start;
	unsigned long end;
	unsigned long align;
	u32 key;
};

static int by_start(const void *a, const void *b)
{
	const struct track *left = a, *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

static int by_key(const void *a, const void *b)
{
	const struct track *left = a, *right = b;

	return left->key < right->key ? -1 : left->key > right->key;
}

static bool take(struct kunit *test, struct rnd_state *rnd,
		 const struct vmap_win *win, struct track *t)
{
	unsigned long pages = 1 + prandom_u32_state(rnd) % 64;
	unsigned long flags = prandom_u32_state(rnd) % 4 ? 0 : VM_NO_GUARD;

	/* Three in four areas have page alignment, the others up to 4 MiB. */
	t->align = PAGE_SIZE;
	if (prandom_u32_state(rnd) % 4 == 0)
		t->align = 1UL << (prandom_u32_state(rnd) % 23);

	t->vm = vmap_area_get(win, pages * PAGE_SIZE, t->align, flags, VMAP_GFP);
	if (!t->vm)
		return false;

	t->start = vmap_start(t->vm);
	t->end = vmap_end(t->vm);
	t->key = prandom_u32_state(rnd);

	return true;
}

/* Sorts @t and expects that no two areas overlap. */
static bool are_disjoint(struct kunit *test, struct track *t, unsigned int nr)
{
	unsigned int i;

	sort(t, nr, sizeof(*t), by_start, NULL);
	for (i = 1; i < nr; i++) {
		if (t[i - 1].end <= t[i].start)
			continue;
		KUNIT_FAIL(test, "%#lx-%#lx overlaps %#lx-%#lx", t[i - 1].start,
			   t[i - 1].end, t[i].start, t[i].end);
		return false;
	}

	return true;
}

static bool all_sound(struct kunit *test, const struct vmap_win *win,
		      struct track *t, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		if (!vmap_area_is_sound(test, t[i].vm, win, t[i].align))
			return false;

	return true;
}

/* Frees the areas of t[from..to) and keeps their bounds. */
static void drop(struct kunit *test, struct track *t, unsigned int from,
		 unsigned int to)
{
	for (; from < to; from++) {
		vmap_area_put(test, t[from].vm);
		t[from].vm = NULL;
	}
}

/*
 * Many areas of random size and alignment do not overlap and are all found.
 * Half of them are replaced in random order several times, and at the end no
 * freed address is found.
 */
static void random_areas(struct kunit *test, const struct vmap_win *win,
			 unsigned int nr, bool alone)
{
	unsigned int i, round, nr_old = 0;
	struct rnd_state rnd;
	struct track *t;

	vmap_seed(test, &rnd);
	t = kvcalloc(nr, sizeof(*t), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, t);

	for (round = 0; round < 4; round++) {
		for (i = 0; i < nr; i++) {
			if (t[i].vm)
				continue;
			if (!take(test, &rnd, win, &t[i])) {
				KUNIT_FAIL(test, "round %u: no area %u of %u",
					   round, i, nr);
				goto out;
			}
		}
		if (!are_disjoint(test, t, nr) || !all_sound(test, win, t, nr))
			goto out;

		sort(t, nr, sizeof(*t), by_key, NULL);
		drop(test, t, 0, nr / 2);
		if (!all_sound(test, win, t + nr / 2, nr - nr / 2))
			goto out;
		if (round == 2)
			vm_unmap_aliases();
	}
	drop(test, t, nr / 2, nr);

	for (i = 0; i < nr; i++) {
		nr_old += !!find_vmap_area(t[i].start);
		nr_old += !!find_vmap_area(t[i].end - 1);
	}
	/* Other users may have areas at ordinary addresses by now. */
	KUNIT_EXPECT_LE_MSG(test, nr_old, alone ? 0 : 8,
			    "of %u freed areas are found", nr);
	vm_unmap_aliases();
out:
	for (i = 0; i < nr; i++)
		if (t[i].vm)
			vmap_area_put(test, t[i].vm);
	kvfree(t);
}

/* Random areas in the whole vmalloc space. */
static void vmap_random_disjoint(struct kunit *test)
{
	const struct vmap_win std = vmap_std_win();

	random_areas(test, &std, VMAP_IS_SMALL ? 100 : 2000, false);
}

/* Random areas in a window, all of which is free afterwards. */
static void vmap_random_window(struct kunit *test)
{
	const unsigned long size = VMAP_IS_SMALL ? SZ_32M : SZ_1G / 4;
	const struct vmap_win win = vmap_win_get(test, VMAP_PAGES_OF(size));

	random_areas(test, &win, VMAP_IS_SMALL ? 30 : 500, true);
	vmap_win_expect_free(test, &win);
}

/* Rounds of vmap_leak_rounds(), and pages of each allocation. */
#define LEAK_ROUNDS	300
#define LEAK_PAGES	32

/*
 * After many rounds of all kinds of calls, with purges in between, no more
 * pages are in use than before, and the whole window is free.
 */
static void vmap_leak_rounds(struct kunit *test)
{
	struct page **pages = vmap_pages_get(test, LEAK_PAGES);
	const struct vmap_win win = vmap_win_get(test, VMAP_PAGES_OF(SZ_1M));
	long before, after;
	unsigned int i;

	before = global_node_page_state(NR_VMALLOC);
	for (i = 0; i < LEAK_ROUNDS; i++) {
		void *mem[4];

		mem[0] = vmalloc(LEAK_PAGES * PAGE_SIZE);
		mem[1] = vmap(pages, LEAK_PAGES, VM_MAP, PAGE_KERNEL);
		mem[2] = vm_map_ram(pages, LEAK_PAGES, NUMA_NO_NODE);
		mem[3] = __vmalloc_node_range(LEAK_PAGES * PAGE_SIZE, 1,
					      win.start, win.end, GFP_KERNEL,
					      PAGE_KERNEL, 0, NUMA_NO_NODE,
					      __func__);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[0], "round %u: vmalloc", i);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[1], "round %u: vmap", i);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[2], "round %u: vm_map_ram",
					  i);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[3], "round %u: window", i);
		vfree(mem[0]);
		vunmap(mem[1]);
		vm_unmap_ram(mem[2], LEAK_PAGES);
		vfree(mem[3]);
		if (i % 64 == 63)
			vm_unmap_aliases();
	}
	after = global_node_page_state(NR_VMALLOC);

	/* A quarter of the pages that a leak in each round would leave. */
	KUNIT_EXPECT_LE_MSG(test, after - before, LEAK_ROUNDS * LEAK_PAGES / 4,
			    "pages in vmalloc areas: %ld before, %ld after %u rounds",
			    before, after, LEAK_ROUNDS);
	vmap_win_expect_free(test, &win);
}

static struct kunit_case vmap_random_cases[] = {
	KUNIT_CASE_SLOW(vmap_random_disjoint),
	KUNIT_CASE_SLOW(vmap_random_window),
	KUNIT_CASE_SLOW(vmap_leak_rounds),
	{}
};

VMAP_SUITE(vmap_random);
