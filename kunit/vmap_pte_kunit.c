// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_pte": page tables of vmap().
 */
#include <linux/dcache.h>
#include <linux/debugfs.h>
#include <linux/err.h>
#include <linux/sched.h>

#include "vmap_area_kunit.h"

/* Pages in the group of PTEs that the cases are about, on any architecture. */
#define VMAP_GROUP	(vmap_group_shift() > PAGE_SHIFT ? \
			 1UL << (vmap_group_shift() - PAGE_SHIFT) : 16UL)

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

static void trial_start(struct kunit *test, struct trial *t,
			unsigned long min_block, unsigned long max)
{
	*t = (struct trial){ .test = test, .max = max };
	t->block = vmap_block_get(test, min_block);
	t->pages = kvmalloc_array(max, sizeof(*t->pages), GFP_KERNEL);
	t->pfns = kvmalloc_array(max, sizeof(*t->pfns), GFP_KERNEL);
	if (!t->pages || !t->pfns) {
		kvfree(t->pages);
		kvfree(t->pfns);
		KUNIT_FAIL_AND_ABORT(test, "no memory for %lu pointers", max);
	}
}

static void trial_end(struct trial *t)
{
	kvfree(t->pages);
	kvfree(t->pfns);
	vm_unmap_aliases();
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

/* Maps the array, compares page tables and contents, and unmaps it. */
static bool map_and_compare(struct trial *t, pgprot_t prot)
{
	const unsigned int max_shift = vmap_max_shift();
	struct kunit *test = t->test;
	const struct vm_struct *vm;
	unsigned long i, start;
	unsigned int shift;
	bool good;
	void *mem;

	mem = vmap(t->pages, t->nr, VM_MAP, prot);
	if (!mem) {
		KUNIT_FAIL(test, "vmap of %lu pages", t->nr);
		return false;
	}
	vm = find_vm_area(mem);
	start = vmap_start(vm);
	good = vmap_walk_is(test, start, t->pfns, t->nr, prot, max_shift, true) &&
		surroundings_are_empty(test, vm);

	shift = vmap_best_shift(t->pfns, t->nr, prot, max_shift, 0);
	t->nr_huge += vmap_walk(start, NULL).level == VMAP_PMD;
	if (good && IS_ENABLED(CONFIG_64BIT) && !IS_ALIGNED(start, 1UL << shift)) {
		KUNIT_FAIL(test, "%lu pages at %#lx: could begin with %#lx bytes in one piece",
			   t->nr, start, 1UL << shift);
		good = false;
	}

	for (i = 0; good && i < t->nr; i++) {
		unsigned long index = t->pages[i] - t->block.page;

		if (vmap_pages_bad(mem + i * PAGE_SIZE, 1, index) == -1)
			continue;
		KUNIT_FAIL(test, "page %lu of %lu at %#lx: not page %lu of the block",
			   i, t->nr, start, index);
		good = false;
	}

	vunmap(mem);
	return vmap_walk_is_empty(test, start, t->nr, "after vunmap") && good;
}

/* Returns one of 16 numbers below VMAP_GROUP, the most interesting ones first. */
static unsigned long misalignment(unsigned int i)
{
	static const s8 early[] = { 0, 1, 7, -1, 2, 3, 4, 5, 6 };
	const unsigned long group = VMAP_GROUP;

	if (i < ARRAY_SIZE(early))
		return early[i] < 0 ? group - 1 : early[i];
	return group - 2 - (i - ARRAY_SIZE(early));
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
 * Maps a whole group, which makes the area aligned, then single pages up to
 * an offset in a group, then the runs.
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

	return map_and_compare(t, PAGE_KERNEL);
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

	trial_end(&t);
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
		good = map_and_compare(&t, round % 4 ? PAGE_KERNEL : PAGE_KERNEL_RO);
		vm_unmap_aliases();
		if (good && round % 8 == 0) {
			/* Where there were PTEs until now, a PMD entry may fit. */
			t.nr = 0;
			append(&t, 0, t.block.nr);
			good = map_and_compare(&t, PAGE_KERNEL);
			vm_unmap_aliases();
			/* One fits, and then none, since the pages begin at another one. */
			t.nr = 0;
			append(&t, 0, per_pmd);
			append(&t, 1, per_pmd);
			good = good && map_and_compare(&t, PAGE_KERNEL);
			vm_unmap_aliases();
		}
	}

	trial_end(&t);
	kunit_info(test, "%u arrays, %u of them begin with a PMD entry\n", rounds,
		   t.nr_huge);
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
			mem = vmap(t.pages, t.nr, VM_MAP, PAGE_KERNEL);
			KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
		}
		KUNIT_EXPECT_NULL_MSG(test, mem, "vmap with a hole at %lu", holes[i]);
		if (mem)
			vunmap(mem);
		KUNIT_EXPECT_EQ_MSG(test, 0, vmap_walk_count(first, t.block.nr),
				    "pages left with a hole at %lu", holes[i]);
	}

	trial_end(&t);
}

