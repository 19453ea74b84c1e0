// SPDX-License-Identifier: GPL-2.0

//! The directory of blocks: from an address to the block that it is in, without a lock.
//!
//! Two levels of arrays, by the number of the block: two loads, whatever the number of blocks and of
//! CPUs. Next to each array are bitmaps with a bit for each block in it, for [`crate::blocks`].
//!
//! A block that is removed from the directory is freed after a grace period of RCU, and only if none
//! of its area objects is in use.

use crate::{
    bits::Map,
    block::{
        Block,
        BANDS,
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
        Acquire,
        Atomic,
        Full,
        Release, //
    }, //
};

/// Blocks in an array.
const FANOUT: usize = crate::bits::PAGES;

/// Arrays at most.
const MAX_ARRAYS: usize = 512;

/// So many bytes at the start of the space are in no block: room for requests that want to be there.
const HEADROOM: usize = 64 * PAGE_SIZE;

/// The lower level: null, or a block of which the directory owns the box.
type Array = [Atomic<*mut c_void>; FANOUT];

/// What else is known of the blocks of an array.
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
/// What `arrays` and `maps` point to lives as long as the directory; `maps` has no fewer than `arrays`.
/// An entry of an array is null or came from [`GraceBox::into_raw`] of a [`Block`], which is freed, after
/// a grace period, only when the entry has been taken out.
pub(crate) struct Directory {
    /// Where block 0 starts.
    start: usize,
    /// Number of blocks there can be.
    capacity: usize,
    arrays: KVec<Atomic<*mut Array>>,
    maps: KVec<Atomic<*mut Maps>>,
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
        let start = home.first().checked_add(HEADROOM);
        let start = start
            .and_then(|start| align_up(start, SIZE))
            .unwrap_or(usize::MAX);
        let bytes = home
            .end()
            .wrapping_sub(1)
            .checked_sub(start)
            .map_or(0, |last| last.saturating_add(1));
        let capacity = (bytes / SIZE).min(FANOUT * MAX_ARRAYS);
        let count = capacity.div_ceil(FANOUT);
        let mut arrays = KVec::with_capacity(count, GFP_NOWAIT)?;
        let mut maps = KVec::with_capacity(count, GFP_NOWAIT)?;
        for _ in 0..count {
            arrays.push(Atomic::new(ptr::null_mut()), GFP_NOWAIT)?;
            maps.push(Atomic::new(ptr::null_mut()), GFP_NOWAIT)?;
        }
        // INVARIANT: There is nothing in it.
        Ok(Self {
            start,
            capacity,
            arrays,
            maps,
        })
    }

    /// All addresses that blocks can be at.
    pub(crate) fn window(&self) -> Option<Span> {
        Span::with_size(self.start, self.capacity.checked_mul(SIZE)?)
    }

    /// Number of blocks that there can be.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of the block at `addr`; there may be none at that number.
    pub(crate) fn index_of(&self, addr: usize) -> Option<usize> {
        Some(addr.checked_sub(self.start)? / SIZE)
    }

    /// Makes sure that there is an array for block `index`. Sleeps if `flags` allow it.
    pub(crate) fn prepare(&self, index: usize, flags: Flags) -> Result {
        if index >= self.capacity {
            return Err(EINVAL);
        }
        let (Some(array), Some(maps)) = (
            self.arrays.get(index / FANOUT),
            self.maps.get(index / FANOUT),
        ) else {
            return Err(EINVAL);
        };
        if self.is_prepared(index) {
            return Ok(());
        }
        let new = KBox::into_raw(KBox::new(Maps::new(), flags)?);
        // Release: who sees it sees it initialized, here and below.
        if maps.cmpxchg(ptr::null_mut(), new, Full).is_err() {
            // SAFETY: Somebody else was faster; ours is not in use.
            drop(unsafe { KBox::from_raw(new) });
        }
        // As a vector, so that it is not built on the stack first.
        let mut new = KVec::with_capacity(FANOUT, flags)?;
        for _ in 0..FANOUT {
            new.push(Atomic::<*mut c_void>::new(ptr::null_mut()), flags)?;
        }
        let (new, len, capacity) = new.into_raw_parts();
        // INVARIANT: All entries are null.
        if array
            .cmpxchg(ptr::null_mut(), new.cast::<Array>(), Full)
            .is_err()
        {
            // SAFETY: As above.
            drop(unsafe { KVec::from_raw_parts(new, len, capacity) });
        }
        Ok(())
    }

    /// Is there an array for block `index`?
    pub(crate) fn is_prepared(&self, index: usize) -> bool {
        self.array(index).is_some()
    }

    fn array(&self, index: usize) -> Option<&Array> {
        // Acquire: after its initialization.
        let array = self.arrays.get(index / FANOUT)?.load(Acquire);
        // SAFETY: By the type invariants, it is null or lives as long as we do.
        unsafe { array.as_ref() }
    }

    /// The bitmaps for block `index`, and its bit in them.
    pub(crate) fn maps(&self, index: usize) -> Option<(&Maps, usize)> {
        // Acquire: as above.
        let maps = self.maps.get(index / FANOUT)?.load(Acquire);
        // SAFETY: By the type invariants, it is null or lives as long as we do.
        Some((unsafe { maps.as_ref() }?, index % FANOUT))
    }

    /// All bitmaps there are, with the number of the block of their bit 0.
    pub(crate) fn all_maps(&self) -> impl DoubleEndedIterator<Item = (usize, &Maps)> {
        (0..self.maps.len()).filter_map(|array| {
            let first = array.checked_mul(FANOUT)?;
            Some((first, self.maps(first)?.0))
        })
    }

    /// Block `index`, as long as `_rcu` is held. Any context in which RCU is watching.
    pub(crate) fn block<'a>(&'a self, index: usize, _rcu: &'a Guard) -> Option<&'a Block> {
        // Acquire: after its initialization, see the release in `insert()`.
        let raw = self.array(index)?.get(index % FANOUT)?.load(Acquire);
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariants, the block is freed a grace period after the entry has been
        // taken out; it was there after the RCU read lock was taken.
        Some(unsafe { GraceBox::<Block>::peek(raw) })
    }

    /// The block at `addr`, and its number.
    pub(crate) fn block_at<'a>(
        &'a self,
        addr: usize,
        rcu: &'a Guard,
    ) -> Option<(usize, &'a Block)> {
        let index = self.index_of(addr)?;
        Some((index, self.block(index, rcu)?))
    }

    /// Puts in a block, at the place it says it is at. Comes back if there is one already, or no array.
    pub(crate) fn insert(&self, block: GraceBox<Block>) -> Result<usize, GraceBox<Block>> {
        let index = block.span().and_then(|span| self.index_of(span.first()));
        let entry = index.and_then(|index| self.array(index)?.get(index % FANOUT));
        let (Some(index), Some(entry)) = (index, entry) else {
            return Err(block);
        };
        let raw = block.into_raw();
        // INVARIANT: It just became a pointer. Full, of which release is needed: who sees the block
        // sees it initialized.
        if entry.cmpxchg(ptr::null_mut(), raw, Full).is_err() {
            // SAFETY: Just made, and not handed over.
            return Err(unsafe { GraceBox::from_raw(raw) });
        }
        Ok(index)
    }

    /// Takes out block `index`.
    pub(crate) fn remove(&self, index: usize) -> Option<Removed> {
        let raw = self
            .array(index)?
            .get(index % FANOUT)?
            .xchg(ptr::null_mut(), Release);
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariants; the exchange gives it to us only.
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
        for array in self.arrays.iter() {
            let array = array.load(Acquire);
            if !array.is_null() {
                // SAFETY: By the type invariants; it was a vector of as many entries.
                drop(unsafe {
                    KVec::from_raw_parts(array.cast::<Atomic<*mut c_void>>(), FANOUT, FANOUT)
                });
            }
        }
        for maps in self.maps.iter() {
            let maps = maps.load(Acquire);
            if !maps.is_null() {
                // SAFETY: By the type invariants; it was a box.
                drop(unsafe { KBox::from_raw(maps) });
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
