// SPDX-License-Identifier: GPL-2.0

//! Counters, one set for each CPU, and their table in debugfs.

use core::fmt::{
    self,
    Write, //
};
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// What was done on one CPU since boot. Each wraps around.
        pub(crate) struct Counters {
            $($(#[doc = $doc])* pub(crate) $name: Counter,)*
        }

        /// The same of all CPUs together.
        #[derive(Clone, Copy, Default)]
        pub(crate) struct Totals {
            $($(#[doc = $doc])* pub(crate) $name: usize,)*
        }

        impl Counters {
            /// All zero.
            pub(crate) const fn new() -> Self {
                Self { $($name: Counter::new(),)* }
            }
        }

        impl Totals {
            /// Adds what one CPU has counted.
            pub(crate) fn add(&mut self, cpu: &Counters) {
                $(self.$name = self.$name.wrapping_add(cpu.$name.get());)*
            }

            /// Writes a line for each counter: name, value, meaning.
            pub(crate) fn write(&self, out: &mut dyn Write) -> fmt::Result {
                $(line(out, stringify!($name), self.$name, concat!($($doc),*).trim_start())?;)*
                Ok(())
            }
        }
    };
}

counters! {
    /// areas handed out by the CPU's current block
    hit,
    /// blocks that became current because there was none with room
    refill,
    /// of these, new ones taken from the tree
    block_new,
    /// blocks given back to the tree
    block_freed,
    /// areas handed out by a block of another band or CPU, as there was no room
    steal,
    /// areas handed out from a cached range of the same size
    alloc_cached,
    /// of these, from the ranges of another CPU
    cached_elsewhere,
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
    /// areas with an entry of their own retired
    retire_tree,
    /// areas released without having been mapped
    release,
    /// purges that flushed the TLB
    purge,
    /// areas purged
    purge_areas,
    /// ranges kept in the cache
    cache_put,
    /// ranges given back to the tree
    give_back,
    /// ranges and blocks kept because there was no memory to give them back
    give_back_nomem,
}

/// Writes a line of the table.
pub(crate) fn line(out: &mut dyn Write, name: &str, value: usize, meaning: &str) -> fmt::Result {
    writeln!(out, "{name:<16} {value:>12} {meaning}")
}

/// A counter of one CPU. A task that is preempted or moved to another CPU while it counts may undo what
/// others have counted meanwhile: an exact number would cost twice as much.
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
        // Relaxed: a number for people.
        self.0.store(self.get().wrapping_add(more), Relaxed);
    }

    fn get(&self) -> usize {
        // Relaxed: as above.
        self.0.load(Relaxed)
    }
}
