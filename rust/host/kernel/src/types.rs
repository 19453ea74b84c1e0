// SPDX-License-Identifier: GPL-2.0

//! `kernel::types`.

use crate::init::{by, PinInit};
use core::{cell::UnsafeCell, marker::PhantomData, mem::MaybeUninit};

/// Makes a type neither `Send` nor `Sync`.
pub type NotThreadSafe = PhantomData<*mut ()>;

/// The value of this type.
#[allow(
    non_upper_case_globals,
    reason = "the name of the type, as in the kernel"
)]
pub const NotThreadSafe: NotThreadSafe = PhantomData;

/// A value of C, of which Rust knows nothing.
#[repr(transparent)]
pub struct Opaque<T>(UnsafeCell<MaybeUninit<T>>);

impl<T> Opaque<T> {
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
