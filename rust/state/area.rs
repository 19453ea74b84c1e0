// SPDX-License-Identifier: GPL-2.0

//! An area is a reserved range of addresses, and has an object with its bounds and its state. The states are types
//! (typestates): code that reuses a range too early does not compile.
//!
//! An [`Area<S>`] is the token of an area in state `S`. An area changes its state only by a function that
//! takes the token of the old state and returns the token of the new one:
//!
//! ```text
//! New ------ entry inserted ---------> Reserved -- busy ---------------> (busy, no token)
//! (vacant) - slot claimed -----------> Reserved, or at once (busy)
//! (busy) --- leave ------------------> Leaving --- wait for readers ---> Unlinked
//! Unlinked - retire: unmapped -------> Lazy ------ TLB flush ----------> Flushed
//! Unlinked - vacate: unmapped -------> (vacant, and the slot is lazy; its vm_struct may stay)
//! Reserved - cancel: was never found > Flushed
//! Flushed -- erase the entry --------> New ------- freed
//! Flushed -- kept for a request -----> Reserved
//! all but New ------ dropped --------> (leaked: reserved for ever)
//! ```
//!
//! A busy area has no token: the index or the block has it, and C code uses it. The object itself stores
//! the state, in `vmap_area::flags`, so that a change of state does not change the index. A [`Lazy`] area
//! becomes [`Flushed`] only as part of a plan that is flushed ([`crate::state::flush`]). Only a [`Flushed`] area can be
//! erased: a range cannot be reused before the TLB flush.
//!
//! The object of a slot is part of its block ([`crate::state::objects`]), whose bitmaps record which slots are lazy and
//! which are free. [`Claimed`] begins its use, and [`Area::vacate`] ends it.
//!
//! The states are types. Those with one code differ only at compile time. `vmap_area::flags` has:
//!
//! | bits | |
//! |---|---|
//! | 0 to 15 | belong to C |
//! | 16 to 18 | state: a [`State::CODE`], or one of the codes without a token |
//! | 19 | the object is part of a block |
//! | from 20 on | generation: counts the users of the object, and wraps around |
//!
//! C header: [`include/linux/vmalloc.h`](srctree/include/linux/vmalloc.h)

use super::prelude::*;

/// The state of an area.
pub(crate) trait State {
    /// Value in `vmap_area::flags`.
    const CODE: usize;
    /// Whether the range of the area is reserved in the tree.
    const RESERVED: bool;
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $code:literal, reserved: $reserved:literal;)*) => {$(
        $(#[$doc])*
        // A name only: it has no values.
        pub(crate) enum $name {}
        impl State for $name {
            const CODE: usize = $code;
            const RESERVED: bool = $reserved;
        }
    )*};
}

states! {
    /// An object without a range.
    New = 2, reserved: false;
    /// The range is reserved: the area can be made busy.
    Reserved = 2, reserved: true;
    /// New lookups do not find it; earlier readers may still have it pinned.
    Leaving = 3, reserved: true;
    /// Out of use, perhaps still mapped.
    Unlinked = 3, reserved: true;
    /// Unmapped, perhaps still in some TLB.
    Lazy = 4, reserved: true;
    /// In no TLB. Only [`Area::cancel`] and [`Area::keep`] store the code: what a purge has flushed keeps that of [`Lazy`].
    Flushed = 5, reserved: true;
}

/// `vmap_area::flags`: the low bits belong to C.
pub(super) const C_MASK: usize = (1 << STATE_SHIFT) - 1;
/// `vmap_area::flags`: the state is above the bits of C.
pub(super) const STATE_SHIFT: u32 = 16;
pub(super) const STATE_MASK: usize = 0x7 << STATE_SHIFT;
/// `vmap_area::flags`: the object is part of a block, not of the slab cache of area objects.
pub(super) const IN_BLOCK: usize = 1 << 19;
/// `vmap_area::flags`: the bits from this one on count the users of the object. The count wraps around.
pub(super) const GENERATION: usize = 1 << 20;

pub(super) const fn code_of(flags: usize) -> usize {
    (flags & STATE_MASK) >> STATE_SHIFT
}

/// [`State::CODE`] of an unused object of a block. Zeroed memory has this code.
pub(super) const VACANT_CODE: usize = 0;
/// [`State::CODE`] of a busy area.
pub(super) const BUSY_CODE: usize = 1;
/// [`State::CODE`] of an area whose token was dropped.
pub(super) const LEAKED_CODE: usize = 7;

