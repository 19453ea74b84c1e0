// SPDX-License-Identifier: GPL-2.0

//! Area objects that are part of a block.
//!
//! They are the fields of `struct vmap_area` that C uses of an area of ours, and not those that the
//! rb-trees need. They are allocated with their block and freed with it, after a grace period of RCU: an
//! area costs no allocation. Each chunk of them is one small allocation.

use crate::area::{
    Area,
    AreaPtr,
    Leaving,
    New,
    Seen,
    Use, //
};
use crate::range::Span;
use core::{
    cell::UnsafeCell,
    mem::offset_of, //
};
use kernel::{
    alloc::Flags,
    bindings,
    prelude::*, //
};

/// Bytes that C uses of a `struct vmap_area` of ours: `VMAP_AREA_HEAD` of the C header.
pub(crate) const OBJECT_SIZE: usize = 4 * size_of::<usize>();

const _: () = {
    assert!(offset_of!(bindings::vmap_area, va_start) < OBJECT_SIZE);
    assert!(offset_of!(bindings::vmap_area, va_end) < OBJECT_SIZE);
    assert!(offset_of!(bindings::vmap_area, flags) < OBJECT_SIZE);
    assert!(offset_of!(bindings::vmap_area, __bindgen_anon_1) < OBJECT_SIZE);
};

/// Objects in a chunk: so few that it fits in a page also with what KASAN and SLUB's debugging put
/// around it. Memory that is fragmented has single pages only.
const CHUNK: usize = 64;

/// Chunks of a block, in which the smallest areas have two units.
const CHUNKS: usize = crate::bits::UNITS / 2 / CHUNK;

/// Memory for one object.
#[repr(C)]
struct Memory(UnsafeCell<[usize; 4]>);

// SAFETY: A number of integers; who may access them is the matter of `area`.
unsafe impl Sync for Memory {}
// SAFETY: As above.
unsafe impl Send for Memory {}

/// The objects of a block.
///
/// # Invariants
///
/// The memory was zeroed, and is accessed only through [`crate::area`].
pub(crate) struct Objects {
    chunks: [KVec<Memory>; CHUNKS],
}

impl Objects {
    /// `count` objects that nobody uses. Sleeps if `flags` allow it.
    pub(crate) fn new(count: usize, flags: Flags) -> Result<Self> {
        let mut rest = count;
        let mut chunk = || -> Result<KVec<Memory>> {
            let count = rest.min(CHUNK);
            rest = rest.saturating_sub(count);
            let mut chunk = KVec::with_capacity(count, flags)?;
            for _ in 0..count {
                chunk.push(Memory(UnsafeCell::new([0; 4])), flags)?;
            }
            Ok(chunk)
        };
        // INVARIANT: Just zeroed.
        let objects = Self {
            chunks: [chunk()?, chunk()?, chunk()?, chunk()?],
        };
        #[cfg(CONFIG_DEBUG_KMEMLEAK)]
        objects.limit_kmemleak(flags);
        Ok(objects)
    }

    /// Makes kmemleak look for references in `vmap_area::vm` of each object only. The start of an area
    /// would be a second reference to its memory, besides `vm_struct::addr`, and `kmemleak_vmalloc()`
    /// takes memory with two references for one that is in use.
    ///
    /// Without memory, kmemleak scans all of a chunk.
    #[cfg(CONFIG_DEBUG_KMEMLEAK)]
    fn limit_kmemleak(&self, flags: Flags) {
        for memory in self.chunks.iter().flat_map(|chunk| chunk.iter()) {
            let area: *mut bindings::vmap_area = memory.0.get().cast();
            // SAFETY: The pointer is to a field of memory that is part of an allocation, of which only
            // the address is used.
            unsafe {
                bindings::kmemleak_scan_area(
                    (&raw const (*area).__bindgen_anon_1.vm).cast(),
                    size_of::<*mut bindings::vm_struct>(),
                    flags.as_raw(),
                );
            }
        }
    }

    /// Where object `index` is.
    fn ptr(&self, index: usize) -> Option<AreaPtr> {
        let memory = self.chunks.get(index / CHUNK)?.get(index % CHUNK)?;
        AreaPtr::new(memory.0.get().cast())
    }

    /// Takes object `index`, if nobody uses it.
    pub(crate) fn occupy(&self, index: usize) -> Option<Area<New>> {
        // SAFETY: By the type invariants. A block is not freed as long as an object is in use
        // (`the drop of Removed`), so the memory remains what it is.
        unsafe { Area::occupy(self.ptr(index)?) }
    }

    /// What area is at object `index`, if it is busy.
    #[inline(always)]
    pub(crate) fn look(&self, index: usize) -> Option<(AreaPtr, Seen)> {
        let ptr = self.ptr(index)?;
        // SAFETY: The memory is there as long as `self` is borrowed.
        Some((ptr, unsafe { ptr.look() }?))
    }

    /// Makes the area at object `index` one that is not found any more, if it is busy and contains
    /// `addr`.
    pub(crate) fn leave(&self, index: usize, addr: usize) -> Option<Area<Leaving>> {
        let (ptr, seen) = self.look(index)?;
        if !seen.contains(addr) {
            return None;
        }
        // SAFETY: As above.
        unsafe { ptr.leave(seen) }
    }

    /// The bounds of the area at object `index`, if it is not busy.
    pub(crate) fn not_busy(&self, index: usize) -> Option<Span> {
        let ptr = self.ptr(index)?;
        // SAFETY: As above.
        if unsafe { ptr.what() } == Use::Busy {
            return None;
        }
        // SAFETY: As above.
        unsafe { ptr.bounds() }
    }

    /// Does nobody use any object?
    pub(crate) fn are_vacant(&self) -> bool {
        let count = self.chunks.iter().map(|chunk| chunk.len()).sum();
        (0..count).all(|index| match self.ptr(index) {
            // SAFETY: As above.
            Some(ptr) => unsafe { ptr.is_vacant() },
            None => false,
        })
    }
}
