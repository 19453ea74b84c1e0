// SPDX-License-Identifier: GPL-2.0

//! Values and searches that know nothing of the allocator: addresses, gaps, bitmaps, and words that several CPUs access.
//! The layers above are made of them.

#[forbid(unsafe_code)]
pub(crate) mod map;
#[forbid(unsafe_code)]
pub(crate) mod range;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[path = "../check/tests/base.rs"]
mod tests;

use prelude::*;

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
        range::*,
        Once, //
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

/// Whether the functions of C are used: they cost no call, or KCSAN must see them.
const BY_C: bool = cfg!(any(CONFIG_RUST_INLINE_HELPERS, CONFIG_KCSAN));

/// A word that several CPUs access: relaxed loads and stores that are no calls, `READ_ONCE()` and `WRITE_ONCE()` of C.
///
/// An address dependency orders them, as in C: Rust code is in no link-time optimization of the kernel. KCSAN, which sees only
/// the accesses of C, gets the functions of C.
///
/// Without `CONFIG_RUST_INLINE_HELPERS` each operation of an [`Atomic`] calls a function of C. An area that is reserved and
/// freed takes some 25 of these loads and stores.
pub(crate) trait Once<T> {
    /// Loads the value; relaxed.
    fn read_once(&self) -> T;

    /// Stores `value`; relaxed.
    fn write_once(&self, value: T);
}

macro_rules! once {
    ($([$($parameter:ident)?] $word:ty;)*) => {$(
        impl$(<$parameter>)? Once<$word> for Atomic<$word> {
            #[inline(always)]
            fn read_once(&self) -> $word {
                if BY_C {
                    return self.load(Relaxed);
                }
                // SAFETY: `as_ptr()` guarantees a valid and aligned pointer. A volatile access to an aligned word is one
                // instruction. In the kernel's memory model it is READ_ONCE(), which is no data race with atomics.
                unsafe { self.as_ptr().read_volatile() }
            }

            #[inline(always)]
            fn write_once(&self, value: $word) {
                if BY_C {
                    return self.store(value, Relaxed);
                }
                // SAFETY: As above, with WRITE_ONCE(). Where Rust is supported, it is what `atomic_set()` is.
                unsafe { self.as_ptr().write_volatile(value) }
            }
        }
    )*};
}

once! {
    [] usize;
    [T] *mut T;
}
