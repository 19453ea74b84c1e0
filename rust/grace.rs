// SPDX-License-Identifier: GPL-2.0

//! Memory that readers without a lock may still look at when its owner is done with it.
//!
//! C header: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h)

use core::{
    mem::ManuallyDrop,
    ops::{
        Deref,
        DerefMut, //
    },
    ptr::NonNull, //
};
pub(crate) use kernel::sync::rcu::Guard;
use kernel::{
    alloc::Flags,
    bindings,
    prelude::*,
    types::Opaque, //
};

/// A value, and what RCU needs to free it.
#[repr(C)]
struct Node<T> {
    head: Opaque<bindings::callback_head>,
    value: T,
}

/// A box that can be freed after a grace period of RCU.
///
/// # Invariants
///
/// It owns the node, which came from a [`KBox`].
pub(crate) struct GraceBox<T>(NonNull<Node<T>>);

// SAFETY: It owns a `T`.
unsafe impl<T: Send> Send for GraceBox<T> {}

impl<T: Send + Sync> GraceBox<T> {
    /// Puts `value` into a box. Sleeps if `flags` allow it.
    pub(crate) fn new(value: T, flags: Flags) -> Result<Self> {
        let node = Node {
            head: Opaque::uninit(),
            value,
        };
        let node = KBox::into_raw(KBox::new(node, flags)?);
        // INVARIANT: It came from a box just now.
        // SAFETY: A box is not null.
        Ok(Self(unsafe { NonNull::new_unchecked(node) }))
    }

    /// Gives up the box for a pointer.
    pub(crate) fn into_raw(self) -> *mut c_void {
        ManuallyDrop::new(self).0.as_ptr().cast()
    }

    /// Back from the pointer.
    ///
    /// # Safety
    ///
    /// `raw` came from [`GraceBox::into_raw`] of a box of a `T`, and only once.
    pub(crate) unsafe fn from_raw(raw: *mut c_void) -> Self {
        // INVARIANT: By the safety requirements.
        // SAFETY: As above: it came from a box.
        Self(unsafe { NonNull::new_unchecked(raw.cast()) })
    }

    /// What is in the box that became `raw`.
    ///
    /// # Safety
    ///
    /// `raw` came from [`GraceBox::into_raw`] of a box of a `T`, which is not dropped, except after a
    /// grace period, as long as the reference is used.
    pub(crate) unsafe fn peek<'a>(raw: *mut c_void) -> &'a T {
        // SAFETY: By the safety requirements.
        unsafe { &(*raw.cast::<Node<T>>()).value }
    }

    /// Drops the value when all readers that are at it now are done. Any context.
    pub(crate) fn free_after_readers(self) {
        let node = ManuallyDrop::new(self).0.as_ptr();
        // SAFETY: By the type invariants, the node is ours, and stays valid until `free_node()`.
        unsafe { bindings::call_rcu((*node).head.get(), Some(free_node::<T>)) };
    }
}

/// Drops a node after a grace period.
///
/// # Safety
///
/// `head` is that of a node of a `T` that was handed to `call_rcu()`.
unsafe extern "C" fn free_node<T>(head: *mut bindings::callback_head) {
    // SAFETY: The head is at the start of the node (`repr(C)`), which came from a box.
    drop(unsafe { KBox::from_raw(head.cast::<Node<T>>()) });
}

impl<T> Deref for GraceBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants.
        unsafe { &self.0.as_ref().value }
    }
}

impl<T> DerefMut for GraceBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariants; there are no readers before `into_raw()`.
        unsafe { &mut self.0.as_mut().value }
    }
}

impl<T> Drop for GraceBox<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, it came from a box.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}
