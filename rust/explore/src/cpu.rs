// SPDX-License-Identifier: GPL-2.0

//! CPUs and locks: those of the scheduler.

use shuttle::rand::Rng;
pub(crate) use shuttle::sync::{
    Mutex,
    MutexGuard, //
};

/// Any access to an atomic is a place where others may run; there are enough of them.
pub(crate) fn cond_resched() {}

/// Threads move to another CPU all the time.
pub(crate) fn cpu_hint() -> usize {
    shuttle::rand::thread_rng().gen_range(0..cpu_count())
}

pub(crate) fn cpu_count() -> usize {
    2
}

/// Lets the scheduler choose who goes on, at every fourth access or so: an access to an atomic of its own
/// does. A thread that is stopped at each access hardly ever waits for long between two of them.
pub(crate) fn schedule() {
    if !shuttle::rand::thread_rng().gen_ratio(1, 4) {
        return;
    }
    use shuttle::sync::atomic::{
        AtomicBool,
        Ordering, //
    };
    AtomicBool::new(false).load(Ordering::SeqCst);
}
