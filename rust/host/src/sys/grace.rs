// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `grace`: boxes that are freed when there are no readers.

pub(crate) use kernel::sync::rcu::Guard;
use kernel::{
    alloc::Flags,
    prelude::*, //
};
use std::{
    cell::Cell,
    mem::ManuallyDrop,
    ops::{
        Deref,
        DerefMut, //
    }, //
};

std::thread_local! {
    /// Whether this thread frees boxes at once.
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `what`, in which boxes that nobody reads are freed at once: otherwise another test may delay that, and do it.
#[cfg(test)]
pub(crate) fn at_once<T>(what: impl FnOnce() -> T) -> T {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            AT_ONCE.set(false);
        }
    }
    AT_ONCE.set(true);
    let _reset = Reset;
    what()
}

pub(crate) struct Unpublished<T>(KBox<T>);

impl<T: Send + Sync + 'static> Unpublished<T> {
    pub(crate) fn new(value: T, flags: Flags) -> Result<Self> {
        Ok(Self(KBox::new(value, flags)?))
    }
}

impl<T> Deref for Unpublished<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Unpublished<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// # Invariants
///
/// It owns the value, which came from a [`KBox`]. Others only read it.
pub(crate) struct GraceBox<T: Send + Sync + 'static>(*mut T);

impl<T: Send + Sync + 'static> From<Unpublished<T>> for GraceBox<T> {
    fn from(unpublished: Unpublished<T>) -> Self {
        Self(KBox::into_raw(unpublished.0))
    }
}

impl<T: Send + Sync + 'static> GraceBox<T> {
    pub(crate) fn into_raw(self) -> *mut c_void {
        ManuallyDrop::new(self).0.cast()
    }

    /// # Safety
    ///
    /// Those of the kernel's function.
    pub(crate) unsafe fn from_raw(raw: *mut c_void) -> Self {
        Self(raw.cast())
    }

    /// # Safety
    ///
    /// Those of the kernel's function.
    pub(crate) unsafe fn peek<'a>(raw: *mut c_void) -> &'a T {
        // SAFETY: By the safety requirements, the box is not freed while the reference is used.
        unsafe { &*raw.cast() }
    }
}

impl<T: Send + Sync + 'static> Deref for GraceBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants, the box owns the value, and others only read it.
        unsafe { &*self.0 }
    }
}

impl<T: Send + Sync + 'static> Drop for GraceBox<T> {
    fn drop(&mut self) {
        if AT_ONCE.get() {
            // SAFETY: By the type invariants, the box owned the value. The caller of `at_once()` has no reader.
            drop(unsafe { KBox::from_raw(self.0) });
            return;
        }
        let raw = self.0.expose_provenance();
        kernel::sync::rcu::call(move || {
            // SAFETY: By the type invariants, the box owned the value. No reader is left.
            drop(unsafe { KBox::from_raw(core::ptr::with_exposed_provenance_mut::<T>(raw)) });
        });
    }
}
