// SPDX-License-Identifier: GPL-2.0

//! What each CPU has for itself.
//!
//! The number of the CPU is a hint: a task that moves to another one between asking for the number and
//! using it uses what belongs to another CPU. Everything here stands that, so there is no need to switch
//! preemption off, and a CPU that goes offline takes nothing with it.

use crate::{
    block::BANDS,
    mm,
    stats::{
        Counters,
        Totals, //
    },
};
use kernel::{
    alloc::Flags,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// What a CPU has.
pub(crate) struct Cpu {
    /// For each band, the number of the block that it allocates from, plus one; 0 if there is none.
    pub(crate) current: [Atomic<usize>; BANDS],
    /// About how many lazy pages are not yet in the count of all CPUs.
    pub(crate) lazy: Atomic<usize>,
    pub(crate) counters: Counters,
    /// The longest that a task here has held the lock of the tree or of the pool, in nanoseconds.
    longest_hold: Atomic<usize>,
}

/// Measures how long a lock is held: from before it is taken until this is dropped, after it. Waiting for
/// the lock is part of it.
#[must_use = "the time ends when this is dropped"]
pub(crate) struct Hold<'a> {
    cpu: &'a Cpu,
    start: usize,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let time = mm::clock_ns().wrapping_sub(self.start);
        // Relaxed: a number for people. One that is lost to another task on this CPU is no harm.
        if time > self.cpu.longest_hold.load(Relaxed) {
            self.cpu.longest_hold.store(time, Relaxed);
        }
    }
}

impl Cpu {
    fn new(flags: Flags) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                current: core::array::from_fn(|_| Atomic::new(0)),
                lazy: Atomic::new(0),
                counters: Counters::new(),
                longest_hold: Atomic::new(0),
            },
            flags,
        )?)
    }
}

/// All CPUs.
pub(crate) struct Cpus {
    first: KBox<Cpu>,
    others: KVec<KBox<Cpu>>,
}

impl Cpus {
    /// One for each CPU that there can be.
    pub(crate) fn new() -> Result<Self> {
        let count = mm::cpu_count().saturating_sub(1);
        let mut others = KVec::with_capacity(count, GFP_NOWAIT)?;
        for _ in 0..count {
            others.push(Cpu::new(GFP_NOWAIT)?, GFP_NOWAIT)?;
        }
        Ok(Self {
            first: Cpu::new(GFP_NOWAIT)?,
            others,
        })
    }

    /// That of the CPU this runs on, or did until just now.
    pub(crate) fn here(&self) -> &Cpu {
        let other = mm::cpu_hint().checked_sub(1);
        other
            .and_then(|index| self.others.get(index))
            .unwrap_or(&self.first)
    }

    /// Measures how long a lock is held here.
    pub(crate) fn hold(&self) -> Hold<'_> {
        Hold {
            cpu: self.here(),
            start: mm::clock_ns(),
        }
    }

    /// The longest hold of all CPUs, in nanoseconds.
    pub(crate) fn longest_hold(&self) -> usize {
        let holds = self.iter().map(|cpu| cpu.longest_hold.load(Relaxed));
        holds.max().unwrap_or(0)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cpu> {
        let mut next = Some(&*self.first);
        let mut others = self.others.iter();
        core::iter::from_fn(move || next.take().or_else(|| others.next().map(|cpu| &**cpu)))
    }

    /// What all of them have counted.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for cpu in self.iter() {
            totals.add(&cpu.counters);
        }
        totals
    }
}
