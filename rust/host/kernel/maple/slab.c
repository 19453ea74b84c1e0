// SPDX-License-Identifier: GPL-2.0
/*
 * The slab allocator of tools/testing/shared with memory from Rust, which is counted, and fails
 * when a test says so, also if the allocation may wait.
 */
#include <assert.h>
#include <malloc.h>
#include <stdlib.h>
#include "maple.h"
#include <linux/radix-tree.h>

/* Those of bindings.rs. */
static_assert(GFP_NOWAIT == 0x2800 && GFP_KERNEL == 0xcc0, "other flags");

int kmalloc_verbose;

static int alloc_node(void **node, size_t align, size_t size)
{
	assert(align <= VMAP_RUST_ALIGN);
	*node = vmap_rust_alloc(size);
	if (!*node)
		return -ENOMEM;
	/* Memory from a slab is not zeroed. */
	memset(*node, 0x5a, size);
	return 0;
}

#define posix_memalign(node, align, size) \
	alloc_node((void **)(node), (align), (size))
#define calloc(count, size) vmap_rust_alloc((count) * (size))
#define free(memory) vmap_rust_free(memory)
#include "linux.c"

/* The tree frees nodes like this, too. */
void kfree(void *memory)
{
	if (memory)
		vmap_rust_free(memory);
}
