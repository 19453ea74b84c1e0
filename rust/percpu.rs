// SPDX-License-Identifier: GPL-2.0

//! State of each CPU.

use crate::{
    block::BANDS,
    mm,
    per_cpu::{
        CacheAligned,
        PerCpu, //
    },
    stats::{
        Counters,
        Totals, //
    },
};
use kernel::{
    prelude::*,
    sync::atomic::Atomic, //
};

/// A current block.
pub(crate) struct Current {
    /// The index of the block plus one; 0 if there is none. Changes under the lock of the pool.
    pub(crate) index: Atomic<usize>,
    /// The epoch of the pool in which it became current.
    pub(crate) since: Atomic<usize>,
}

/// The state of one CPU.
pub(crate) struct Cpu {
    /// The current block for each band. Other CPUs may use them, too: see [`crate::blocks`].
    pub(crate) current: CacheAligned<[Current; BANDS]>,
    /// Estimate of the lazy pages that this CPU has not yet added to the total of all CPUs.
    pub(crate) lazy: Atomic<usize>,
    pub(crate) counters: Counters,
}

impl Cpu {
    fn new() -> Self {
        Self {
            current: CacheAligned::new(core::array::from_fn(|_| Current {
                index: Atomic::new(0),
                since: Atomic::new(0),
            })),
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

    /// Returns the state of the first CPU of a group of `1 << shift` CPUs, that of the CPU on which this
    /// runs.
    #[cold]
    pub(crate) fn first_of_group(&self, shift: u32) -> &Cpu {
        self.0
            .get(mm::cpu_hint().wrapping_shr(shift).wrapping_shl(shift))
    }

    /// Returns the states of all CPUs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cpu> {
        self.0.iter()
    }

    /// Returns how many areas of blocks all CPUs have retired. Wraps around.
    pub(crate) fn retired(&self) -> usize {
        self.iter().fold(0, |sum, cpu| {
            sum.wrapping_add(cpu.counters.retire_block.get())
        })
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
