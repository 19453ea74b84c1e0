// SPDX-License-Identifier: GPL-2.0

//! CPUs and locks of the build host.

pub(crate) use std::sync::{
    Mutex,
    MutexGuard, //
};

/// Yields, so that threads interleave in more places.
pub(crate) fn cond_resched() {
    std::thread::yield_now();
}

/// Returns the CPU of this thread: threads are spread over all CPUs in turn.
pub(crate) fn cpu_hint() -> usize {
    use std::sync::atomic::{
        AtomicUsize,
        Ordering, //
    };
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static CPU: usize = NEXT.fetch_add(1, Ordering::Relaxed) % cpu_count();
    }
    CPU.with(|cpu| *cpu)
}

pub(crate) fn cpu_count() -> usize {
    4
}