/// The fields of an area that C sets in its request. They are moved to the area, so only one area gets them.
///
/// # Invariants
///
/// `vm` is null, or came from kmalloc(), and is the area's: nobody else uses it until the area is busy, or frees it unless C has
/// taken it out of the unlinked area.
pub(crate) struct Attributes {
    flags: usize,
    vm: *mut bindings::vm_struct,
}

impl Attributes {
    /// No flags, no `vm_struct`.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) const NONE: Self = Self {
        flags: 0,
        vm: ptr::null_mut(),
    };

    /// # Safety
    ///
    /// Those of the invariants.
    pub(crate) unsafe fn new(flags: usize, vm: *mut bindings::vm_struct) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            flags: flags & C_MASK,
            vm,
        }
    }
}

/// A `vm_struct` has room for a pointer to each page of its area, up to this size: `VM_INLINE_PAGES_MAX` of mm/vmalloc.c.
const INLINE_SIZE: usize = 16 * PAGE_SIZE;

/// What C sets in a `vm_struct`, besides its address and its size.
#[derive(Clone, Copy)]
pub(crate) struct VmFields {
    pub(crate) flags: usize,
    pub(crate) caller: *const c_void,
    pub(crate) requested_size: usize,
}

/// An area in state `S`.
///
/// # Invariants
///
/// - `ptr` points to an area object that only the owner of the token changes.
/// - The object stays valid as long as the token, also without an RCU read lock: an object of the slab cache is freed with
///   its token, and one of a block is not freed while it is in use ([`Objects`](crate::state::objects::Objects)).
/// - Lockless readers read only the fields that [`AreaPtr::look`] reads, in any state; pinned readers
///   read all fields if `S` is [`Leaving`].
/// - If `S::RESERVED`, exactly its range is reserved for it: by an entry of the index that is this object, or
///   it is in the slot of the object. Otherwise, no entry of the index is this object.
#[must_use = "dropping an area leaks its range"]
pub(crate) struct Area<S: State> {
    ptr: AreaPtr,
    _state: PhantomData<S>,
}

// SAFETY: By the type invariants, the owner of the token owns the object.
unsafe impl<S: State> Send for Area<S> {}

impl<S: State> Area<S> {
    /// Creates the token for the area at `ptr`. The caller argues that the type invariants hold.
    fn from_ptr(ptr: AreaPtr) -> Self {
        Self {
            ptr,
            _state: PhantomData,
        }
    }

    /// Takes back the token of the area at `ptr`.
    ///
    /// # Safety
    ///
    /// It was given up by [`Area::into_ptr`] in state `S`, and only this caller takes it back.
    pub(super) unsafe fn take_back(ptr: AreaPtr) -> Self {
        // INVARIANT: By the safety requirements, nobody else has the token, and the state is still `S`.
        Self::from_ptr(ptr)
    }

    fn fields(&self) -> Fields<'_> {
        // SAFETY: By the type invariants, `ptr` points to an area object.
        unsafe { self.ptr.fields() }
    }

    /// Stores the code of the state.
    fn set_code(&self, code: usize) {
        let flags = self.fields().flags;
        // Relaxed: readers use only busy areas, and no caller stores the busy code. A load and a store
        // are enough because only the owner writes.
        let others = flags.read_once() & !STATE_MASK;
        flags.write_once(others | (code << STATE_SHIFT));
    }

    /// Changes the state to `T`, for which the caller argues that the type invariants hold.
    fn into_state<T: State>(self) -> Area<T> {
        self.set_code(T::CODE);
        Area::from_ptr(self.into_ptr())
    }

    /// Begins with the next user of the object, at `span`, for which the caller argues that the type invariants hold.
    fn reserved(self, span: Span) -> Area<Reserved> {
        let flags = self.fields().flags;
        // Relaxed: only the owner of the token writes them.
        let old = flags.read_once();
        // SAFETY: By the type invariants, only the owner of the token changes the object, which is not busy.
        let new = unsafe { self.ptr.set_bounds(span, old) };
        // Relaxed: `publish()` orders it.
        flags.write_once(new | Reserved::CODE << STATE_SHIFT);
        Area::from_ptr(self.into_ptr())
    }

    pub(crate) fn ptr(&self) -> AreaPtr {
        self.ptr
    }

    /// Gives up the token: the index or C code owns the area from now on.
    pub(crate) fn into_ptr(self) -> AreaPtr {
        ManuallyDrop::new(self).ptr
    }

    /// Returns whether the object is part of a block.
    pub(crate) fn is_in_block(&self) -> bool {
        // Relaxed: it never changes.
        self.fields().flags.read_once() & IN_BLOCK != 0
    }

    /// Returns the addresses of the area.
    pub(crate) fn span(&self) -> Option<Span> {
        let fields = self.fields();
        // Relaxed: only the owner writes them.
        Span::from_bounds(fields.start.read_once(), fields.end.read_once())
    }

    /// Returns the size in pages, guard page included.
    pub(crate) fn pages(&self) -> usize {
        self.span().map_or(0, Span::size) / PAGE_SIZE
    }

    /// Sets `vmap_area::vm`, which links lists of areas that have no `vm_struct`.
    pub(super) fn set_vm(&self, vm: *mut bindings::vm_struct) {
        // SAFETY: By the type invariants, only the owner of the token changes the object, and nobody
        // reads this field of an area that is neither busy nor pinned.
        unsafe { (*self.ptr.as_raw()).__bindgen_anon_1.vm = vm };
    }
}

