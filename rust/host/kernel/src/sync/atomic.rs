// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::atomic`, over the atomics of the standard library.

use core::cell::UnsafeCell;
pub use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst as Full};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What can be atomic: what is as large as a `usize`.
///
/// # Safety
///
/// The type has the size and alignment of a `usize`, and the functions do not change the bits.
pub unsafe trait AtomicType: Copy {
    /// As a number.
    fn into_bits(self) -> usize;
    /// Back from the number.
    fn from_bits(bits: usize) -> Self;
}

// SAFETY: The same type.
unsafe impl AtomicType for usize {
    fn into_bits(self) -> usize {
        self
    }
    fn from_bits(bits: usize) -> Self {
        bits
    }
}

// SAFETY: A thin pointer.
unsafe impl<T> AtomicType for *mut T {
    fn into_bits(self) -> usize {
        self.expose_provenance()
    }
    fn from_bits(bits: usize) -> Self {
        core::ptr::with_exposed_provenance_mut(bits)
    }
}

/// An atomic value.
#[repr(transparent)]
pub struct Atomic<T: AtomicType>(UnsafeCell<T>);

// SAFETY: It is accessed atomically only.
unsafe impl<T: AtomicType> Sync for Atomic<T> {}
// SAFETY: As above.
unsafe impl<T: AtomicType> Send for Atomic<T> {}

/// The order of a failed exchange.
fn failed(order: Ordering) -> Ordering {
    match order {
        Ordering::Release => Ordering::Relaxed,
        other => other,
    }
}

impl<T: AtomicType> Atomic<T> {
    /// Starts with `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
    /// The atomic at `ptr`.
    ///
    /// # Safety
    ///
    /// As `AtomicUsize::from_ptr`.
    pub unsafe fn from_ptr<'a>(ptr: *mut T) -> &'a Self {
        // SAFETY: Both are one `T` (transparent); the rest is the caller's.
        unsafe { &*ptr.cast::<Self>() }
    }
    fn bits(&self) -> &AtomicUsize {
        super::schedule();
        // SAFETY: By the safety of `AtomicType`, the value is as a `usize`.
        unsafe { AtomicUsize::from_ptr(self.0.get().cast()) }
    }
    /// Sets the value.
    pub fn store(&self, value: T, order: Ordering) {
        self.bits().store(value.into_bits(), order)
    }
    /// The value.
    pub fn load(&self, order: Ordering) -> T {
        T::from_bits(self.bits().load(order))
    }
    /// Sets the value, and returns what was there.
    pub fn xchg(&self, value: T, order: Ordering) -> T {
        T::from_bits(self.bits().swap(value.into_bits(), order))
    }
    /// Sets the value if it is `old`; what is there otherwise.
    pub fn cmpxchg(&self, old: T, new: T, order: Ordering) -> Result<T, T> {
        self.bits()
            .compare_exchange(old.into_bits(), new.into_bits(), order, failed(order))
            .map(T::from_bits)
            .map_err(T::from_bits)
    }
}

impl Atomic<usize> {
    /// Adds.
    pub fn add(&self, value: usize, order: Ordering) {
        self.bits().fetch_add(value, order);
    }
    /// Adds, and returns what was there.
    pub fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        self.bits().fetch_add(value, order)
    }
    /// Subtracts, and returns what was there.
    pub fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        self.bits().fetch_sub(value, order)
    }
}
