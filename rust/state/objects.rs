// SPDX-License-Identifier: GPL-2.0

//! An area object is what C has as `struct vmap_area`: where an area is, and in which state. Here is what code without a token
//! sees of one, its address, and its bounds and state at some time; and the memory of those of a block, one for each slot.
//!
//! The memory of an object remains an area object until an RCU grace period has passed, so a reader may
//! read the object that it has found. [`AreaPtr::look`] detects a change of user: the flags hold a
//! generation that each new user increments. The owner of the token writes the bounds before it marks the
//! area busy. It marks the area not busy before it changes the bounds ([`crate::state::area`]).
//!
//! An object of a block has the fields of `struct vmap_area` that C uses of an area of this allocator, without those that only
//! the rb-trees need. Objects are allocated with their block, in chunks of 2 KiB, one for each word of the bitmaps: fragmented
//! memory may have only single pages. They are freed with the block after an RCU grace period, unless one is in use, as the
//! token of an area may outlive the RCU read lock: then their memory leaks, with a report.
//!
//! A vacant object may have the `vm_struct` of the last area in its slot. It is for [`Claimed::reuse`]; others who use the
//! slot free it, and so does the end of the block.

use super::prelude::*;
use kernel::sync::barrier;

/// The address of an area object, without the right to access it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaPtr(NonNull<bindings::vmap_area>);

// SAFETY: It is only an address; tokens and locks guard the object.
unsafe impl Send for AreaPtr {}
// SAFETY: As above; a reference to it allows no more than a copy.
unsafe impl Sync for AreaPtr {}

/// An area as it was seen busy. It may be out of use by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    area: AreaPtr,
    span: Span,
    /// State and generation: equal flags mean the same user.
    flags: usize,
}

impl Busy {
    #[inline(always)]
    pub(super) fn new(area: AreaPtr, span: Span, flags: usize) -> Self {
        Self { area, span, flags }
    }

    #[inline(always)]
    pub(crate) fn area(self) -> AreaPtr {
        self.area
    }

    pub(crate) fn span(self) -> Span {
        self.span
    }

    pub(super) fn flags(self) -> usize {
        self.flags
    }

    pub(crate) fn contains(self, addr: usize) -> bool {
        self.span.contains(addr)
    }

    /// Returns whether the area is still busy, with the same user.
    ///
    /// # Safety
    ///
    /// As [`AreaPtr::look`].
    pub(super) unsafe fn is_still_busy(self) -> bool {
        // SAFETY: By the safety requirements.
        // Acquire: as in `look_to_leave()`, if the generation has wrapped around.
        unsafe { self.area.fields() }.flags.load(Acquire) == self.flags
    }
}

/// The fields of an area object that readers may read while the owner writes them.
pub(super) struct Fields<'a> {
    pub(super) start: &'a Atomic<usize>,
    pub(super) end: &'a Atomic<usize>,
    pub(super) flags: &'a Atomic<usize>,
}

