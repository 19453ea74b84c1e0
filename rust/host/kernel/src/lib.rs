// SPDX-License-Identifier: GPL-2.0

//! A thin stand-in of the kernel crate, for tests on the host.

pub mod bindings;
pub mod fault;
pub mod kvec;

/// `kernel::fmt`.
pub mod fmt {
    pub use core::fmt::{Display, Formatter, Result};
}

/// `kernel::page`.
pub mod page {
    /// Bytes in a page.
    pub const PAGE_SIZE: usize = 4096;
}

/// `kernel::error`.
pub mod error {
    /// An error number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Error(pub i32);

    impl From<core::num::TryFromIntError> for Error {
        fn from(_: core::num::TryFromIntError) -> Self {
            code::EINVAL
        }
    }

    /// What can fail.
    pub type Result<T = (), E = Error> = core::result::Result<T, E>;

    /// Error numbers.
    pub mod code {
        use super::Error;
        /// No memory.
        pub const ENOMEM: Error = Error(-12);
        /// No room.
        pub const EBUSY: Error = Error(-16);
        /// No sense.
        pub const EINVAL: Error = Error(-22);
    }
}

/// `kernel::sync`.
pub mod sync {
    /// A class of locks, which mean nothing here.
    pub struct LockClassKey;

    /// `kernel::sync::atomic`.
    pub mod atomic {
        pub use std::sync::atomic::Ordering::Relaxed;
        use std::sync::atomic::{AtomicUsize, Ordering};

        /// An atomic `usize`; the kernel's is generic.
        #[repr(transparent)]
        pub struct Atomic<T>(AtomicUsize, core::marker::PhantomData<T>);

        impl Atomic<usize> {
            /// Starts with `value`.
            pub const fn new(value: usize) -> Self {
                Self(AtomicUsize::new(value), core::marker::PhantomData)
            }
            /// The atomic at `ptr`.
            ///
            /// # Safety
            ///
            /// As `AtomicUsize::from_ptr`.
            pub unsafe fn from_ptr<'a>(ptr: *mut usize) -> &'a Self {
                // SAFETY: Both are one `AtomicUsize` (transparent); the rest is the caller's.
                unsafe { &*ptr.cast::<Self>() }
            }
            /// Sets the value.
            pub fn store(&self, value: usize, order: Ordering) {
                self.0.store(value, order)
            }
            /// The value.
            pub fn load(&self, order: Ordering) -> usize {
                self.0.load(order)
            }
            /// Adds, and returns what was there.
            pub fn fetch_add(&self, value: usize, order: Ordering) -> usize {
                self.0.fetch_add(value, order)
            }
            /// Subtracts, and returns what was there.
            pub fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
                self.0.fetch_sub(value, order)
            }
        }
    }
}

/// `kernel::static_lock_class`.
#[macro_export]
macro_rules! static_lock_class {
    () => {{
        static CLASS: $crate::sync::LockClassKey = $crate::sync::LockClassKey;
        core::pin::Pin::static_ref(&CLASS)
    }};
}

/// `kernel::pr_err`.
#[macro_export]
macro_rules! pr_err {
    ($($arg:tt)*) => { eprint!($($arg)*) };
}

/// `kernel::pr_info`.
#[macro_export]
macro_rules! pr_info {
    ($($arg:tt)*) => { print!($($arg)*) };
}

/// `kernel::prelude`.
pub mod prelude {
    pub use crate::{
        error::{code::*, Error, Result},
        kvec::{Flags, KBox, KVec, GFP_KERNEL, GFP_NOWAIT},
        pr_err, pr_info,
    };
    pub use core::{
        ffi::{c_int, c_void, CStr},
        pin::Pin,
    };
    pub use macros::kunit_tests;
}
