// SPDX-License-Identifier: GPL-2.0

//! The area objects of a block.
//!
//! An object has the fields of `struct vmap_area` that C uses of an area of this allocator, without those
//! that only the rb-trees need. Objects are allocated with their block and freed with it after an RCU
//! grace period, so an area in a block costs no allocation. They are allocated in chunks of [`CHUNK`].
//!
//! The owner of an area may keep its token longer than the RCU read lock under which it found the block. So
//! objects of which one is in use are never freed, even if their block is dropped: their memory leaks, with a report.

#[cfg(CONFIG_VMAP_RUST)]
use crate::sys::layout::{
    elements,
    small, //
};
use crate::{
    base::range::Span,
    state::area::{
        Area,
        AreaPtr,
        Leaving,
        New,
        Seen, //
    },
    sys::mm::{
        self,
        Node, //
    }, //
};
use core::{
    cell::UnsafeCell,
    mem::{
        self,
        offset_of, //
    }, //
};
use kernel::{
    alloc::Flags,
    bindings,
    prelude::*, //
};

/// Bytes that C uses of a `struct vmap_area` of this allocator: `VMAP_AREA_HEAD` of the C header.
pub(crate) const OBJECT_SIZE: usize = 4 * size_of::<usize>();

const _: () = {
    assert!(offset_of!(bindings::vmap_area, va_start) < OBJECT_SIZE);
    assert!(offset_of!(bindings::vmap_area, va_end) < OBJECT_SIZE);
    assert!(offset_of!(bindings::vmap_area, flags) < OBJECT_SIZE);
    assert!(offset_of!(bindings::vmap_area, __bindgen_anon_1) < OBJECT_SIZE);
};

/// Objects in a chunk: few enough that it fits in a page with the redzones of KASAN and SLUB, because
/// fragmented memory may have only single pages.
const CHUNK: usize = 64;

/// Chunks of a block whose smallest areas have two units.
const CHUNKS: usize = crate::base::bits::UNITS / 2 / CHUNK;

/// Memory for one object.
#[repr(C)]
struct Memory(UnsafeCell<[usize; 4]>);

// SAFETY: It only holds integers; `area` controls all accesses.
unsafe impl Sync for Memory {}
// SAFETY: It only holds integers; `area` controls all accesses.
unsafe impl Send for Memory {}

/// The objects of a block.
///
/// # Invariants
///
/// - The memory is zeroed at first, and only [`crate::state::area`] accesses it, as area objects.
/// - It is freed only if all objects are vacant, so it stays valid while `self` or the token of an area in it lives.
pub(crate) struct Objects {
    chunks: [KVec<Memory>; CHUNKS],
}

impl Objects {
    /// Describes area objects to debuggers. The objects of a block are `at` bytes behind what the directory points to.
    #[cfg(CONFIG_VMAP_RUST)]
    pub(super) const fn describe(info: &mut bindings::vmap_rust_debug_info, at: usize) {
        let chunks = offset_of!(Self, chunks) + elements::<Memory>();
        info.block_chunks = small(at + chunks);
        info.chunk_stride = small(size_of::<KVec<Memory>>());
        info.chunk_objects = small(CHUNK);
        info.object_size = small(OBJECT_SIZE);
    }

    /// Allocates `count` unused objects on the node of the CPU on which this runs. Sleeps if `flags` allow it.
    pub(crate) fn new(count: usize, flags: Flags) -> Result<Self> {
        let node = Node::here();
        let mut rest = count;
        let mut chunk = || -> Result<KVec<Memory>> {
            let count = rest.min(CHUNK);
            rest = rest.saturating_sub(count);
            let mut chunk = node.new_vec(count, flags)?;
            for _ in 0..count {
                chunk.push(Memory(UnsafeCell::new([0; 4])), flags)?;
            }
            Ok(chunk)
        };
        // INVARIANT: Each chunk was just filled with zeros.
        let objects = Self {
            chunks: [chunk()?, chunk()?, chunk()?, chunk()?],
        };
        #[cfg(CONFIG_DEBUG_KMEMLEAK)]
        objects.limit_kmemleak(flags);
        Ok(objects)
    }

