// SPDX-License-Identifier: GPL-2.0

//! `pin_init`: initialization in place.

use crate::error::{Error, Result};
use core::pin::Pin;

/// A way to make a `T` where it stays.
///
/// # Safety
///
/// If [`PinInit::init`] returns `Ok`, the slot is initialized.
pub unsafe trait PinInit<T> {
    /// Makes the value.
    ///
    /// # Safety
    ///
    /// `slot` is valid for writes, and the value is never moved.
    unsafe fn init(self, slot: *mut T) -> Result;
}

// SAFETY: The value is moved there.
unsafe impl<T> PinInit<T> for Result<T, Error> {
    unsafe fn init(self, slot: *mut T) -> Result {
        let value = self?;
        // SAFETY: By the safety requirements of this function.
        unsafe { slot.write(value) };
        Ok(())
    }
}

/// [`PinInit`] by a function.
pub struct By<F>(F);

// SAFETY: By the safety requirements of `by()`.
unsafe impl<T, F: FnOnce(*mut T) -> Result> PinInit<T> for By<F> {
    unsafe fn init(self, slot: *mut T) -> Result {
        (self.0)(slot)
    }
}

/// Initializes by `make`.
///
/// # Safety
///
/// `make` initializes what is at the pointer, which is valid for writes, if it returns `Ok`.
pub unsafe fn by<T, F: FnOnce(*mut T) -> Result>(make: F) -> By<F> {
    By(make)
}

/// `kernel::prelude::PinnedDrop`.
pub trait PinnedDrop {
    /// Called before the fields are dropped.
    fn drop(self: Pin<&mut Self>);
}

/// `kernel::prelude::pin_init` for one pinned field before the others.
#[macro_export]
macro_rules! pin_init {
    (Self { $($fields:tt)* }) => { $crate::pin_init!(@ Self { $($fields)* }) };
    // As in the kernel, the parameter of the type follows from the use.
    ($this:ident { $($fields:tt)* }) => { $crate::pin_init!(@ $this<_> { $($fields)* }) };
    (@ $this:ty { $pinned:ident <- $init:expr $(, $field:ident: $value:expr)* $(,)? }) => {{
        let make = move |slot: *mut $this| {
            let init = $init;
            // SAFETY: The slot is valid for writes.
            unsafe { $crate::init::PinInit::init(init, &raw mut (*slot).$pinned)? };
            $(
                let value = $value;
                // SAFETY: The slot is valid for writes.
                unsafe { (&raw mut (*slot).$field).write(value) };
            )*
            Ok(())
        };
        // SAFETY: It initializes all fields.
        unsafe { $crate::init::by(make) }
    }};
}
