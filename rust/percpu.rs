// SPDX-License-Identifier: GPL-2.0

//! State of each CPU.

use crate::{
    block::BANDS,
    per_cpu::PerCpu,
    stats::{
        Counters,
        Totals, //
    },
};
use kernel::{
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
    fn new() -> Self {
        Self {
            current: core::array::from_fn(|_| Atomic::new(0)),
            lazy: Atomic::new(0),
            counters: Counters::new(),
        }
    }
}

/// The state of all CPUs.
pub(crate) struct Cpus(PerCpu<Cpu>);

impl Cpus {
    /// Creates the state of each possible CPU.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(PerCpu::new(|| Ok(Cpu::new()))?))
    }

    /// Returns the state of the CPU on which this runs, or ran a moment ago.
    pub(crate) fn here(&self) -> &Cpu {
        self.0.here()
    }

    /// Returns the states of all CPUs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cpu> {
        self.0.iter()
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
