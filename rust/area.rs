// SPDX-License-Identifier: GPL-2.0

//! The area object, and tokens that say in which state it is.
//!
//! An area goes through these states, and the only ways from one to the next are functions that
//! take the token of the one and give the token of the other:
//!
//! ```text
//! New --prepare--> Ready --busy--> (busy) --leave--> Leaving --wait for readers--> Unlinked
//!                    ^                                                                |
//!                    |                                      retire: Lazy <------------+---> release
//!                    |                                                |                        |
//!                    |                                      flush:    v                        v
//!                 prepare <----------- Cached <-----cache---------- Flushed <------------------+
//!                                         |                           |
//!                                         +---------- erase ----------+----> New --> freed
//! ```
//!
//! A busy area has no token: the index owns it, and C code uses it. The state is in the object
//! itself, in `vmap_area::flags`, so that going from one to the next changes no index. A [`Lazy`] area
//! becomes [`Flushed`] only with the [`Flush`] that says so, and only a [`Flushed`] or [`Cached`] one
//! can be handed out again or erased: what is not flushed cannot be reused.
//!
//! The objects of small areas are part of a block ([`crate::objects`]), whose bitmaps say what is lazy
//! and what is free; there an area ends with [`Area::vacate`].
//!
//! # Reading without a lock
//!
//! The memory of an object stays one of an area object until a grace period of RCU is over, so a
//! reader may look into what it has found ([`AreaPtr::look`]), and finds out whether that was busy
//! all the while: the flags hold a generation that each new user increments. The owner writes the
//! bounds before the flags say busy, and the flags say that it is not before the bounds change.
//!
//! C header: [`include/linux/vmalloc.h`](srctree/include/linux/vmalloc.h)

use crate::{
    flush::Flush,
    mm,
    range::Span, //
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        barrier, //
    }, //
};

/// Where an area is, without the right to look into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaPtr(NonNull<bindings::vmap_area>);

// SAFETY: An address; what is behind it is guarded by tokens and locks.
unsafe impl Send for AreaPtr {}

/// What a busy area was seen to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    span: Span,
    /// State and generation: the same flags, the same user.
    flags: usize,
}

impl Seen {
    /// The addresses of the area.
    pub(crate) fn span(self) -> Span {
        self.span
    }

    /// Is `addr` in the area?
    pub(crate) fn contains(self, addr: usize) -> bool {
        self.span.contains(addr)
    }
}

/// The fields of an area object that others may read while its owner writes them.
struct Fields<'a> {
    start: &'a Atomic<usize>,
    end: &'a Atomic<usize>,
    flags: &'a Atomic<usize>,
}

impl AreaPtr {
    /// From a pointer; [`None`] if it is null.
    pub(crate) fn new(ptr: *mut bindings::vmap_area) -> Option<Self> {
        NonNull::new(ptr).map(Self)
    }

    /// The pointer for C.
    pub(crate) fn as_raw(self) -> *mut bindings::vmap_area {
        self.0.as_ptr()
    }

    /// The fields that are shared.
    ///
    /// # Safety
    ///
    /// The memory is one of an area object as long as the references are used, although perhaps not
    /// always of the same area.
    unsafe fn fields<'a>(self) -> Fields<'a> {
        let area = self.as_raw();
        // SAFETY: By the safety requirements. These fields are accessed only here, and by C, which
        // reads them when it owns or has pinned the area: then nobody writes them.
        unsafe {
            Fields {
                start: Atomic::from_ptr(&raw mut (*area).va_start),
                end: Atomic::from_ptr(&raw mut (*area).va_end),
                flags: Atomic::from_ptr(&raw mut (*area).flags),
            }
        }
    }

