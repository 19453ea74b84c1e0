// SPDX-License-Identifier: GPL-2.0

//! Boxes that are freed after an RCU grace period, because lockless readers may still read them. When it ends, each reader that
//! may have seen the box is done.
//!
//! A value is [`Unpublished`] at first: its owner alone has it, may change it, and may free it at once. As a
//! [`GraceBox`] it can be published, so readers may have a reference, and only a grace period after its drop
//! shows that they have none. There is no way back.
//!
//! Many boxes wait together in a [`GraceList`], which costs RCU one callback. The callback drops no value: it queues a
//! work that does, so a drop may take long.
//!
//! C headers: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h),
//! [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use super::mm;
use crate::base::prelude::*;
use core::ops::DerefMut;
pub(crate) use kernel::sync::rcu::Guard;
use kernel::types::Opaque;

/// What a node needs to wait for its readers. Its owner alone uses it.
struct Waiting<T> {
    /// For `call_rcu()`, and then for the workqueue. Used only in the first node of a list.
    head: Opaque<bindings::callback_head>,
    work: Opaque<bindings::work_struct>,
    /// The next node of the list.
    next: UnsafeCell<Option<NonNull<Node<T>>>>,
}

/// A value with what it needs to wait for its readers.
struct Node<T> {
    waiting: Waiting<T>,
    value: T,
}

/// A box that no reader has seen, for a [`GraceBox`]. Dropping it frees the memory at once.
pub(crate) struct Unpublished<T>(KBox<Node<T>>);

impl<T: Send + Sync + 'static> Unpublished<T> {
    /// Puts `value` into a box on the node of the CPU on which this runs. Sleeps if `flags` allow it.
    pub(crate) fn new(value: T, flags: Flags) -> Result<Self> {
        let waiting = Waiting {
            head: Opaque::zeroed(),
            work: Opaque::zeroed(),
            next: UnsafeCell::new(None),
        };
        let node = Node { waiting, value };
        Ok(Self(mm::Node::here().new_box(node, flags)?))
    }

    /// Makes kmemleak look for references only in the links, and where else [`mm::scan_only`] says so. The lists of
    /// callbacks, works and nodes go through the links. Padding has what was on the stack.
    #[cfg(CONFIG_DEBUG_KMEMLEAK)]
    pub(crate) fn scan_only_links(&self, flags: Flags) {
        mm::scan_only(&raw const self.0.waiting, flags);
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
/// context but NMIs may drop it, as call_rcu() asks for.
///
/// # Invariants
///
/// - It owns the node, which came from the [`KBox`] of an [`Unpublished`] and has no next one.
/// - Others only read the value, and only through [`GraceBox::peek`].
pub(crate) struct GraceBox<T: Send + Sync + 'static>(NonNull<Node<T>>);

impl<T: Send + Sync + 'static> From<Unpublished<T>> for GraceBox<T> {
    fn from(unpublished: Unpublished<T>) -> Self {
        // INVARIANT: The pointer came from the box, which gave up the node. Only a list sets the next one.
        Self(NonNull::from(KBox::leak(unpublished.0)))
    }
}

impl<T: Send + Sync + 'static> GraceBox<T> {
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

    /// Returns a pointer to the value in the box that became `raw`. It is valid until the box is freed.
    ///
    /// # Safety
    ///
    /// `raw` came from [`GraceBox::into_raw`] of a box of a `T`, which is not freed yet.
    pub(crate) unsafe fn value_at(raw: *mut c_void) -> NonNull<T> {
        // SAFETY: By the safety requirements, `raw` points to a node.
        let value = unsafe { &raw mut (*raw.cast::<Node<T>>()).value };
        // SAFETY: A field of a node is not at null.
        unsafe { NonNull::new_unchecked(value) }
    }

    /// Returns a reference to the value in the box that became `raw`.
    ///
    /// # Safety
    ///
    /// `raw` came from [`GraceBox::into_raw`] of a box of a `T`. While the reference is used, neither the box nor the list
    /// that it was pushed to is dropped, or the caller holds an RCU read lock that was taken before the drop.
    pub(crate) unsafe fn peek<'a>(raw: *mut c_void) -> &'a T {
        // SAFETY: By the safety requirements, `raw` points to a node, and `free_list()` runs after the last use of
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
        // INVARIANT: The box gives up its node, which has no next one.
        drop(GraceList(Some(self.0)));
    }
}

