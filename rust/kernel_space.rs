// SPDX-License-Identifier: GPL-2.0

//! The one space of the kernel: all its areas, those of vmalloc(), modules and percpu among them. This says where it is, what
//! its TLB and KASAN shadow are, how it starts, and what KUnit sees of it. Tests make spaces of their own.

#[cfg(CONFIG_VMAP_RUST_DEBUG)]
use crate::check::checked::CheckedSpace as AnySpace;
use crate::policy::prelude::*;
#[cfg(not(CONFIG_VMAP_RUST_DEBUG))]
use crate::policy::Space as AnySpace;

/// The kernel's own space.
pub(crate) type KernelSpace = AnySpace<KernelTlb>;

/// This space. It stays null if C does not use this allocator. Debuggers find it by its name: `tools/drgn/vmap_rust.py`.
///
/// # Invariants
///
/// It is null until [`start`] sets it. A space that it points to is initialized, and never freed.
static SPACE: Atomic<*mut KernelSpace> = Atomic::new(ptr::null_mut());

/// All CPUs share the space, so it must be `Send` and `Sync`.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<KernelSpace>();
};

/// Returns the space if C uses it.
#[inline(always)]
pub(crate) fn space() -> Option<&'static KernelSpace> {
    // Relaxed: all reads of the space depend on the address, see `start()`. `SetOnce` would add an acquire
    // to each operation.
    // SAFETY: By the invariants of `SPACE`, and the space is only used through shared references.
    unsafe { SPACE.read_once().as_ref() }
}

/// The TLB and the KASAN shadow of the kernel. Flushing the TLB needs `vmap_purge_lock`.
pub(crate) struct KernelTlb;

// SAFETY: The function of C returns when all CPUs have flushed the range.
unsafe impl Tlb for KernelTlb {
    fn has_shadow(&self) -> bool {
        cfg!(CONFIG_KASAN_VMALLOC)
    }

    fn flush(&self, span: Span, areas: usize) -> usize {
        // SAFETY: Flushing more than needed is harmless. The C side checks the lock.
        unsafe { bindings::vmap_area_flush_tlb(span.first(), span.end(), areas) }
    }

    unsafe fn take_tables(&self, span: Span) {
        if cfg!(CONFIG_VMAP_FREE_TABLES) {
            // SAFETY: By the safety requirements, nobody uses the range before a flush. The C side checks the lock.
            unsafe { bindings::vmap_area_take_tables(span.first(), span.end()) };
        }
    }

    fn flush_tables(&self) -> usize {
        if !cfg!(CONFIG_VMAP_FREE_TABLES) {
            return 0;
        }
        // SAFETY: Flushing more than needed is harmless. The C side checks the lock.
        unsafe { bindings::vmap_area_flush_tables() }
    }

    unsafe fn release_shadow(&self, span: Span) {
        if cfg!(CONFIG_KASAN_VMALLOC) {
            // SAFETY: By the safety requirements, nobody uses the range. It may have no KASAN shadow.
            unsafe { bindings::vmap_area_release_shadow(span.first(), span.end()) };
        }
    }

    fn flush_shadow(&self, span: Span) {
        if cfg!(CONFIG_KASAN_VMALLOC) {
            // SAFETY: Flushing more than needed is harmless.
            unsafe { bindings::vmap_area_flush_shadow(span.first(), span.end()) };
        }
    }
}

/// Returns the number of tables of PTEs in vmalloc space. Sleepable context.
#[cfg(CONFIG_VMAP_RUST)]
pub(crate) fn count_tables() -> usize {
    // SAFETY: It has no requirements but the context.
    unsafe { bindings::vmap_area_count_tables() }
}

#[cfg(not(CONFIG_VMAP_RUST_DEBUG))]
fn make(home: Span, options: Options) -> Result<KernelSpace> {
    KernelSpace::new(home, KernelTlb, options)
}

/// Makes the space with a checker if it is to have one, and fails if it is to fail.
#[cfg(CONFIG_VMAP_RUST_DEBUG)]
fn make(home: Span, options: Options) -> Result<KernelSpace> {
    use crate::{
        check::checker::Checker,
        module_parameters::{
            check,
            fail_init, //
        },
        state::watched::Watched, //
    };

    if fail_init.value() != 0 {
        return Err(ENOMEM);
    }
    let watch = match check.value() {
        0 => None,
        _ => Some(Checker::new(true, GFP_NOWAIT)?),
    };
    let tlb = KernelTlb;
    KernelSpace::new(home, Watched { tlb, watch }, options)
}

/// Makes the space for `home`, lets `import` reserve what is there already, and publishes it. Fails with `ENOMEM` without
/// memory, or as `import` does; what that has reserved stays so. Called once, early in the boot.
pub(crate) fn start(home: Span, import: impl FnOnce(&KernelSpace) -> Result) -> Result {
    let options = Options {
        limit: None,
        is_randomized: crate::module_parameters::randomize.value() != 0,
    };
    let space = KBox::into_raw(KBox::new(make(home, options)?, GFP_NOWAIT)?);
    // SAFETY: It came from a box, and nobody frees it. If the import fails, it stays unused.
    import(unsafe { &*space })?;
    // INVARIANT: It came from a box, and nobody frees it.
    // Release: a CPU that finds the space finds it initialized.
    SPACE.store(space, Release);
    Ok(())
}

/// Returns whether all invariants hold, and reports those that do not. True if this allocator is not in use.
///
/// Sleepable context. For KUnit: C header kunit/vmap_area_kunit.h.
///
/// # Safety
///
/// None: it is unsafe because all functions for C are.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[export_name = "vmap_rust_validate"]
pub(crate) unsafe extern "C" fn validate() -> bool {
    space().is_none_or(|space| space.space().validate().is_ok())
}

/// Returns the address of allocation `nth` for CPU `cpu`, counted from 0. Null behind the last one, or if this
/// allocator is not in use.
///
/// Takes spinlocks. For KUnit: C header kunit/vmap_area_kunit.h.
///
/// # Safety
///
/// None: it is unsafe because all functions for C are.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[export_name = "vmap_rust_cpu_memory"]
pub(crate) unsafe extern "C" fn cpu_memory(cpu: c_uint, nth: c_uint) -> *const c_void {
    // CAST: A `u32` fits in a `usize` on all platforms of Linux.
    let (cpu, nth) = (cpu as usize, nth as usize);
    let cpu = CpuNumber::new(cpu);
    let memory = space().map(|space| space.space().memory_of_cpu(cpu));
    let memory = memory.and_then(|memory| memory.get(nth).copied());
    memory.unwrap_or(ptr::null())
}