    /// What the area is, if it is busy.
    ///
    /// # Safety
    ///
    /// The memory is one of an area object during the call: an RCU read lock is held since it was
    /// found in an index, or the index cannot lose it.
    pub(crate) unsafe fn look(self) -> Option<Seen> {
        // SAFETY: By the safety requirements.
        let fields = unsafe { self.fields() };
        // Acquire: with the release in `Area::busy()`, the bounds are those of this user, or newer.
        let flags = fields.flags.load(Acquire);
        if code_of(flags) != BUSY_CODE {
            return None;
        }
        let span = Span::from_bounds(fields.start.load(Relaxed), fields.end.load(Relaxed))?;
        // If the bounds are newer, then so are the flags after this: their old user has changed them
        // with a full barrier, in `leave()`, before the new one wrote the bounds.
        barrier::smp_mb(barrier::Read);
        (fields.flags.load(Relaxed) == flags).then_some(Seen { span, flags })
    }

    /// Makes a busy area one that is not found any more, if it is still what was `seen`.
    ///
    /// # Safety
    ///
    /// As [`AreaPtr::look`].
    pub(crate) unsafe fn leave(self, seen: Seen) -> Option<Area<Leaving>> {
        // SAFETY: By the safety requirements.
        let fields = unsafe { self.fields() };
        let left = (seen.flags & !STATE_MASK) | (Leaving::CODE << STATE_SHIFT);
        // Full: for `look()`, and for readers that pin the area, see `pins`.
        fields.flags.cmpxchg(seen.flags, left, Full).ok()?;
        // INVARIANT: It was busy, so there was no token. Nobody else can make one: that takes to find
        // it busy.
        Some(Area::from_ptr(self))
    }

    /// In which state the area is.
    ///
    /// # Safety
    ///
    /// As [`AreaPtr::look`].
    pub(crate) unsafe fn what(self) -> Use {
        // SAFETY: By the safety requirements.
        let flags = unsafe { self.fields() }.flags.load(Relaxed);
        // Relaxed: it says what was, at some time during the call.
        match code_of(flags) {
            BUSY_CODE => Use::Busy,
            Cached::CODE => Use::Cached,
            _ => Use::Unlinked,
        }
    }

    /// The flags of the area, for a report.
    ///
    /// # Safety
    ///
    /// As [`AreaPtr::look`].
    pub(crate) unsafe fn flags(self) -> usize {
        // SAFETY: By the safety requirements.
        // Relaxed: for a report.
        unsafe { self.fields() }.flags.load(Relaxed)
    }

    /// Is this an object of a block that nobody uses?
    ///
    /// # Safety
    ///
    /// As [`AreaPtr::look`].
    pub(crate) unsafe fn is_vacant(self) -> bool {
        // SAFETY: By the safety requirements.
        // Relaxed: asked by who has claimed all pages of the block.
        code_of(unsafe { self.fields() }.flags.load(Relaxed)) == VACANT_CODE
    }

    /// The bounds of the area, whatever its state; they may be of two different users.
    ///
    /// # Safety
    ///
    /// As [`AreaPtr::look`].
    pub(crate) unsafe fn bounds(self) -> Option<Span> {
        // SAFETY: By the safety requirements.
        let fields = unsafe { self.fields() };
        // Relaxed: as said.
        Span::from_bounds(fields.start.load(Relaxed), fields.end.load(Relaxed))
    }
}

/// What an area that is in an index is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// In use: can be found.
    Busy,
    /// Out of use, and not yet free for anybody: from unlink to flush.
    Unlinked,
    /// Free for a request of exactly its size.
    Cached,
}

/// What C wants to have in an area.
///
/// # Invariants
///
/// `vm` is null, or valid and not used by others until the area is busy.
pub(crate) struct Attributes {
    flags: usize,
    vm: *mut bindings::vm_struct,
}

impl Attributes {
    /// No flags, no `vm_struct`.
    pub(crate) const NONE: Self = Self {
        flags: 0,
        vm: core::ptr::null_mut(),
    };

