// SPDX-License-Identifier: GPL-2.0

//! State of each CPU.

use super::prelude::*;

/// The state of one CPU.
pub(crate) struct Cpu {
    /// For each class, the current block. Changes under the lock of the pool. Other CPUs may use them, too: see
    /// [`crate::policy::blocks`].
    pub(crate) current: CacheAligned<ByClass<Seat>>,
    /// For each class, blocks in the pool with room that were current blocks: partial ones, then empty ones. Used under the
    /// lock of the pool. Apart from the rest, which would not fit well on a stack with them.
    pub(super) own: KBox<ByClass<List>>,
    /// Estimate of the lazy pages that this CPU has not yet added to the total of all CPUs.
    pub(crate) lazy: Atomic<usize>,
    pub(crate) counters: Counters<Counter>,
}

impl Cpu {
    fn new(node: Node) -> Result<Self> {
        Ok(Self {
            current: CacheAligned::new(ByClass::new(Seat::new)),
            own: node.new_box(ByClass::new(|| List::new(Kind::Owner)), GFP_NOWAIT)?,
            lazy: Atomic::new(0),
            counters: Counters::new(),
        })
    }

    /// Returns the memory that was allocated for this CPU.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(super) fn memory(&self) -> [*const c_void; 2] {
        [ptr::from_ref(self).cast(), ptr::from_ref(&*self.own).cast()]
    }
}

/// The state of all CPUs.
pub(crate) struct Cpus(PerCpu<Cpu>);

impl Cpus {
    /// Describes the states of the CPUs, which are at offset `at` of the space, to debuggers.
    #[cfg(CONFIG_VMAP_RUST_DEBUG_INFO)]
    pub(super) const fn describe(info: &mut bindings::vmap_rust_debug_info, at: usize) {
        let cpus = at + offset_of!(Self, 0);
        info.space_cpu_first = small(cpus + PerCpu::<Cpu>::FIRST);
        info.space_cpu_others = small(cpus + PerCpu::<Cpu>::OTHERS);
        let cpu = CacheAligned::<Cpu>::VALUE;
        let current = CacheAligned::<ByClass<Seat>>::VALUE;
        info.cpu_current = small(cpu + offset_of!(Cpu, current) + current);
        info.cpu_lazy = small(cpu + offset_of!(Cpu, lazy));
        info.cpu_counters = small(cpu + offset_of!(Cpu, counters));
        info.counter_names = Counters::<Counter>::NAMES.as_ptr().cast();
    }

    pub(crate) fn new() -> Result<Self> {
        Ok(Self(PerCpu::new(Cpu::new)?))
    }

    /// Returns the state of the CPU on which this runs, or ran a moment ago.
    #[inline(always)]
    pub(crate) fn here(&self) -> &Cpu {
        self.0.here()
    }

    /// Returns the first CPU of the group of `1 << shift` CPUs in which this runs.
    #[inline(always)]
    pub(crate) fn first_of_group(shift: u32) -> CpuNumber {
        mm::cpu_hint().first_of_group(shift)
    }

    #[inline(always)]
    pub(crate) fn of(&self, cpu: CpuNumber) -> &Cpu {
        self.0.get(cpu)
    }

    pub(super) fn count(&self) -> usize {
        self.0.count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cpu> {
        self.0.iter()
    }

    /// Returns the sums of the counters of all CPUs.
    pub(crate) fn totals(&self) -> Counters<usize> {
        let mut totals = Counters::default();
        for cpu in self.iter() {
            totals.add(&cpu.counters);
        }
        totals
    }
}
