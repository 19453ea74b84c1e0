// SPDX-License-Identifier: GPL-2.0

//! The maple tree of a kernel tree, see build.rs: its functions for Rust, and what it needs of Rust.

#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    missing_docs,
    reason = "the names are C's"
)]

use crate::{fault, hooks, sync::rcu, sync::LockClassKey};
use core::ffi::c_void;
use std::alloc::{alloc_zeroed, dealloc, Layout};

/// C types as in the kernel.
mod ffi {
    pub use core::ffi::*;
    /// Not `u64`, as in rust/ffi.rs of the kernel.
    pub type c_ulong = usize;
}

mod generated {
    include!(concat!(env!("OUT_DIR"), "/maple.rs"));
}
pub use generated::*;

pub type spinlock_t = pthread_mutex_t;

/// # Safety
///
/// Those of the function of C.
pub unsafe fn mt_init_flags(mt: *mut maple_tree, flags: u32) {
    // SAFETY: By the safety requirements.
    unsafe { vmap_rust_mt_init_flags(mt, flags) }
}

/// Does nothing: `mt_init_flags()` has initialized the lock, and there are no classes.
///
/// # Safety
///
/// None.
pub unsafe fn __spin_lock_init(_: *mut spinlock_t, _: *const ffi::c_char, _: *mut LockClassKey) {}

/// # Safety
///
/// Those of the function of C.
pub unsafe fn spin_lock(lock: *mut spinlock_t) {
    hooks::before_lock();
    // SAFETY: By the safety requirements.
    unsafe { vmap_rust_spin_lock(lock) }
}

/// # Safety
///
/// Those of the function of C.
pub unsafe fn spin_unlock(lock: *mut spinlock_t) {
    // SAFETY: By the safety requirements.
    unsafe { vmap_rust_spin_unlock(lock) }
}

/// Destroys a tree, and checks it before.
///
/// # Safety
///
/// Those of the function of C.
pub unsafe fn mtree_destroy(mt: *mut maple_tree) {
    // SAFETY: By the safety requirements, the tree is initialized, and nobody else uses it.
    unsafe { vmap_rust_mt_validate(mt) };
    // SAFETY: By the safety requirements.
    unsafe { generated::mtree_destroy(mt) }
}

/// # Safety
///
/// Those of the function of C.
pub unsafe fn mas_find(mas: *mut ma_state, max: usize) -> *mut c_void {
    // SAFETY: By the safety requirements.
    let found = unsafe { generated::mas_find(mas, max) };
    if !found.is_null() {
        hooks::after_find();
    }
    found
}

/// # Safety
///
/// Those of the function of C.
pub unsafe extern "C" fn mas_empty_area(
    mas: *mut ma_state,
    min: usize,
    max: usize,
    size: usize,
) -> i32 {
    hooks::search();
    // SAFETY: By the safety requirements.
    unsafe { generated::mas_empty_area(mas, min, max, size) }
}

/// # Safety
///
/// Those of the function of C.
pub unsafe extern "C" fn mas_empty_area_rev(
    mas: *mut ma_state,
    min: usize,
    max: usize,
    size: usize,
) -> i32 {
    hooks::search();
    // SAFETY: By the safety requirements.
    unsafe { generated::mas_empty_area_rev(mas, min, max, size) }
}

#[no_mangle]
extern "C" fn rcu_read_lock() {
    core::mem::forget(rcu::Guard::new());
}

#[no_mangle]
extern "C" fn rcu_read_unlock() {
    drop(rcu::Guard::forgotten());
}

/// Calls `func` when there are no readers.
#[no_mangle]
extern "C" fn call_rcu(head: *mut rcu_head, func: unsafe extern "C" fn(*mut rcu_head)) {
    let head = head.expose_provenance();
    rcu::call(move || {
        // SAFETY: The maple tree gave the function for this head, which is in a node that it does not use any more.
        unsafe { func(core::ptr::with_exposed_provenance_mut(head)) }
    });
}

/// Alignment of an allocation, and bytes before it, which begin with its size.
const HEADER: usize = VMAP_RUST_ALIGN as usize;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(HEADER + size, HEADER).expect("small")
}

/// Allocates zeroed memory, or returns null if the test lets it fail.
#[no_mangle]
extern "C" fn vmap_rust_alloc(size: usize) -> *mut c_void {
    if fault::strikes() {
        return core::ptr::null_mut();
    }
    // SAFETY: The layout has bytes.
    let memory = unsafe { alloc_zeroed(layout(size)) };
    assert!(!memory.is_null(), "memory");
    // SAFETY: The header has room for it, and is aligned.
    unsafe { memory.cast::<usize>().write(size) };
    // SAFETY: There are more bytes than those of the header.
    unsafe { memory.add(HEADER) }.cast()
}

/// # Safety
///
/// `memory` came from [`vmap_rust_alloc`].
#[no_mangle]
unsafe extern "C" fn vmap_rust_free(memory: *mut c_void) {
    // SAFETY: By the safety requirements, there is a header before it.
    let memory = unsafe { memory.cast::<u8>().sub(HEADER) };
    // SAFETY: The header begins with the size.
    let size = unsafe { memory.cast::<usize>().read() };
    // SAFETY: It was allocated with this layout.
    unsafe { dealloc(memory, layout(size)) }
}