    /// Takes the attributes of a request.
    ///
    /// # Safety
    ///
    /// `vm` is null, or valid and not used by others until the area is busy. Only one area gets the
    /// attributes.
    pub(crate) unsafe fn new(flags: usize, vm: *mut bindings::vm_struct) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            flags: flags & C_MASK,
            vm,
        }
    }
}

/// `vmap_area::flags`: the low bits belong to C.
const C_MASK: usize = (1 << STATE_SHIFT) - 1;
/// Above them is the state.
const STATE_SHIFT: u32 = 16;
const STATE_MASK: usize = 0x7 << STATE_SHIFT;
/// The object is part of a block, and not of the cache of area objects.
const IN_BLOCK: usize = 1 << 19;
/// The bits from this one on count the users of the object; they wrap around.
const GENERATION: usize = 1 << 20;

const fn code_of(flags: usize) -> usize {
    (flags & STATE_MASK) >> STATE_SHIFT
}

/// The state of an area.
pub(crate) trait State {
    /// Value in `vmap_area::flags`.
    const CODE: usize;
    /// Is the range of the area reserved in the tree?
    const RESERVED: bool;
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $code:literal, reserved: $reserved:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) enum $name {}
        impl State for $name {
            const CODE: usize = $code;
            const RESERVED: bool = $reserved;
        }
    )*};
}

states! {
    /// An object that stands for no range.
    New = 2, reserved: false;
    /// As [`New`] or [`Cached`], with the bounds and attributes of its next user.
    Ready = 2, reserved: true;
    /// Not found any more by new readers; old ones may still look at it.
    Leaving = 3, reserved: true;
    /// Out of use, its mappings may still be there.
    Unlinked = 3, reserved: true;
    /// Unmapped, but some TLB may still hold its mappings.
    Lazy = 4, reserved: true;
    /// In no TLB.
    Flushed = 5, reserved: true;
    /// As [`Flushed`], and kept for the next request of its size.
    Cached = 6, reserved: true;
}

/// [`State::CODE`] of an object of a block that nobody uses: also that of zeroed memory.
const VACANT_CODE: usize = 0;
/// The same of an area that is busy.
const BUSY_CODE: usize = 1;
/// The same of one whose token was dropped.
const LOST_CODE: usize = 7;

/// States in which nobody looks at the area, so that it can be prepared for a new user.
pub(crate) trait Idle: State {}
impl Idle for New {}
impl Idle for Cached {}

/// An area in state `S`.
///
/// # Invariants
///
/// `ptr` points to an area object that only the owner of the token changes; pinned readers may read
/// it if `S` is [`Leaving`], and readers without a lock what [`AreaPtr::look`] reads, always. If
/// `S::RESERVED`, exactly its range is reserved for it.
#[must_use = "an area that is dropped is lost"]
pub(crate) struct Area<S: State> {
    ptr: AreaPtr,
    _state: PhantomData<S>,
}

// SAFETY: By the type invariants, the owner of the token owns the object.
unsafe impl<S: State> Send for Area<S> {}

impl<S: State> Area<S> {
    /// The token for the area at `ptr`: the caller argues that the invariants hold.
    fn from_ptr(ptr: AreaPtr) -> Self {
        Self {
            ptr,
            _state: PhantomData,
        }
    }

