// SPDX-License-Identifier: GPL-2.0

//! Looks at a whole space: numbers for users and for memory reclaim.

use super::prelude::*;

impl<T: Tlb> Space<T> {
    /// Returns the memory that was allocated for CPU `cpu` and no other.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn memory_of_cpu(
        &self,
        cpu: crate::base::cpu::CpuNumber,
    ) -> [*const kernel::prelude::c_void; 2] {
        self.cpus.of(cpu).memory()
    }

    /// Returns whether blocks serve requests for `size` bytes.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn serves(&self, size: usize) -> bool {
        self.blocks.class_of(size, 1).is_some()
    }

    /// Returns the number of empty blocks and stuck areas, which reclaim can free.
    pub(crate) fn reclaimable(&self) -> usize {
        self.blocks.empty().wrapping_add(self.stuck())
    }

    /// Returns the number of lazy pages. Sleepable context.
    pub(crate) fn lazy_pages(&self) -> usize {
        self.blocks.lazy_pages().wrapping_add(self.freed.pages())
    }

    /// Returns how many blocks exist, are partial, and are empty.
    pub(crate) fn blocks(&self) -> PoolCensus {
        self.blocks.census()
    }

    /// Returns the sums of the counters of all CPUs.
    pub(crate) fn counters(&self) -> Totals {
        self.cpus.totals()
    }
}
