// SPDX-License-Identifier: GPL-2.0

//! What only tests need of the kernel. A module of `sys`; on the build host, its `mm` has these.

use crate::base::prelude::*;

/// Makes the `nth` allocation of this task from now on fail, counting only those that may fail; 0 ends it.
/// Returns what remains of the previous count. Works only if [`CAN_FAIL`].
///
/// See `should_fail_ex()` in lib/fault-inject.c.
pub(crate) fn fail_nth(nth: u32) -> u32 {
    #[cfg(all(CONFIG_FAULT_INJECTION, CONFIG_FAILSLAB))]
    {
        // SAFETY: The current task is valid, and only it uses the field.
        unsafe {
            let task = bindings::get_current();
            core::mem::replace(&mut (*task).fail_nth, nth)
        }
    }
    #[cfg(not(all(CONFIG_FAULT_INJECTION, CONFIG_FAILSLAB)))]
    {
        let _ = nth;
        0
    }
}

/// Makes the `nth` allocation and all later ones fail; 0 ends it, and returns whether any has failed. Works only if
/// [`CAN_FAIL_ALL`].
pub(crate) fn fail_from(_nth: u32) -> bool {
    false
}

/// Whether [`fail_from`] works, and all allocations that [`fail_nth`] counts are those of the code that is tested: only on the
/// build host. In the kernel debugging tools allocate, too, and slab, which has another way without a sheaf. See
/// `alloc_empty_sheaf()` in mm/slub.c.
pub(crate) const CAN_FAIL_ALL: bool = false;

/// Returns the number of live area objects. Known only on the build host.
pub(crate) fn live_objects() -> Option<usize> {
    None
}

/// Returns a seed that differs on each boot.
pub(crate) fn random_seed() -> u64 {
    // SAFETY: No requirements.
    unsafe { bindings::get_random_u64() }
}

/// Whether a held spinlock keeps others out. Without SMP, it only disables preemption.
///
/// See include/linux/spinlock_api_up.h.
pub(crate) const LOCKS_EXCLUDE: bool = cfg!(any(CONFIG_SMP, CONFIG_DEBUG_SPINLOCK));

/// Binds a test to its current CPU: on another CPU, the space would start another block. Each KUnit test
/// has a thread of its own, see `kunit_try_catch_run()` in lib/kunit/try-catch.c. Sleepable context.
pub(crate) fn stay_on_this_cpu() -> Result {
    #[cfg(CONFIG_SMP)]
    {
        let mut here = kernel::cpumask::CpumaskVar::new_zero(GFP_KERNEL)?;
        here.set(kernel::cpu::CpuId::current());
        // SAFETY: The current task and the mask are valid.
        kernel::error::to_result(unsafe {
            bindings::set_cpus_allowed_ptr(bindings::get_current(), here.as_raw())
        })?;
    }
    Ok(())
}

/// Whether [`fail_nth`] works.
pub(crate) const CAN_FAIL: bool = cfg!(all(CONFIG_FAULT_INJECTION, CONFIG_FAILSLAB));