    fn fields(&self) -> Fields<'_> {
        // SAFETY: By the type invariants, the object is ours.
        unsafe { self.ptr.fields() }
    }

    /// Sets the code of the state.
    fn set_code(&self, code: usize) {
        let flags = self.fields().flags;
        // Relaxed: readers only use what is busy, and no code set here says so. Load and store: only
        // the owner writes.
        let others = flags.load(Relaxed) & !STATE_MASK;
        flags.store(others | (code << STATE_SHIFT), Relaxed);
    }

    /// Goes to another state, for which the invariants hold as well.
    fn into_state<T: State>(self) -> Area<T> {
        self.set_code(T::CODE);
        Area::from_ptr(self.into_ptr())
    }

    /// Where the area is.
    pub(crate) fn ptr(&self) -> AreaPtr {
        self.ptr
    }

    /// Gives up the token: the index or C code has the area from now on.
    pub(crate) fn into_ptr(self) -> AreaPtr {
        ManuallyDrop::new(self).ptr
    }

    /// Is the object part of a block?
    pub(crate) fn is_in_block(&self) -> bool {
        // Relaxed: it never changes.
        self.fields().flags.load(Relaxed) & IN_BLOCK != 0
    }

    /// The addresses of the area.
    pub(crate) fn span(&self) -> Option<Span> {
        let fields = self.fields();
        // Relaxed: only the owner writes them.
        Span::from_bounds(fields.start.load(Relaxed), fields.end.load(Relaxed))
    }

    /// Size in pages, guard page included.
    pub(crate) fn pages(&self) -> usize {
        self.span().map_or(0, Span::size) / crate::range::PAGE_SIZE
    }

    /// Sets `vmap_area::vm`, which is also the link of lists of areas that have none.
    fn set_vm(&self, vm: *mut bindings::vm_struct) {
        // SAFETY: By the type invariants, the object is ours, and nobody else reads this field of an
        // area that is not busy.
        unsafe { (*self.ptr.as_raw()).__bindgen_anon_1.vm = vm };
    }
}

impl<S: State> Drop for Area<S> {
    fn drop(&mut self) {
        if S::RESERVED {
            // The range stays reserved: safe, but lost.
            self.set_code(LOST_CODE);
            mm::refuse!("area {:?} was lost in state {}", self.span(), S::CODE);
        } else if self.is_in_block() {
            self.set_code(VACANT_CODE);
        } else {
            // SAFETY: By the type invariants, nobody else uses the object, and no range is
            // reserved for it. Readers that still look at it find it not busy; its memory remains one
            // of an area object as long as they may look.
            unsafe { bindings::vmap_area_cache_free(self.ptr.as_raw()) };
        }
    }
}

impl Area<New> {
    /// Allocates an area object. Sleeps if `gfp` allows it.
    pub(crate) fn alloc(gfp: mm::Gfp, node: i32) -> Option<Self> {
        // SAFETY: No requirements but the context, which `gfp` tells.
        let ptr = AreaPtr::new(unsafe { bindings::vmap_area_cache_alloc(gfp.as_raw(), node) })?;
        // INVARIANT: The object is ours, and no range is reserved for it.
        let area = Self::from_ptr(ptr);
        let flags = area.fields().flags;
        // The generation goes on, for readers that still look at the former user of the memory.
        let generation = flags.load(Relaxed) & !(GENERATION - 1);
        // Relaxed: as in `set_code()`.
        flags.store(generation | (New::CODE << STATE_SHIFT), Relaxed);
        Some(area)
    }

    /// Takes the object at `ptr` of a block, if nobody uses it.
    ///
    /// # Safety
    ///
    /// The memory is one of an area object of a block, zeroed at first, as long as the token or a
    /// busy area lives.
    pub(crate) unsafe fn occupy(ptr: AreaPtr) -> Option<Self> {
        // SAFETY: By the safety requirements.
        let flags = unsafe { ptr.fields() }.flags;
        let old = flags.load(Relaxed);
        if code_of(old) != VACANT_CODE {
            return None;
        }
        let new = (old & !(GENERATION - 1)) | IN_BLOCK | (New::CODE << STATE_SHIFT);
        // Acquire: after what the last user did, see the release in `vacate()`.
        flags.cmpxchg(old, new, Acquire).ok()?;
        // INVARIANT: Nobody had a token for it, as that takes another state, and only one can change
        // this one.
        Some(Self::from_ptr(ptr))
    }
}

