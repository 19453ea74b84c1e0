// SPDX-License-Identifier: GPL-2.0

//! The directory of blocks: from an address to the block that it is in, without a lock.
//!
//! Two levels, with an entry for each [`SIZE`] bytes: a few loads, whatever the number of blocks and of
//! CPUs. The number of a block is that of its first entry; a coarse one has several. Each part of the
//! directory has bitmaps as well, with a bit for each of its entries, for [`crate::blocks`].
//!
//! A block that is removed from the directory is freed after a grace period of RCU, and only if none
//! of its area objects is in use.

use crate::{
    bits::Map,
    block::{
        Block,
        BANDS,
        COARSE_SIZE,
        SIZE, //
    },
    grace::{
        GraceBox,
        Guard, //
    },
    mm,
    range::{
        align_up,
        Span,
        PAGE_SIZE, //
    },
};
use core::ptr;
use kernel::{
    alloc::Flags,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed,
        Release, //
    }, //
};

/// Entries of a part.
const FANOUT: usize = crate::bits::UNITS;

/// Parts at most.
const MAX_PARTS: usize = 512;

/// So many bytes at the start of the space are in no block: room for requests that want to be there.
const HEADROOM: usize = 64 * PAGE_SIZE;

/// A space with room for fewer coarse blocks has none.
const MIN_COARSE: usize = 64;

/// The lower level.
struct Part {
    /// [`FANOUT`] times null or a block, of which the directory owns the box.
    entries: KVec<Atomic<*mut c_void>>,
    maps: Maps,
}

/// What else is known of the blocks of a part.
pub(crate) struct Maps {
    /// Some pages are lazy.
    pub(crate) dirty: Map,
    /// A purge is at work on it.
    pub(crate) flushing: Map,
    /// A CPU allocates from it, or it is about to be removed. This and the maps below change under the
    /// lock of the pool.
    pub(crate) held: Map,
    /// Not held, and has room for the band.
    pub(crate) partial: [Map; BANDS],
    /// Not held, and all is free.
    pub(crate) empty: Map,
}

/// All blocks by address.
///
/// # Invariants
///
/// What `parts` point to lives as long as the directory. An entry of a part is null or came from
/// [`GraceBox::into_raw`] of a [`Block`] that covers its place, which is freed, after a grace period, only
/// when all its entries have been taken out. The one with its number owns the box.
pub(crate) struct Directory {
    /// Where block 0 starts, in units of [`SIZE`]: as an address it would be a reference to the first area
    /// for kmemleak.
    first: usize,
    /// Number of entries.
    capacity: usize,
    /// Can there be coarse blocks?
    coarse: bool,
    parts: KVec<Atomic<*mut Part>>,
    /// Parts from this one on were never made: walks over all parts end here. It only rises.
    mark: Atomic<usize>,
}

/// A block that was taken out of the directory, and its number. When it is dropped, the memory is freed
/// as soon as readers are done with it; any context.
pub(crate) struct Removed {
    /// Always there, until it is given up.
    block: Option<GraceBox<Block>>,
    index: usize,
}

impl Directory {
    /// A directory without blocks, for those that lie in `home`.
    pub(crate) fn new(home: Span) -> Result<Self> {
        let coarse = home.size() / COARSE_SIZE >= MIN_COARSE;
        // No coarse block has its entries in two parts.
        let align = if coarse { COARSE_SIZE } else { SIZE };
        let start = home.first().checked_add(HEADROOM);
        let start = start
            .and_then(|start| align_up(start, align))
            .unwrap_or(usize::MAX);
        let bytes = home
            .end()
            .wrapping_sub(1)
            .checked_sub(start)
            .map_or(0, |last| last.saturating_add(1));
        let capacity = (bytes / SIZE).min(FANOUT * MAX_PARTS);
        let count = capacity.div_ceil(FANOUT);
        let mut parts = KVec::with_capacity(count, GFP_NOWAIT)?;
        for _ in 0..count {
            parts.push(Atomic::new(ptr::null_mut()), GFP_NOWAIT)?;
        }
        // INVARIANT: There is nothing in it.
        Ok(Self {
            first: start / SIZE,
            capacity,
            coarse,
            parts,
            mark: Atomic::new(0),
        })
    }

    /// Returns all addresses that blocks can be at.
    pub(crate) fn window(&self) -> Option<Span> {
        Span::with_size(
            self.first.checked_mul(SIZE)?,
            self.capacity.checked_mul(SIZE)?,
        )
    }

