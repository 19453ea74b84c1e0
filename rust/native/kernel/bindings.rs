// SPDX-License-Identifier: GPL-2.0

//! C types, and functions of bench/native.

#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    missing_docs,
    reason = "the names are C's"
)]

use crate::sync::LockClassKey;
use core::ffi::{c_char, c_int, c_void};

pub type gfp_t = u32;
pub const GFP_NOWAIT: gfp_t = 0x2800;
pub const GFP_KERNEL: gfp_t = 0xcc0;
pub const NUMA_NO_NODE: c_int = -1;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct callback_head {
    next: *mut callback_head,
    func: Option<unsafe extern "C" fn(*mut callback_head)>,
}

/// A work; the link is that of bench/native/shim.c.
#[repr(C)]
pub struct work_struct {
    next: *mut work_struct,
    func: Option<unsafe extern "C" fn(*mut work_struct)>,
}

/// A workqueue: there is one.
pub struct workqueue_struct(());

pub const system_dfl_wq: *mut workqueue_struct = core::ptr::null_mut();
pub const wq_misc_consts_WORK_CPU_UNBOUND: u32 = 64;

/// Prepares a work.
///
/// # Safety
///
/// `work` is valid, and nobody else uses it.
pub unsafe fn init_work_with_key(
    work: *mut work_struct,
    func: Option<unsafe extern "C" fn(*mut work_struct)>,
    _: bool,
    _: *const c_char,
    _: *mut LockClassKey,
) {
    // SAFETY: By the safety requirements.
    unsafe { (*work).func = func };
}

/// Calls the function of a work in a worker.
///
/// # Safety
///
/// Those of the function, and the work was prepared.
pub unsafe fn queue_work_on(_: c_int, _: *mut workqueue_struct, work: *mut work_struct) {
    // SAFETY: By the safety requirements.
    unsafe { queue_work(work) };
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct list_head {
    pub next: *mut list_head,
    pub prev: *mut list_head,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union next_or_node {
    pub next: *mut vm_struct,
}

#[repr(C)]
pub struct vm_struct {
    pub __bindgen_anon_1: next_or_node,
    pub addr: *mut c_void,
    pub size: usize,
    pub flags: usize,
    pages: *mut c_void,
    nr_pages: u32,
    phys_addr: u64,
    pub caller: *const c_void,
    pub requested_size: usize,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union vm_or_size {
    pub vm: *mut vm_struct,
    pub subtree_max_size: usize,
}

#[repr(C)]
pub struct vmap_area {
    pub va_start: usize,
    pub va_end: usize,
    pub __bindgen_anon_1: vm_or_size,
    pub flags: usize,
}

extern "C" {
    pub fn call_rcu(
        head: *mut callback_head,
        func: Option<unsafe extern "C" fn(*mut callback_head)>,
    );
    fn queue_work(work: *mut work_struct);
    pub fn vmap_area_cache_alloc(gfp: gfp_t, node: c_int) -> *mut vmap_area;
    pub fn vmap_area_cache_free(va: *mut vmap_area);
    fn vmap_area_free_vm(vm: *const c_void);
    /// Counts flushes.
    pub fn vmap_area_flush_tlb(start: usize, end: usize, areas: usize) -> usize;
    /// Not there: there are no page tables.
    pub fn vmap_area_take_tables(start: usize, end: usize);
    pub fn vmap_area_flush_tables() -> usize;
    pub fn vmap_area_count_tables() -> usize;
    /// Not there: only KASAN calls them.
    pub fn vmap_area_release_shadow(start: usize, end: usize);
    pub fn vmap_area_flush_shadow(start: usize, end: usize);
}

/// Frees a `vm_struct`.
///
/// # Safety
///
/// C has allocated it, and nobody uses it.
pub unsafe fn kfree(object: *const c_void) {
    // SAFETY: By the safety requirements.
    unsafe { vmap_area_free_vm(object) };
}
