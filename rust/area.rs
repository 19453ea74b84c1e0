// SPDX-License-Identifier: GPL-2.0

//! The area object, and tokens that say in which state it is.
//!
//! An area goes through these states, and the only ways from one to the next are functions that
//! take the token of the one and give the token of the other:
//!
//! ```text
//! New --publish--> (busy) --unlink--> Leaving --wait for readers--> Unlinked
//!                    ^                                                 |
//!                    |                            retire: Lazy <-------+-------> release
//!                    |                                      |                       |
//!                    |                           flush_tlb: v                       v
//!                  reuse <-- Cached <-----cache---------- Flushed <-----------------+
//!                               |                           |
//!                               +---------- erase ----------+----> New --> freed
//! ```
//!
//! A busy area has no token: the tree owns it, and C code uses it. A [`Lazy`] area becomes
//! [`Flushed`] only by [`AreaList::flush_tlb`], and only a [`Flushed`] or [`Cached`] one can be
//! handed out again or erased: what is not flushed cannot be reused.
//!
//! C header: [`include/linux/vmalloc.h`](srctree/include/linux/vmalloc.h)

use crate::{
    mm::{
        self,
        Tlb, //
    },
    range::Span,
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Where an area is, without the right to look into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaPtr(NonNull<bindings::vmap_area>);

impl AreaPtr {
    /// From a pointer; [`None`] if it is null.
    pub(crate) fn new(ptr: *mut bindings::vmap_area) -> Option<Self> {
        NonNull::new(ptr).map(Self)
    }

    /// The pointer for C.
    pub(crate) fn as_raw(self) -> *mut bindings::vmap_area {
        self.0.as_ptr()
    }

    /// Is the area [`Cached`]?
    ///
    /// # Safety
    ///
    /// The area is in the index, not as busy, and the lock of the index is held: it is not freed
    /// before it is erased, and it becomes and ceases to be cached under that lock.
    pub(crate) unsafe fn is_cached(self) -> bool {
        // SAFETY: By the safety requirements, the object is valid.
        let flags = unsafe { self.flags() };
        (flags & STATE_MASK) >> STATE_SHIFT == Cached::CODE
    }

    /// The flags of the area, which its owner may change at any time.
    ///
    /// # Safety
    ///
    /// The object is valid.
    pub(crate) unsafe fn flags(self) -> usize {
        // SAFETY: By the safety requirements.
        // Relaxed: what is read with a lock held is ordered by that lock, anything else is a hint.
        unsafe { flags_of(self) }.load(Relaxed)
    }
}

// SAFETY: An address; what is behind it is guarded by tokens and locks.
unsafe impl Send for AreaPtr {}

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
            flags: flags & ((1 << STATE_SHIFT) - 1),
            vm,
        }
    }
}

/// `vmap_area::flags` above this bit hold the state: to catch C code that hands over an area twice,
/// and to tell what an area that is out of use is there for.
/// Bits 0 and 1 belong to C; bits 8 to 15 are the rb-tree's.
const STATE_SHIFT: u32 = 16;
const STATE_MASK: usize = 0x7 << STATE_SHIFT;

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
    New = 0, reserved: false;
    /// Not found any more by new readers; old ones may still look at it.
    Leaving = 2, reserved: true;
    /// Out of use, its mappings may still be there.
    Unlinked = 3, reserved: true;
    /// Unmapped, but some TLB may still hold its mappings.
    Lazy = 4, reserved: true;
    /// In no TLB.
    Flushed = 5, reserved: true;
    /// As [`Flushed`], and kept for the next request of its size.
    Cached = 6, reserved: true;
}

/// [`State::CODE`] of an area that is busy.
const BUSY_CODE: usize = 1;
/// The same of one whose token was dropped.
const LOST_CODE: usize = 7;

/// States in which nobody looks at the area, so that it can be prepared for a new user.
pub(crate) trait Idle: State {}
impl Idle for New {}
impl Idle for Cached {}

/// The flags of an area, as others may change them meanwhile.
///
/// # Safety
///
/// The object is valid as long as the reference is used.
unsafe fn flags_of<'a>(ptr: AreaPtr) -> &'a Atomic<usize> {
    // SAFETY: By the safety requirements.
    let flags = unsafe { &raw mut (*ptr.as_raw()).flags };
    // SAFETY: As above. C never writes the flags of our areas, and has let go of an area that it
    // reads before the first atomic write (`Area::left()`). The plain writes, of `Area::alloc()` and
    // `Area::prepare()`, are made while the object is in no index, or with the lock of the index held
    // that `AreaPtr::is_cached()` needs.
    unsafe { Atomic::from_ptr(flags) }
}

/// Sets the code of the state of an area.
///
/// # Safety
///
/// The object is valid, and the caller owns it.
unsafe fn set_code(ptr: AreaPtr, code: usize) {
    // SAFETY: By the safety requirements.
    let flags = unsafe { flags_of(ptr) };
    // Relaxed: who does not own the area is interested in one state only, whose beginning and end are
    // under the lock of the index: `AreaPtr::is_cached()`. Load and store: only the owner writes.
    flags.store(
        (flags.load(Relaxed) & !STATE_MASK) | (code << STATE_SHIFT),
        Relaxed,
    );
}

