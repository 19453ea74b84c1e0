// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_pte": page tables of vmap().
 */
#include <linux/pgtable.h>
#include <linux/sched.h>

#include "vmap_walk_kunit.h"

/**
 * struct trial - arrays of pages to be mapped
 * @test: the running case
 * @block: where the pages come from
 * @pages: the array to map
 * @pfns: their page frames
 * @nr: number of @pages
 * @max: room in the arrays
 * @nr_huge: number of mappings that began with a PMD entry
 */
struct trial {
	struct kunit *test;
	struct vmap_block block;
	struct page **pages;
	unsigned long *pfns;
	unsigned long nr;
	unsigned long max;
	unsigned int nr_huge;
};

static void trial_start(struct kunit *test, struct trial *t, unsigned long min_block,
			unsigned long max)
{
	*t = (struct trial){
		.test = test, .max = max,
		.block = vmap_block_get(test, min_block),
		.pages = vmap_array(test, max, sizeof(*t->pages)),
		.pfns = vmap_array(test, max, sizeof(*t->pfns)),
	};
}

/* Appends contiguous pages of the block, as many as there are and fit. */
static void append(struct trial *t, unsigned long first, unsigned long nr)
{
	for (; nr && first < t->block.nr && t->nr < t->max; nr--, first++, t->nr++) {
		t->pages[t->nr] = t->block.page + first;
		t->pfns[t->nr] = page_to_pfn(t->block.page) + first;
	}
}

/* Expects that nothing is mapped before and after an area. */
static bool surroundings_are_empty(struct kunit *test, const struct vm_struct *vm)
{
	unsigned long before = vmap_start(vm) - PAGE_SIZE;
	const struct vm_struct *other = find_vm_area((void *)before);
	bool ours;

	/* The last page of another area is its guard page, if it has one. */
	ours = other ? !(other->flags & VM_NO_GUARD) : !find_vmap_area(before);
	if (ours && before >= VMALLOC_START &&
	    !vmap_walk_is_empty(test, before, 1, "page before the area"))
		return false;
	return vmap_walk_is_empty(test, vmap_end(vm) - PAGE_SIZE, 1, "guard page");
}

/*
 * Maps the array, compares page tables and contents, and unmaps it. Only with
 * VM_ALLOW_HUGE_VMAP in @flags, entries larger than a page may be used.
 */
static bool map_and_compare(struct trial *t, unsigned long flags, pgprot_t prot)
{
	const unsigned int max_shift = flags ? vmap_max_shift() : PAGE_SHIFT;
	struct kunit *test = t->test;
	const struct vm_struct *vm;
	unsigned long start;
	unsigned int shift;
	bool good;
	void *mem;

	mem = vmap(t->pages, t->nr, VM_MAP | flags, prot);
	if (!mem) {
		KUNIT_FAIL(test, "vmap of %lu pages", t->nr);
		return false;
	}
	vm = find_vm_area(mem);
	start = vmap_start(vm);
	good = vmap_walk_is(test, start, t->pfns, t->nr, prot, max_shift, true, &t->block) &&
		surroundings_are_empty(test, vm);

	shift = vmap_best_shift(t->pfns, t->nr, prot, max_shift, 0);
	t->nr_huge += vmap_walk(start, NULL).level == VMAP_PMD;
	if (good && IS_ENABLED(CONFIG_64BIT) && shift == PMD_SHIFT &&
	    !IS_ALIGNED(start, PMD_SIZE)) {
		KUNIT_FAIL(test, "%lu pages at %#lx: could begin with a PMD entry",
			   t->nr, start);
		good = false;
	}

	vunmap(mem);
	return vmap_walk_is_empty(test, start, t->nr, "after vunmap") && good;
}

/* Returns one of 16 numbers below VMAP_GROUP, the most interesting ones first. */
static unsigned long misalignment(unsigned int i)
{
	static const s8 early[] = { 0, 1, 7, -1, 2, 3, 4, 5, 6 };

	if (i < ARRAY_SIZE(early))
		return early[i] < 0 ? VMAP_GROUP - 1 : early[i];
	return VMAP_GROUP - 2 - (i - ARRAY_SIZE(early));
}

/* Returns one of five lengths around VMAP_GROUP. */
static unsigned long length(unsigned int i)
{
	const unsigned long group = VMAP_GROUP;
	const unsigned long lengths[] = { group, 1, group - 1, group + 1, 2 * group };

	return lengths[i];
}

/* One run of an array: both are numbers of what the functions above return. */
struct run {
	unsigned int length;
	unsigned int misaligned;
};

/*
 * Maps a whole group, then single pages up to an offset, then the runs. Where the
 * area begins in a group is up to the allocator.
 */
static bool try_runs(struct trial *t, unsigned int offset,
		     const struct run *runs, unsigned int nr)
{
	const unsigned long group = VMAP_GROUP;
	unsigned long i;

	t->nr = 0;
	append(t, 0, group);
	for (i = 0; i < misalignment(offset); i++)
		append(t, 3, 1);
	for (i = 0; i < nr; i++)
		append(t, 4 * (i + 1) * group + misalignment(runs[i].misaligned),
		       length(runs[i].length));

	return map_and_compare(t, VM_ALLOW_HUGE_VMAP, PAGE_KERNEL);
}

