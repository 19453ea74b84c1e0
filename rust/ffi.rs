// SPDX-License-Identifier: GPL-2.0

//! The operations that mm/vmalloc.c calls, which the C header describes: they check what C passes, and convert it to Rust types
//! and back. Invalid input is refused with an error or a report.
//!
//! C header: [`include/linux/vmap_rust.h`](srctree/include/linux/vmap_rust.h)

use crate::{
    kernel_space::{
        self,
        space,
        KernelSpace, //
    },
    policy::prelude::*, //
};

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

/// Starts the allocator, and imports the areas of the list `vms`. If it fails, what it has taken by then is freed or stays
/// unused.
///
/// # Safety
///
/// - Called once, from `vmalloc_init()`.
/// - `vms` is null, or the first of a list of valid areas that nobody else uses.
#[export]
#[link_section = ".init.text"]
pub(crate) unsafe extern "C" fn vmap_rust_start(
    vms: *mut bindings::vm_struct,
    vstart: usize,
    vend: usize,
) -> c_int {
    let start = || -> Result {
        let home = Span::from_bounds(vstart, vend).ok_or(EINVAL)?;
        kernel_space::start(home, |space| {
            let mut vm = vms;
            // SAFETY: By the safety requirements, it is null or valid.
            while let Some(first) = unsafe { vm.as_ref() } {
                let (at, size) = (first.addr.addr(), first.size);
                // SAFETY: By the safety requirements, it is in a list, so this is the field of the union that is in use.
                let next = unsafe { first.__bindgen_anon_1.next };
                if !is_aligned(at | size, PAGE_SIZE) {
                    return Err(EINVAL);
                }
                let request = Request {
                    window: Span::from_bounds(at, at.wrapping_add(size)).ok_or(EINVAL)?,
                    size,
                    align: 1,
                    fast_path_failed: false,
                    gfp: Gfp::NOWAIT,
                    node: bindings::NUMA_NO_NODE,
                };
                // SAFETY: By the safety requirements, `vm` is valid, and nobody else uses it.
                space.alloc(&request, unsafe { Attributes::new(0, vm) })?;
                vm = next;
            }
            Ok(())
        })
    };
    start().map_or_else(Error::to_errno, |()| 0)
}

/// Serves a request for one area.
///
/// # Safety
///
/// - `vm` is null, or valid and not yet shared.
/// - The context allows `gfp`.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_alloc(
    size: usize,
    align: usize,
    vstart: usize,
    vend: usize,
    va_flags: usize,
    vm: *mut bindings::vm_struct,
    gfp: bindings::gfp_t,
    node: c_int,
) -> *mut bindings::vmap_area {
    let gfp = Gfp::from_raw(gfp);
    let serve = || -> Result<Busy> {
        if size == 0 || !is_aligned(size, PAGE_SIZE) || !align.is_power_of_two() {
            return Err(EINVAL);
        }
        let request = Request {
            window: Span::from_bounds(vstart, vend).ok_or(EBUSY)?,
            size,
            align,
            // C has called `vmap_rust_alloc_current()` before: the condition is that of `vmap_rust_is_fast()` in the C
            // header, besides the window.
            fast_path_failed: !cfg!(CONFIG_KASAN_VMALLOC) && va_flags == 0 && !vm.is_null(),
            gfp,
            node,
        };
        // SAFETY: By the safety requirements, `vm` is null, or valid and not yet shared.
        let attributes = unsafe { Attributes::new(va_flags, vm) };
        space().ok_or(EBUSY)?.alloc(&request, attributes)
    };
    let area = serve().map_or_else(Error::to_ptr, |area| area.area().as_raw());
    // As with the rb-trees, what is no fast path may yield.
    if gfp.may_block() {
        mm::cond_resched();
    }
    area
}

/// Serves a request for one area anywhere in vmalloc space, without flags of C, from the current block of this CPU. Null: the
/// caller must ask [`vmap_rust_alloc`].
///
/// # Safety
///
/// - `vm` is valid and not yet shared.
/// - Not in an NMI, nor in an interrupt with PREEMPT_RT: `vmap_rust.randomize` calls get_random_u32().
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_alloc_current(
    size: usize,
    align: usize,
    vm: *mut bindings::vm_struct,
) -> *mut bindings::vmap_area {
    // SAFETY: By the safety requirements, `vm` is valid and not yet shared.
    let attributes = unsafe { Attributes::new(0, vm) };
    let area = space().and_then(|space| space.alloc_current(size, align, attributes));
    null_or(area.map(Busy::area))
}