/// An area in state `S`.
///
/// # Invariants
///
/// `ptr` points to a valid area object that only the owner of the token uses, except for pinned
/// readers if `S` is [`Leaving`], and for the flags in [`AreaPtr::is_cached`]. If `S::RESERVED`, exactly its range is reserved for it.
#[must_use = "an area that is dropped is lost"]
pub(crate) struct Area<S: State> {
    ptr: AreaPtr,
    _state: PhantomData<S>,
}

// SAFETY: By the type invariants, the owner of the token owns the object.
unsafe impl<S: State> Send for Area<S> {}

impl<S: State> Area<S> {
    /// Takes the area at `ptr`.
    ///
    /// # Safety
    ///
    /// The type invariants hold for it, and for no other token.
    unsafe fn assume(ptr: AreaPtr) -> Self {
        // SAFETY: By the safety requirements, the object is valid and ours.
        unsafe { set_code(ptr, S::CODE) };
        // INVARIANT: By the safety requirements.
        Self {
            ptr,
            _state: PhantomData,
        }
    }

    /// Goes to another state.
    ///
    /// # Safety
    ///
    /// The type invariants hold for the area in state `T`.
    unsafe fn into_state<T: State>(self) -> Area<T> {
        // SAFETY: By the safety requirements; this token is given up.
        unsafe { Area::assume(self.into_ptr()) }
    }

    /// Where the area is.
    pub(crate) fn ptr(&self) -> AreaPtr {
        self.ptr
    }

    /// Gives up the token: the tree or C code has the area from now on.
    pub(crate) fn into_ptr(self) -> AreaPtr {
        ManuallyDrop::new(self).ptr
    }

    /// The addresses of the area.
    pub(crate) fn span(&self) -> Option<Span> {
        // SAFETY: By the type invariants, the object is valid, and nobody changes its bounds.
        let (start, end) = unsafe {
            let area = self.ptr.as_raw();
            ((*area).va_start, (*area).va_end)
        };
        Span::from_bounds(start, end)
    }

    /// Size in pages, guard page included.
    pub(crate) fn pages(&self) -> usize {
        self.span().map_or(0, Span::size) / crate::range::PAGE_SIZE
    }
}

impl<S: State> Drop for Area<S> {
    fn drop(&mut self) {
        if S::RESERVED {
            // The range stays reserved: safe, but lost.
            // SAFETY: By the type invariants, the object is valid and ours.
            unsafe { set_code(self.ptr, LOST_CODE) };
            mm::refuse!("area {:?} was lost in state {}", self.span(), S::CODE);
        } else {
            // SAFETY: By the type invariants, nobody else uses the object, and no range is
            // reserved for it.
            unsafe { bindings::vmap_area_cache_free(self.ptr.as_raw()) };
        }
    }
}

impl Area<New> {
    /// Allocates an area object. Sleeps if `gfp` allows it.
    pub(crate) fn alloc(gfp: mm::Gfp, node: i32) -> Option<Self> {
        // SAFETY: No requirements but the context, which `gfp` tells.
        let ptr = AreaPtr::new(unsafe { bindings::vmap_area_cache_alloc(gfp.as_raw(), node) })?;
        // SAFETY: The object is ours. The cache does not initialize it.
        unsafe { (*ptr.as_raw()).flags = 0 };
        // SAFETY: The object is valid, ours, and no range is reserved for it.
        Some(unsafe { Self::assume(ptr) })
    }
}

impl<S: Idle> Area<S> {
    /// Makes the area ready to be published as busy at `span`.
    pub(crate) fn prepare(&mut self, span: Span, attributes: &Attributes) {
        let area = self.ptr.as_raw();
        // SAFETY: By the type invariants, the object is valid and ours.
        unsafe {
            (*area).va_start = span.first();
            (*area).va_end = span.end();
            (*area).flags = attributes.flags | (BUSY_CODE << STATE_SHIFT);
            (*area).list.next = core::ptr::null_mut();
            (*area).__bindgen_anon_1.vm = attributes.vm;
        }
        if !attributes.vm.is_null() {
            // SAFETY: By the invariants of `Attributes`, it is valid and nobody uses it yet.
            unsafe {
                (*attributes.vm).addr = core::ptr::with_exposed_provenance_mut(span.first());
                (*attributes.vm).size = span.size();
            }
        }
    }
}

impl Area<Leaving> {
    /// Takes an area that was busy until now.
    ///
    /// # Safety
    ///
    /// The tree held the area as busy, and no longer does; its range is reserved.
    pub(crate) unsafe fn from_busy(ptr: AreaPtr) -> Self {
        // The state code is left alone: readers that have pinned the area read the flags.
        // INVARIANT: By the safety requirements there was no token for it, and this is the only one.
        Self {
            ptr,
            _state: PhantomData,
        }
    }

