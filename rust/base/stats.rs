// SPDX-License-Identifier: GPL-2.0

//! Counters, one set for each CPU. docs/administration.md says what each means to a user.

use super::prelude::*;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// One value for each thing that is counted.
        #[derive(Clone, Copy, Default)]
        pub(crate) struct Counters<T> {
            $($(#[doc = $doc])* pub(crate) $name: T,)*
        }

        impl Counters<Counter> {
            pub(crate) const fn new() -> Self {
                Self { $($name: Counter(Atomic::new(0)),)* }
            }
        }

        impl Counters<usize> {
            /// Adds the counters of one CPU.
            pub(crate) fn add(&mut self, cpu: &Counters<Counter>) {
                $(self.$name = self.$name.wrapping_add(cpu.$name.get());)*
            }

            /// Returns the name and the value of each counter.
            pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$((stringify!($name), self.$name),)*].into_iter()
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
    /// blocks of a larger class or another CPU that became current because there could be no new one
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
    /// ranges, and runs of blocks, that could not be returned for lack of memory, once for each attempt
    give_back_nomem,
}

/// A counter of one CPU, which wraps around. A task that is preempted or migrated while it counts may lose the counts of
/// others in between: an exact counter would cost twice as much.
pub(crate) struct Counter(Atomic<usize>);

impl Counter {
    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, more: usize) {
        // Relaxed: a statistic orders nothing.
        self.0.write_once(self.get().wrapping_add(more));
    }

    fn get(&self) -> usize {
        // Relaxed: a statistic orders nothing.
        self.0.read_once()
    }
}
