// SPDX-License-Identifier: GPL-2.0

//! CPUs and locks of the build host.

use crate::sys::per_cpu::CpuNumber;
use std::cell::Cell;
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Number of CPUs, unless a test sets another one.
const CPUS: usize = 4;

/// Yields at times, so that threads interleave in more places. Panics under the RCU read lock.
pub(crate) fn cond_resched() {
    std::thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    assert!(!kernel::sync::rcu::is_held(), "the RCU read lock is held");
    CALLS.set(CALLS.get().wrapping_add(1));
    kernel::hooks::resched();
    // On a busy machine each yield costs milliseconds, and some tests get here two million times.
    if CALLS.get() % 64 == 0 {
        std::thread::yield_now();
    }
}

std::thread_local! {
    /// This thread's CPU and the number of CPUs, if a test has set them.
    static CHOSEN: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// Moves this thread to CPU `cpu` of `count` CPUs. All CPUs of a space must be made and used with one count.
pub(crate) fn be_on(cpu: usize, count: usize) {
    assert!(cpu < count);
    CHOSEN.set(Some((cpu, count)));
}

/// Returns the CPU of this thread: threads are spread over all CPUs in turn.
pub(crate) fn cpu_hint() -> CpuNumber {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static CPU: usize = NEXT.fetch_add(1, Ordering::Relaxed) % CPUS;
    }
    let chosen = CHOSEN.get().map(|(cpu, _)| cpu);
    CpuNumber::new(chosen.unwrap_or_else(|| CPU.with(|cpu| *cpu)))
}

/// This thread alone is on its CPU.
pub(crate) struct OneCpu {
    _alone: MutexGuard<'static, ()>,
}

impl OneCpu {
    pub(crate) fn new() -> Self {
        static CPUS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];
        let lock = &CPUS[cpu_hint().number() % CPUS.len()];
        Self {
            _alone: lock.lock().expect("no test panics without preemption"),
        }
    }
}

pub(crate) fn cpu_count() -> usize {
    CHOSEN.get().map_or(CPUS, |(_, count)| count)
}