impl<S: State> Drop for Area<S> {
    fn drop(&mut self) {
        if S::RESERVED {
            // INVARIANT: The token ends here, and nobody else changes the object. Of the states whose range is reserved,
            // this one claims least: readers may still have the area pinned.
            leak(Area::from_ptr(self.ptr), S::CODE);
        } else {
            // SAFETY: By the type invariants, nobody else changes the object, and it is in no entry of the
            // index. Lockless readers find it not busy, and the slab cache is type-safe by RCU, so the
            // memory remains an area object while they read it.
            unsafe { bindings::vmap_area_cache_free(self.ptr.as_raw()) };
        }
    }
}

/// Leaks an area whose token was dropped in the state with code `code`. One copy serves all states.
#[cold]
#[inline(never)]
fn leak(area: Area<Leaving>, code: usize) {
    let area = ManuallyDrop::new(area);
    // The range stays reserved: a leak is safe, reuse would not be.
    area.set_code(LEAKED_CODE);
    let start = area.span().map_or(0, Span::first);
    mm::refuse("an area was leaked", &[start], &[code]);
}

impl Area<New> {
    /// Allocates an area object. Sleeps if `gfp` allows it.
    pub(crate) fn alloc(gfp: mm::Gfp, node: i32) -> Option<Self> {
        // SAFETY: The only requirement is the context, which `gfp` describes.
        let raw = unsafe { bindings::vmap_area_cache_alloc(gfp.as_raw(), node) };
        // SAFETY: It is null, or the slab cache gave an area object.
        let ptr = unsafe { AreaPtr::new(raw) }?;
        // INVARIANT: The slab cache gave the object to this caller only. No range is reserved for it.
        let area = Self::from_ptr(ptr);
        let flags = area.fields().flags;
        // Keep the generation: readers may still look at the memory's previous user, whose writes the slab cache orders before.
        // That of new memory may be any.
        let generation = flags.read_once() & !(GENERATION - 1);
        // Relaxed: readers use only busy areas.
        flags.write_once(generation | (New::CODE << STATE_SHIFT));
        Some(area)
    }
}

impl AreaPtr {
    /// Writes the bounds of the next user of the object. Returns the flags of that user, without a state.
    ///
    /// # Safety
    ///
    /// The memory is an area object that only the caller changes, and that is not busy.
    #[inline(always)]
    unsafe fn set_bounds(self, span: Span, old: usize) -> usize {
        // SAFETY: By the safety requirements.
        let fields = unsafe { self.fields() };
        // Relaxed: the store of the busy flags publishes them; for readers of the previous user see `look()`.
        fields.start.write_once(span.first());
        fields.end.write_once(span.end());
        (old & !(C_MASK | STATE_MASK)).wrapping_add(GENERATION)
    }

    /// Makes the object busy, with the attributes of a request: lookups that find it accept it from now on. `flags` are those
    /// of its user, without a state.
    ///
    /// # Safety
    ///
    /// - The memory is an area object that only the caller changes, and that is not busy.
    /// - Its bounds are `span`, which is reserved for it until the area is unlinked and its range is free.
    #[inline(always)]
    unsafe fn publish(self, span: Span, attributes: Attributes, flags: usize) -> Busy {
        let vm = attributes.vm;
        // SAFETY: By the safety requirements, only the caller changes the object, and nobody reads this field of an area
        // that is not busy.
        unsafe { (*self.as_raw()).__bindgen_anon_1.vm = vm };
        if !vm.is_null() {
            // SAFETY: By the invariants of `Attributes`, it is valid and nobody uses it yet.
            unsafe {
                (*vm).addr = ptr::with_exposed_provenance_mut(span.first());
                (*vm).size = span.size();
            }
        }
        // SAFETY: By the safety requirements.
        let fields = unsafe { self.fields() };
        let busy = flags | attributes.flags | BUSY_CODE << STATE_SHIFT;
        // Release: a reader that sees the busy flags sees the bounds, and what C has stored.
        fields.flags.store(busy, Release);
        Busy::new(self, span, busy)
    }
}