impl AreaPtr {
    /// Wraps a pointer; [`None`] if it is null.
    ///
    /// # Safety
    ///
    /// If it is not null, it points to an area object.
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: *mut bindings::vmap_area) -> Option<Self> {
        NonNull::new(ptr).map(Self)
    }

    pub(crate) fn as_raw(self) -> *mut bindings::vmap_area {
        self.0.as_ptr()
    }

    /// Fetches the cache line of the object for a write that follows soon, not once for a read and once more for the write.
    #[inline(always)]
    pub(crate) fn prefetch_for_write(self) {
        mm::prefetch_for_write(self.as_raw());
    }

    /// Returns `vmap_area::vm`.
    ///
    /// # Safety
    ///
    /// The memory is an area object, and nobody writes the field during the call.
    #[inline(always)]
    pub(super) unsafe fn vm(self) -> *mut bindings::vm_struct {
        // SAFETY: By the safety requirements. An area has this field of the union.
        unsafe { (*self.as_raw()).__bindgen_anon_1.vm }
    }

    /// Frees `vmap_area::vm` if it is not null, and makes it that.
    ///
    /// # Safety
    ///
    /// The memory is an area object that only the caller uses. The field is null, or came from kmalloc(), and is not used again.
    #[inline(always)]
    pub(super) unsafe fn free_vm(self) {
        // SAFETY: By the safety requirements.
        let vm = unsafe { self.vm() };
        if !vm.is_null() {
            // SAFETY: By the safety requirements.
            unsafe {
                bindings::kfree(vm.cast());
                (*self.as_raw()).__bindgen_anon_1.vm = ptr::null_mut();
            }
        }
    }

    /// Returns the shared fields.
    ///
    /// # Safety
    ///
    /// The memory is an area object as long as the references are used; its user may change.
    pub(super) unsafe fn fields<'a>(self) -> Fields<'a> {
        let area = self.as_raw();
        // SAFETY: By the safety requirements. Rust accesses these fields only here. C reads them only
        // of an area that it owns or has pinned. Nobody writes them then, except the flags of a pinned area, which its unlink
        // exchanges before it waits: C reads them with READ_ONCE().
        unsafe {
            Fields {
                start: Atomic::from_ptr(&raw mut (*area).va_start),
                end: Atomic::from_ptr(&raw mut (*area).va_end),
                flags: Atomic::from_ptr(&raw mut (*area).flags),
            }
        }
    }

    /// Returns the bounds and flags of the area if it is busy.
    ///
    /// # Safety
    ///
    /// The memory is an area object during the call: the caller has held an RCU read lock since before
    /// it found the object in an index, or the object cannot leave the index.
    #[inline(always)]
    pub(crate) unsafe fn look(self) -> Option<Busy> {
        // SAFETY: By the safety requirements.
        let seen = unsafe { self.look_to_leave() }?;
        // If the bounds are newer, the flags read next are newer, too: `leave()` changed the flags, with
        // a full barrier, before the next user wrote the bounds.
        barrier::smp_mb(barrier::Read);
        // SAFETY: By the safety requirements.
        let flags = unsafe { self.fields() }.flags.read_once();
        (flags == seen.flags).then_some(seen)
    }

    /// [`AreaPtr::look`] for [`Busy::leave`], which compares the flags again: until then, the bounds may be those of
    /// a newer user.
    ///
    /// # Safety
    ///
    /// As [`AreaPtr::look`].
    #[inline(always)]
    pub(super) unsafe fn look_to_leave(self) -> Option<Busy> {
        // SAFETY: By the safety requirements.
        let fields = unsafe { self.fields() };
        // Acquire: pairs with the release in `publish()`. The bounds are those of this user or newer.
        let flags = fields.flags.load(Acquire);
        if code_of(flags) != BUSY_CODE {
            return None;
        }
        let span = Span::from_bounds(fields.start.read_once(), fields.end.read_once())?;
        Some(Busy::new(self, span, flags))
    }

    /// Returns the state of the area whose entry is at `span`, at some time during the call.
    ///
    /// # Safety
    ///
    /// As [`AreaPtr::look`].
    pub(crate) unsafe fn stage(self, span: Span) -> Stage {
        // SAFETY: By the safety requirements.
        let seen = unsafe { self.seen() };
        match code_of(seen.flags) {
            // The object may have another user by now.
            _ if seen.span() != Some(span) => Stage::Changing,
            BUSY_CODE => Stage::Busy,
            Unlinked::CODE => Stage::Unlinked,
            Lazy::CODE => Stage::Lazy,
            Flushed::CODE => Stage::Flushed,
            LEAKED_CODE => Stage::Leaked,
            _ => Stage::Changing,
        }
    }

    /// Returns what the object says, in any state.
    ///
    /// # Safety
    ///
    /// As [`AreaPtr::look`].
    pub(crate) unsafe fn seen(self) -> Seen {
        // SAFETY: By the safety requirements.
        let fields = unsafe { self.fields() };
        // Relaxed: orders nothing; the caller has its own ordering.
        Seen {
            flags: fields.flags.read_once(),
            start: fields.start.read_once(),
            end: fields.end.read_once(),
        }
    }
}