/// As [`vmap_rust_alloc_current`], with the `vm_struct` that has stayed with the addresses. All its fields are 0 but these, the
/// address and the size. Null, too, if none has stayed, or if it may have room for fewer pages.
///
/// # Safety
///
/// Not in an NMI, nor in an interrupt with PREEMPT_RT.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_reuse_current(
    size: usize,
    align: usize,
    flags: usize,
    caller: *const c_void,
    requested_size: usize,
) -> *mut bindings::vmap_area {
    let new = VmFields {
        flags,
        caller,
        requested_size,
    };
    let area = space().and_then(|space| space.reuse_current(size, align, new));
    null_or(area.map(Busy::area))
}

/// Serves a request for several areas at a common base.
///
/// # Safety
///
/// - The arrays have `nr` elements that do not change during the call.
/// - Each element of `vms` is valid, and not yet shared.
/// - The context allows `gfp`.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_alloc_congruent(
    offsets: *const usize,
    sizes: *const usize,
    vms: *mut *mut bindings::vm_struct,
    nr: c_int,
    align: usize,
    vstart: usize,
    vend: usize,
    gfp: bindings::gfp_t,
) -> c_int {
    let serve = || -> Result {
        let nr = usize::try_from(nr)?;
        if nr == 0 || !align.is_power_of_two() {
            return Err(EINVAL);
        }
        // SAFETY: By the safety requirements, the arrays have `nr` elements and do not change during the call.
        let (offsets, sizes, vms) = unsafe {
            (
                core::slice::from_raw_parts(offsets, nr),
                core::slice::from_raw_parts(sizes, nr),
                core::slice::from_raw_parts(vms, nr),
            )
        };
        // Each has `nr` elements, so no 0 is used. `zip()` could panic.
        let members = (0..nr).map(|index| Member {
            offset: offsets.get(index).copied().unwrap_or(0),
            size: sizes.get(index).copied().unwrap_or(0),
        });
        space().ok_or(EBUSY)?.alloc_congruent(
            Span::from_bounds(vstart, vend).ok_or(EBUSY)?,
            members,
            align,
            Gfp::from_raw(gfp),
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
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_find(addr: usize) -> *mut bindings::vmap_area {
    null_or(space().and_then(|space| Some(space.find(untagged(addr))?.area())))
}

/// Unlinks the busy area that contains `addr`.
///
/// # Safety
///
/// The caller holds no pin, and runs in no interrupt: this may wait for a reader's pin.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_unlink(addr: usize) -> *mut bindings::vmap_area {
    null_or(space().and_then(|space| Some(space.unlink(untagged(addr))?.into_ptr())))
}

/// Pins the lowest busy area that ends above `addr`, if it begins at or below `last`; if `try_`, only the one that contains
/// `addr`, without waiting.
///
/// # Safety
///
/// - The caller holds no other pin, and calls [`vmap_rust_put`] for the area that it gets.
/// - Task context, unless `try_`; with PREEMPT_RT no interrupt either.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_get(
    addr: usize,
    last: usize,
    try_: bool,
) -> *mut bindings::vmap_area {
    let (addr, last) = (untagged(addr), untagged(last));
    let got = space().and_then(|space| {
        if try_ {
            space.try_get(addr)
        } else {
            space.get(addr, last)
        }
    });
    // Pinned until `vmap_rust_put()`.
    null_or(got.map(Pinned::into_ptr))
}

/// Steps to the next busy area, the first one if `va` is null: that is pinned, and `va` is unpinned, unless both have one pin and
/// not `yield_`. With `yield_` other tasks may run in between.
///
/// # Safety
///
/// - `va` is null, or came from this function in the same task and is still pinned. The caller holds no other pin, and calls
///   this function or [`vmap_rust_put`] for the area that it gets.
/// - Task context; sleepable, besides the pin, if `yield_`.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_next(
    va: *mut bindings::vmap_area,
    yield_: bool,
) -> *mut bindings::vmap_area {
    let mut addr = 0;
    // SAFETY: By the safety requirements, it is null or an area.
    if let Some(area) = unsafe { AreaPtr::new(va) } {
        if !yield_ {
            // SAFETY: By the safety requirements, it is pinned until the caller has done with what it gets.
            if let Some(next) = unsafe { area.next_pinned() } {
                return next.area().as_raw();
            }
        }
        // SAFETY: By the safety requirements, the area is pinned, so it is valid and does not change. It is unpinned once.
        unsafe {
            addr = area.seen().end;
            vmap_rust_put(va);
        }
        if yield_ {
            mm::cond_resched();
        }
    }
    // SAFETY: By the safety requirements. No pin is held any more.
    unsafe { vmap_rust_get(addr, usize::MAX, false) }
}