impl Claimed<'_> {
    /// Returns the slot and the flags of its object, which is vacant. If somebody uses the object, two areas have the slot: it
    /// stays claimed then, as a leak is safe and reuse would not be.
    #[inline(always)]
    fn vacant(self) -> Option<(Self, usize)> {
        // SAFETY: By the invariants of `Objects`, it is the object of the slot, as long as the block, and as the area in it.
        let fields = unsafe { self.object().0.fields() };
        // Relaxed: the acquire of the claim orders it after `vacate()` of the last user.
        let old = fields.flags.read_once();
        if code_of(old) != VACANT_CODE {
            self.leak();
            return None;
        }
        Some((self, old))
    }

    /// Takes the object of the slot, frees the `vm_struct` that has stayed there, and writes the bounds of the area. Returns the
    /// object with its span, and the flags of the new user without a state.
    #[inline(always)]
    fn take_object(self) -> Option<(AreaPtr, Span, usize)> {
        let (slot, old) = self.vacant()?;
        let (ptr, span) = slot.object();
        core::mem::forget(slot);
        // SAFETY: The owner of a claimed slot owns its vacant object.
        let flags = unsafe {
            ptr.free_vm();
            ptr.set_bounds(span, old | IN_BLOCK)
        };
        Some((ptr, span, flags))
    }

    /// Makes the object of the slot a busy area, with the `vm_struct` that has stayed. [`None`] if there is none, or if it may have
    /// room for fewer pages: the slot is free again.
    #[inline(always)]
    pub(crate) fn reuse(self, new: VmFields) -> Option<Busy> {
        let (slot, old) = self.vacant()?;
        let (ptr, span) = slot.object();
        // SAFETY: The owner of a claimed slot owns its vacant object.
        let vm = unsafe { ptr.vm() };
        // SAFETY: By the invariants of `Objects`, it is null or valid, and nobody else uses it.
        if vm.is_null() || unsafe { (*vm).size } < span.size().min(INLINE_SIZE) {
            return None;
        }
        core::mem::forget(slot);
        // SAFETY: As above. All fields may be zero. The slot was claimed for the area: it is free only after the area was
        // unlinked and flushed.
        unsafe {
            vm.write_bytes(0, 1);
            (*vm).flags = new.flags;
            (*vm).caller = new.caller;
            (*vm).requested_size = new.requested_size;
            let flags = ptr.set_bounds(span, old | IN_BLOCK);
            Some(ptr.publish(span, Attributes { flags: 0, vm }, flags))
        }
    }

    /// Makes the object of the slot a busy area.
    #[inline(always)]
    pub(crate) fn occupy(self, attributes: Attributes) -> Option<Busy> {
        let (ptr, span, flags) = self.take_object()?;
        // SAFETY: Nobody else changes the object, whose bounds were just set. The slot was claimed for the area: it is free
        // only after the area was unlinked and flushed.
        Some(unsafe { ptr.publish(span, attributes, flags) })
    }

    /// Makes the object of the slot a reserved area, which nobody finds until it is busy.
    pub(crate) fn reserve(self) -> Option<Area<Reserved>> {
        let (ptr, _, flags) = self.take_object()?;
        // SAFETY: As in `take_object()`.
        let fields = unsafe { ptr.fields() };
        // Relaxed: `publish()` orders it.
        let flags = flags | Reserved::CODE << STATE_SHIFT;
        fields.flags.write_once(flags);
        // INVARIANT: The object was vacant, so it had no token. The slot was claimed for the area.
        Some(Area::from_ptr(ptr))
    }
}

impl Area<New> {
    /// Goes on with an area that was inserted in the index at `span`.
    ///
    /// # Safety
    ///
    /// The object is the entry of exactly `span`, until an owner of the token erases it.
    pub(super) unsafe fn inserted(self, span: Span) -> Area<Reserved> {
        // INVARIANT: By the safety requirements, the range is reserved.
        self.reserved(span)
    }
}

