// SPDX-License-Identifier: GPL-2.0

//! Boxes that are freed after an RCU grace period, because lockless readers may still read them.
//!
//! C header: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h)

use crate::sys::mm;
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

/// A value with the head that `call_rcu()` needs.
#[repr(C)]
struct Node<T> {
    head: Opaque<bindings::callback_head>,
    value: T,
}

/// A box that can be freed after an RCU grace period.
///
/// # Invariants
///
/// It owns the node, which came from a [`KBox`] and so is not null.
pub(crate) struct GraceBox<T>(NonNull<Node<T>>);

// SAFETY: It owns a `T`.
unsafe impl<T: Send> Send for GraceBox<T> {}

impl<T: Send + Sync> GraceBox<T> {
    /// Puts `value` into a box on the node of the CPU on which this runs. Sleeps if `flags` allow it.
    pub(crate) fn new(value: T, flags: Flags) -> Result<Self> {
        let node = Node {
            head: Opaque::uninit(),
            value,
        };
        let node = KBox::into_raw(mm::Node::here().new_box(node, flags)?);
        // INVARIANT: The pointer came from `KBox::into_raw()`.
        // SAFETY: The pointer of a box is not null.
        Ok(Self(unsafe { NonNull::new_unchecked(node) }))
    }

    /// Turns the box into a pointer.
    pub(crate) fn into_raw(self) -> *mut c_void {
        ManuallyDrop::new(self).0.as_ptr().cast()
    }

    /// Turns a pointer back into the box.
    ///
    /// # Safety
    ///
    /// `raw` came from [`GraceBox::into_raw`] of a box of a `T`, and only once.
    pub(crate) unsafe fn from_raw(raw: *mut c_void) -> Self {
        // INVARIANT: By the safety requirements, the pointer came from a box.
        // SAFETY: By the safety requirements, the pointer came from a box, which is not null.
        Self(unsafe { NonNull::new_unchecked(raw.cast()) })
    }

    /// Returns a reference to the value in the box that became `raw`.
    ///
    /// # Safety
    ///
    /// `raw` came from [`GraceBox::into_raw`] of a box of a `T`, which is not dropped, or only after an RCU
    /// grace period, while the reference is used.
    pub(crate) unsafe fn peek<'a>(raw: *mut c_void) -> &'a T {
        // SAFETY: By the safety requirements.
        unsafe { &(*raw.cast::<Node<T>>()).value }
    }

    /// Drops the value after an RCU grace period. Any context.
    pub(crate) fn free_after_readers(self) {
        let node = ManuallyDrop::new(self).0.as_ptr();
        // SAFETY: By the type invariants, the box owned the node, which stays valid until `free_node()`.
        unsafe { bindings::call_rcu((*node).head.get(), Some(free_node::<T>)) };
    }
}

/// Drops a node after an RCU grace period.
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
        // SAFETY: By the type invariants, the box owns the node.
        unsafe { &self.0.as_ref().value }
    }
}

impl<T> DerefMut for GraceBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariants, the box owns the node; readers need a pointer of `into_raw()`.
        unsafe { &mut self.0.as_mut().value }
    }
}

impl<T> Drop for GraceBox<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the box owns the node, which came from a `KBox`.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}
