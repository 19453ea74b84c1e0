// SPDX-License-Identifier: GPL-2.0

//! The operations that mm/vmalloc.c calls: convert C types to Rust types and back, and do nothing else.
//!
//! The C header describes each operation and its context. No input from C causes a panic: invalid input is
//! refused with an error or a report.
//!
//! C header: [`include/linux/vmap_area_ops.h`](srctree/include/linux/vmap_area_ops.h)

use crate::{
    kernel_space::{
        self,
        space,
        KernelSpace, //
    },
    policy::prelude::*, //
};
use kernel::str::as_char_ptr_in_const_context;

/// The table of operations, as a type that a `static` can have.
#[repr(transparent)]
pub(crate) struct Ops(bindings::vmap_area_ops);

// SAFETY: Nobody writes the table, and its strings are static.
unsafe impl Sync for Ops {}

/// The table through which mm/vmalloc.c finds this allocator. It also calls [`alloc_current`], [`find`], [`unlink`] and
/// [`retire`] directly, by the names that they are exported with.
#[export_name = "vmap_rust_ops"]
pub(crate) static OPS: Ops = Ops(bindings::vmap_area_ops {
    name: as_char_ptr_in_const_context(c"rust"),
    origin: as_char_ptr_in_const_context(c"mm/vmap_rust"),
    #[cfg(CONFIG_VMAP_RUST_DEBUG_INFO)]
    debug: kernel_space::DEBUG_INFO.as_ptr(),
    init: Some(init),
    alloc: Some(alloc),
    alloc_congruent: Some(alloc_congruent),
    find: Some(find),
    unlink: Some(unlink),
    get: Some(get),
    put: Some(put),
    retire: Some(retire),
    purge: Some(purge),
    next_lazy: Some(next_lazy),
    count: Some(count),
    drain: Some(drain),
});

/// Returns `addr` without its KASAN tag, like `__untagged_addr()` in arch/arm64/include/asm/memory.h.
#[inline(always)]
const fn untagged(addr: usize) -> usize {
    if cfg!(any(CONFIG_KASAN_SW_TAGS, CONFIG_KASAN_HW_TAGS)) {
        // CAST: Bit 55, the sign of the address, fills the byte of the tag.
        ((addr << 8) as isize >> 8) as usize
    } else {
        addr
    }
}

fn null_or(area: Option<AreaPtr>) -> *mut bindings::vmap_area {
    area.map_or(ptr::null_mut(), AreaPtr::as_raw)
}

/// Starts the allocator.
///
/// # Safety
///
/// Called once, from `vmalloc_init()`.
unsafe extern "C" fn init(vstart: usize, vend: usize) -> c_int {
    let home = Span::from_bounds(vstart, vend).ok_or(EINVAL);
    home.and_then(kernel_space::start)
        .map_or_else(Error::to_errno, |()| 0)
}

/// Serves a request for one area.
///
/// # Safety
///
/// - `req` is valid. Its `vm` is null, or valid and not yet shared.
/// - The context allows `req.gfp`.
unsafe extern "C" fn alloc(req: *const bindings::vmap_area_request) -> *mut bindings::vmap_area {
    // SAFETY: By the safety requirements, the request is valid.
    let req = unsafe { &*req };
    let serve = || -> Result<Busy> {
        let is_whole = req.size != 0 && is_aligned(req.size, PAGE_SIZE);
        if !is_whole || !req.align.is_power_of_two() {
            return Err(EINVAL);
        }
        let request = Request {
            window: Span::from_bounds(req.vstart, req.vend).ok_or(EBUSY)?,
            size: req.size,
            align: req.align,
            // See `alloc_vmap_area_ops()` in mm/vmalloc.c.
            is_miss: !cfg!(CONFIG_KASAN_VMALLOC) && req.va_flags == 0 && !req.vm.is_null(),
            gfp: Gfp::from_raw(req.gfp),
            node: req.node,
        };
        // SAFETY: By the safety requirements, `vm` is null, or valid and not yet shared.
        let attributes = unsafe { Attributes::new(req.va_flags, req.vm) };
        space().ok_or(EBUSY)?.alloc(&request, attributes)
    };
    serve().map_or_else(Error::to_ptr, |area| area.area().as_raw())
}