impl Area<Reserved> {
    /// Makes the area busy, with these attributes: lookups that find its object accept it from now on. They find it in the
    /// index or in its block, because its range stays reserved as long as it is busy.
    pub(crate) fn busy(self, attributes: Attributes) -> Option<Busy> {
        let span = self.span()?;
        // Relaxed: only the owner of the token writes them.
        let flags = self.fields().flags.read_once() & !STATE_MASK;
        // SAFETY: By the type invariants, only the owner of the token changes the object, which is not busy, and exactly its
        // range is reserved for it.
        Some(unsafe { self.into_ptr().publish(span, attributes, flags) })
    }

    /// Goes on with an area that nobody has found: its request fails.
    pub(crate) fn cancel(self) -> Area<Flushed> {
        // INVARIANT: The range stays reserved, and no TLB can hold a page that was never mapped.
        self.into_state()
    }
}

impl Busy {
    /// Unlinks the area if it is still busy, with the same user.
    ///
    /// # Safety
    ///
    /// As [`AreaPtr::look`].
    pub(super) unsafe fn leave(self) -> Option<Area<Leaving>> {
        // SAFETY: By the safety requirements.
        let fields = unsafe { self.area().fields() };
        let left = (self.flags() & !STATE_MASK) | (Leaving::CODE << STATE_SHIFT);
        // Full: pairs with the read barrier in `look()` and with the readers of `pins`.
        fields.flags.cmpxchg(self.flags(), left, Full).ok()?;
        // INVARIANT: A busy area has no token, and only this exchange from busy creates one.
        Some(Area::from_ptr(self.area()))
    }
}

impl Area<Leaving> {
    /// Ends the wait for readers: no reader has the area pinned any more.
    ///
    /// # Safety
    ///
    /// All readers that had pinned the area have unpinned it since it was unlinked.
    pub(super) unsafe fn left(self) -> Area<Unlinked> {
        // INVARIANT: By the safety requirements, no pinned reader is left. Both states have one code.
        Area::from_ptr(self.into_ptr())
    }
}

impl Area<Unlinked> {
    /// Takes back an area from C code; [`None`] if the area is not unlinked.
    ///
    /// # Safety
    ///
    /// `ptr` came from [`Area::into_ptr`] of an unlinked area, and nobody uses it any more. A second
    /// return of an area is detected as long as its object was not freed.
    pub(crate) unsafe fn from_c(ptr: AreaPtr) -> Option<Self> {
        // SAFETY: By the safety requirements, the object is valid.
        let flags = unsafe { ptr.fields() }.flags;
        // Relaxed: only its owner changes it.
        if code_of(flags.read_once()) != Unlinked::CODE {
            return None;
        }
        // INVARIANT: By the safety requirements, nobody else uses the object, and its state is unlinked.
        Some(Self::from_ptr(ptr))
    }

    /// Marks the area as unmapped but not flushed. Frees its `vm_struct`, which has no slot to stay with.
    pub(crate) fn retire(self) -> Area<Lazy> {
        // SAFETY: By the type invariants, only the owner of the token uses the object. By those of `Attributes`, the `vm_struct` is
        // the area's.
        unsafe { self.ptr.free_vm() };
        // INVARIANT: The range stays reserved, which is all that `Lazy` requires.
        self.into_state()
    }

    /// Gives the object back to its block. The bitmaps of the block keep the range reserved. The caller sets a bit with
    /// release semantics afterwards. The `vm_struct` stays with the slot.
    #[inline(always)]
    pub(super) fn vacate(self) {
        // C does not ask for reuse, and KASAN reports who uses the `vm_struct` after this only if that is freed.
        if cfg!(CONFIG_KASAN_VMALLOC) {
            // SAFETY: As in `retire()`.
            unsafe { self.ptr.free_vm() };
        }
        self.set_code(VACANT_CODE);
        core::mem::forget(self);
    }
}

impl Area<Flushed> {
    /// Notes that the area waits for a request.
    pub(crate) fn keep(self) -> Self {
        self.into_state()
    }

    /// Reserves the range for another user of the object, which stays the entry of the range.
    pub(crate) fn reserve_again(self) -> Option<Area<Reserved>> {
        let span = self.span()?;
        // INVARIANT: The range stays reserved, and no TLB has a translation of an address in it.
        Some(self.reserved(span))
    }

    /// Turns the area into an object without a range.
    ///
    /// # Safety
    ///
    /// Its entry is no longer in the tree.
    pub(super) unsafe fn erased(self) -> Area<New> {
        // INVARIANT: By the safety requirements, no range is reserved.
        self.into_state()
    }
}
