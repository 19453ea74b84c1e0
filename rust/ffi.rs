// SPDX-License-Identifier: GPL-2.0

//! The operations as mm/vmalloc.c calls them: C types to Rust types and back, nothing else.
//!
//! What each operation does, and in which context, is in the C header. Whatever C passes, there is
//! no panic: what makes no sense is refused with an error or a report.
//!
//! C header: [`include/linux/vmap_area_ops.h`](srctree/include/linux/vmap_area_ops.h)

use crate::{
    area::{
        Area,
        AreaPtr,
        Attributes, //
    },
    checked::KernelSpace, //
    fit::Member,
    mm::{
        self,
        Gfp, //
    },
    range::Span,
    space::Request,
};
use core::ptr;
use kernel::{
    bindings,
    prelude::*,
    str::as_char_ptr_in_const_context,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    }, //
};

/// The space, once [`init`] has made it: null, or what is never freed.
static SPACE: Atomic<*mut KernelSpace> = Atomic::new(ptr::null_mut());

/// All CPUs share it.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<KernelSpace>();
};

/// The space, if there is one.
#[inline(always)]
pub(crate) fn space() -> Option<&'static KernelSpace> {
    // Relaxed: what is read of the space depends on the address, see `init()`. `SetOnce` would be an
    // acquire for each operation.
    // SAFETY: It is null or was never freed, and from then on nobody has changed it but through references.
    unsafe { SPACE.load(Relaxed).as_ref() }
}

/// The same, if it is the one that C uses: there may be one that is not, if starting failed half way.
pub(crate) fn running() -> Option<&'static KernelSpace> {
    space().filter(|_| crate::is_running())
}

/// The table of operations.
#[repr(transparent)]
pub(crate) struct Ops(bindings::vmap_area_ops);

// SAFETY: The table is never written, and its strings are static.
unsafe impl Sync for Ops {}

/// What mm/vmalloc.c knows of this allocator.
#[export_name = "vmap_rust_ops"]
pub(crate) static OPS: Ops = Ops(bindings::vmap_area_ops {
    name: as_char_ptr_in_const_context(c"rust"),
    origin: as_char_ptr_in_const_context(c"mm/vmap_rust"),
    init: Some(init),
    alloc: Some(alloc),
    alloc_congruent: Some(alloc_congruent),
    find: Some(find),
    unlink: Some(unlink),
    get: Some(get),
    put: Some(put),
    retire: Some(retire),
    release: Some(release),
    purge: Some(purge),
    next_lazy: Some(next_lazy),
    count: Some(count),
    drain: Some(drain),
});

fn null_or(area: Option<AreaPtr>) -> *mut bindings::vmap_area {
    area.map_or(ptr::null_mut(), AreaPtr::as_raw)
}

/// Starts the allocator.
///
/// # Safety
///
/// Called once, from `vmalloc_init()`.
unsafe extern "C" fn init(vstart: usize, vend: usize) -> c_int {
    let start = || -> Result {
        if cfg!(CONFIG_VMAP_RUST_DEBUG) && crate::module_parameters::fail_init.value() {
            return Err(ENOMEM);
        }
        let home = Span::from_bounds(vstart, vend).ok_or(EINVAL)?;
        let is_checked = cfg!(CONFIG_VMAP_RUST_DEBUG) && crate::module_parameters::check.value();
        let is_randomized = crate::module_parameters::randomize.value();
        let space = KBox::into_raw(KBox::new(
            KernelSpace::new(home, is_checked, is_randomized)?,
            GFP_NOWAIT,
        )?);
        // Full, of which release is needed: who sees it sees it initialized.
        if SPACE.cmpxchg(ptr::null_mut(), space, Full).is_err() {
            // SAFETY: Just made, and not handed over.
            drop(unsafe { KBox::from_raw(space) });
            return Err(EBUSY);
        }
        Ok(())
    };
    start().map_or_else(Error::to_errno, |()| 0)
}

/// Serves a request for one area.
///
/// # Safety
///
/// - `req` is valid. Its `vm` is null, or valid and not known to others.
/// - The context is one that `req.gfp` fits.
unsafe extern "C" fn alloc(req: *const bindings::vmap_area_request) -> *mut bindings::vmap_area {
    // SAFETY: C passes a valid request.
    let req = unsafe { &*req };
    let serve = || -> Result<AreaPtr> {
        if req.size == 0 || !req.align.is_power_of_two() {
            return Err(EINVAL);
        }
        space().ok_or(EBUSY)?.alloc(&Request {
            window: Span::from_bounds(req.vstart, req.vend).ok_or(EBUSY)?,
            size: req.size,
            align: req.align,
            // SAFETY: C passes a `vm_struct` that nobody else knows of yet, or null.
            attributes: unsafe { Attributes::new(req.va_flags, req.vm) },
            gfp: Gfp::from_raw(req.gfp),
            node: req.node,
        })
    };
    serve().map_or_else(Error::to_ptr, AreaPtr::as_raw)
}

