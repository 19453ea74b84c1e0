// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_growth": large areas of sizes that seldom come again must
 * not make an allocator go to ever new addresses. Each region of the size of a
 * PMD that an area was in keeps its page table, at least for a while.
 */
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "vmap_area_kunit.h"

/* KASAN and lock checkers make a round ten times as slow. */
#define IS_SLOW (IS_ENABLED(CONFIG_KASAN) || IS_ENABLED(CONFIG_PROVE_LOCKING))
#define ROUNDS (IS_SLOW ? 400 : 4000)
#define PURGED 40
#define PAIRS 30

/* Pages of areas without guard page. */
struct sizes {
	unsigned int min_purged, max_purged;
	unsigned int min, max;
};

struct growth {
	struct kunit *test;
	struct rnd_state rnd;
	struct xarray regions;
	unsigned int count;
	struct vm_struct *vms[PURGED];
	struct work_struct free_all;
};

/* Reserves an area and notes the regions that it is in. */
static struct vm_struct *growth_get(struct growth *g, unsigned int pages)
{
	struct vm_struct *vm = get_vm_area(pages * PAGE_SIZE, VM_MAP);
	unsigned long region, last;

	KUNIT_ASSERT_NOT_NULL(g->test, vm);
	region = vmap_start(vm) >> PMD_SHIFT;
	last = (vmap_end(vm) - PAGE_SIZE - 1) >> PMD_SHIFT;
	for (; region <= last; region++) {
		void *old = xa_store(&g->regions, region, xa_mk_value(1), GFP_KERNEL);

		KUNIT_ASSERT_FALSE(g->test, xa_is_err(old));
		g->count += !old;
	}
	return vm;
}

static struct vm_struct *growth_get_random(struct growth *g, unsigned int min, unsigned int max)
{
	return growth_get(g, min + prandom_u32_state(&g->rnd) % (max - min + 1));
}

static void growth_free_all(struct work_struct *work)
{
	struct growth *g = container_of(work, struct growth, free_all);
	int i;

	for (i = 0; i < PURGED; i++)
		free_vm_area(g->vms[i]);
}

/*
 * One purge takes all areas: the worker of this CPU frees them, and the work
 * that purges comes after it on the same worker.
 */
static void growth_purge_many(struct growth *g, const struct sizes *sizes)
{
	int i;

	for (i = 0; i < PURGED; i++)
		g->vms[i] = growth_get_random(g, sizes->min_purged, sizes->max_purged);
	INIT_WORK_ONSTACK(&g->free_all, growth_free_all);
	schedule_work(&g->free_all);
	flush_work(&g->free_all);
	destroy_work_on_stack(&g->free_all);
	vm_unmap_aliases();
}

/*
 * The areas of the load may be in about twice as many regions as are in use at
 * the same time: in all those that the first purge frees.
 */
static void grow(struct kunit *test, const struct sizes *sizes, int rounds)
{
	const unsigned int per_area = DIV_ROUND_UP(sizes->max_purged, PTRS_PER_PTE) + 2;
	const unsigned int max_regions = max(500, PURGED * per_area);
	struct growth g = { .test = test };
	int round, pair;

	vmap_seed(test, &g.rnd);
	xa_init(&g.regions);
	growth_purge_many(&g, sizes);
	for (round = 0; round < rounds; round++) {
		struct vm_struct *vm = growth_get_random(&g, sizes->min, sizes->max);

		for (pair = 0; pair < PAIRS; pair++)
			free_vm_area(growth_get(&g, 1));
		free_vm_area(vm);
		vm_unmap_aliases();
		cond_resched();
	}
	kunit_info(test, "%d rounds in %u regions\n", rounds, g.count);
	KUNIT_EXPECT_LE(test, g.count, max_regions);
	xa_destroy(&g.regions);
}

/* Sizes of many classes: each of these has blocks of its own. */
static void vmap_growth_blocks(struct kunit *test)
{
	static const struct sizes large = { 1101, 5000, 1026, 8024 };
	static const struct sizes small = { 35, 156, 33, 250 };

	grow(test, VMAP_IS_SMALL ? &small : &large, ROUNDS);
}

/* Areas that are too large for blocks. */
static void vmap_growth_tree(struct kunit *test)
{
	const unsigned int min = VMAP_TREE_PAGES;
	const struct sizes sizes = { min, 2 * min, min, 3 * min };

	if (VMAP_IS_SMALL)
		kunit_skip(test, "the vmalloc space has no room for so large areas");
	if (IS_SLOW)
		kunit_skip(test, "KASAN has memory for each area, or areas are slow");
	grow(test, &sizes, ROUNDS / 4);
}

static struct kunit_case vmap_growth_cases[] = {
	KUNIT_CASE_SLOW(vmap_growth_blocks),
	KUNIT_CASE_SLOW(vmap_growth_tree),
	{}
};

VMAP_SUITE(vmap_growth);
