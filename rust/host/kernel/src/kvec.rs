// SPDX-License-Identifier: GPL-2.0

//! `kernel::alloc`: allocations that can fail, see [`crate::fault`].

use crate::{
    bindings::{self, gfp_t},
    error::{code::ENOMEM, Result},
    fault,
};
use core::{
    ops::{Deref, DerefMut},
    pin::Pin,
};

/// Allocation flags, which only the maple tree looks at.
#[derive(Clone, Copy)]
pub struct Flags(gfp_t);

impl Flags {
    /// Wraps flags from C.
    pub const fn from_raw(raw: gfp_t) -> Self {
        Self(raw)
    }

    /// Returns the flags for C.
    pub const fn as_raw(self) -> gfp_t {
        self.0
    }
}

/// The caller may sleep.
pub const GFP_KERNEL: Flags = Flags(bindings::GFP_KERNEL);
/// The caller must not sleep.
pub const GFP_NOWAIT: Flags = Flags(bindings::GFP_NOWAIT);
/// No warning if there is no memory.
pub const __GFP_NOWARN: Flags = Flags(0);

impl core::ops::BitOr for Flags {
    type Output = Self;
    fn bitor(self, _: Self) -> Self {
        self
    }
}

/// Counts an allocation: `ENOMEM` if it fails.
pub(crate) fn memory() -> Result {
    (!fault::strikes()).then_some(()).ok_or(ENOMEM)
}

/// A vector.
pub struct KVec<T>(Vec<T>);

impl<T> KVec<T> {
    /// Creates an empty vector.
    pub const fn new() -> Self {
        Self(Vec::new())
    }
    /// Creates an empty vector with room for `capacity` elements.
    pub fn with_capacity(capacity: usize, _: Flags) -> Result<Self> {
        memory()?;
        Ok(Self(Vec::with_capacity(capacity)))
    }
    /// Creates a vector of `count` elements `value`.
    pub fn from_elem(value: T, count: usize, _: Flags) -> Result<Self>
    where
        T: Clone,
    {
        memory()?;
        Ok(Self(vec![value; count]))
    }
    /// Appends an element.
    pub fn push(&mut self, value: T, _: Flags) -> Result {
        if self.0.len() == self.0.capacity() {
            memory()?;
        }
        self.0.push(value);
        Ok(())
    }
}

impl<T> Default for KVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for KVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for KVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// A box.
pub struct KBox<T>(Box<T>);

impl<T> KBox<T> {
    /// Puts the value of a constructor into a pinned box.
    pub fn pin_init(value: Result<T>, flags: Flags) -> Result<Pin<KBox<T>>> {
        let boxed = Self::new(value?, flags)?;
        // SAFETY: The value is never moved out of its box.
        Ok(unsafe { Pin::new_unchecked(boxed) })
    }
    /// Puts `value` into a box.
    pub fn new(value: T, _: Flags) -> Result<Self> {
        memory()?;
        Ok(KBox(Box::new(value)))
    }
    /// Turns the box into a reference.
    pub fn leak<'a>(boxed: Self) -> &'a mut T {
        Box::leak(boxed.0)
    }
    /// Turns the box into a pointer.
    pub fn into_raw(boxed: Self) -> *mut T {
        Box::into_raw(boxed.0)
    }
    /// Turns a pointer back into the box.
    ///
    /// # Safety
    ///
    /// Those of `Box::from_raw`.
    pub unsafe fn from_raw(ptr: *mut T) -> Self {
        // SAFETY: By the safety requirements, which are those of this call.
        KBox(unsafe { Box::from_raw(ptr) })
    }
}

impl<T> Deref for KBox<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for KBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
