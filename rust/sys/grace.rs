// SPDX-License-Identifier: GPL-2.0

//! Boxes that are freed after an RCU grace period, because lockless readers may still read them.
//!
//! A value is [`Unpublished`] at first: its owner alone has it, may change it, and may free it at once. As a
//! [`GraceBox`] it can be published, so readers may have a reference, and only a grace period after its drop
//! shows that they have none. There is no way back.
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

/// A box that no reader has seen, for a [`GraceBox`]. Dropping it frees the memory at once.
pub(crate) struct Unpublished<T>(KBox<Node<T>>);

impl<T: Send + Sync + 'static> Unpublished<T> {
    /// Puts `value` into a box on the node of the CPU on which this runs. Sleeps if `flags` allow it.
    pub(crate) fn new(value: T, flags: Flags) -> Result<Self> {
        let node = Node {
            head: Opaque::zeroed(),
            value,
        };
        Ok(Self(mm::Node::here().new_box(node, flags)?))
    }

    /// Makes kmemleak look for references only in the head, and where else [`mm::scan_only`] says so. The list of
    /// callbacks goes through the head. Padding has what was on the stack.
    #[cfg(CONFIG_DEBUG_KMEMLEAK)]
    pub(crate) fn scan_only_head(&self, flags: Flags) {
        mm::scan_only(&raw const self.0.head, flags);
    }
}

impl<T> Deref for Unpublished<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> DerefMut for Unpublished<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

/// A box that readers may read until a grace period after its drop, which frees the memory then. Any
/// context may drop it.
///
/// # Invariants
///
/// - It owns the node, which came from the [`KBox`] of an [`Unpublished`].
/// - Others only read the value, and only through [`GraceBox::peek`].
pub(crate) struct GraceBox<T: Send + Sync + 'static>(NonNull<Node<T>>);

impl<T: Send + Sync + 'static> From<Unpublished<T>> for GraceBox<T> {
    fn from(unpublished: Unpublished<T>) -> Self {
        // INVARIANT: The pointer came from the box, which gave up the node.
        Self(NonNull::from(KBox::leak(unpublished.0)))
    }
}

impl<T: Send + Sync + 'static> GraceBox<T> {
    /// Where the value is behind [`GraceBox::into_raw`], in bytes.
    #[cfg(CONFIG_VMAP_RUST_DEBUG_INFO)]
    pub(crate) const VALUE: usize = core::mem::offset_of!(Node<T>, value);

    /// Turns the box into a pointer, for readers to find.
    pub(crate) fn into_raw(self) -> *mut c_void {
        ManuallyDrop::new(self).0.as_ptr().cast()
    }

    /// Turns a pointer back into the box. Readers that found it may still use it.
    ///
    /// # Safety
    ///
    /// `raw` came from [`GraceBox::into_raw`] of a box of a `T`, and only once. Readers can no longer find
    /// `raw` when the box is dropped.
    pub(crate) unsafe fn from_raw(raw: *mut c_void) -> Self {
        // INVARIANT: By the safety requirements, the pointer came from a box, and nobody else turns it back.
        // SAFETY: By the safety requirements, the pointer came from a box, which is not null.
        Self(unsafe { NonNull::new_unchecked(raw.cast()) })
    }

    /// Returns a reference to the value in the box that became `raw`.
    ///
    /// # Safety
    ///
    /// `raw` came from [`GraceBox::into_raw`] of a box of a `T`. While the reference is used, the box is not
    /// dropped, or the caller holds an RCU read lock that was taken before the drop.
    pub(crate) unsafe fn peek<'a>(raw: *mut c_void) -> &'a T {
        // SAFETY: By the safety requirements, `raw` points to a node, and `free_node()` runs after the last use of
        // the reference. By the type invariants, others only read the value.
        unsafe { &(*raw.cast::<Node<T>>()).value }
    }
}

impl<T: Send + Sync + 'static> Deref for GraceBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants, the box owns the node, and others only read the value.
        unsafe { &self.0.as_ref().value }
    }
}

impl<T: Send + Sync + 'static> Drop for GraceBox<T> {
    fn drop(&mut self) {
        let node = self.0.as_ptr();
        // SAFETY: By the type invariants, the box owns the node, which came from a `KBox`. It stays valid until
        // `free_node()`, which may run on any CPU: `T` is `Send` and `'static`.
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
