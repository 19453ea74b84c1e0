/* SPDX-License-Identifier: GPL-2.0 */
/* Slab of shim.h for the kernel's lib/; the functions of sheaves are in maple.c. */
#ifndef _NATIVE_SLAB_H
#define _NATIVE_SLAB_H

#include <linux/gfp.h>
#include <linux/types.h>

struct slab_sheaf {
	unsigned int capacity, size;
	void *objects[];
};
struct kmem_cache_args {
	unsigned int align, sheaf_capacity;
};
#define SLAB_PANIC 0
#define kmem_cache_create(name, size, args, flags) new_cache(size)
#define kmem_cache_alloc(cache, gfp) kmem_cache_alloc_noprof(cache, (unsigned int)(gfp))
#define kmem_cache_sheaf_size(sheaf) ((sheaf)->size)

#endif
