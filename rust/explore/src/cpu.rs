// SPDX-License-Identifier: GPL-2.0

//! CPUs and locks of the scheduler.

use crate::sys::per_cpu::CpuNumber;
use shuttle::rand::Rng;
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

/// Does nothing: accesses to atomics are enough points to switch threads.
pub(crate) fn cond_resched() {}

/// Returns a random CPU: threads migrate all the time.
pub(crate) fn cpu_hint() -> CpuNumber {
    CpuNumber::new(shuttle::rand::thread_rng().gen_range(0..cpu_count()))
}

pub(crate) fn cpu_count() -> usize {
    2
}

/// Lets the scheduler choose the next thread, at one access in four. Choices at every access would make long
/// delays between two accesses of a thread unlikely.
pub(crate) fn schedule() {
    if !shuttle::rand::thread_rng().gen_ratio(1, 4) {
        return;
    }
    use shuttle::sync::atomic::{AtomicBool, Ordering};
    AtomicBool::new(false).load(Ordering::SeqCst);
}