    /// Makes kmemleak look for references only in `vmap_area::vm` of each object. The start of an area
    /// would be a second reference to its memory, besides `vm_struct::addr`, and `kmemleak_vmalloc()`
    /// takes memory with two references for memory in use.
    ///
    /// Without memory, kmemleak scans the whole chunk.
    #[cfg(CONFIG_DEBUG_KMEMLEAK)]
    fn limit_kmemleak(&self, flags: Flags) {
        for memory in self.chunks.iter().flat_map(|chunk| chunk.iter()) {
            let area: *mut bindings::vmap_area = memory.0.get().cast();
            // SAFETY: The field is inside an allocation. kmemleak only uses its address.
            unsafe {
                bindings::kmemleak_scan_area(
                    (&raw const (*area).__bindgen_anon_1.vm).cast(),
                    size_of::<*mut bindings::vm_struct>(),
                    flags.as_raw(),
                );
            }
        }
    }

    /// Returns the address of object `index`.
    fn ptr(&self, index: usize) -> Option<AreaPtr> {
        let memory = self.chunks.get(index / CHUNK)?.get(index % CHUNK)?;
        AreaPtr::new(memory.0.get().cast())
    }

    /// Takes object `index` if nobody uses it.
    pub(crate) fn occupy(&self, index: usize) -> Option<Area<New>> {
        // SAFETY: By the type invariants, the memory is an area object, zeroed at first, and stays valid as long
        // as the object is in use.
        unsafe { Area::occupy(self.ptr(index)?) }
    }

    /// Returns the area at object `index`, with its bounds and flags, if it is busy.
    #[inline(always)]
    pub(crate) fn look(&self, index: usize) -> Option<(AreaPtr, Seen)> {
        let ptr = self.ptr(index)?;
        // SAFETY: By the type invariants, the memory is an area object, and it lives as long as `self`.
        Some((ptr, unsafe { ptr.look() }?))
    }

    /// [`Objects::look`] for [`Objects::leave`]: until then, the bounds may be those of a newer user. Another CPU may
    /// have written the object last.
    #[inline(always)]
    pub(crate) fn look_to_leave(&self, index: usize) -> Option<(AreaPtr, Seen)> {
        let ptr = self.ptr(index)?;
        ptr.prefetch_for_write();
        // SAFETY: By the type invariants, the memory is an area object, and it lives as long as `self`.
        Some((ptr, unsafe { ptr.look_to_leave() }?))
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }

    /// Unlinks the busy area at object `index` if its user is still the one in `seen`.
    pub(crate) fn leave(&self, index: usize, seen: Seen) -> Option<Area<Leaving>> {
        let ptr = self.ptr(index)?;
        // SAFETY: By the type invariants, the memory is an area object, and it lives as long as `self` or the
        // token.
        unsafe { ptr.leave(seen) }
    }

    /// Returns the bounds of the area at object `index` if it is not busy, and whether it is unlinked. If it
    /// is not, the bounds are those of the last user.
    pub(crate) fn not_busy(&self, index: usize) -> Option<(Span, bool)> {
        let ptr = self.ptr(index)?;
        // SAFETY: By the type invariants, the memory is an area object, and it lives as long as `self`.
        unsafe { ptr.not_busy() }
    }

    /// Returns the number of objects in use.
    fn used(&self) -> usize {
        let objects = (0..self.len()).filter_map(|index| self.ptr(index));
        // SAFETY: By the type invariants, the memory is an area object, and it lives as long as `self`.
        objects.filter(|ptr| !unsafe { ptr.is_vacant() }).count()
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        let used = self.used();
        if used == 0 {
            return;
        }
        // INVARIANT: The memory is not freed.
        for chunk in &mut self.chunks {
            mem::forget(mem::replace(chunk, KVec::new()));
        }
        mm::refuse!("a block is freed with {} areas in it", used);
    }
}
