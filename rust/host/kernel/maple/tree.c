// SPDX-License-Identifier: GPL-2.0
/* lib/maple_tree.c in user space, by the headers of tools/testing/shared. */
#include "maple.h"
#include "maple-shim.c"

void kmem_cache_set_non_kernel(struct kmem_cache *cache, unsigned int count);

/*
 * In tools/testing/shared, a limited number of allocations that must not wait succeed. Here Rust
 * decides which of them fail.
 */
static void init_cache(void)
{
	maple_tree_init();
	kmem_cache_set_non_kernel(maple_node_cache, UINT_MAX);
}

void vmap_rust_mt_init_flags(struct maple_tree *mt, unsigned int flags)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init_cache);
	mt_init_flags(mt, flags);
}

void vmap_rust_spin_lock(spinlock_t *lock)
{
	spin_lock(lock);
}

void vmap_rust_spin_unlock(spinlock_t *lock)
{
	spin_unlock(lock);
}

void vmap_rust_mt_validate(struct maple_tree *mt)
{
	mt_validate(mt);
}

int lockdep_is_held(const void *lock)
{
	return 1;
}
