// SPDX-License-Identifier: GPL-2.0

//! What code without a token sees of an area object: its address, and its bounds and state at some time.
//!
//! The memory of an object remains an area object until an RCU grace period has passed, so a reader may
//! read the object that it has found. [`AreaPtr::look`] detects a change of user: the flags hold a
//! generation that each new user increments. The owner of the token writes the bounds before it marks the
//! area busy. It marks the area not busy before it changes the bounds ([`crate::state::area`]).

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

    /// Returns whether nobody uses this object of a block.
    pub(super) fn is_vacant(&self) -> bool {
        code_of(self.flags) == VACANT_CODE
    }

    /// Returns the bounds of an object of a block that is not busy, and whether its area is unlinked. If it is not, it is
    /// about to be busy, or nobody uses the object, and the bounds are those of its last user.
    pub(super) fn not_busy(&self) -> Option<(Span, bool)> {
        match code_of(self.flags) {
            BUSY_CODE => None,
            code => Some((self.span()?, matches!(code, Unlinked::CODE | LEAKED_CODE))),
        }
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
    /// Was never busy, as its request has failed, and is about to be erased.
    Flushed,
    /// Lost by a bug, and reserved for ever.
    Leaked,
}

impl Stage {
    /// Returns whether the area is out of use, and its range is not yet free.
    pub(crate) fn is_out_of_use(self) -> bool {
        !matches!(self, Self::Changing | Self::Busy)
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
