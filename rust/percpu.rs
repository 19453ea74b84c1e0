// SPDX-License-Identifier: GPL-2.0

//! State of each CPU.
//!
//! A task may move to another CPU after it has asked for the CPU number, and then uses the state of the
//! old CPU. All users here tolerate that, so preemption stays enabled, and a CPU that goes offline needs
//! no cleanup.

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

/// The state of one CPU.
pub(crate) struct Cpu {
    /// For each band, the index of the current block plus one; 0 if there is none.
    pub(crate) current: [Atomic<usize>; BANDS],
    /// Estimate of the lazy pages that this CPU has not yet added to the total of all CPUs.
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

/// The state of all CPUs.
pub(crate) struct Cpus {
    first: KBox<Cpu>,
    others: KVec<KBox<Cpu>>,
}

impl Cpus {
    /// Creates the state of each possible CPU.
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

    /// Returns the state of the CPU on which this runs, or ran a moment ago.
    pub(crate) fn here(&self) -> &Cpu {
        let other = mm::cpu_hint().checked_sub(1);
        other
            .and_then(|index| self.others.get(index))
            .unwrap_or(&self.first)
    }

    /// Returns the states of all CPUs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cpu> {
        let mut next = Some(&*self.first);
        let mut others = self.others.iter();
        core::iter::from_fn(move || next.take().or_else(|| others.next().map(|cpu| &**cpu)))
    }

    /// Returns the sums of the counters of all CPUs.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for cpu in self.iter() {
            totals.add(&cpu.counters);
        }
        totals
    }
}