/// The fields of an area object at some time. They may be those of several users of the object.
pub(crate) struct Seen {
    pub(crate) flags: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Seen {
    pub(crate) fn span(&self) -> Option<Span> {
        Span::from_bounds(self.start, self.end)
    }

    /// Returns whether the object is part of a block.
    pub(crate) fn is_in_block(&self) -> bool {
        self.flags & IN_BLOCK != 0
    }
}

/// The state of an area with an entry of its own, as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Reserved for a request that has not made it busy yet, or about to be erased.
    Changing,
    Busy,
    /// Out of use, perhaps still mapped.
    Unlinked,
    /// Waits for a purge, or was flushed and is about to be erased.
    Lazy,
    /// Is kept, or was, and is about to be erased; or its request has failed, so that it was never busy.
    Flushed,
    /// Lost by a bug, and reserved for ever.
    Leaked,
}

impl Stage {
    /// Returns whether the area is out of use and waits for a purge, was flushed and not kept, or is lost.
    pub(crate) fn is_unpurged(self) -> bool {
        matches!(self, Self::Unlinked | Self::Lazy | Self::Leaked)
    }

    /// Returns the word for the state in the list.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Changing => "changing",
            Self::Busy => "busy",
            Self::Unlinked => "leaving",
            Self::Lazy => "lazy",
            Self::Flushed => "flushed",
            Self::Leaked => "leaked",
        }
    }
}

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
/// - The memory is zeroed at first, and only [`AreaPtr`], tokens and lists of areas access it, as area objects.
/// - It is freed only if all objects are vacant, so it stays valid while `self` or the token of an area in it lives.
/// - Several CPUs access only atomics of an object, and `vm`. That is written only by the owner of the token, or by C for the
///   owner of an area that is busy and not published yet. While the area is busy, C only reads it, for the owner and for readers
///   that have it pinned: the token that may write it again exists when no such reader is left.
/// - `vm` of a vacant object is null, or it came from kmalloc(), and nobody else uses it.
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
        // SAFETY: By the type invariants, each pointer is to a chunk, which has an object for each bit of a word. The pointer
        // to one can be moved to the others, see `AreaPtr::next_in_group()`.
        let memory = unsafe { chunk.add(slot.in_word()) };
        // SAFETY: By the type invariants, it is an area object. It is not null.
        unsafe { AreaPtr::new(memory.as_ptr().cast()).unwrap_unchecked() }
    }

    /// Returns the bounds of the area in slot `slot` if it is not busy, and whether it is unlinked. If it is not, it is about
    /// to be busy, or nobody uses the object, and the bounds are those of its last user.
    pub(super) fn not_busy(&self, slot: Bit) -> Option<(Span, bool)> {
        // SAFETY: By the type invariants, it is an area object, and it lives as long as `self`.
        let seen = unsafe { self.of(slot).seen() };
        match code_of(seen.flags) {
            BUSY_CODE => None,
            code => Some((seen.span()?, matches!(code, Unlinked::CODE | LEAKED_CODE))),
        }
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
        // SAFETY: By the safety requirements, it is in a group, which is aligned to its size: the next one is an object of the
        // same chunk, also if the block has no slot for it.
        unsafe { Self::new(next.cast()) }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        let mut is_used = false;
        for area in self.all() {
            // SAFETY: By the type invariants, it is an area object that lives as long as `self`. If it is vacant, nobody else
            // uses its `vm`, or will: nobody claims a slot any more.
            unsafe {
                if code_of(area.seen().flags) == VACANT_CODE {
                    area.free_vm();
                } else {
                    is_used = true;
                }
            }
        }
        if is_used {
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
