// SPDX-License-Identifier: GPL-2.0

//! The stand-in kernel crate, for tests on the build host.

#[cfg(not(feature = "native"))]
pub mod bindings;
#[cfg(feature = "native")]
#[path = "../../../native/kernel/bindings.rs"]
pub mod bindings;
pub mod fault;
pub mod hooks;
pub mod kvec;
pub mod rbtree;
pub mod types;

/// `kernel::alloc`.
pub mod alloc {
    pub use crate::kvec::Flags;
}

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

    impl Error {
        /// Returns the number for C.
        pub fn to_errno(self) -> i32 {
            self.0
        }

        /// Returns the number as a pointer for C.
        pub fn to_ptr<T>(self) -> *mut T {
            // CAST: As `ERR_PTR()`.
            core::ptr::without_provenance_mut(self.0 as isize as usize)
        }
    }

    impl From<core::num::TryFromIntError> for Error {
        fn from(_: core::num::TryFromIntError) -> Self {
            code::EINVAL
        }
    }

    /// The result of a function that can fail.
    pub type Result<T = (), E = Error> = core::result::Result<T, E>;

    /// Error numbers.
    pub mod code {
        use super::Error;
        /// Out of memory.
        pub const ENOMEM: Error = Error(-12);
        /// No free range.
        pub const EBUSY: Error = Error(-16);
        /// Invalid argument.
        pub const EINVAL: Error = Error(-22);
    }
}

/// `kernel::sync`.
pub mod sync {
    /// A lock class, which has no effect here.
    pub struct LockClassKey;

    impl LockClassKey {
        /// Returns a pointer for C.
        pub fn as_ptr(&self) -> *mut LockClassKey {
            core::ptr::null_mut()
        }
    }

    pub mod atomic;
    #[cfg(not(feature = "native"))]
    pub mod rcu;
    #[cfg(feature = "native")]
    #[path = "../../../../native/kernel/rcu.rs"]
    pub mod rcu;

    /// Called before each access to an atomic, where a scheduler may switch to another thread.
    static SCHEDULE: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

    /// Installs `what`, to be called before each access to an atomic.
    pub fn schedule_with(what: fn()) {
        SCHEDULE.get_or_init(|| what);
    }

    std::thread_local! {
        static HOLDS_SCHEDULE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
        /// Number of accesses to atomics that this thread has made.
        pub static ACCESSES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
        /// Number of exchanges and additions of this thread that are full barriers.
        pub static BARRIERS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    /// Calls `what` without calling the scheduler.
    #[cfg(not(feature = "native"))]
    fn without_schedule(what: impl FnOnce()) {
        HOLDS_SCHEDULE.set(true);
        what();
        HOLDS_SCHEDULE.set(false);
    }

    #[inline(always)]
    fn schedule() {
        if cfg!(feature = "native") {
            return;
        }
        ACCESSES.set(ACCESSES.get() + 1);
        if HOLDS_SCHEDULE.get() {
            return;
        }
        if let Some(what) = SCHEDULE.get() {
            what();
        }
    }

    /// `kernel::sync::barrier`.
    pub mod barrier {
        /// Orders loads.
        pub struct Read;

        /// A barrier. All barriers are full on the build host; a compiler orders what x86 does not reorder.
        #[cfg_attr(feature = "calls", inline(never))]
        #[cfg_attr(not(feature = "calls"), inline)]
        pub fn smp_mb(_: Read) {
            #[cfg(feature = "native")]
            return std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
            #[cfg(not(feature = "native"))]
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst)
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

/// `kernel::tracepoint`.
pub mod tracepoint {
    pub use crate::declare_trace;
}

/// `kernel::tracepoint::declare_trace`: there are no events.
#[cfg(feature = "native")]
#[macro_export]
macro_rules! declare_trace {
    ($($(#[$doc:meta])* unsafe fn $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {
        $($(#[$doc])* #[inline(always)] unsafe fn $name($(_: $type),*) {})*
    };
}

/// `kernel::tracepoint::declare_trace`: events go to [`hooks::event`].
#[cfg(not(feature = "native"))]
#[macro_export]
macro_rules! declare_trace {
    ($($(#[$doc:meta])* unsafe fn $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {
        $($(#[$doc])* unsafe fn $name($($arg: $type),*) {
            // CAST: Tests compare the bits.
            $crate::hooks::event(stringify!($name), &[$($arg as usize),*]);
        })*
    };
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

/// `kernel::str`.
pub mod str {
    use core::ffi::{c_char, CStr};

    /// What the kernel adds to strings of C.
    pub trait CStrExt {
        /// Returns a pointer for C.
        fn as_char_ptr(&self) -> *const c_char;
    }

    /// Returns the string for C.
    pub const fn as_char_ptr_in_const_context(text: &'static CStr) -> *const c_char {
        text.as_ptr()
    }

    impl CStrExt for CStr {
        fn as_char_ptr(&self) -> *const c_char {
            self.as_ptr()
        }
    }
}

/// `kernel::prelude`.
pub mod prelude {
    pub use crate::{
        error::{code::*, Error, Result},
        kvec::{KBox, KVec, __GFP_NOWARN, GFP_KERNEL, GFP_NOWAIT},
        pr_err, pr_info,
        str::CStrExt as _,
    };
    pub use core::{
        ffi::{c_int, c_uint, c_void, CStr},
        pin::Pin,
    };
    pub use macros::{export, kunit_tests};
}
