// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `grace`: a box that is freed when there are no readers.

pub(crate) use kernel::sync::rcu::Guard;
use kernel::{
    alloc::Flags,
    prelude::*, //
};
use std::ops::{
    Deref,
    DerefMut, //
};

pub(crate) struct GraceBox<T>(KBox<T>);

impl<T: Send + Sync + 'static> GraceBox<T> {
    pub(crate) fn new(value: T, flags: Flags) -> Result<Self> {
        Ok(Self(KBox::new(value, flags)?))
    }

    pub(crate) fn into_raw(self) -> *mut c_void {
        KBox::into_raw(self.0).cast()
    }

    /// # Safety
    ///
    /// Those of the kernel's function.
    pub(crate) unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: By the safety requirements, `raw` came from `into_raw()`.
        Self(unsafe { KBox::from_raw(raw.cast()) })
    }

    /// # Safety
    ///
    /// Those of the kernel's function.
    pub(crate) unsafe fn peek<'a>(raw: *mut c_void) -> &'a T {
        // SAFETY: By the safety requirements, the box is not freed while the reference is used.
        unsafe { &*raw.cast() }
    }

    pub(crate) fn free_after_readers(self) {
        let raw = self.into_raw().expose_provenance();
        kernel::sync::rcu::call(move || {
            // SAFETY: `into_raw()` above turned a box into this pointer.
            drop(unsafe { Self::from_raw(core::ptr::with_exposed_provenance_mut(raw)) });
        });
    }
}

impl<T> Deref for GraceBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for GraceBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
