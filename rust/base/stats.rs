// SPDX-License-Identifier: GPL-2.0

//! Counters, one set for each CPU, and their table in debugfs.

use super::prelude::*;
use core::fmt::{
    self,
    Write, //
};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The counters of one CPU since boot, words in this order. Each wraps around.
        #[repr(C)]
        pub(crate) struct Counters {
            $($(#[doc = $doc])* pub(crate) $name: Counter,)*
        }

        /// Number of counters.
        const NUMBER: usize = [$(stringify!($name)),*].len();

        /// The sums of the counters of all CPUs.
        #[derive(Clone, Copy, Default)]
        pub(crate) struct Totals {
            $($(#[doc = $doc])* pub(crate) $name: usize,)*
        }

        impl Counters {
            /// The names of the counters, each with a space behind it, and a null at the end.
            #[cfg(CONFIG_VMAP_RUST_DEBUG_INFO)]
            pub(crate) const NAMES: &str = concat!($(stringify!($name), " ",)* "\0");

            /// Creates counters that are all zero.
            pub(crate) const fn new() -> Self {
                Self { $($name: Counter::new(),)* }
            }
        }

        impl Totals {
            /// Adds the counters of one CPU.
            pub(crate) fn add(&mut self, cpu: &Counters) {
                $(self.$name = self.$name.wrapping_add(cpu.$name.get());)*
            }

            /// Returns the name, the value and the meaning of each counter.
            pub(crate) fn all(&self) -> [(&'static str, usize, &'static str); NUMBER] {
                [$((stringify!($name), self.$name, concat!($($doc),*)),)*]
            }
        }
    };
}

counters! {
    /// areas handed out by blocks
    hit,
    /// blocks that became current because a CPU's current block had no room
    refill,
    /// of these, new blocks reserved in the tree
    block_new,
    /// blocks returned to the tree
    block_freed,
    /// areas handed out by a block of a larger class or another CPU for lack of room
    steal,
    /// areas handed out from a gap of the tree
    alloc_tree,
    /// areas handed out at a common base (percpu)
    alloc_congruent,
    /// requests without room
    no_room,
    /// requests without memory for metadata
    no_memory,
    /// areas of blocks retired
    retire_block,
    /// areas with their own tree entry retired
    retire_tree,
    /// purges that flushed the TLB
    purge,
    /// areas purged
    purge_areas,
    /// ranges returned to the tree
    give_back,
    /// ranges and blocks kept for lack of memory to return them
    give_back_nomem,
}

/// Writes a line of the table.
pub(crate) fn line(out: &mut dyn Write, name: &str, value: usize, meaning: &str) -> fmt::Result {
    writeln!(out, "{name:<16} {value:>12} {}", meaning.trim_ascii_start())
}

/// A counter of one CPU. A task that is preempted or migrated while it counts may lose the counts of others
/// in between: an exact counter would cost twice as much.
pub(crate) struct Counter(Atomic<usize>);

impl Counter {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts one.
    pub(crate) fn one(&self) {
        self.add(1);
    }

    /// Counts `more`.
    pub(crate) fn add(&self, more: usize) {
        // Relaxed: a statistic orders nothing.
        self.0.store(self.get().wrapping_add(more), Relaxed);
    }

    pub(crate) fn get(&self) -> usize {
        // Relaxed: a statistic orders nothing.
        self.0.load(Relaxed)
    }
}
