// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_align": accepted and refused alignments and sizes.
 */
#include "vmap_area_kunit.h"

/*
 * Every power of two up to 1 GiB, or 16 MiB on small machines, is accepted as
 * alignment, also below the page size, with several areas of each at a time.
 */
static void vmap_align_powers(struct kunit *test)
{
	const struct vmap_win std = vmap_std_win();
	static const unsigned int nr[] = { 1, 3, 16, 40 };
	struct vm_struct *vm[ARRAY_SIZE(nr)];
	const unsigned long max = VMAP_IS_SMALL ? SZ_16M : SZ_1G;
	unsigned long align;
	int i;

	for (align = 1; align <= max; align <<= 1) {
		for (i = 0; i < ARRAY_SIZE(nr); i++) {
			vm[i] = vmap_area_get(&std, nr[i] * PAGE_SIZE, align, 0,
					      VMAP_GFP);
			KUNIT_ASSERT_NOT_NULL_MSG(test, vm[i],
						  "%u pages aligned to %#lx",
						  nr[i], align);
			vmap_area_is_sound(test, vm[i], &std, align);
		}
		for (i = 0; i < ARRAY_SIZE(nr); i++)
			vmap_area_put(test, vm[i]);
	}
	vm_unmap_aliases();
}

/*
 * In a window whose first page is reserved, each aligned address after it is
 * handed out once, and then the next request fails.
 */
static void vmap_align_window(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, SZ_16M);
	unsigned long align;

	for (align = SZ_1M; align <= SZ_4M; align <<= 1) {
		unsigned int max = SZ_16M / align - 1, nr = 0;
		struct vm_struct *first, *vm[16], *one_more;

		first = vmap_area_get(&win, PAGE_SIZE, 1, VM_NO_GUARD, VMAP_GFP);
		KUNIT_ASSERT_NOT_NULL(test, first);

		/* One page each, so that there is padding around every area. */
		for (nr = 0; nr < max; nr++) {
			vm[nr] = vmap_area_get(&win, PAGE_SIZE, align,
					       VM_NO_GUARD, VMAP_GFP);
			KUNIT_ASSERT_NOT_NULL_MSG(test, vm[nr],
						  "%u of %u aligned to %#lx", nr,
						  max, align);
			vmap_area_is_sound(test, vm[nr], &win, align);
		}
		one_more = vmap_area_get(&win, PAGE_SIZE, align, VM_NO_GUARD,
					 VMAP_GFP);
		KUNIT_EXPECT_NULL_MSG(test, one_more,
				      "%u + 1 areas aligned to %#lx in 16 MiB",
				      max, align);
		if (one_more)
			vmap_area_put(test, one_more);

		while (nr--)
			vmap_area_put(test, vm[nr]);
		vmap_area_put(test, first);
		vmap_win_expect_free(test, &win);
	}
}

/* Memory mapped with an alignment of 1 to 4 MiB keeps its contents. */
static void vmap_align_mapped(struct kunit *test)
{
	void *mem[3][4];
	int i, j;

	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		unsigned long align = SZ_1M << i;

		for (j = 0; j < ARRAY_SIZE(mem[i]); j++) {
			unsigned int nr = 1 + 7 * j;

			mem[i][j] = __vmalloc_node(nr * PAGE_SIZE, align,
						   GFP_KERNEL, NUMA_NO_NODE,
						   __builtin_return_address(0));
			KUNIT_ASSERT_NOT_NULL_MSG(test, mem[i][j],
						  "%u pages aligned to %#lx", nr,
						  align);
			KUNIT_EXPECT_TRUE_MSG(test,
					      IS_ALIGNED((unsigned long)mem[i][j],
							 align),
					      "%#lx is not aligned to %#lx",
					      (unsigned long)mem[i][j], align);
			vmap_pages_fill(mem[i][j], nr, i * 10 + j);
		}
	}

	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		for (j = 0; j < ARRAY_SIZE(mem[i]); j++) {
			KUNIT_EXPECT_EQ_MSG(test, -1,
					    vmap_pages_bad(mem[i][j], 1 + 7 * j,
							   i * 10 + j),
					    "contents at %#lx",
					    (unsigned long)mem[i][j]);
			vfree(mem[i][j]);
		}
	}
}

/* Expects NULL without a message for @size and @align in the vmalloc space. */
static void expect_refused(struct kunit *test, unsigned long size,
			   unsigned long align, gfp_t gfp)
{
	const struct vmap_win std = vmap_std_win();
	struct vm_struct *vm;

	vm = vmap_area_get(&std, size, align, 0, gfp);
	KUNIT_EXPECT_NULL_MSG(test, vm, "size %#lx aligned to %#lx was given %#lx",
			      size, align, vm ? vmap_start(vm) : 0);
	if (vm)
		vmap_area_put(test, vm);
}

/*
 * Alignments that are not a power of two, and those that no address of the
 * vmalloc space has, are refused. The next request is not affected.
 */
static void vmap_align_refused(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, SZ_1M);
	static const unsigned long bad[] = {
		0, 3, PAGE_SIZE + 1, 3 * PAGE_SIZE, SZ_4M - 1, ULONG_MAX,
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		expect_refused(test, PAGE_SIZE, bad[i], VMAP_GFP);

	expect_refused(test, PAGE_SIZE, 1UL << (BITS_PER_LONG - 1), VMAP_GFP);
	expect_refused(test, PAGE_SIZE, 1UL << (BITS_PER_LONG - 1),
		       GFP_NOWAIT | __GFP_NOWARN);
	vmap_win_expect_free(test, &win);
}

/* Sizes of 0, above the vmalloc space, and overflowing ones are refused. */
static void vmap_size_refused(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, SZ_1M);
	const unsigned long bad[] = {
		0, VMALLOC_TOTAL, ULONG_MAX, ULONG_MAX - PAGE_SIZE,
		-2 * PAGE_SIZE, -3 * PAGE_SIZE, 1UL << (BITS_PER_LONG - 1),
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		expect_refused(test, bad[i], 1, VMAP_GFP);
		expect_refused(test, bad[i], SZ_4M, VMAP_GFP);
		expect_refused(test, bad[i], 1, GFP_NOWAIT | __GFP_NOWARN);
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

static struct kunit_case vmap_align_cases[] = {
	KUNIT_CASE(vmap_align_powers),
	KUNIT_CASE(vmap_align_window),
	KUNIT_CASE(vmap_align_mapped),
	KUNIT_CASE(vmap_align_refused),
	KUNIT_CASE(vmap_size_refused),
	{}
};

VMAP_SUITE(vmap_align);
