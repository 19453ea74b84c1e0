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
    sync::atomic::Atomic, //
};

/// What a CPU has.
pub(crate) struct Cpu {
    /// For each band, the number of the block that it allocates from, plus one; 0 if there is none.
    pub(crate) current: [Atomic<usize>; BANDS],
    /// About how many lazy pages are not yet in the count of all CPUs.
    pub(crate) lazy: Atomic<usize>,
    pub(crate) counters: Counters,
}

impl Cpu {
    fn new(flags: Flags) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                current: core::array::from_fn(|_| Atomic::new(0)),
                lazy: Atomic::new(0),
                counters: Counters::new(),
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
