/* SPDX-License-Identifier: GPL-2.0 */
/* RCU of shim.h for the kernel's lib/. */
#ifndef _NATIVE_RCUPDATE_H
#define _NATIVE_RCUPDATE_H

#define rcu_read_lock() __rcu_read_lock()
#define rcu_read_unlock() __rcu_read_unlock()
#define rcu_dereference(p) __atomic_load_n(&(p), __ATOMIC_CONSUME)
#define rcu_dereference_raw(p) rcu_dereference(p)
#define rcu_dereference_check(p, c) rcu_dereference(p)
#define rcu_dereference_protected(p, c) READ_ONCE(p)
#define rcu_assign_pointer(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
#define RCU_INIT_POINTER(p, v) WRITE_ONCE(p, v)
#define get_state_synchronize_rcu() 0UL
#define poll_state_synchronize_rcu(gp) 0

#endif