/*
 * Returns the least order of pages whose allocation can be made to fail, 1 by
 * default (mm/fail_page_alloc.c); or NULL if that cannot be changed.
 */
static u32 *failing_order(void)
{
	struct dentry *dir, *file;
	u32 *order = NULL;

	dir = debugfs_lookup("fail_page_alloc", NULL);
	if (IS_ERR_OR_NULL(dir))
		return NULL;
	file = debugfs_lookup("min-order", dir);
	if (file)
		order = d_inode(file)->i_private;
	dput(file);
	dput(dir);
	return order;
}

/* What failing_start() has changed. */
struct failing {
	gfp_t allowed;
	u32 *order, least;
};

/*
 * Lets the n-th allocation of this task fail although it may reclaim memory, or
 * is one of a single page. Those with __GFP_NOFAIL do not count.
 */
static void failing_start(struct failing *f, unsigned int nth, u32 *order)
{
	f->allowed = READ_ONCE(gfp_allowed_mask);
	f->order = order;
	f->least = READ_ONCE(*order);
	WRITE_ONCE(gfp_allowed_mask, f->allowed & ~__GFP_DIRECT_RECLAIM);
	WRITE_ONCE(*order, 0);
	vmap_fault_arm(nth);
}

/* Ends what failing_start() began. Returns whether an allocation has failed. */
static bool failing_end(struct failing *f)
{
	bool hit = vmap_fault_disarm();

	WRITE_ONCE(*f->order, f->least);
	WRITE_ONCE(gfp_allowed_mask, f->allowed);
	return hit;
}

/* Attempts, more than a vmap() or the mapping of a vmalloc() has allocations. */
#define MAX_ATTEMPTS	32

/*
 * Each allocation of a vmap() fails once, those of page tables too: it returns
 * NULL, and nothing stays mapped.
 */
static void vmap_pte_no_table(struct kunit *test)
{
	const unsigned long per_pmd = PFN_DOWN(PMD_SIZE);
	unsigned int nth, nr_null = 0, nr_reserved = 0;
	struct vm_struct **reserved;
	unsigned long i, first;
	struct trial t;
	u32 *order = failing_order();
	bool hit = true;

	vmap_fault_need(test);
	if (!order)
		kunit_skip(test, "needs CONFIG_FAIL_PAGE_ALLOC and its folder in debugfs");
	reserved = kunit_kcalloc(test, VMAP_MAX_RESERVED, sizeof(*reserved),
				 GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, reserved);
	trial_start(test, &t, 8, 3 * per_pmd);
	first = page_to_pfn(t.block.page);

	/* Every second page: neither groups nor PMD entries, so tables. */
	for (i = 0; i < t.max; i++)
		append(&t, 2 * i % 8, 1);

	for (nth = 1; hit && nth <= MAX_ATTEMPTS; nth++) {
		struct failing failing;
		void *mem;

		nr_reserved = vmap_walk_skip_tables(test, t.nr, reserved,
						    nr_reserved);
		kunit_warning_suppress(test) {
			failing_start(&failing, nth, order);
			mem = vmap(t.pages, t.nr, VM_MAP, PAGE_KERNEL);
			hit = failing_end(&failing);
		}
		/* The allocator of addresses can do without some allocations. */
		KUNIT_EXPECT_TRUE_MSG(test, mem || hit, "refused without fault %u", nth);
		nr_null += !mem;
		if (mem)
			vunmap(mem);
		KUNIT_EXPECT_EQ_MSG(test, 0, vmap_walk_count(first, t.block.nr),
				    "pages left after fault %u", nth);
	}

	for (i = 0; i < nr_reserved; i++)
		free_vm_area(reserved[i]);
	trial_end(&t);
	KUNIT_EXPECT_FALSE_MSG(test, hit, "more than %u allocations", nth - 1);
	kunit_info(test, "%u allocations failed\n", nr_null);
	/* Each area needs two tables or more, and a vm_struct. */
	KUNIT_EXPECT_GE(test, nr_null, 3);
}