/// Serves a request for one area anywhere in vmalloc space, without flags of C, from the current block of this CPU. Null
/// means that the caller must ask [`alloc`].
///
/// A direct call with its arguments in registers, for what is common.
///
/// # Safety
///
/// `vm` is valid and not yet shared.
#[export_name = "vmap_rust_alloc"]
pub(crate) unsafe extern "C" fn alloc_current(
    size: usize,
    align: usize,
    vm: *mut bindings::vm_struct,
) -> *mut bindings::vmap_area {
    let Some(space) = space() else {
        return ptr::null_mut();
    };
    // SAFETY: By the safety requirements, `vm` is valid and not yet shared.
    let attributes = unsafe { Attributes::new(0, vm) };
    null_or(space.alloc_current(size, align, attributes).map(Busy::area))
}

/// Serves a request for several areas at a common base.
///
/// # Safety
///
/// - `req` is valid, and its arrays have `req.nr` elements that do not change during the call.
/// - Each element of `req.vms` is valid, and not yet shared.
/// - The context allows `req.gfp`.
unsafe extern "C" fn alloc_congruent(req: *const bindings::vmap_congruent_request) -> c_int {
    // SAFETY: By the safety requirements, the request is valid.
    let req = unsafe { &*req };
    let serve = || -> Result {
        let nr = usize::try_from(req.nr)?;
        if nr == 0 || !req.align.is_power_of_two() {
            return Err(EINVAL);
        }
        // SAFETY: By the safety requirements, the array has `nr` elements and does not change during the
        // call.
        let offsets = unsafe { core::slice::from_raw_parts(req.offsets, nr) };
        // SAFETY: By the safety requirements, the array has `nr` elements and does not change during the
        // call.
        let sizes = unsafe { core::slice::from_raw_parts(req.sizes, nr) };
        // SAFETY: By the safety requirements, the array has `nr` elements and does not change during the
        // call.
        let vms = unsafe { core::slice::from_raw_parts(req.vms, nr) };
        let members = offsets
            .iter()
            .zip(sizes)
            .map(|(&offset, &size)| Member { offset, size });

        space().ok_or(EBUSY)?.alloc_congruent(
            Span::from_bounds(req.vstart, req.vend).ok_or(EBUSY)?,
            members,
            req.align,
            Gfp::from_raw(req.gfp),
            |index, area| {
                let vm = vms.get(index).copied()?;
                // SAFETY: By the safety requirements, it is valid and nobody uses it. Each index has one area.
                area.busy(unsafe { Attributes::new(0, vm) })
            },
        )
    };
    serve().map_or_else(Error::to_errno, |()| 0)
}

/// Finds the busy area that contains `addr`.
///
/// # Safety
///
/// RCU is watching.
#[export_name = "vmap_rust_find"]
pub(crate) unsafe extern "C" fn find(addr: usize) -> *mut bindings::vmap_area {
    null_or(space().and_then(|space| Some(space.find(untagged(addr))?.area())))
}

/// Unlinks the busy area that contains `addr`.
///
/// # Safety
///
/// The caller holds no pin.
#[export_name = "vmap_rust_unlink"]
pub(crate) unsafe extern "C" fn unlink(addr: usize) -> *mut bindings::vmap_area {
    null_or(space().and_then(|space| Some(space.unlink(untagged(addr))?.into_ptr())))
}

/// Pins the lowest busy area that ends above `addr`, if it begins at or below `last`; if `try_`, only the one that contains
/// `addr`, without waiting.
///
/// # Safety
///
/// - The caller holds no other pin, and calls [`put`] for the area that it gets.
/// - Task context, unless `try_`; with PREEMPT_RT no interrupt either.
unsafe extern "C" fn get(addr: usize, last: usize, try_: bool) -> *mut bindings::vmap_area {
    let (addr, last) = (untagged(addr), untagged(last));
    let got = space().and_then(|space| {
        if try_ {
            space.try_get(addr)
        } else {
            space.get(addr, last)
        }
    });
    // `put()` unpins it.
    null_or(got.map(Pinned::into_ptr))
}

