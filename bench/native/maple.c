// SPDX-License-Identifier: GPL-2.0
/*
 * lib/maple_tree.c, and the few functions of it that the Rust side needs
 * (rust/native/src/sys/maple.rs), as rust/kernel/maple_tree.rs calls them.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <linux/slab.h>
#include <linux/types.h>
#include <linux/bug.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/bitops.h>
#include <linux/rcupdate.h>

#undef BUG_ON
#undef WARN_ON
#undef WARN_ON_ONCE
#define TRAP(c) ({ bool c_ = (c); if (unlikely(c_)) broken(#c); c_; })
#define BUG_ON(c) TRAP(c)
#define WARN_ON(c) TRAP(c)
#define WARN_ON_ONCE(c) TRAP(c)
#define kfree(node) kmem_cache_free(maple_node_cache, node)
#define kfree_rcu(node, head) call_rcu(&(node)->head, free_node)
static void free_node(struct rcu_head *head);

/* Nodes for a store that needs more than one. */
static struct slab_sheaf *kmem_cache_prefill_sheaf(struct kmem_cache *cache, gfp_t gfp, unsigned int size)
{
	unsigned int capacity = size > cache->capacity ? size : cache->capacity;
	struct slab_sheaf *sheaf = kmalloc_noprof(sizeof(*sheaf) + capacity * sizeof(void *), 0);

	sheaf->capacity = capacity;
	for (sheaf->size = 0; sheaf->size < size; sheaf->size++)
		sheaf->objects[sheaf->size] = kmem_cache_alloc(cache, gfp);
	return sheaf;
}

static void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf)
{
	while (sheaf->size)
		kmem_cache_free(cache, sheaf->objects[--sheaf->size]);
	kfree_sized(sheaf, sizeof(*sheaf) + sheaf->capacity * sizeof(void *));
}

static int kmem_cache_refill_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf **sheaf,
				   unsigned int size)
{
	kmem_cache_return_sheaf(cache, gfp, *sheaf);
	*sheaf = kmem_cache_prefill_sheaf(cache, gfp, size);
	return 0;
}

static void *kmem_cache_alloc_from_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf)
{
	return sheaf->size ? sheaf->objects[--sheaf->size] : NULL;
}

static void kmem_cache_free_bulk(struct kmem_cache *cache, size_t size, void **objects)
{
	while (size--)
		kmem_cache_free(cache, objects[size]);
}

#include "lib/maple_tree.c"

static void free_node(struct rcu_head *head)
{
	kmem_cache_free(maple_node_cache, container_of(head, struct maple_node, rcu));
}

static __attribute__((constructor(200))) void maple_init(void)
{
	maple_tree_init();
}

/* Rust has the memory. */
_Static_assert(sizeof(struct maple_tree) == 2 * sizeof(long), "rust/native/src/sys/maple.rs");

void native_tree_init(struct maple_tree *tree)
{
	mt_init_flags(tree, MT_FLAGS_ALLOC_RANGE | MT_FLAGS_USE_RCU);
}

void *native_tree_load(struct maple_tree *tree, unsigned long at)
{
	return mtree_load(tree, at);
}

/* Finds the first entry at or above @at, under RCU or the lock. */
void *native_tree_next(struct maple_tree *tree, unsigned long at, unsigned long *first, unsigned long *last)
{
	MA_STATE(mas, tree, at, at);
	void *entry = mas_find(&mas, ULONG_MAX);

	*first = mas.index;
	*last = mas.last;
	return entry;
}

void native_tree_lock(struct maple_tree *tree)
{
	mtree_lock(tree);
}

void native_tree_unlock(struct maple_tree *tree)
{
	mtree_unlock(tree);
}

/* Finds what is at @at: an entry, or NULL for a gap, and its range. */
void *native_tree_walk(struct maple_tree *tree, unsigned long at, unsigned long *first, unsigned long *last)
{
	MA_STATE(mas, tree, at, at);
	void *entry = mas_walk(&mas);

	*first = mas.index;
	*last = mas.last;
	return entry;
}

/* Finds the lowest or highest gap of @size in @first to @last. */
bool native_tree_gap(struct maple_tree *tree, bool highest, unsigned long size, unsigned long *first,
		     unsigned long *last)
{
	MA_STATE(mas, tree, 0, 0);

	if ((highest ? mas_empty_area_rev : mas_empty_area)(&mas, *first, *last, size))
		return false;
	*first = mas.index;
	*last = mas.last;
	return true;
}

/* Stores @entry, or NULL, which erases what is there. There always is memory. */
void native_tree_store(struct maple_tree *tree, unsigned long first, unsigned long last, void *entry)
{
	MA_STATE(mas, tree, first, last);

	if (mas_preallocate(&mas, entry, GFP_NOWAIT))
		broken("no memory for a maple tree");
	mas_store_prealloc(&mas, entry);
}
