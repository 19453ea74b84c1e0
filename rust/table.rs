// SPDX-License-Identifier: GPL-2.0

//! The index of the whole space: which range is reserved, and for what.
//!
//! An entry is the pointer to an area object, or says that the range is one of a block. In which state
//! an area is, its object says: only reserving a range and making it free again change the tree.
//!
//! Each function here changes an entry and the token of its area together, under the lock of the
//! tree. This is what makes the invariants of [`Area`] true. An object that is in the tree is not freed
//! before it is erased, and then its memory stays one of an area object for a grace period of RCU.

use crate::{
    area::{
        Area,
        AreaPtr,
        Attributes,
        Cached,
        Flushed,
        Leaving,
        New,
        Seen,
        State,
        Use, //
    },
    fit::Gaps,
    maple::{
        self,
        StoreError, //
    },
    mm,
    range::{
        Span,
        PAGE_SIZE, //
    },
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        rcu,
        LockClassKey, //
    }, //
};

/// An entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// An area.
    Area(AreaPtr),
    /// A block that starts at this address.
    Block(usize),
}

/// The low bits of an entry that is a block; `0b10` in the lowest two belongs to the tree.
const BLOCK_TAG: usize = 0b101;
const TAG_BITS: u32 = 3;
const TAG_MASK: usize = (1 << TAG_BITS) - 1;

const _: () = assert!(core::mem::align_of::<bindings::vmap_area>() > 0b11);

// SAFETY: A pointer to an area is not null and has two low bits clear (asserted above); so it does not
// end in the tag of a block, nor in `0b10`. `from_raw()` separates what `into_raw()` puts together: a
// block starts at a page.
unsafe impl maple::Entry for Slot {
    fn into_raw(self) -> *mut c_void {
        match self {
            Slot::Area(area) => area.as_raw().cast(),
            // Shifted: the address itself would be a reference to the first area for kmemleak.
            Slot::Block(start) => {
                core::ptr::without_provenance_mut((start / PAGE_SIZE) << TAG_BITS | BLOCK_TAG)
            }
        }
    }

    unsafe fn from_raw(raw: *mut c_void) -> Self {
        if raw.addr() & TAG_MASK == BLOCK_TAG {
            return Slot::Block((raw.addr() >> TAG_BITS).wrapping_mul(PAGE_SIZE));
        }
        // SAFETY: By the safety requirements, `raw` is what `into_raw()` made of an `AreaPtr`.
        Slot::Area(unsafe { AreaPtr::new(raw.cast()).unwrap_unchecked() })
    }
}

/// What a reserved range is reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// An area that is used like that.
    Area(AreaPtr, Use),
    /// A block.
    Block,
}

/// What a walk without the lock comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A busy area.
    Busy(AreaPtr, Seen),
    /// A block, with this range.
    Block(Span),
}

/// The index, in memory of its own.
pub(crate) struct Table(Pin<KBox<maple::Tree<Slot>>>);
/// The index, locked: entries change only together with the tokens of their areas.
pub(crate) struct TableGuard<'table>(maple::Guard<'table, Slot>);

/// States in which an area is free but for its entry.
pub(crate) trait Spare: State {}
impl Spare for Flushed {}
impl Spare for Cached {}

impl Gaps for TableGuard<'_> {
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

