// SPDX-License-Identifier: GPL-2.0

//! `kernel::types`.

use crate::init::{by, PinInit};
use core::{cell::UnsafeCell, ffi::c_void, marker::PhantomData, mem::MaybeUninit};

/// Makes a type neither `Send` nor `Sync`.
pub type NotThreadSafe = PhantomData<*mut ()>;

/// The value of this type.
#[allow(
    non_upper_case_globals,
    reason = "the name of the type, as in the kernel"
)]
pub const NotThreadSafe: NotThreadSafe = PhantomData;

/// A value that C can keep as a pointer.
///
/// # Safety
///
/// As for the trait of the kernel.
pub unsafe trait ForeignOwnable: Sized {
    /// The alignment of the pointers.
    const FOREIGN_ALIGN: usize;
    /// What is borrowed.
    type Borrowed<'a>
    where
        Self: 'a;
    /// What is borrowed for changes.
    type BorrowedMut<'a>
    where
        Self: 'a;

    /// Gives the value away.
    fn into_foreign(self) -> *mut c_void;

    /// Takes it back.
    ///
    /// # Safety
    ///
    /// As in the kernel, here and below.
    unsafe fn from_foreign(ptr: *mut c_void) -> Self;

    /// Takes it back if it is there.
    ///
    /// # Safety
    ///
    /// As in the kernel.
    unsafe fn try_from_foreign(ptr: *mut c_void) -> Option<Self> {
        // SAFETY: By the safety requirements.
        (!ptr.is_null()).then(|| unsafe { Self::from_foreign(ptr) })
    }

    /// Borrows it.
    ///
    /// # Safety
    ///
    /// As in the kernel.
    unsafe fn borrow<'a>(ptr: *mut c_void) -> Self::Borrowed<'a>;

    /// Borrows it for changes.
    ///
    /// # Safety
    ///
    /// As in the kernel.
    unsafe fn borrow_mut<'a>(ptr: *mut c_void) -> Self::BorrowedMut<'a>;
}

/// A value that can be read under RCU while it is taken back.
///
/// # Safety
///
/// As for the trait of the kernel.
pub unsafe trait ForeignOwnableRcu: ForeignOwnable {
    /// What is borrowed.
    type RcuBorrowed<'a>
    where
        Self: 'a;

    /// Borrows it.
    ///
    /// # Safety
    ///
    /// As in the kernel.
    unsafe fn rcu_borrow<'a>(ptr: *mut c_void) -> Self::RcuBorrowed<'a>;
}

/// A value of C, of which Rust knows nothing.
#[repr(transparent)]
pub struct Opaque<T>(UnsafeCell<MaybeUninit<T>>);

impl<T> Opaque<T> {
    /// Makes all bytes of the value zero.
    pub const fn zeroed() -> Self {
        Self(UnsafeCell::new(MaybeUninit::zeroed()))
    }

    /// Initializes by a function of C.
    pub fn ffi_init(make: impl FnOnce(*mut T)) -> impl PinInit<Self> {
        // SAFETY: Every value is initialized, as it may be uninitialized inside.
        unsafe {
            by(move |slot: *mut Self| {
                make(slot.cast());
                Ok(())
            })
        }
    }

    /// Returns a pointer to the value.
    pub fn get(&self) -> *mut T {
        self.0.get().cast()
    }
}
