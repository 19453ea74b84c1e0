// SPDX-License-Identifier: GPL-2.0

//! The index of all areas: which state of an area is which entry of the tree.
//!
//! An entry is the pointer to the area object, with a tag in its two low bits. A busy area has the
//! tag 0, so that a reader without a lock can use what it finds. Making an area busy or taking it
//! out of use is changing the tag, which needs no memory and cannot fail. What an area that is out
//! of use is there for is said by the area object.
//!
//! Each function here changes an entry and the token of its area together, under the lock of the
//! tree. This is what makes the invariants of [`Area`] true.

use crate::{
    area::{
        Area,
        AreaPtr,
        Attributes,
        Cached,
        Flushed,
        Leaving,
        New,
        State, //
    },
    fit::Gaps,
    maple::{
        self,
        StoreError, //
    },
    mm,
    range::Span,
};
use kernel::{
    bindings,
    prelude::*,
    sync::LockClassKey, //
};

/// What an entry says of its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    /// In use: can be found.
    Busy,
    /// Reserved, but out of use: from unlink until the area is busy again or erased.
    Unlinked,
}

/// What an area that is in the index is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// In use: can be found.
    Busy,
    /// Out of use, and not yet free for anybody: from unlink to flush.
    Unlinked,
    /// Free for a request of exactly its size.
    Cached,
}

/// The bits of the tag; `0b10` belongs to the tree.
const TAG_MASK: usize = 0b11;
const TAG_UNLINKED: usize = 0b01;

const _: () = assert!(core::mem::align_of::<bindings::vmap_area>() > TAG_MASK);

/// An entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// The area; only to be looked into by who owns it, but for [`AreaPtr::is_cached`].
    area: AreaPtr,
    /// Its state.
    tag: Tag,
}

// SAFETY: A pointer to an area is not null and has two low bits clear (asserted above), and no tag
// is `0b10`. `from_raw()` separates what `into_raw()` puts together.
unsafe impl maple::Entry for Slot {
    fn into_raw(self) -> *mut c_void {
        let tag = match self.tag {
            Tag::Busy => 0,
            Tag::Unlinked => TAG_UNLINKED,
        };
        self.area.as_raw().map_addr(|addr| addr | tag).cast()
    }

    unsafe fn from_raw(raw: *mut c_void) -> Self {
        let tag = match raw.addr() & TAG_MASK {
            0 => Tag::Busy,
            _ => Tag::Unlinked,
        };
        let ptr = raw.map_addr(|addr| addr & !TAG_MASK).cast();
        Self {
            // SAFETY: By the safety requirements, `ptr` is what `into_raw()` got of an `AreaPtr`.
            area: unsafe { AreaPtr::new(ptr).unwrap_unchecked() },
            tag,
        }
    }
}

/// The index, with data `D` under its lock, in memory of its own.
pub(crate) struct Table<D>(Pin<KBox<maple::Tree<Slot, D>>>);
/// The index, locked: entries change only together with the tokens of their areas.
pub(crate) struct TableGuard<'table, D>(maple::Guard<'table, Slot, D>);

/// States in which an area is free but for its entry.
pub(crate) trait Spare: State {}
impl Spare for Flushed {}
impl Spare for Cached {}

impl<D> Gaps for TableGuard<'_, D> {
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        self.0.lowest_gap(window, bytes)
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        self.0.highest_gap(window, bytes)
    }

    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        self.0.gap_around(addr)
    }
}

