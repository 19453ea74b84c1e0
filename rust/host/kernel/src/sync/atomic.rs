// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::atomic` on the atomics of the standard library.

use core::cell::UnsafeCell;
pub use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst as Full};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A type of the size of a `usize` that can be atomic.
///
/// # Safety
///
/// The type has the size and alignment of a `usize`, and the functions do not change the bits.
pub unsafe trait AtomicType: Copy {
    /// Converts the value to a number.
    fn into_bits(self) -> usize;
    /// Converts a number back to the value.
    fn from_bits(bits: usize) -> Self;
}

// SAFETY: The type is `usize`.
unsafe impl AtomicType for usize {
    fn into_bits(self) -> usize {
        self
    }
    fn from_bits(bits: usize) -> Self {
        bits
    }
}

// SAFETY: A thin pointer has the size and alignment of a `usize`.
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

// SAFETY: All accesses to the value are atomic.
unsafe impl<T: AtomicType> Sync for Atomic<T> {}
// SAFETY: All accesses to the value are atomic.
unsafe impl<T: AtomicType> Send for Atomic<T> {}

/// Returns the ordering of a failed exchange.
fn failed(order: Ordering) -> Ordering {
    match order {
        Ordering::Release => Ordering::Relaxed,
        other => other,
    }
}

/// Returns the order of an operation. In a helper that is a function it is the strongest, which on x86 is the same
/// instruction: the kernel has a helper for each order, and this has one that must not look at it.
#[inline]
fn in_helper(order: Ordering, strongest: Ordering) -> Ordering {
    if cfg!(feature = "calls") {
        strongest
    } else {
        order
    }
}

impl<T: AtomicType> Atomic<T> {
    /// Creates an atomic with `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
    /// Returns the atomic at `ptr`.
    ///
    /// # Safety
    ///
    /// Those of `AtomicUsize::from_ptr`.
    pub unsafe fn from_ptr<'a>(ptr: *mut T) -> &'a Self {
        // SAFETY: `Self` is a transparent `T`; the safety requirements are those of this cast.
        unsafe { &*ptr.cast::<Self>() }
    }
    /// Returns a pointer to the value.
    #[inline]
    pub fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
    #[inline]
    fn bits(&self) -> &AtomicUsize {
        super::schedule();
        // SAFETY: By the safety requirements of `AtomicType`, the value has the layout of a `usize`.
        unsafe { AtomicUsize::from_ptr(self.0.get().cast()) }
    }
    /// Notes an access with `order`.
    #[inline]
    fn note(order: Ordering) {
        if order == Full && !cfg!(feature = "native") {
            super::BARRIERS.set(super::BARRIERS.get() + 1);
        }
    }
    /// Stores the value.
    #[cfg_attr(feature = "calls", inline(never))]
    #[cfg_attr(not(feature = "calls"), inline)]
    pub fn store(&self, value: T, order: Ordering) {
        self.bits()
            .store(value.into_bits(), in_helper(order, Release))
    }
    /// Loads the value.
    #[cfg_attr(feature = "calls", inline(never))]
    #[cfg_attr(not(feature = "calls"), inline)]
    pub fn load(&self, order: Ordering) -> T {
        // ThreadSanitizer does not know that loads are ordered whose address depends on this one.
        let order = if cfg!(feature = "tsan") {
            Acquire
        } else {
            order
        };
        T::from_bits(self.bits().load(in_helper(order, Acquire)))
    }
    /// Stores `value`, and returns the old value.
    #[cfg_attr(feature = "calls", inline(never))]
    #[cfg_attr(not(feature = "calls"), inline)]
    pub fn xchg(&self, value: T, order: Ordering) -> T {
        Self::note(order);
        T::from_bits(self.bits().swap(value.into_bits(), in_helper(order, Full)))
    }
    /// Stores `new` if the value is `old`. Returns the old value, as an error if nothing was stored.
    #[cfg_attr(feature = "calls", inline(never))]
    #[cfg_attr(not(feature = "calls"), inline)]
    pub fn cmpxchg(&self, old: T, new: T, order: Ordering) -> Result<T, T> {
        Self::note(order);
        let order = in_helper(order, Full);
        self.bits()
            .compare_exchange(old.into_bits(), new.into_bits(), order, failed(order))
            .map(T::from_bits)
            .map_err(T::from_bits)
    }
}

impl Atomic<usize> {
    /// Adds `value`.
    #[cfg_attr(feature = "calls", inline(never))]
    #[cfg_attr(not(feature = "calls"), inline)]
    pub fn add(&self, value: usize, order: Ordering) {
        self.bits().fetch_add(value, in_helper(order, Full));
    }
    /// Adds `value`, and returns the old value.
    #[cfg_attr(feature = "calls", inline(never))]
    #[cfg_attr(not(feature = "calls"), inline)]
    pub fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        Self::note(order);
        self.bits().fetch_add(value, in_helper(order, Full))
    }
    /// Subtracts `value`, and returns the old value.
    #[cfg_attr(feature = "calls", inline(never))]
    #[cfg_attr(not(feature = "calls"), inline)]
    pub fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        self.bits().fetch_sub(value, in_helper(order, Full))
    }
}