/// Boxes that wait for one grace period together after the drop of the list, and are then dropped one after the other in
/// a worker, which lets other tasks run in between. Any context but NMIs may drop the list.
///
/// # Invariants
///
/// It owns the nodes from the first one on, each as its [`GraceBox`] did.
pub(crate) struct GraceList<T: Send + Sync + 'static>(Option<NonNull<Node<T>>>);

impl<T: Send + Sync + 'static> GraceList<T> {
    /// Creates an empty list.
    pub(crate) const fn new() -> Self {
        // INVARIANT: There is no node.
        Self(None)
    }

    /// Adds a box, which readers may still use but no longer find.
    pub(crate) fn push(&mut self, node: GraceBox<T>) {
        let node = ManuallyDrop::new(node).0;
        // SAFETY: By the type invariants of the box, which gave it up, the node is valid and nobody else uses the link.
        unsafe { (*node.as_ptr()).waiting.next.get().write(self.0) };
        // INVARIANT: The box gave up the node, and the others follow it.
        self.0 = Some(node);
    }

    /// Removes the box that was added last.
    pub(crate) fn pop(&mut self) -> Option<GraceBox<T>> {
        let node = self.0?;
        // INVARIANT: The list gives up the node, and owns those that followed.
        // SAFETY: By the type invariants, the list owns the node, and nobody else uses the link.
        self.0 = unsafe { (*node.as_ptr()).waiting.next.get().replace(None) };
        // INVARIANT: The node came from a box, and has no next one now.
        Some(GraceBox(node))
    }
}

impl<T: Send + Sync + 'static> Drop for GraceList<T> {
    #[inline(never)]
    fn drop(&mut self) {
        let Some(first) = self.0 else {
            return;
        };
        // SAFETY: By the type invariants, the list owns the nodes. They stay valid until `free_list()`, which may run on any
        // CPU: `T` is `Send` and `'static`. Only the first node is handed to RCU.
        unsafe {
            // From the pointer to the node, to which the callback goes back.
            let head = Opaque::cast_into(&raw const (*first.as_ptr()).waiting.head);
            bindings::call_rcu(head, Some(queue_free::<T>));
        }
    }
}

/// Lets a worker free the nodes of a list. A grace period of RCU is over. Runs in a softirq, or where RCU calls it.
///
/// # Safety
///
/// `head` is that of the first node of a list that was handed to `call_rcu()`.
unsafe extern "C" fn queue_free<T>(head: *mut bindings::callback_head) {
    let offset = const { offset_of!(Node<T>, waiting) + offset_of!(Waiting<T>, head) };
    // SAFETY: By the safety requirements, the head is in a node.
    let node: *mut Node<T> = unsafe { head.byte_sub(offset) }.cast();
    let key = static_lock_class!();
    // SAFETY: By the safety requirements, nobody else uses the node. RCU calls nothing before `workqueue_init_early()` has made
    // the workqueue: `rcu_init()` comes later in `start_kernel()`.
    unsafe {
        let work = Opaque::cast_into(&raw const (*node).waiting.work);
        let name = c"vmap_rust free".as_char_ptr();
        bindings::init_work_with_key(work, Some(free_list::<T>), false, name, key.as_ptr());
        // CAST: It is a small number.
        let any_cpu = bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int;
        bindings::queue_work_on(any_cpu, bindings::system_dfl_wq, work);
    }
}

/// Drops the nodes of a list. Runs in a worker, where it may sleep.
///
/// # Safety
///
/// `work` is that of the first node of a list, for which no reader is left.
unsafe extern "C" fn free_list<T>(work: *mut bindings::work_struct) {
    let offset = const { offset_of!(Node<T>, waiting) + offset_of!(Waiting<T>, work) };
    // SAFETY: By the safety requirements, the work is in a node. A worker does not use a work after it has called its function.
    let first: *mut Node<T> = unsafe { work.byte_sub(offset) }.cast();
    let mut next = NonNull::new(first);
    while let Some(node) = next {
        // SAFETY: By the invariants of `GraceList`, which gave them up, the nodes came from a box and nobody else owns them.
        let mut node = unsafe { KBox::from_raw(node.as_ptr()) };
        next = *node.waiting.next.get_mut();
        drop(node);
        mm::cond_resched();
    }
}
