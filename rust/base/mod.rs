// SPDX-License-Identifier: GPL-2.0

//! Values and searches that know nothing of the kernel: addresses, gaps, bitmaps, counters, text.

#[forbid(unsafe_code)]
pub(crate) mod map;
pub(crate) mod once;
#[forbid(unsafe_code)]
pub(crate) mod range;
#[forbid(unsafe_code)]
pub(crate) mod stats;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[path = "../check/tests/base.rs"]
mod tests;

/// What the modules of this layer offer, and what all layers use of the kernel.
pub(crate) mod prelude {
    pub(crate) use super::{
        map::{
            self,
            Bit,
            Map,
            Words,
            BITS,
            MAP_BITS,
            WORDS, //
        },
        once::Once,
        range::*,
        stats::*, //
    };
    pub(crate) use core::{
        cell::UnsafeCell,
        marker::PhantomData,
        mem::{
            offset_of,
            ManuallyDrop, //
        },
        ops::Deref,
        ptr::{
            self,
            NonNull, //
        }, //
    };
    pub(crate) use kernel::{
        alloc::Flags,
        bindings,
        prelude::*,
        static_lock_class,
        sync::{
            atomic::{
                Acquire,
                Atomic,
                Full,
                Relaxed,
                Release, //
            },
            LockClassKey, //
        }, //
    };
}
