// SPDX-License-Identifier: GPL-2.0

//! Layouts of types, for the description that debuggers read.
//!
//! All of this runs at compile time: the description is constant.
//!
//! C header: [`include/linux/vmap_rust_debug.h`](srctree/include/linux/vmap_rust_debug.h)

use super::prelude::*;
use core::mem::{
    transmute_copy,
    ManuallyDrop, //
};

/// Words of a [`KVec`].
const VEC_WORDS: usize = 3;

/// Converts an offset or a size for the description. For constants only: one that is too large does not compile.
pub(crate) const fn small(value: usize) -> u32 {
    // CAST: A `u32` fits in a `usize` on all platforms of Linux.
    assert!(value <= u32::MAX as usize);
    // CAST: Just checked.
    value as u32
}

/// Returns the offset of the pointer to the elements in a [`KVec`], which is not `repr(C)`. For constants only.
pub(crate) const fn elements<T>() -> usize {
    assert!(size_of::<KVec<T>>() == size_of::<[usize; VEC_WORDS]>());
    let vec = ManuallyDrop::new(KVec::<T>::new());
    // SAFETY: The sizes are equal. A vector has a pointer, a capacity and a length, which are initialized. The pointer
    // of an empty one is dangling and has no provenance, so it is a number, too.
    let words: [usize; VEC_WORDS] = unsafe { transmute_copy(&vec) };
    // An empty vector has no length and no capacity: what is not 0 is the pointer.
    let [first, second, third] = words;
    assert!((first != 0) as usize + (second != 0) as usize + (third != 0) as usize == 1);
    match (first, second) {
        (0, 0) => 2 * size_of::<usize>(),
        (0, _) => size_of::<usize>(),
        _ => 0,
    }
}
