/* SPDX-License-Identifier: GPL-2.0 */
/* The atomic operations of liburcu that tools/testing/shared uses. */
#ifndef VMAP_RUST_UATOMIC_H
#define VMAP_RUST_UATOMIC_H

#define uatomic_inc(p)		((void)__atomic_fetch_add((p), 1, __ATOMIC_RELAXED))
#define uatomic_dec(p)		((void)__atomic_fetch_sub((p), 1, __ATOMIC_RELAXED))
#define uatomic_read(p)		__atomic_load_n((p), __ATOMIC_RELAXED)
#define uatomic_set(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELAXED)

#endif