/*
 * Runs of one page, of a group of PTEs, and of two, give or take a page, at
 * all misalignments: every entry is as large as it can be, and right.
 */
static void vmap_pte_runs(struct kunit *test)
{
	const unsigned long group = VMAP_GROUP;
	const unsigned int nr_misaligned = group > 32 ? 4 : 16;
	unsigned int i, j, k, nr = 0;
	bool good = true;
	struct trial t;

	trial_start(test, &t, 16 * group, 16 * group);

	for (i = 0; good && i < 5 * nr_misaligned; i++) {
		struct run runs[] = { { i % 5, i / 5 }, {}, {} };

		for (j = 0; good && j < nr_misaligned; j++, nr++)
			good = try_runs(&t, j, runs, 1);
		for (j = 0; good && j < 5 * 4; j++, nr++) {
			runs[1] = (struct run){ j % 5, j / 5 };
			good = try_runs(&t, i % 4, runs, 2);
			/* Three runs: not all, but each pair with another third. */
			k = i + j;
			runs[2] = (struct run){ k % 5, k / 5 % 4 };
			if (good && k % 3 == 0)
				good = try_runs(&t, k % nr_misaligned, runs, 3);
		}
		/* Until then, each mapping has other addresses. */
		vm_unmap_aliases();
		cond_resched();
	}

	kunit_info(test, "%u arrays, groups of %lu pages\n", nr, group);
}

/* Fills the array with a random number of random pieces of the block. */
static void random_pieces(struct trial *t, struct rnd_state *rnd)
{
	const unsigned long group = VMAP_GROUP, per_pmd = PFN_DOWN(PMD_SIZE);
	unsigned long nr = 1 + prandom_u32_state(rnd) % t->max;
	unsigned long first, len;

	t->nr = 0;
	while (t->nr < nr) {
		switch (prandom_u32_state(rnd) % 6) {
		case 0:		/* all that is contiguous, maybe a PMD entry */
			first = 0;
			len = t->block.nr;
			break;
		case 1:		/* up to the next PMD entry, then one in place */
			len = -t->nr & (per_pmd - 1);
			first = per_pmd - len;
			len += per_pmd;
			break;
		case 2:		/* whole groups, in place */
			first = round_down(prandom_u32_state(rnd) % t->block.nr, group);
			first += t->nr % group;
			len = prandom_u32_state(rnd) % (5 * group);
			break;
		default:
			first = prandom_u32_state(rnd) % t->block.nr;
			len = 1 + prandom_u32_state(rnd) % (3 * group);
			break;
		}
		append(t, first, len);
	}
}

/* Random arrays of up to three times what a PMD entry maps. */
static void vmap_pte_random(struct kunit *test)
{
	const unsigned long per_pmd = PFN_DOWN(PMD_SIZE);
	unsigned int round, rounds = max(SZ_64K / per_pmd, 8UL);
	struct rnd_state rnd;
	bool good = true;
	struct trial t;

	vmap_seed(test, &rnd);
	trial_start(test, &t, 8 * VMAP_GROUP, 3 * per_pmd);

	for (round = 0; good && round < rounds; round++) {
		random_pieces(&t, &rnd);
		good = map_and_compare(&t, VM_ALLOW_HUGE_VMAP,
				       round % 4 ? PAGE_KERNEL : PAGE_KERNEL_RO);
		vm_unmap_aliases();
		if (round % 8)
			continue;
		good = good && map_and_compare(&t, 0, PAGE_KERNEL);
		vm_unmap_aliases();
		/* Where there were PTEs until now, a PMD entry may fit. */
		t.nr = 0;
		append(&t, 0, t.block.nr);
		good = good && map_and_compare(&t, VM_ALLOW_HUGE_VMAP, PAGE_KERNEL);
		vm_unmap_aliases();
		/* One fits, and then none, since the pages begin at another one. */
		t.nr = 0;
		append(&t, 0, per_pmd);
		append(&t, 1, per_pmd);
		good = good && map_and_compare(&t, VM_ALLOW_HUGE_VMAP, PAGE_KERNEL);
		vm_unmap_aliases();
	}

	kunit_info(test, "%u arrays, %u of them begin with a PMD entry\n", rounds, t.nr_huge);
}

