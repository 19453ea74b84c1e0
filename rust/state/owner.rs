// SPDX-License-Identifier: GPL-2.0

//! What a block knows of the CPU whose current block it is, and what that CPU mostly writes: the rest of a block is on
//! other cache lines.

#[cfg(CONFIG_VMAP_RUST)]
use crate::sys::layout::small;
use crate::{
    base::cpu::CpuNumber,
    state::band::Small, //
};
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// What mostly the CPU writes whose block it is.
pub(super) struct Owner {
    /// The first word of the free units that may have some.
    pub(super) hint: Atomic<usize>,
    /// The CPU whose current block it is, or was last.
    cpu: Atomic<usize>,
    /// The epoch of the pool in which it became that.
    since: Atomic<usize>,
    /// The fewest units of which it has no run, as searches in the pool found since room was last made.
    lacks: Atomic<usize>,
}

impl Owner {
    /// The owner of a block that was no current block yet, with all units free.
    pub(super) const fn new() -> Self {
        Self {
            hint: Atomic::new(0),
            cpu: Atomic::new(0),
            since: Atomic::new(0),
            lacks: Atomic::new(usize::MAX),
        }
    }

    /// Describes the owner, which is at offset `at`, to debuggers.
    #[cfg(CONFIG_VMAP_RUST)]
    pub(super) const fn describe(info: &mut kernel::bindings::vmap_rust_debug_info, at: usize) {
        info.block_owner = small(at + core::mem::offset_of!(Self, cpu));
        info.block_since = small(at + core::mem::offset_of!(Self, since));
    }

    /// Returns the CPU, and the epoch. Without the pool lock, both may change at once.
    pub(super) fn get(&self) -> (CpuNumber, usize) {
        // Relaxed: changed under the pool lock.
        let cpu = CpuNumber::new(self.cpu.load(Relaxed));
        (cpu, self.since.load(Relaxed))
    }

    /// Notes that it is the current block of CPU `cpu` since `epoch`. With the pool lock held.
    pub(super) fn set(&self, cpu: CpuNumber, epoch: usize) {
        self.cpu.store(cpu.number(), Relaxed);
        self.since.store(epoch, Relaxed);
    }

    /// Notes that it became a current block so long ago that it is idle. With the pool lock held.
    pub(super) fn disown(&self) {
        self.since.store(0, Relaxed);
    }

    /// Returns whether a search in the pool for as many units as `small` needs found no room, and none was made since.
    /// With the pool lock held.
    pub(super) fn lacks(&self, small: Small) -> bool {
        // Relaxed, here and below: changed and read under the pool lock.
        small.units >= self.lacks.load(Relaxed)
    }

    /// Notes that a search in the pool for `small` found no room. With the pool lock held.
    pub(super) fn note_lack(&self, small: Small) {
        let lacks = self.lacks.load(Relaxed).min(small.run());
        self.lacks.store(lacks, Relaxed);
    }

    /// Notes that units may have become free. With the pool lock held.
    pub(super) fn note_room(&self) {
        // Not the same value again: that would move the cache line.
        if self.lacks.load(Relaxed) != usize::MAX {
            self.lacks.store(usize::MAX, Relaxed);
        }
    }
}