impl<D> TableGuard<'_, D> {
    /// The data that the lock protects.
    pub(crate) fn data(&mut self) -> &mut D {
        self.0.data()
    }

    /// Gets memory after [`StoreError::NoMemory`]: [`maple::Guard::nomem`].
    pub(crate) fn nomem(&mut self, gfp: mm::Gfp) -> bool {
        self.0.nomem(gfp)
    }

    /// The lowest reserved range that ends above `addr`, with its use and its area.
    pub(crate) fn entry_from(&mut self, addr: usize) -> Option<(Span, Use, AreaPtr)> {
        let (span, slot) = self.0.entry_from(addr)?;
        let what = match slot.tag {
            Tag::Busy => Use::Busy,
            // SAFETY: The area is in the index, not as busy, and this guard is its lock.
            Tag::Unlinked if unsafe { slot.area.is_cached() } => Use::Cached,
            Tag::Unlinked => Use::Unlinked,
        };
        Some((span, what, slot.area))
    }

    /// Reserves `span`, which is in the gap found last, for `area`, and makes it busy.
    pub(crate) fn publish(
        &mut self,
        mut area: Area<New>,
        span: Span,
        attributes: &Attributes,
    ) -> Result<AreaPtr, (Area<New>, StoreError)> {
        area.prepare(span, attributes);
        let slot = Slot {
            area: area.ptr(),
            tag: Tag::Busy,
        };
        match self.0.insert(span, slot) {
            // The tree owns the area from here on.
            Ok(()) => Ok(area.into_ptr()),
            Err(err) => Err((area, err)),
        }
    }

    /// Makes the busy area that contains `addr` one that is not found any more. Does not allocate.
    pub(crate) fn unlink(&mut self, addr: usize) -> Option<Area<Leaving>> {
        let (_, old) = self.0.replace_at(addr, |_, slot| {
            (slot.tag == Tag::Busy).then_some(Slot {
                tag: Tag::Unlinked,
                ..slot
            })
        })?;
        // SAFETY: The tree held it as busy until now, and its range stays reserved.
        Some(unsafe { Area::from_busy(old.area) })
    }

    /// Makes the entry of `area` say that it is busy. False, with a report, if that is not in the tree.
    fn set_busy(&mut self, area: &Area<Cached>) -> bool {
        let expected = Slot {
            area: area.ptr(),
            tag: Tag::Unlinked,
        };
        let Some(span) = area.span() else {
            return false;
        };
        let done = self.0.replace_at(span.first(), |found, slot| {
            (found == span && slot == expected).then_some(Slot {
                tag: Tag::Busy,
                ..slot
            })
        });
        if done.is_none() {
            let found = self.0.entry_at(span.first());
            mm::refuse!("{:?} is {:?}, not {:?}", span, found, expected);
        }
        done.is_some()
    }

    /// Keeps the range of `area`, which is in this index, for the next request of its size. Its entry
    /// stays as it is, which makes this cheap: a purge does it for each area.
    pub(crate) fn cache(&mut self, area: Area<Flushed>) -> Area<Cached> {
        // SAFETY: This guard is the lock of the index: areas never leave the space that made them.
        unsafe { area.cached() }
    }

    /// Makes a cached area busy. Does not allocate.
    pub(crate) fn reuse(
        &mut self,
        mut area: Area<Cached>,
        attributes: &Attributes,
    ) -> Option<AreaPtr> {
        area.prepare(area.span()?, attributes);
        // Publishing: what `prepare()` wrote is ordered by rcu_assign_pointer() in the tree.
        if !self.set_busy(&area) {
            return None;
        }
        Some(area.into_ptr())
    }

    /// Makes the range of `area` free. The area comes back if there is no memory for that.
    pub(crate) fn give_back<S: Spare>(
        &mut self,
        area: Area<S>,
    ) -> Result<Area<New>, (Area<S>, StoreError)> {
        let slot = Slot {
            area: area.ptr(),
            tag: Tag::Unlinked,
        };
        let erased = match area.span() {
            Some(span) => self.0.erase(span, slot),
            None => Err(StoreError::Mismatch),
        };
        match erased {
            // SAFETY: The entry is gone.
            Ok(()) => Ok(unsafe { area.erased() }),
            Err(err) => Err((area, err)),
        }
    }
}

impl<D> Table<D> {
    /// An empty index, with a lock of class `key`.
    pub(crate) fn new(
        data: D,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> Result<Self> {
        let tree = maple::Tree::new(data, name, key);
        Ok(Self(KBox::pin_init(tree, GFP_NOWAIT)?))
    }

    /// Locks the index for searching and changing it. Spins; any context that may take spinlocks.
    pub(crate) fn lock(&self) -> TableGuard<'_, D> {
        TableGuard(self.0.lock())
    }

    /// The busy area that contains `addr`, without a lock. Any context in which RCU is watching.
    pub(crate) fn find(&self, addr: usize) -> Option<AreaPtr> {
        let slot = self.0.load(addr)?;
        (slot.tag == Tag::Busy).then_some(slot.area)
    }

    /// As [`Table::find`], with the range of the area. Any context.
    pub(crate) fn busy_at(&self, addr: usize) -> Option<(Span, AreaPtr)> {
        let (span, slot) = self.0.at(addr)?;
        (slot.tag == Tag::Busy).then_some((span, slot.area))
    }

    /// The lowest busy area that ends above `addr`, without a lock. Task context.
    pub(crate) fn next_busy(&self, addr: usize) -> Option<(Span, AreaPtr)> {
        let (span, slot) = self.0.next(addr, |slot| slot.tag == Tag::Busy)?;
        Some((span, slot.area))
    }

    /// The range of the entry that holds `area` as busy. Walks the whole index: for tests.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn span_of(&self, area: AreaPtr) -> Option<Span> {
        let tag = Tag::Busy;
        let (span, _) = self.0.next(0, |slot| slot == Slot { area, tag })?;
        Some(span)
    }
}
