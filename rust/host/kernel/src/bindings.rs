// SPDX-License-Identifier: GPL-2.0

//! C types and functions.

#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    missing_docs,
    reason = "the names are C's"
)]

use crate::sync::LockClassKey;
use core::{
    cell::Cell,
    ffi::{c_char, c_int, c_void},
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

pub type gfp_t = u32;
pub const GFP_NOWAIT: gfp_t = 0x2800;
pub const GFP_KERNEL: gfp_t = 0xcc0;

/// What `call_rcu()` needs in an object.
pub struct callback_head(());

/// Calls `func` when there are no readers.
///
/// # Safety
///
/// Those of the function of C.
pub unsafe fn call_rcu(
    head: *mut callback_head,
    func: Option<unsafe extern "C" fn(*mut callback_head)>,
) {
    let (head, func) = (head.expose_provenance(), func.expect("not null"));
    crate::sync::rcu::call(move || {
        // SAFETY: By the safety requirements of `call_rcu()`. There are no readers any more.
        crate::hooks::in_c(|| unsafe { func(ptr::with_exposed_provenance_mut(head)) });
    });
}

/// What a workqueue needs in an object.
pub struct work_struct {
    func: Option<unsafe extern "C" fn(*mut work_struct)>,
}

/// A workqueue.
pub struct workqueue_struct(());

pub const system_dfl_wq: *mut workqueue_struct = ptr::null_mut();
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

/// Calls the function of a work when the callback of RCU that this runs in has ended.
///
/// # Safety
///
/// Those of the function of C.
pub unsafe fn queue_work_on(_: c_int, _: *mut workqueue_struct, work: *mut work_struct) {
    // SAFETY: By the safety requirements, it was prepared.
    let func = unsafe { (*work).func }.expect("it was prepared");
    let work = work.expose_provenance();
    crate::sync::rcu::queue(move || {
        // SAFETY: By the safety requirements of `queue_work_on()`.
        crate::hooks::in_c(|| unsafe { func(ptr::with_exposed_provenance_mut(work)) });
    });
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct list_head {
    pub next: *mut list_head,
    pub prev: *mut list_head,
}

#[repr(C)]
pub struct vm_struct {
    pub addr: *mut c_void,
    pub size: usize,
    pub flags: usize,
    pub nr_pages: u32,
    pub caller: *const c_void,
    pub requested_size: usize,
}

/// Number of `vm_struct`s that were allocated and not freed.
pub static LIVE_VMS: AtomicUsize = AtomicUsize::new(0);

impl vm_struct {
    /// Allocates one as C does, without fields.
    pub fn new() -> *mut Self {
        LIVE_VMS.fetch_add(1, Ordering::Relaxed);
        Box::into_raw(Box::new(Self {
            addr: ptr::null_mut(),
            size: 0,
            flags: 0,
            nr_pages: 0,
            caller: ptr::null(),
            requested_size: 0,
        }))
    }
}

/// Frees a `vm_struct`.
///
/// # Safety
///
/// It came from [`vm_struct::new`], and nobody uses it.
pub unsafe fn kfree(object: *const c_void) {
    LIVE_VMS.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: By the safety requirements.
    drop(unsafe { Box::from_raw(object.cast::<vm_struct>().cast_mut()) });
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
    pub list: list_head,
}

std::thread_local! {
    /// Number of area objects that this thread has allocated and not freed.
    pub static LIVE_AREAS: Cell<usize> = const { Cell::new(0) };
    /// The object that this thread has freed last.
    static LAST_FREED: LastFreed = const { LastFreed(Cell::new(ptr::null_mut())) };
}

/// An object that the next allocation of its thread uses, as it is. The slab cache of the kernel is type-safe by RCU, so
/// there, too, readers may see the next user of an object at once.
struct LastFreed(Cell<*mut vmap_area>);

impl Drop for LastFreed {
    fn drop(&mut self) {
        free_after_readers(self.0.get());
    }
}

/// Frees the memory of an object when there are no readers. Does nothing if `va` is null.
fn free_after_readers(va: *mut vmap_area) {
    if va.is_null() {
        return;
    }
    let va = va.expose_provenance();
    crate::sync::rcu::call(move || {
        // SAFETY: `va` came from a box, and nobody else frees it. There are no readers any more.
        drop(unsafe { Box::from_raw(ptr::with_exposed_provenance_mut::<vmap_area>(va)) });
    });
}

/// # Safety
///
/// None here.
pub unsafe fn vmap_area_cache_alloc(_: gfp_t, _: i32) -> *mut vmap_area {
    if crate::fault::strikes() {
        return ptr::null_mut();
    }
    LIVE_AREAS.set(LIVE_AREAS.get().wrapping_add(1));
    let freed = LAST_FREED.with(|last| last.0.replace(ptr::null_mut()));
    if !freed.is_null() {
        return freed;
    }
    Box::into_raw(Box::new(vmap_area {
        va_start: 0,
        va_end: 0,
        list: list_head {
            next: ptr::null_mut(),
            prev: ptr::null_mut(),
        },
        __bindgen_anon_1: vm_or_size {
            subtree_max_size: 0,
        },
        flags: 0,
    }))
}

/// # Safety
///
/// `va` came from [`vmap_area_cache_alloc`], and only earlier readers still use it.
pub unsafe fn vmap_area_cache_free(va: *mut vmap_area) {
    LIVE_AREAS.set(LIVE_AREAS.get().wrapping_sub(1));
    free_after_readers(LAST_FREED.with(|last| last.0.replace(va)));
}
