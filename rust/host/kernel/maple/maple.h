/* SPDX-License-Identifier: GPL-2.0 */
/* The maple tree in user space: what the stand-in kernel crate uses of it. */
#include <generated/autoconf.h>
#include "maple-shared.h"
#include <linux/maple_tree.h>
#include <linux/slab.h>

#define VMAP_RUST_ALIGN 256

/*
 * Functions of Rust. The first one returns zeroed memory with this alignment, or NULL if the test
 * lets it fail. The second one frees it.
 */
void *vmap_rust_alloc(size_t size);
void vmap_rust_free(void *memory);

/* Inline functions and macros of the kernel's headers. */
void vmap_rust_mt_init_flags(struct maple_tree *mt, unsigned int flags);
void vmap_rust_spin_lock(spinlock_t *lock);
void vmap_rust_spin_unlock(spinlock_t *lock);

/* Checks the tree, and ends the process if it is damaged. */
void vmap_rust_mt_validate(struct maple_tree *mt);