/* An array with a hole is refused with a warning, and nothing stays mapped. */
static void vmap_pte_null_page(struct kunit *test)
{
	const unsigned long per_pmd = PFN_DOWN(PMD_SIZE), group = VMAP_GROUP;
	const unsigned long holes[] = {
		1, group - 1, group, group + 1, 5 * group, per_pmd - 1, per_pmd,
		per_pmd + 1,
	};
	unsigned long first;
	struct trial t;
	unsigned int i;

	if (!IS_ENABLED(CONFIG_BUG))
		kunit_skip(test, "needs CONFIG_BUG to count warnings");
	trial_start(test, &t, 8 * group, 2 * per_pmd);
	first = page_to_pfn(t.block.page);

	for (i = 0; i < ARRAY_SIZE(holes); i++) {
		void *mem;

		t.nr = 0;
		while (t.nr < t.max)
			append(&t, 0, t.block.nr);
		t.pages[holes[i]] = NULL;

		kunit_warning_suppress(test) {
			mem = vmap(t.pages, t.nr, VM_MAP | VM_ALLOW_HUGE_VMAP, PAGE_KERNEL);
			KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
		}
		KUNIT_EXPECT_NULL_MSG(test, mem, "vmap with a hole at %lu", holes[i]);
		if (mem)
			vunmap(mem);
		KUNIT_EXPECT_EQ_MSG(test, 0, vmap_walk_count(first, t.block.nr),
				    "pages left with a hole at %lu", holes[i]);
	}
}

/* Areas until one comes back to an address that was free before. */
#define MAX_AREAS	256

KUNIT_DEFINE_ACTION_WRAPPER(vunmap_action, vunmap, const void *);

/* Maps all pages until the end of the case. */
static void *map_huge(struct trial *t)
{
	void *mem = vmap(t->pages, t->nr, VM_MAP | VM_ALLOW_HUGE_VMAP, PAGE_KERNEL);

	KUNIT_ASSERT_NOT_NULL(t->test, mem);
	KUNIT_ASSERT_EQ(t->test, 0, kunit_add_action_or_reset(t->test, vunmap_action, mem));
	KUNIT_ASSERT_TRUE(t->test, is_vm_area_hugepages(mem));
	return mem;
}

static unsigned long addr_of(const void *mem)
{
	return (unsigned long)kasan_reset_tag(mem);
}

/* The level that maps the start of an area. */
static enum vmap_level level_of(const void *mem)
{
	return vmap_walk(addr_of(mem), NULL).level;
}

/* Maps all pages, again as long as tables of earlier cases are in the way of a PMD entry. */
static void *map_with_pmd(struct trial *t, unsigned int *nr_areas)
{
	void *mem;

	do {
		mem = map_huge(t);
		(*nr_areas)++;
	} while (level_of(mem) != VMAP_PMD && *nr_areas < MAX_AREAS / 2);
	KUNIT_ASSERT_EQ_MSG(t->test, level_of(mem), VMAP_PMD, "in %u areas", *nr_areas);
	return mem;
}

/* Pages get no PMD entry if the first of them is at no multiple of its size. */
static void vmap_pte_no_pmd(struct kunit *test)
{
	const unsigned int nr = PTRS_PER_PTE;
	unsigned int nr_areas = 0;
	struct trial t;
	void *mem;

	if (vmap_max_shift() < PMD_SHIFT || !IS_ENABLED(CONFIG_64BIT))
		kunit_skip(test, "vmap() has no PMD entries here");
	trial_start(test, &t, nr + 1, 9 * nr);
	append(&t, 0, nr);
	/* A table may be in the way of some. */
	while (t.nr < t.max)
		append(&t, 1, nr);

	mem = map_with_pmd(&t, &nr_areas);
	vmap_walk_is(test, addr_of(mem), t.pfns, t.nr, PAGE_KERNEL, vmap_max_shift(), true,
		     &t.block);
}

/*
 * vmap() gives no table of PTEs up for a PMD entry: that would flush the TLBs of
 * all CPUs for each entry, and take the table away from readers of /proc/kcore,
 * which walk tables without a lock.
 */
static void vmap_pte_keep_table(struct kunit *test)
{
	const unsigned int nr = PTRS_PER_PTE;
	unsigned int nr_areas = 0;
	unsigned long addr;
	struct trial t;
	void *mem;

	if (vmap_max_shift() < PMD_SHIFT || !IS_ENABLED(CONFIG_64BIT))
		kunit_skip(test, "vmap() has no PMD entries here");
	trial_start(test, &t, nr, nr);
	append(&t, 0, nr);

	mem = map_with_pmd(&t, &nr_areas);
	addr = addr_of(mem);
	kunit_release_action(test, vunmap_action, mem);
	vm_unmap_aliases();
	/* As an area of one page would leave it. */
	KUNIT_ASSERT_NOT_NULL(test, pte_alloc_kernel(pmd_off_k(addr), addr));

	do {
		mem = map_huge(&t);
		nr_areas++;
	} while (addr_of(mem) != addr && nr_areas < MAX_AREAS);
	if (addr_of(mem) != addr)
		kunit_skip(test, "vmap() did not come back to the address of the PMD entry");
	KUNIT_EXPECT_NE(test, level_of(mem), VMAP_PMD);
}

static struct kunit_case vmap_pte_cases[] = {
	KUNIT_CASE_SLOW(vmap_pte_runs),
	KUNIT_CASE(vmap_pte_random),
	KUNIT_CASE(vmap_pte_null_page),
	KUNIT_CASE(vmap_pte_no_pmd),
	KUNIT_CASE(vmap_pte_keep_table),
	{}
};

VMAP_SUITE(vmap_pte);
