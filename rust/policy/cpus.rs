// SPDX-License-Identifier: GPL-2.0

//! State of each CPU.

use super::prelude::*;

/// The state of one CPU.
pub(crate) struct Cpu {
    /// For each class, the current block. Changes under the lock of the pool. Other CPUs may use them, too: see
    /// [`crate::policy::blocks`].
    pub(crate) current: CacheAligned<[Seat; PLACES]>,
    /// For each class, blocks in the pool with room that were current blocks: partial ones, then empty ones. Used under the
    /// lock of the pool.
    pub(super) own: ByClass<List>,
    /// Estimate of the lazy pages that this CPU has not yet added to the total of all CPUs.
    pub(crate) lazy: Atomic<usize>,
    pub(crate) counters: Counters<Counter>,
}

impl Cpu {
    pub(super) fn new(node: Node) -> Result<Self> {
        Ok(Self {
            current: CacheAligned::new([const { Seat::new() }; PLACES]),
            own: ByClass::new(node, || List::new(Kind::Owner))?,
            lazy: Atomic::new(0),
            counters: Counters::new(),
        })
    }

    /// Returns the seat of the current block of `class`.
    #[inline(always)]
    pub(super) fn seat(&self, class: Class) -> &Seat {
        &self.current[class.number()]
    }

    /// Returns the memory that was allocated for this CPU.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(super) fn memory(&self) -> [*const c_void; 2] {
        let own = self.own.iter().as_slice().as_ptr();
        [ptr::from_ref(self).cast(), own.cast()]
    }
}

/// The state of all CPUs.
pub(crate) type Cpus = PerCpu<Cpu>;
