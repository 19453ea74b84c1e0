/* SPDX-License-Identifier: GPL-2.0 */
/* The rest of the spinlocks of shim.h, for include/linux/xarray.h: there are no interrupts. */
#define spin_lock_bh(lock) spin_lock(lock)
#define spin_unlock_bh(lock) spin_unlock(lock)
#define spin_lock_irq(lock) spin_lock(lock)
#define spin_unlock_irq(lock) spin_unlock(lock)
#define spin_lock_nested(lock, subclass) spin_lock(lock)
#define __SPIN_LOCK_UNLOCKED(name) { { 0 } }
