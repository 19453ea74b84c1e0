// SPDX-License-Identifier: GPL-2.0

//! Relaxed loads and stores of words that are no calls: `READ_ONCE()` and `WRITE_ONCE()` of C.
//!
//! An address dependency orders them, as in C: Rust code is in no link-time optimization of the kernel. KCSAN, which sees only
//! the accesses of C, gets the functions of C.
//!
//! Without `CONFIG_RUST_INLINE_HELPERS` each operation of an [`Atomic`] calls a function of C. An area that is reserved and
//! freed takes some 25 of these loads and stores.

use super::prelude::*;

/// Whether the functions of C are used: they cost no call, or KCSAN must see them.
const BY_C: bool = cfg!(any(CONFIG_RUST_INLINE_HELPERS, CONFIG_KCSAN));

/// A word that several CPUs access.
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
