// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `mm`: memory fails when it is told to, and a report is a panic.

use crate::range::Span;
use kernel::{
    bindings,
    fault, //
};

#[derive(Clone, Copy)]
pub(crate) struct Gfp(bindings::gfp_t);

impl Gfp {
    pub(crate) const NOWAIT: Self = Self(bindings::GFP_NOWAIT);
    pub(crate) const KERNEL: Self = Self(bindings::GFP_KERNEL);

    pub(crate) fn as_raw(self) -> bindings::gfp_t {
        self.0
    }

    pub(crate) fn flags(self) -> kernel::alloc::Flags {
        kernel::prelude::GFP_NOWAIT
    }

    pub(crate) fn may_block(self) -> bool {
        self.0 == bindings::GFP_KERNEL
    }
}

pub(crate) trait Tlb {
    fn flush(&self, span: Span, areas: usize);
    fn has_shadow(&self) -> bool;
    fn is_test(&self) -> bool {
        true
    }
    fn release_shadow(&self, span: Span);
    fn flush_shadow(&self, span: Span);
}

/// Lets others run, so that threads meet in more places.
pub(crate) fn cond_resched() {
    std::thread::yield_now();
}

/// Holds are not measured here.
pub(crate) fn clock_ns() -> usize {
    0
}

/// Each thread is a CPU; if there are more, they share them.
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

macro_rules! refuse {
    ($($arg:tt)*) => {
        $crate::mm::refused(format_args!($($arg)*))
    };
}
pub(crate) use refuse;

pub(crate) fn refused(what: core::fmt::Arguments<'_>) {
    // What a failed test drops is reported, but is not what failed.
    if std::thread::panicking() {
        eprintln!("refused: {what}");
    } else {
        panic!("refused: {what}");
    }
}

pub(crate) fn fail_nth(nth: u32) -> u32 {
    fault::NTH.with(|cell| cell.replace(nth))
}

pub(crate) const CAN_FAIL: bool = true;

pub(crate) fn fail_from(nth: u32) -> bool {
    fault::FROM.with(|cell| cell.replace(nth)) != 0 || nth != 0
}

pub(crate) fn live_objects() -> Option<usize> {
    Some(bindings::LIVE_AREAS.with(|live| live.get()))
}

/// `VMAP_RUST_SEED` or a number that is another one each time.
pub(crate) fn random_seed() -> u64 {
    use std::hash::BuildHasher;
    match std::env::var("VMAP_RUST_SEED").map(|seed| seed.parse()) {
        Ok(Ok(seed)) => seed,
        Ok(Err(_)) => panic!("VMAP_RUST_SEED is not a number"),
        Err(_) => std::hash::RandomState::new().hash_one(0),
    }
}
