// SPDX-License-Identifier: GPL-2.0

//! CPUs and locks of the scheduler.

use crate::sys::per_cpu::CpuNumber;
use shuttle::rand::Rng;
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
use std::cell::Cell;

const CPU_COUNT: usize = 2;

/// Does nothing: accesses to atomics are enough points to switch threads.
pub(crate) fn cond_resched() {}

shuttle::thread_local! {
    /// The CPU on which this thread stays.
    static STAYS: Cell<Option<usize>> = Cell::new(None);
}

shuttle::lazy_static! {
    static ref CPUS: [Mutex<()>; CPU_COUNT] = core::array::from_fn(|_| Mutex::new(()));
}

/// Returns a random CPU: threads migrate all the time, but for one without preemption.
pub(crate) fn cpu_hint() -> CpuNumber {
    let any = || shuttle::rand::thread_rng().gen_range(0..CPU_COUNT);
    CpuNumber::new(STAYS.with(Cell::get).unwrap_or_else(any))
}

/// This thread alone is on its CPU, and stays there.
pub(crate) struct OneCpu {
    _alone: MutexGuard<'static, ()>,
}

impl OneCpu {
    pub(crate) fn new() -> Self {
        let cpu = cpu_hint().number();
        let alone = CPUS[cpu].lock().expect("no test panics without preemption");
        STAYS.with(|stays| stays.set(Some(cpu)));
        Self { _alone: alone }
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        STAYS.with(|stays| stays.set(None));
    }
}

pub(crate) fn cpu_count() -> usize {
    CPU_COUNT
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