    /// Number of fine blocks that there can be.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Can there be coarse blocks?
    pub(crate) fn has_coarse(&self) -> bool {
        self.coarse
    }

    /// The number of the entry for `addr`.
    pub(crate) fn index_of(&self, addr: usize) -> Option<usize> {
        (addr / SIZE).checked_sub(self.first)
    }

    /// Makes sure that there is a part for block `index`. Sleeps if `flags` allow it.
    pub(crate) fn prepare(&self, index: usize, flags: Flags) -> Result {
        if index >= self.capacity {
            return Err(EINVAL);
        }
        let part = self.parts.get(index / FANOUT).ok_or(EINVAL)?;
        if self.is_prepared(index) {
            return Ok(());
        }
        let new = KBox::into_raw(KBox::new(Part::new(flags)?, flags)?);
        self.raise_mark((index / FANOUT).wrapping_add(1));
        // INVARIANT: All entries are null. Full, of which release is needed: who sees the part sees it
        // initialized.
        if part.cmpxchg(ptr::null_mut(), new, Full).is_err() {
            // SAFETY: Somebody else was faster; ours is not in use.
            drop(unsafe { KBox::from_raw(new) });
        }
        Ok(())
    }

    /// Makes walks over all parts go as far as `count` parts.
    ///
    /// Comes before a part is published, with a full barrier between: a purge that begins after an area
    /// of the part was retired sees the mark, since inserting the block is a full barrier as well.
    fn raise_mark(&self, count: usize) {
        let mut old = self.mark.load(Relaxed);
        while old < count {
            // Full: before the part is published.
            match self.mark.cmpxchg(old, count, Full) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Is there a part for block `index`?
    pub(crate) fn is_prepared(&self, index: usize) -> bool {
        self.part(index).is_some()
    }

    #[inline(always)]
    fn part(&self, index: usize) -> Option<&Part> {
        // Relaxed: what is read of the part depends on the address, see `prepare()`.
        let part = self.parts.get(index / FANOUT)?.load(Relaxed);
        // SAFETY: By the type invariants, it is null or lives as long as we do.
        unsafe { part.as_ref() }
    }

    /// The bitmaps for block `index`, and its bit in them.
    pub(crate) fn maps(&self, index: usize) -> Option<(&Maps, usize)> {
        Some((&self.part(index)?.maps, index % FANOUT))
    }

    /// Returns all bitmaps there are, with the number of the block of their bit 0.
    pub(crate) fn all_maps(&self) -> impl DoubleEndedIterator<Item = (usize, &Maps)> {
        // Relaxed: see `raise_mark()`.
        (0..self.mark.load(Relaxed)).filter_map(|part| {
            let first = part.checked_mul(FANOUT)?;
            Some((first, self.maps(first)?.0))
        })
    }

    /// The block at entry `index`, as long as `rcu` is held. Any context in which RCU is watching.
    ///
    /// That is block `index`, or a coarse one with a lower number.
    #[inline(always)]
    pub(crate) fn block_in<'a>(&'a self, index: usize, rcu: &'a Guard) -> Option<&'a Block> {
        // Relaxed: what is read of the block depends on the address, see `insert()`.
        let raw = self.entry(index)?.load(Relaxed);
        // SAFETY: It was in the entry after the RCU read lock was taken.
        unsafe { Self::peek(raw, rcu) }
    }

    fn entry(&self, index: usize) -> Option<&Atomic<*mut c_void>> {
        self.part(index)?.entries.get(index % FANOUT)
    }

    /// The block that `raw` is, if it is not null.
    ///
    /// # Safety
    ///
    /// `raw` was in an entry after the RCU read lock was taken.
    #[inline(always)]
    unsafe fn peek(raw: *mut c_void, _rcu: &Guard) -> Option<&Block> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariants, the block is freed a grace period after the last entry has
        // been taken out.
        Some(unsafe { GraceBox::<Block>::peek(raw) })
    }

    /// The block at `addr`.
    #[inline(always)]
    pub(crate) fn block_at<'a>(&'a self, addr: usize, rcu: &'a Guard) -> Option<&'a Block> {
        self.block_in(self.index_of(addr)?, rcu)
    }

    /// Block `index`. None if that is a place within a coarse block: who knows the number from a former
    /// block has nothing to do with that one.
    pub(crate) fn block<'a>(&'a self, index: usize, rcu: &'a Guard) -> Option<&'a Block> {
        let block = self.block_in(index, rcu)?;
        (self.index_of(block.start()) == Some(index)).then_some(block)
    }

    /// The entries of a block at `span`, the first of which has number `index`, if all of them are in
    /// one part.
    fn entries(&self, index: usize, span: Span) -> Option<&[Atomic<*mut c_void>]> {
        let first = index % FANOUT;
        let end = first.checked_add(span.size() / SIZE)?;
        self.part(index)?.entries.get(first..end)
    }

    /// Puts in a block, at the place it says it is at. Comes back if there is one already, or no part.
    pub(crate) fn insert(&self, block: GraceBox<Block>) -> Result<usize, GraceBox<Block>> {
        let span = block.span();
        let index = span.and_then(|span| self.index_of(span.first()));
        let entries = index
            .zip(span)
            .and_then(|(index, span)| self.entries(index, span));
        let (Some(index), Some([first, others @ ..])) = (index, entries) else {
            return Err(block);
        };
        let raw = block.into_raw();
        // INVARIANT: It just became a pointer. Full, of which release is needed, here and below: who sees
        // the block sees it initialized.
        if first.cmpxchg(ptr::null_mut(), raw, Full).is_err() {
            // SAFETY: Just made, and not handed over.
            return Err(unsafe { GraceBox::from_raw(raw) });
        }
        for entry in others {
            // INVARIANT: As above, and it does not own the box.
            if entry.cmpxchg(ptr::null_mut(), raw, Full).is_err() {
                mm::refuse!("there is a block in block {}", index);
            }
        }
        Ok(index)
    }

    /// Takes out block `index`.
    pub(crate) fn remove(&self, index: usize) -> Option<Removed> {
        let rcu = Guard::new();
        let raw = self.entry(index)?.load(Relaxed);
        // SAFETY: It was in the entry after the RCU read lock was taken.
        let span = unsafe { Self::peek(raw, &rcu) }?.span()?;
        if self.index_of(span.first()) != Some(index) {
            return None;
        }
        let (first, others) = self.entries(index, span)?.split_first()?;
        // Nobody else has freed it and put another one there meanwhile: the RCU read lock is held.
        first.cmpxchg(raw, ptr::null_mut(), Release).ok()?;
        drop(rcu);
        for entry in others {
            // One that is not ours is left alone.
            let _ = entry.cmpxchg(raw, ptr::null_mut(), Release);
        }
        // SAFETY: By the type invariants: the first entry has owned the box, the exchange gives it to us
        // only, and the other entries are gone.
        let block = unsafe { GraceBox::from_raw(raw) };
        Some(Removed {
            block: Some(block),
            index,
        })
    }

    /// Puts a block back where it was. Returns its number.
    pub(crate) fn put_back(&self, mut removed: Removed) -> Option<usize> {
        match self.insert(removed.block.take()?) {
            Ok(index) => Some(index),
            Err(block) => {
                mm::refuse!("there are two blocks at {:?}", block.span());
                // Safe, but lost: it may still have readers.
                let _ = block.into_raw();
                None
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        for index in 0..self.capacity {
            drop(self.remove(index));
        }
        for part in self.parts.iter() {
            let part = part.load(Relaxed);
            if !part.is_null() {
                // SAFETY: By the type invariants; it was a box.
                drop(unsafe { KBox::from_raw(part) });
            }
        }
    }
}

impl Removed {
    /// The addresses of the block.
    pub(crate) fn span(&self) -> Option<Span> {
        self.block.as_ref()?.span()
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        if block.is_vacant() {
            block.free_after_readers();
        } else {
            // Safe, but lost.
            mm::refuse!("block {} is freed with areas in it", self.index);
            let _ = block.into_raw();
        }
    }
}

/// All CPUs share a directory, which only has addresses of parts and blocks.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Part>();
    is_shared::<Block>();
};

impl Part {
    fn new(flags: Flags) -> Result<Self> {
        let mut entries = KVec::with_capacity(FANOUT, flags)?;
        for _ in 0..FANOUT {
            entries.push(Atomic::new(ptr::null_mut()), flags)?;
        }
        Ok(Self {
            entries,
            maps: Maps::new(),
        })
    }
}

impl Maps {
    fn new() -> Self {
        Self {
            dirty: Map::new(false),
            flushing: Map::new(false),
            held: Map::new(false),
            partial: core::array::from_fn(|_| Map::new(false)),
            empty: Map::new(false),
        }
    }
}