/// Unpins an area.
///
/// # Safety
///
/// `va` is null, or came from [`get`] in the same task and is still pinned.
unsafe extern "C" fn put(va: *mut bindings::vmap_area) {
    // SAFETY: By the safety requirements, it is null or an area.
    let (Some(space), Some(area)) = (space(), unsafe { AreaPtr::new(va) }) else {
        return;
    };
    // SAFETY: By the safety requirements, the area is pinned, so it is valid and does not change.
    let ((start, _), in_block) = unsafe { (area.start_and_end(), area.is_in_block()) };
    // SAFETY: `get()` has pinned the area that starts there in this task, with these pins of the kernel's own space.
    unsafe { space.space().pins(in_block).unpin(start) };
}

/// Takes an unlinked area back from C. Reports any other area and returns [`None`].
///
/// # Safety
///
/// `va` is null, or meets the safety requirements of [`Area::from_c`].
#[inline(always)]
unsafe fn take_back(
    va: *mut bindings::vmap_area,
) -> Option<(&'static KernelSpace, UnlinkedArea<'static>)> {
    let space = space()?;
    // SAFETY: By the safety requirements, it is null or an area.
    let ptr = unsafe { AreaPtr::new(va) }?;
    // An area on the same line may have been used meanwhile.
    ptr.prefetch_for_write();
    // SAFETY: By the safety requirements, which are those of `Area::from_c()`. C has areas of this space only.
    let area = unsafe { UnlinkedArea::from_c(ptr, space.space().directory()) };
    if area.is_none() {
        // SAFETY: By the safety requirements, the object is valid.
        let ((start, end), flags) = unsafe { (ptr.start_and_end(), ptr.flags()) };
        mm::refuse("a freed area is not unlinked", &[start, end], &[flags]);
    }
    Some((space, area?))
}

/// Makes an unmapped area lazy.
///
/// # Safety
///
/// `va` is null, or came from [`unlink`] and C no longer uses it.
#[export_name = "vmap_rust_retire"]
pub(crate) unsafe extern "C" fn retire(va: *mut bindings::vmap_area) -> usize {
    // SAFETY: By the safety requirements, C has unlinked the area and no longer uses it.
    match unsafe { take_back(va) } {
        Some((space, area)) => space.retire(area),
        None => 0,
    }
}

/// Flushes and frees all areas that were retired before the call; flushes `start` to `end` with them.
///
/// # Safety
///
/// Sleepable context, with `vmap_purge_lock` held.
unsafe extern "C" fn purge(start: usize, end: usize, drain: bool) -> usize {
    space().map_or(0, |space| space.purge(Span::from_bounds(start, end), drain))
}

/// Finds the lowest range behind `*start` to `*end` that waits for a purge. Stores its bounds. They were 0, or came from
/// this function.
///
/// # Safety
///
/// - Sleepable context, and the caller holds no pin.
/// - `start` and `end` are valid, and nobody else uses them during the call.
unsafe extern "C" fn next_lazy(start: *mut usize, end: *mut usize) -> bool {
    // SAFETY: By the safety requirements, both pointers are valid.
    let last = unsafe { Span::from_bounds(*start, *end) };
    let Some(span) = space().and_then(|space| space.space().next_lazy(last)) else {
        return false;
    };
    // SAFETY: By the safety requirements, both pointers are valid and nobody else uses them.
    unsafe {
        *start = span.first();
        *end = span.end();
    }
    true
}

/// Returns the number of empty blocks and stuck areas.
///
/// # Safety
///
/// None: the type of the table requires an unsafe function.
unsafe extern "C" fn count() -> usize {
    space().map_or(0, |space| space.space().reclaimable())
}

/// Frees about `nr` empty blocks. Returns how many were freed.
///
/// # Safety
///
/// Sleepable context.
unsafe extern "C" fn drain(nr: usize) -> usize {
    space().map_or(0, |space| space.space().drain_for_reclaim(nr))
}