impl TableGuard<'_> {
    /// Gets memory after [`StoreError::NoMemory`]: [`maple::Guard::nomem`].
    pub(crate) fn nomem(&mut self, gfp: mm::Gfp) -> bool {
        self.0.nomem(gfp)
    }

    /// The lowest reserved range that ends above `addr`, and for what it is reserved.
    pub(crate) fn entry_from(&mut self, addr: usize) -> Option<(Span, Entry)> {
        let (span, slot) = self.0.entry_from(addr)?;
        let entry = match slot {
            // SAFETY: The area is in the tree, whose lock we hold.
            Slot::Area(area) => Entry::Area(area, unsafe { area.what() }),
            Slot::Block(_) => Entry::Block,
        };
        Some((span, entry))
    }

    /// As [`Table::next`], for who must not walk without the lock.
    pub(crate) fn next(&mut self, mut addr: usize) -> Option<Next> {
        loop {
            let (span, slot) = self.0.entry_from(addr)?;
            match slot {
                // SAFETY: The area is in the tree, whose lock we hold.
                Slot::Area(area) => match unsafe { area.look() } {
                    Some(seen) => return Some(Next::Busy(area, seen)),
                    None => addr = span.last().checked_add(1)?,
                },
                Slot::Block(_) => return Some(Next::Block(span)),
            }
        }
    }

    /// Reserves `span`, which is in the gap found last, for `area`, and makes it busy.
    pub(crate) fn publish(
        &mut self,
        area: Area<New>,
        span: Span,
        attributes: &Attributes,
    ) -> Result<AreaPtr, (Area<New>, StoreError)> {
        let area = area.prepare(span, attributes);
        match self.0.insert(span, Slot::Area(area.ptr())) {
            Ok(()) => Ok(area.busy()),
            // SAFETY: Nothing was reserved.
            Err(err) => Err((unsafe { area.undo() }, err)),
        }
    }

    /// Makes the busy area that contains `addr` one that is not found any more. Does not allocate.
    pub(crate) fn unlink(&mut self, addr: usize) -> Option<Area<Leaving>> {
        let (_, Slot::Area(area)) = self.0.entry_from(addr)? else {
            return None;
        };
        // SAFETY: The area is in the tree, whose lock we hold.
        let seen = unsafe { area.look() }.filter(|seen| seen.contains(addr))?;
        // SAFETY: As above.
        unsafe { area.leave(seen) }
    }

    /// Makes the range of `area` free. The area comes back if there is no memory for that.
    pub(crate) fn give_back<S: Spare>(
        &mut self,
        area: Area<S>,
    ) -> Result<Area<New>, (Area<S>, StoreError)> {
        let erased = match area.span() {
            Some(span) => self.0.erase(span, Slot::Area(area.ptr())),
            None => Err(StoreError::Mismatch),
        };
        match erased {
            // SAFETY: The entry is gone.
            Ok(()) => Ok(unsafe { area.erased() }),
            Err(err) => Err((area, err)),
        }
    }

    /// Reserves `span`, which is in the gap found last, for a block.
    pub(crate) fn reserve_block(&mut self, span: Span) -> Result<(), StoreError> {
        self.0.insert(span, Slot::Block(span.first()))
    }

    /// Makes the range of a block free, if there is memory for that.
    pub(crate) fn free_block(&mut self, span: Span) -> Result<(), StoreError> {
        self.0.erase(span, Slot::Block(span.first()))
    }
}

impl Table {
    /// An empty index, with a lock of class `key`.
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> Result<Self> {
        let tree = maple::Tree::new(name, key);
        Ok(Self(KBox::pin_init(tree, GFP_NOWAIT)?))
    }

    /// Locks the index for searching and changing it. Spins; any context that may take spinlocks.
    pub(crate) fn lock(&self) -> TableGuard<'_> {
        TableGuard(self.0.lock())
    }

    /// The busy area that contains `addr` and has an entry of its own, without a lock. Any context in
    /// which RCU is watching.
    #[inline(always)]
    pub(crate) fn find(&self, addr: usize, rcu: &rcu::Guard) -> Option<(AreaPtr, Seen)> {
        let Slot::Area(area) = self.0.load(addr, rcu)? else {
            return None;
        };
        // SAFETY: The area was in the tree after the RCU read lock was taken.
        let seen = unsafe { area.look() }?;
        seen.contains(addr).then_some((area, seen))
    }

    /// As [`TableGuard::unlink`], without the lock.
    #[inline(never)]
    pub(crate) fn unlink(&self, addr: usize, rcu: &rcu::Guard) -> Option<Area<Leaving>> {
        let (area, seen) = self.find(addr, rcu)?;
        // SAFETY: As in `find()`.
        unsafe { area.leave(seen) }
    }

    /// Where the object of an area that the caller has allocated and not freed says that it starts.
    pub(crate) fn start_of(&self, area: AreaPtr, _rcu: &rcu::Guard) -> Option<usize> {
        // SAFETY: The object of an area that is not freed is one of an area.
        Some(unsafe { area.bounds() }?.first())
    }

    /// The lowest busy area that ends above `addr`, or the block before it, without a lock. Task
    /// context.
    pub(crate) fn next(&self, addr: usize) -> Option<Next> {
        self.0.next(addr, |span, slot| match slot {
            // SAFETY: The closure is called under the RCU read lock, and the area was in the tree
            // after it was taken.
            Slot::Area(area) => unsafe { area.look() }.map(|seen| Next::Busy(area, seen)),
            Slot::Block(_) => Some(Next::Block(span)),
        })
    }
}
