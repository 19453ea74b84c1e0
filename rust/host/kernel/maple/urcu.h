/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tools/testing/shared uses of liburcu. Readers and callbacks are those of the stand-in kernel
 * crate (sync/rcu.rs), so that a reader in Rust keeps nodes of the tree alive, too.
 */
#ifndef VMAP_RUST_URCU_H
#define VMAP_RUST_URCU_H

#include <urcu/uatomic.h>

struct rcu_head {
	struct rcu_head *next;
	void (*func)(struct rcu_head *head);
};

void rcu_read_lock(void);
void rcu_read_unlock(void);
void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head));

#define rcu_dereference(p)		__atomic_load_n(&(p), __ATOMIC_CONSUME)
#define rcu_assign_pointer(p, v)	__atomic_store_n(&(p), (v), __ATOMIC_RELEASE)

#endif
