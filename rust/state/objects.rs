// SPDX-License-Identifier: GPL-2.0

//! The area objects of a block, one for each slot.
//!
//! An object has the fields of `struct vmap_area` that C uses of an area of this allocator, without those that only the
//! rb-trees need. Objects are allocated with their block, in chunks of 2 KiB, one for each word of the bitmaps: fragmented
//! memory may have only single pages. They are freed with the block after an RCU grace period, unless one is in use, as the
//! token of an area may outlive the RCU read lock: then their memory leaks, with a report.

use super::prelude::*;

/// Bytes that C uses of a `struct vmap_area` of this allocator: what is in front of `rb_node`.
const OBJECT_SIZE: usize = 4 * size_of::<usize>();

const _: () = {
    assert!(offset_of!(bindings::vmap_area, va_start) < OBJECT_SIZE);
    assert!(offset_of!(bindings::vmap_area, va_end) < OBJECT_SIZE);
    assert!(offset_of!(bindings::vmap_area, flags) < OBJECT_SIZE);
    assert!(offset_of!(bindings::vmap_area, __bindgen_anon_1) < OBJECT_SIZE);
};

/// Objects side by side that share a pin, see [`crate::state::pins`], and their bytes.
const GROUP: usize = 32;
pub(super) const GROUP_SIZE: usize = GROUP * OBJECT_SIZE;

/// Memory for one object.
#[repr(C)]
struct Memory(UnsafeCell<[usize; 4]>);

/// Memory for a group of objects, aligned to its size.
#[cfg_attr(target_pointer_width = "64", repr(C, align(1024)))]
#[cfg_attr(target_pointer_width = "32", repr(C, align(512)))]
struct Group([Memory; GROUP]);

/// The objects of the bits of a word.
type Chunk = [Group; BITS / GROUP];

const _: () = assert!(size_of::<Group>() == GROUP_SIZE && align_of::<Group>() == GROUP_SIZE);

/// The objects of a block.
///
/// # Invariants
///
/// - Each pointer is to a chunk that `self` owns: the first `owned` to one of their own, the others to the first one. So
///   there is an object for each [`Bit`].
/// - The memory is zeroed at first, and only [`crate::state::area`] accesses it, as area objects.
/// - It is freed only if all objects are vacant, so it stays valid while `self` or the token of an area in it lives.
/// - Several CPUs access only atomics of an object, and `vm`. That is written only by the owner of the token, or by C for the
///   owner of an area that is busy and not published yet. While the area is busy, C only reads it, for the owner and for readers
///   that have it pinned: the token that may write it again exists when no such reader is left.
/// - Neither the chunks nor what `vm` refers to belong to a thread.
pub(super) struct Objects {
    chunks: [NonNull<Chunk>; WORDS],
    owned: usize,
}

// SAFETY: By the type invariants, CPUs share only atomics, and `vm`, which nobody writes while others read it.
unsafe impl Sync for Objects {}
// SAFETY: By the type invariants, nothing of it belongs to a thread.
unsafe impl Send for Objects {}

impl Objects {
    /// Allocates `count` unused objects, at most [`MAP_BITS`], on the node of the CPU on which this runs. Sleeps if
    /// `flags` allow it.
    pub(super) fn new(count: usize, flags: Flags) -> Result<Self> {
        let node = Node::here();
        let chunk = || -> Result<NonNull<Chunk>> {
            let group = || Group([const { Memory(UnsafeCell::new([0; 4])) }; GROUP]);
            let chunk = node.new_array(group, flags)?;
            // SAFETY: The pointer of a box is not null.
            Ok(unsafe { NonNull::new_unchecked(KBox::into_raw(chunk)) })
        };
        // INVARIANT: The chunk was just filled with zeros. All pointers are to it.
        let mut objects = Self {
            chunks: [chunk()?; WORDS],
            owned: 1,
        };
        for index in 1..count.div_ceil(BITS).min(WORDS) {
            // INVARIANT: The chunk was just filled with zeros.
            objects.chunks[index] = chunk()?;
            objects.owned = index.wrapping_add(1);
        }
        #[cfg(CONFIG_DEBUG_KMEMLEAK)]
        objects.limit_kmemleak(count, flags);
        Ok(objects)
    }

