// SPDX-License-Identifier: GPL-2.0

//! State of each CPU.

#[cfg(CONFIG_VMAP_RUST)]
use crate::sys::layout::small;
use crate::{
    base::{
        cpu::CpuNumber,
        stats::{
            Counters,
            Totals, //
        }, //
    },
    state::{
        block_number::{
            BlockHint,
            BlockNumber, //
        },
        by_band::ByBand, //
    },
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
#[cfg(CONFIG_VMAP_RUST)]
use core::mem::offset_of;
#[cfg(CONFIG_VMAP_RUST)]
use kernel::bindings;
use kernel::{
    prelude::*,
    sync::atomic::Atomic, //
};

/// Maximum number of blocks of a band that a CPU remembers: as many fine blocks of 2 MiB as may be lazy in a
/// system of one CPU, `lazy_max_pages()` in mm/vmalloc.c.
const REMEMBERED: usize = 16;

/// Blocks that were current blocks of a CPU and are in the pool with room, unless others have taken them
/// since. Used under the lock of the pool.
pub(crate) struct Former {
    /// Those in use come first.
    blocks: [BlockHint; REMEMBERED],
}

impl Former {
    fn new() -> Self {
        Self {
            blocks: [const { BlockHint::new() }; REMEMBERED],
        }
    }

    /// Remembers a block, if there is room. Returns whether there is.
    pub(crate) fn push(&self, block: BlockNumber) -> bool {
        let free = self.blocks.iter().find(|slot| slot.get().is_none());
        if let Some(free) = free {
            free.set(Some(block));
        }
        free.is_some()
    }

    /// Returns the lowest block, or the lowest above `last`.
    pub(crate) fn lowest_above(&self, last: Option<BlockNumber>) -> Option<BlockNumber> {
        let blocks = self.blocks.iter().map_while(BlockHint::get);
        // None is below all.
        blocks.filter(|&block| Some(block) > last).min()
    }

    /// Forgets a block, if it is remembered.
    pub(crate) fn forget(&self, block: BlockNumber) {
        let mut used = self.blocks.iter().take_while(|slot| slot.get().is_some());
        let Some(found) = used.find(|slot| slot.get() == Some(block)) else {
            return;
        };
        // The last one takes its place, unless it is the last one itself.
        found.set(used.last().and_then(|last| last.replace(None)));
    }
}

/// The state of one CPU.
pub(crate) struct Cpu {
    /// For each band, the current block, if there is one. Changes under the lock of the pool. Other CPUs may use
    /// them, too: see [`crate::policy::blocks`].
    pub(crate) current: CacheAligned<ByBand<BlockHint>>,
    /// For each band, former current blocks. Apart from the rest, which would not fit well on a stack with them.
    pub(crate) former: ByBand<KBox<Former>>,
    /// Estimate of the lazy pages that this CPU has not yet added to the total of all CPUs.
    pub(crate) lazy: Atomic<usize>,
    pub(crate) counters: Counters,
}

impl Cpu {
    fn new(node: Node) -> Result<Self> {
        Ok(Self {
            current: CacheAligned::new(ByBand::new(|_| BlockHint::new())),
            former: ByBand::try_new(|_| node.new_box(Former::new(), GFP_NOWAIT))?,
            lazy: Atomic::new(0),
            counters: Counters::new(),
        })
    }
}

/// The state of all CPUs.
pub(crate) struct Cpus(PerCpu<Cpu>);

impl Cpus {
    /// Describes the states of the CPUs, which are at offset `at` of the space, to debuggers.
    #[cfg(CONFIG_VMAP_RUST)]
    pub(super) const fn describe(info: &mut bindings::vmap_rust_debug_info, at: usize) {
        let cpus = at + offset_of!(Self, 0);
        info.space_cpu_first = small(cpus + PerCpu::<Cpu>::FIRST);
        info.space_cpu_others = small(cpus + PerCpu::<Cpu>::OTHERS);
        let cpu = CacheAligned::<Cpu>::VALUE;
        let current = CacheAligned::<ByBand<BlockHint>>::VALUE;
        info.cpu_current = small(cpu + offset_of!(Cpu, current) + current);
        info.cpu_lazy = small(cpu + offset_of!(Cpu, lazy));
        info.cpu_counters = small(cpu + offset_of!(Cpu, counters));
        info.counter_names = Counters::NAMES.as_ptr().cast();
    }

    /// Creates the state of each possible CPU.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(PerCpu::new(Cpu::new)?))
    }

    /// Returns the state of the CPU on which this runs, or ran a moment ago.
    pub(crate) fn here(&self) -> &Cpu {
        self.0.here()
    }

    /// Returns the first CPU of the group of `1 << shift` CPUs in which this runs.
    pub(crate) fn first_of_group(&self, shift: u32) -> CpuNumber {
        mm::cpu_hint().first_of_group(shift)
    }

    /// Returns the state of CPU `cpu`.
    pub(crate) fn of(&self, cpu: CpuNumber) -> &Cpu {
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