impl<S: Idle> Area<S> {
    /// Gives the area the bounds and attributes of its next user.
    pub(crate) fn prepare(self, span: Span, attributes: &Attributes) -> Area<Ready> {
        let fields = self.fields();
        // Relaxed: `Area::busy()` publishes them; for readers of the former user see `look()`.
        fields.start.store(span.first(), Relaxed);
        fields.end.store(span.end(), Relaxed);
        let kept = fields.flags.load(Relaxed) & !(C_MASK | STATE_MASK);
        let flags = kept.wrapping_add(GENERATION) | attributes.flags;
        fields
            .flags
            .store(flags | (Ready::CODE << STATE_SHIFT), Relaxed);
        self.set_vm(attributes.vm);
        if !attributes.vm.is_null() {
            // SAFETY: By the invariants of `Attributes`, it is valid and nobody uses it yet.
            unsafe {
                (*attributes.vm).addr = core::ptr::with_exposed_provenance_mut(span.first());
                (*attributes.vm).size = span.size();
            }
        }
        Area::from_ptr(self.into_ptr())
    }
}

impl Area<Ready> {
    /// Makes the area busy: from now on it can be found by who finds its object.
    ///
    /// The caller has reserved its range, and has made sure that the object can be found in an index
    /// as long as the area is busy.
    pub(crate) fn busy(self) -> AreaPtr {
        let flags = self.fields().flags;
        let others = flags.load(Relaxed) & !STATE_MASK;
        // Release: who sees it busy sees what `prepare()` wrote.
        flags.store(others | (BUSY_CODE << STATE_SHIFT), Release);
        self.into_ptr()
    }

    /// Undoes [`Area::prepare`] of a new area.
    ///
    /// # Safety
    ///
    /// No range is reserved for it.
    pub(crate) unsafe fn undo(self) -> Area<New> {
        // INVARIANT: By the safety requirements.
        self.into_state()
    }
}

impl Area<Leaving> {
    /// Says that no reader looks at the area any more.
    ///
    /// # Safety
    ///
    /// All readers that had pinned the area have let go of it since it was unlinked.
    pub(crate) unsafe fn left(self) -> Area<Unlinked> {
        // INVARIANT: By the safety requirements, nobody else uses the object. The code is the same.
        Area::from_ptr(self.into_ptr())
    }
}

impl Area<Unlinked> {
    /// Takes back an area from C code, or [`None`] if it is in no state to be given back.
    ///
    /// # Safety
    ///
    /// `ptr` came from [`Area::into_ptr`] of an unlinked area, and nobody uses it any more. That it
    /// came back once already is not undefined behaviour as long as the object was not freed.
    pub(crate) unsafe fn from_c(ptr: AreaPtr) -> Option<Self> {
        // SAFETY: By the safety requirements, the object is valid.
        let flags = unsafe { ptr.flags() };
        if code_of(flags) != Unlinked::CODE {
            return None;
        }
        // INVARIANT: By the safety requirements, the object is ours, and its state says so too.
        Some(Self::from_ptr(ptr))
    }

    /// Marks the area as unmapped but not flushed.
    pub(crate) fn retire(self) -> Area<Lazy> {
        // The vm_struct is freed by C code at any time now.
        self.set_vm(core::ptr::null_mut());
        // INVARIANT: As long as it is reserved, any state without a user is as good.
        self.into_state()
    }

    /// Marks the area as flushed, as there was nothing to flush.
    ///
    /// The caller knows that nothing was ever mapped there since it was allocated: this is what the
    /// `release` operation of C is for.
    pub(crate) fn never_mapped(self) -> Area<Flushed> {
        self.set_vm(core::ptr::null_mut());
        // INVARIANT: As above.
        self.into_state()
    }

    /// Gives the object back to its block. From now on it stands for no range; what the block keeps
    /// reserved is in its bitmaps.
    pub(crate) fn vacate(self) {
        self.set_vm(core::ptr::null_mut());
        let flags = self.fields().flags;
        let others = flags.load(Relaxed) & !STATE_MASK;
        // Release: before the next user of the object, see the acquire in `occupy()`.
        flags.store(others | (VACANT_CODE << STATE_SHIFT), Release);
        let _ = self.into_ptr();
    }
}