/// Unpins an area, and those that were pinned with it.
///
/// # Safety
///
/// `va` is null, or came from [`vmap_rust_get`] or [`vmap_rust_next`] in the same task and is still pinned.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_put(va: *mut bindings::vmap_area) {
    // SAFETY: By the safety requirements, it is null or an area.
    let (Some(space), Some(area)) = (space(), unsafe { AreaPtr::new(va) }) else {
        return;
    };
    // SAFETY: By the safety requirements, the area is pinned, so it is valid and does not change.
    let in_block = unsafe { area.seen() }.is_in_block();
    // SAFETY: `vmap_rust_get()` has pinned it in this task, or what led to it, with these pins of the kernel's own space.
    unsafe { space.space().pins(in_block).unpin(area) };
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
    // SAFETY: By the safety requirements, which are those of `Area::from_c()`. C has areas of this space only.
    let area = unsafe { UnlinkedArea::from_c(ptr, space.space().directory()) };
    if area.is_none() {
        // SAFETY: By the safety requirements, the object is valid.
        let seen = unsafe { ptr.seen() };
        let bounds = [seen.start, seen.end];
        mm::refuse("a freed area is not unlinked", &bounds, &[seen.flags]);
    }
    Some((space, area?))
}

/// Makes an unmapped area lazy. Its `vm_struct` stays with the slot, or is freed. Returns about how many pages wait for a purge,
/// or more than the limit of C to ask for one at once, or 0 if it is too early to ask.
///
/// # Safety
///
/// - `va` is null, or came from [`vmap_rust_unlink`] and C no longer uses it.
/// - Its `vm` is null, or came from kmalloc(), and C no longer uses it.
/// - Not in an interrupt: a lock may be taken, and a task adds to the batch of its CPU with only preemption disabled.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_retire(va: *mut bindings::vmap_area) -> usize {
    // SAFETY: By the safety requirements, C has unlinked the area and no longer uses it.
    unsafe { take_back(va) }.map_or(0, |(space, area)| space.retire(area))
}

/// Flushes and frees all areas that were retired before the call; flushes `start` to `end` with them. Returns how many areas
/// were flushed; if 0, nothing was, `start` to `end` neither.
///
/// # Safety
///
/// Sleepable context, with `vmap_purge_lock` held.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_purge(start: usize, end: usize, drain: bool) -> usize {
    space().map_or(0, |space| space.purge(Span::from_bounds(start, end), drain))
}

/// Finds the lowest range behind `*start` to `*end` that waits for a purge. Stores its bounds. They were 0, or came from
/// this function.
///
/// # Safety
///
/// - Sleepable context, and the caller holds no pin.
/// - `start` and `end` are valid, and nobody else uses them during the call.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_next_lazy(start: *mut usize, end: *mut usize) -> bool {
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

/// Returns the number of empty blocks, and of stuck and kept areas.
///
/// # Safety
///
/// None: it is unsafe because all functions for C are.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_count() -> usize {
    space().map_or(0, |space| space.space().reclaimable())
}

/// Frees about `nr` stuck and kept areas, as far as there is memory for that, and about `nr` empty blocks. Returns how many of all.
///
/// # Safety
///
/// Sleepable context, with `vmap_purge_lock` held.
#[export]
pub(crate) unsafe extern "C" fn vmap_rust_drain(nr: usize) -> usize {
    space().map_or(0, |space| space.space().drain_for_reclaim(nr))
}
