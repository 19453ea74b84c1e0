// SPDX-License-Identifier: GPL-2.0

//! Counters, and their table in debugfs.
//!
//! They are plain numbers under the lock of the index, which all that is counted takes anyway.

use core::fmt::{
    self,
    Write, //
};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// What the allocator has done since boot. Each wraps around.
        #[derive(Clone, Copy, Default)]
        pub(crate) struct Counters {
            $($(#[doc = $doc])* pub(crate) $name: usize,)*
        }

        impl Counters {
            /// Writes a line for each counter: name, value, meaning.
            pub(crate) fn write(&self, out: &mut dyn Write) -> fmt::Result {
                $(writeln!(
                    out,
                    "{:<16} {:>12} {}",
                    stringify!($name),
                    self.$name,
                    concat!($($doc),*).trim_start(),
                )?;)*
                Ok(())
            }
        }
    };
}

counters! {
    /// areas handed out from a cached range of the same size
    alloc_cached,
    /// areas handed out from a gap of the tree
    alloc_tree,
    /// areas handed out at a common base (percpu)
    alloc_congruent,
    /// requests without room
    no_room,
    /// requests without memory for metadata
    no_memory,
    /// areas unlinked
    unlink,
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
    /// ranges kept because there was no memory to give them back
    give_back_nomem,
}

/// Adds one to a counter.
pub(crate) fn count(counter: &mut usize) {
    *counter = counter.wrapping_add(1);
}