/*
 * Each allocation of a page table for a vmalloc() that must not fail fails once:
 * the next attempt maps all pages, and finds nothing of the one before.
 */
static void vmap_pte_nofail(struct kunit *test)
{
	const unsigned long nr = 2 * PFN_DOWN(PMD_SIZE);
	unsigned int nth, nr_hits = 0, nr_reserved = 0;
	struct vm_struct **reserved;
	u32 *order = failing_order();
	bool hit = true;
	unsigned long i;

	vmap_fault_need(test);
	if (PMD_SIZE > SZ_64M)
		kunit_skip(test, "two tables would map %lu MiB", 2 * PMD_SIZE / SZ_1M);
	/* With little memory, the page allocator warns of the mask that forbids reclaim. */
	if (global_zone_page_state(NR_FREE_PAGES) < 4 * nr)
		kunit_skip(test, "needs %lu MiB of free memory", 4 * nr * PAGE_SIZE / SZ_1M);
	if (!order)
		kunit_skip(test, "needs CONFIG_FAIL_PAGE_ALLOC and its folder in debugfs");
	reserved = kunit_kcalloc(test, VMAP_MAX_RESERVED, sizeof(*reserved),
				 GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, reserved);

	for (nth = 1; hit && nth <= MAX_ATTEMPTS; nth++) {
		struct failing failing;
		unsigned long *mem;

		nr_reserved = vmap_walk_skip_tables(test, nr, reserved,
						    nr_reserved);
		failing_start(&failing, nth, order);
		mem = __vmalloc(nr * PAGE_SIZE, GFP_KERNEL | __GFP_NOFAIL | __GFP_NOWARN);
		hit = failing_end(&failing);
		KUNIT_EXPECT_NOT_NULL_MSG(test, mem, "refused with fault %u", nth);
		if (!mem)
			break;
		nr_hits += hit;
		for (i = 0; i < nr; i++)
			mem[i * PAGE_SIZE / sizeof(*mem)] = i;
		for (i = 0; i < nr && mem[i * PAGE_SIZE / sizeof(*mem)] == i; i++)
			;
		KUNIT_EXPECT_EQ_MSG(test, i, nr, "a page is mapped twice");
		vfree(mem);
	}

	for (i = 0; i < nr_reserved; i++)
		free_vm_area(reserved[i]);
	KUNIT_EXPECT_FALSE_MSG(test, hit, "more than %u allocations", nth - 1);
	kunit_info(test, "%u allocations failed\n", nr_hits);
	/* Two tables or more. */
	KUNIT_EXPECT_GE(test, nr_hits, 2);
}

static struct kunit_case vmap_pte_cases[] = {
	KUNIT_CASE_SLOW(vmap_pte_runs),
	KUNIT_CASE(vmap_pte_random),
	KUNIT_CASE(vmap_pte_null_page),
	KUNIT_CASE(vmap_pte_no_table),
	KUNIT_CASE(vmap_pte_nofail),
	{}
};

VMAP_SUITE(vmap_pte);