    /// Makes kmemleak look for references only in `vmap_area::vm` of each object: the start of an area would be a second
    /// reference to its memory, and `kmemleak_vmalloc()` takes memory with two references for memory in use.
    #[cfg(CONFIG_DEBUG_KMEMLEAK)]
    fn limit_kmemleak(&self, count: usize, flags: Flags) {
        for area in self.all().take(count).map(AreaPtr::as_raw) {
            // SAFETY: The field is inside an allocation.
            mm::scan_only(unsafe { &raw const (*area).__bindgen_anon_1.vm }, flags);
        }
    }

    /// Makes kmemleak look for the pointers to the chunks; see [`mm::scan_only`].
    #[cfg(CONFIG_DEBUG_KMEMLEAK)]
    pub(super) fn scan_pointers(&self, flags: Flags) {
        mm::scan_only(&raw const self.chunks, flags);
    }

    /// Returns the object of slot `slot`. It stays an area object as long as `self`, or the area.
    #[inline(always)]
    pub(super) fn of(&self, slot: Bit) -> AreaPtr {
        let chunk: NonNull<Memory> = self.chunks[slot.word()].cast();
        // SAFETY: By the type invariants, each pointer is to a chunk, which has an object for each bit of a word. The pointer to
        // one can be moved to the others, see `AreaPtr::next_in_group()`.
        let memory = unsafe { chunk.add(slot.in_word()) };
        // SAFETY: By the type invariants, it is an area object. It is not null.
        unsafe { AreaPtr::new(memory.as_ptr().cast()).unwrap_unchecked() }
    }

    /// Returns the bounds of the area in slot `slot` if it is not busy, and whether it is unlinked. If it is not, the bounds
    /// are those of the last user.
    pub(super) fn not_busy(&self, slot: Bit) -> Option<(Span, bool)> {
        // SAFETY: By the type invariants, it is an area object, and it lives as long as `self`.
        unsafe { self.of(slot).seen() }.not_busy()
    }

    #[inline(always)]
    pub(super) fn look(&self, slot: Bit) -> Option<Busy> {
        // SAFETY: By the type invariants, it is an area object, and it lives as long as `self`.
        unsafe { self.of(slot).look() }
    }

    fn all(&self) -> impl Iterator<Item = AreaPtr> + '_ {
        let count = self.owned.wrapping_mul(BITS);
        (0..count).map(|number| self.of(Bit::in_row(number)))
    }
}

impl AreaPtr {
    /// Returns the object behind this one if both are in one group.
    ///
    /// # Safety
    ///
    /// It is the object of a block whose objects are not freed during the call.
    pub(super) unsafe fn next_in_group(self) -> Option<Self> {
        let next = self.as_raw().cast::<Memory>().wrapping_add(1);
        if next.addr() % GROUP_SIZE == 0 {
            return None;
        }
        // SAFETY: By the safety requirements, it is in a group, which is aligned to its size: the next one is an object of the same
        // chunk, also if the block has no slot for it.
        unsafe { Self::new(next.cast()) }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, they are area objects that live as long as `self`.
        if self.all().any(|area| unsafe { !area.seen().is_vacant() }) {
            // INVARIANT: The memory is not freed.
            mm::refuse("a block is freed with areas in it", &[], &[]);
            return;
        }
        for chunk in self.chunks.iter().take(self.owned) {
            // SAFETY: By the type invariants, `self` owns the chunk, which came from a box, and no area uses it.
            drop(unsafe { KBox::from_raw(chunk.as_ptr()) });
        }
    }
}
