// SPDX-License-Identifier: GPL-2.0

//! State of each CPU.

use crate::{
    base::stats::{
        Counters,
        Totals, //
    },
    state::by_band::ByBand,
    sys::{
        mm::{
            self,
            Node, //
        },
        per_cpu::{
            CacheAligned,
            PerCpu, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Maximum number of blocks of a band that a CPU remembers: as many fine blocks of 2 MiB as may be lazy in a
/// system of one CPU, `lazy_max_pages()` in mm/vmalloc.c.
const REMEMBERED: usize = 16;

/// Blocks that were current blocks of a CPU and are in the pool with room, unless others have taken them
/// since. Used under the lock of the pool.
pub(crate) struct Former {
    /// Indices of blocks.
    blocks: [Atomic<usize>; REMEMBERED],
    len: Atomic<usize>,
}

impl Former {
    fn new() -> Self {
        Self {
            blocks: [const { Atomic::new(0) }; REMEMBERED],
            len: Atomic::new(0),
        }
    }

    /// Remembers a block, if there is room. Returns whether there is.
    pub(crate) fn push(&self, index: usize) -> bool {
        // Relaxed, here and below: only under the lock.
        let len = self.len.load(Relaxed);
        let slot = self.blocks.get(len);
        if let Some(slot) = slot {
            slot.store(index, Relaxed);
            self.len.store(len.wrapping_add(1), Relaxed);
        }
        slot.is_some()
    }

    /// Returns the lowest block at or above `from`.
    pub(crate) fn lowest(&self, from: usize) -> Option<usize> {
        let blocks = self.blocks.get(..self.len.load(Relaxed))?;
        let blocks = blocks.iter().map(|block| block.load(Relaxed));
        blocks.filter(|&index| index >= from).min()
    }

    /// Forgets a block.
    pub(crate) fn forget(&self, index: usize) {
        let Some(last) = self.len.load(Relaxed).checked_sub(1) else {
            return;
        };
        let mut blocks = self.blocks.iter().take(last.wrapping_add(1));
        let found = blocks.find(|block| block.load(Relaxed) == index);
        if let (Some(found), Some(end)) = (found, self.blocks.get(last)) {
            found.store(end.load(Relaxed), Relaxed);
            self.len.store(last, Relaxed);
        }
    }
}

/// The state of one CPU.
pub(crate) struct Cpu {
    /// For each band, the index of the current block plus one; 0 if there is none. Changes under the lock of
    /// the pool. Other CPUs may use them, too: see [`crate::policy::blocks`].
    pub(crate) current: CacheAligned<ByBand<Atomic<usize>>>,
    /// For each band, former current blocks. Apart from the rest, which would not fit well on a stack with them.
    pub(crate) former: ByBand<KBox<Former>>,
    /// Estimate of the lazy pages that this CPU has not yet added to the total of all CPUs.
    pub(crate) lazy: Atomic<usize>,
    pub(crate) counters: Counters,
}

impl Cpu {
    fn new(node: Node) -> Result<Self> {
        Ok(Self {
            current: CacheAligned::new(ByBand::new(|_| Atomic::new(0))),
            former: ByBand::try_new(|_| node.new_box(Former::new(), GFP_NOWAIT))?,
            lazy: Atomic::new(0),
            counters: Counters::new(),
        })
    }
}

/// The state of all CPUs.
pub(crate) struct Cpus(PerCpu<Cpu>);

impl Cpus {
    /// Creates the state of each possible CPU.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(PerCpu::new(Cpu::new)?))
    }

    /// Returns the state of the CPU on which this runs, or ran a moment ago.
    pub(crate) fn here(&self) -> &Cpu {
        self.0.here()
    }

    /// Returns the first CPU of the group of `1 << shift` CPUs in which this runs.
    pub(crate) fn first_of_group(&self, shift: u32) -> usize {
        mm::cpu_hint().wrapping_shr(shift).wrapping_shl(shift)
    }

    /// Returns the state of CPU `cpu`.
    pub(crate) fn of(&self, cpu: usize) -> &Cpu {
        self.0.get(cpu)
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