    /// Says that no reader looks at the area any more.
    ///
    /// # Safety
    ///
    /// All readers that had pinned the area have let go of it since it was unlinked.
    pub(crate) unsafe fn left(self) -> Area<Unlinked> {
        // SAFETY: By the safety requirements, nobody else uses the object.
        unsafe { self.into_state() }
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
        if (flags & STATE_MASK) >> STATE_SHIFT != Unlinked::CODE {
            return None;
        }
        // SAFETY: By the safety requirements, the object is ours, and its state says so too.
        Some(unsafe { Self::assume(ptr) })
    }

    /// Marks the area as unmapped but not flushed.
    pub(crate) fn retire(self) -> Area<Lazy> {
        // The vm_struct is freed by C code at any time now.
        // SAFETY: By the type invariants, the object is valid and ours.
        unsafe { (*self.ptr.as_raw()).__bindgen_anon_1.vm = core::ptr::null_mut() };
        // SAFETY: As long as it is reserved, any state without a user is as good.
        unsafe { self.into_state() }
    }

    /// Marks the area as flushed, as there was nothing to flush.
    ///
    /// The caller knows that nothing was ever mapped there since it was allocated: this is what the
    /// `release` operation of C is for.
    pub(crate) fn never_mapped(self) -> Area<Flushed> {
        // SAFETY: As above.
        unsafe { (*self.ptr.as_raw()).__bindgen_anon_1.vm = core::ptr::null_mut() };
        // SAFETY: As above.
        unsafe { self.into_state() }
    }
}

impl Area<Flushed> {
    /// Marks the area as cached.
    ///
    /// # Safety
    ///
    /// The lock of the index is held.
    pub(crate) unsafe fn cached(self) -> Area<Cached> {
        // SAFETY: By the safety requirements.
        unsafe { self.into_state() }
    }
}

impl<S: State> Area<S> {
    /// Says that no range is reserved for the area any more.
    ///
    /// # Safety
    ///
    /// Its entry is no longer in the tree.
    pub(crate) unsafe fn erased(self) -> Area<New> {
        // SAFETY: By the safety requirements.
        unsafe { self.into_state() }
    }
}

/// Areas in state `S`, in a row, first in first out; linked through the areas themselves.
///
/// # Invariants
///
/// - `first` and `last` are both there or both not; if so, `last` is reached from `first` by
///   following `vmap_area::list.next`, `len` areas in all, and the last one's is null.
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

    /// Adds an area at the end.
    pub(crate) fn push(&mut self, area: Area<S>) {
        let ptr = area.into_ptr();
        // SAFETY: The token was ours, so the object is.
        unsafe { (*ptr.as_raw()).list.next = core::ptr::null_mut() };
        match self.last {
            // SAFETY: By the type invariants, the list owns the area.
            Some(last) => unsafe { (*last.as_raw()).list.next = ptr.as_raw().cast() },
            None => self.first = Some(ptr),
        }
        // INVARIANT: The new one is reached from the former last, and its next is null.
        self.last = Some(ptr);
        self.len = self.len.wrapping_add(1);
    }

    /// Takes the area at the front.
    pub(crate) fn pop(&mut self) -> Option<Area<S>> {
        let ptr = self.first?;
        // SAFETY: By the type invariants, the list owns the area.
        let next = unsafe { (*ptr.as_raw()).list.next };
        // INVARIANT: The next one is the first now; if there is none, the list is empty.
        self.first = AreaPtr::new(next.cast());
        if self.first.is_none() {
            self.last = None;
        }
        self.len = self.len.wrapping_sub(1);
        // INVARIANT: The list gives up the token.
        Some(Area {
            ptr,
            _state: PhantomData,
        })
    }

    /// Takes all areas out of the list.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    /// Adds all areas of `other` at the end.
    pub(crate) fn append(&mut self, mut other: Self) {
        let (Some(first), Some(_)) = (other.first, other.last) else {
            return;
        };
        match self.last {
            // SAFETY: By the type invariants, the list owns the area.
            Some(last) => unsafe { (*last.as_raw()).list.next = first.as_raw().cast() },
            None => self.first = Some(first),
        }
        // INVARIANT: The areas of `other` follow the former last; `other` gives up their tokens.
        self.last = other.last.take();
        self.len = self.len.wrapping_add(other.len);
        other.first = None;
        other.len = 0;
    }
}

impl AreaList<Lazy> {
    /// Flushes the TLB for all areas in the list, which `cover` covers, and for `also`. The only
    /// way from [`Lazy`] to [`Flushed`]. Sleepable context.
    pub(crate) fn flush_tlb(
        mut self,
        tlb: &impl Tlb,
        cover: Span,
        also: Option<Span>,
    ) -> AreaList<Flushed> {
        tlb.flush(also.map_or(cover, |span| span.join(cover)), self.len);

        // INVARIANT: The chain is the same; its areas go to the new state when they are taken out
        // (`pop()` does not look at the code in the flags, `assume()` sets it with the next step).
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