/// Serves a request for areas at a common base.
///
/// # Safety
///
/// - `req` is valid, and its arrays have `req.nr` elements that do not change during the call.
/// - `vas` has as many elements, which nobody else uses during the call.
unsafe extern "C" fn alloc_congruent(
    req: *const bindings::vmap_congruent_request,
    vas: *mut *mut bindings::vmap_area,
) -> c_int {
    // SAFETY: C passes a valid request.
    let req = unsafe { &*req };
    let serve = || -> Result {
        let nr = usize::try_from(req.nr)?;
        if nr == 0 || !req.align.is_power_of_two() {
            return Err(EINVAL);
        }
        // SAFETY: C passes arrays of `nr` elements, which do not change during the call.
        let offsets = unsafe { core::slice::from_raw_parts(req.offsets, nr) };
        // SAFETY: As above.
        let sizes = unsafe { core::slice::from_raw_parts(req.sizes, nr) };
        // SAFETY: As above, and nobody else uses this one during the call.
        let vas = unsafe { core::slice::from_raw_parts_mut(vas, nr) };
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
                if let Some(va) = vas.get_mut(index) {
                    *va = area.as_raw();
                }
            },
        )
    };
    serve().map_or_else(Error::to_errno, |()| 0)
}

/// Finds a busy area.
///
/// # Safety
///
/// RCU is watching.
unsafe extern "C" fn find(addr: usize) -> *mut bindings::vmap_area {
    null_or(space().and_then(|space| space.find(addr)))
}

/// Takes an area out of use.
///
/// # Safety
///
/// The caller holds no pin.
unsafe extern "C" fn unlink(addr: usize) -> *mut bindings::vmap_area {
    null_or(space().and_then(|space| Some(space.unlink(addr)?.into_ptr())))
}

/// Pins an area.
///
/// # Safety
///
/// - The caller holds no other pin, and calls [`put`] for what it gets.
/// - Task context, unless `try_`.
unsafe extern "C" fn get(addr: usize, try_: bool) -> *mut bindings::vmap_area {
    let got = space().and_then(|space| {
        if try_ {
            space.try_get(addr)
        } else {
            space.get(addr)
        }
    });
    let Some((area, pin)) = got else {
        return ptr::null_mut();
    };
    // `put()` unlocks it.
    core::mem::forget(pin);
    area.as_raw()
}

/// Lets go of an area.
///
/// # Safety
///
/// `va` came from [`get`], by the same task, and was not put yet; or is null.
unsafe extern "C" fn put(va: *mut bindings::vmap_area) {
    let (Some(space), false) = (space(), va.is_null()) else {
        return;
    };
    // SAFETY: `get()` has returned the area, and it is busy and does not change until unpinned.
    let start = unsafe { (*va).va_start };
    // SAFETY: `get()` has pinned the area that starts there, and forgotten the guard.
    unsafe { space.space().pins().unpin(start) };
}

/// Takes back an area from C, or reports that it cannot be.
///
/// # Safety
///
/// As [`Area::from_c`], but `va` may be null.
#[inline(always)]
unsafe fn take_back(
    va: *mut bindings::vmap_area,
) -> Option<(&'static KernelSpace, Area<crate::area::Unlinked>)> {
    let space = space()?;
    let ptr = AreaPtr::new(va)?;
    // SAFETY: By the safety requirements.
    let area = unsafe { Area::from_c(ptr) };
    if area.is_none() {
        // SAFETY: By the safety requirements, the object is valid.
        let (start, end, flags) = unsafe { ((*va).va_start, (*va).va_end, ptr.flags()) };
        mm::refuse!("freeing {start:#x}-{end:#x}, flags {flags:#x}: not unlinked");
    }
    Some((space, area?))
}

/// Takes over an unmapped area.
///
/// # Safety
///
/// `va` came from [`unlink`], and C does not use it any more; or is null.
unsafe extern "C" fn retire(va: *mut bindings::vmap_area) -> usize {
    // SAFETY: C passes an area that it has unlinked and does not use any more.
    match unsafe { take_back(va) } {
        Some((space, area)) => space.retire(area),
        None => 0,
    }
}

/// Takes over an area that was never mapped.
///
/// # Safety
///
/// As for [`retire`].
unsafe extern "C" fn release(va: *mut bindings::vmap_area) {
    // SAFETY: C passes an area that it has unlinked and does not use any more.
    if let Some((space, area)) = unsafe { take_back(va) } {
        space.release(area);
    }
}

/// Purges.
///
/// # Safety
///
/// Sleepable context, with `vmap_purge_lock` held.
unsafe extern "C" fn purge(start: usize, end: usize, drain: bool) -> usize {
    space().map_or(0, |space| space.purge(Span::from_bounds(start, end), drain))
}

/// Tells the next range that is neither busy nor free.
///
/// # Safety
///
/// Sleepable context, and the caller holds no pin. `start` and `end` are valid, and nobody else uses them
/// during the call.
unsafe extern "C" fn next_lazy(start: *mut usize, end: *mut usize) -> bool {
    // SAFETY: C passes valid pointers.
    let addr = unsafe { *start };
    let Some(span) = space().and_then(|space| space.space().next_lazy(addr)) else {
        return false;
    };
    // SAFETY: As above.
    unsafe {
        *start = span.first();
        *end = span.end();
    }
    true
}

/// Number of cached ranges and empty blocks.
///
/// # Safety
///
/// None: it has to be unsafe for its type in the table.
unsafe extern "C" fn count() -> usize {
    space().map_or(0, |space| space.space().reclaimable())
}

/// Gives back cached ranges.
///
/// # Safety
///
/// Sleepable context.
unsafe extern "C" fn drain() {
    if let Some(space) = space() {
        space.space().drain_for_reclaim();
    }
}

/// Do all invariants hold? What does not is reported. True if this allocator is not in use.
///
/// Sleepable context. For KUnit: C header kunit/vmap_area_kunit.h.
///
/// # Safety
///
/// None: it has to be unsafe as the others.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[export_name = "vmap_rust_validate"]
pub(crate) unsafe extern "C" fn validate() -> bool {
    running().is_none_or(|space| space.space().validate().is_ok())
}
