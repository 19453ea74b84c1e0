// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_maple": what the allocator in Rust needs of maple trees, and
 * the patches of the maple tree mend.
 */
#include <linux/maple_tree.h>
#include <linux/xarray.h>

#include "vmap_area_kunit.h"

/* Stores an entry, or nothing, at [@first, @last], without sleeping. */
static void store(struct kunit *test, struct maple_tree *tree, unsigned long first,
		  unsigned long last, void *entry)
{
	MA_STATE(mas, tree, first, last);

	mas_lock(&mas);
	KUNIT_EXPECT_EQ(test, 0, mas_store_gfp(&mas, entry, GFP_ATOMIC));
	mas_unlock(&mas);
}

/*
 * A reader under RCU finds no further entry when a writer has emptied the tree since,
 * or has left one that is not in a node.
 */
static void vmap_maple_emptied(struct kunit *test)
{
	void *one = xa_mk_value(1), *two = xa_mk_value(2);
	struct maple_tree tree;
	unsigned int i;

	mt_init_flags(&tree, MT_FLAGS_USE_RCU);
	for (i = 0; i < 4; i++) {
		MA_STATE(mas, &tree, i < 2 ? 10 : 25, i < 2 ? 10 : 25);
		void *found;

		store(test, &tree, 10, 19, one);
		store(test, &tree, 20, 29, two);
		rcu_read_lock();
		KUNIT_EXPECT_PTR_EQ(test, mas_walk(&mas), i < 2 ? one : two);
		store(test, &tree, 10, 29, NULL);
		if (i == 3)
			store(test, &tree, 0, 0, one);
		if (i == 0)
			found = mas_find(&mas, ULONG_MAX);
		else if (i == 1)
			found = mas_next(&mas, ULONG_MAX);
		else
			found = mas_prev(&mas, 0);
		KUNIT_EXPECT_PTR_EQ_MSG(test, found, i == 3 ? one : NULL, "round %u", i);
		rcu_read_unlock();
		store(test, &tree, 0, 0, NULL);
	}
	mtree_destroy(&tree);
}

static struct kunit_case vmap_maple_cases[] = {
	KUNIT_CASE(vmap_maple_emptied),
	{}
};

VMAP_SUITE(vmap_maple);