impl Area<Flushed> {
    /// Marks the area as cached.
    pub(crate) fn cached(self) -> Area<Cached> {
        self.into_state()
    }
}

impl<S: State> Area<S> {
    /// Says that no range is reserved for the area any more.
    ///
    /// # Safety
    ///
    /// Its entry is no longer in the tree.
    pub(crate) unsafe fn erased(self) -> Area<New> {
        // INVARIANT: By the safety requirements.
        self.into_state()
    }
}

/// Areas in state `S`, in a row, first in first out; linked through the areas themselves.
///
/// # Invariants
///
/// - `first` and `last` are both there or both not; if so, `last` is reached from `first` by
///   following `vmap_area::vm`, which is the link here, `len` areas in all, and the last one's is null.
/// - The list owns the tokens of all of them.
pub(crate) struct AreaList<S: State> {
    first: Option<AreaPtr>,
    last: Option<AreaPtr>,
    len: usize,
    _state: PhantomData<Area<S>>,
}

impl<S: State> AreaList<S> {
    /// A list without areas.
    pub(crate) const fn new() -> Self {
        // INVARIANT: Both ends are not there.
        Self {
            first: None,
            last: None,
            len: 0,
            _state: PhantomData,
        }
    }

    /// Number of areas.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Is there no area?
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Adds what is linked from `first` to `last`, `len` areas in all.
    fn link(&mut self, first: AreaPtr, last: AreaPtr, len: usize) {
        match self.last {
            // SAFETY: By the type invariants, the list owns the area.
            Some(end) => unsafe { (*end.as_raw()).__bindgen_anon_1.vm = first.as_raw().cast() },
            None => self.first = Some(first),
        }
        // INVARIANT: The new ones are reached from the former last.
        self.last = Some(last);
        self.len = self.len.wrapping_add(len);
    }

    /// Adds an area at the end.
    pub(crate) fn push(&mut self, area: Area<S>) {
        area.set_vm(core::ptr::null_mut());
        let ptr = area.into_ptr();
        self.link(ptr, ptr, 1);
    }

    /// Takes the area at the front.
    pub(crate) fn pop(&mut self) -> Option<Area<S>> {
        let ptr = self.first?;
        // SAFETY: By the type invariants, the list owns the area.
        let next = unsafe { (*ptr.as_raw()).__bindgen_anon_1.vm };
        // INVARIANT: The next one is the first now; if there is none, the list is empty.
        self.first = AreaPtr::new(next.cast());
        if self.first.is_none() {
            self.last = None;
        }
        self.len = self.len.wrapping_sub(1);
        // INVARIANT: The list gives up the token.
        Some(Area::from_ptr(ptr))
    }

    /// Takes all areas out of the list.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    /// Adds all areas of `other` at the end.
    pub(crate) fn append(&mut self, mut other: Self) {
        if let (Some(first), Some(last)) = (other.first.take(), other.last.take()) {
            // INVARIANT: `other` gives up their tokens.
            self.link(first, last, other.len);
        }
        other.len = 0;
    }
}

impl AreaList<Lazy> {
    /// Says that the areas were flushed, as `_flush` shows. The only way from [`Lazy`] to [`Flushed`].
    pub(crate) fn flushed(mut self, _flush: &Flush) -> AreaList<Flushed> {
        // INVARIANT: The chain is the same; the codes in the objects are set with the next step, and
        // until then say that the area is out of use, which is what others want to know.
        let flushed = AreaList {
            first: self.first.take(),
            last: self.last.take(),
            len: self.len,
            _state: PhantomData,
        };
        self.len = 0;
        flushed
    }
}

impl<S: State> Drop for AreaList<S> {
    fn drop(&mut self) {
        while let Some(area) = self.pop() {
            drop(area);
        }
    }
}
