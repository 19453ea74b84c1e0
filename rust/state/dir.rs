// SPDX-License-Identifier: GPL-2.0

//! The directory of blocks: finds the block at an address without a lock.
//!
//! It has two levels, and an entry for each [`SIZE`] bytes, so a lookup takes a few loads with any number
//! of blocks and CPUs. The *index* of an entry is its number. A coarse block has several entries; the index
//! of a block is that of its first one. The entries of 1 GiB (with pages of 4 KiB) are one *part* of the
//! directory. Each part also has bitmaps with a bit for each entry ([`crate::state::maps`]).
//!
//! Parts are made when a block needs them, and kept in a table of [`MAX_PARTS`] slots. The slot of a part
//! is its number modulo the number of slots. So blocks can be anywhere in the space, wherever large areas
//! are, but not in two parts with the same slot.
//!
//! A block that was removed from the directory is freed after an RCU grace period.

use crate::{
    base::range::{
        align_up,
        Span,
        PAGE_SIZE, //
    },
    state::{
        block::{
            Block,
            COARSE_SIZE,
            SIZE, //
        },
        maps::Maps, //
    },
    sys::{
        grace::{
            GraceBox,
            Guard, //
        },
        mm, //
    }, //
};
use core::{
    ops::Range,
    ptr, //
};
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
const FANOUT: usize = crate::base::bits::UNITS;

/// Maximum number of parts; a power of two.
const MAX_PARTS: usize = 512;

/// Bytes at the start of the space without blocks, for requests with a window there.
const HEADROOM: usize = 64 * PAGE_SIZE;

/// A space with room for fewer coarse blocks has no coarse blocks.
const MIN_COARSE: usize = 64;

/// The lower level of the directory.
struct Part {
    /// The index of its first entry, divided by [`FANOUT`].
    number: usize,
    /// [`FANOUT`] entries, each null or a block that the directory owns.
    entries: KVec<Atomic<*mut c_void>>,
    maps: Maps,
}

/// All blocks by address.
///
/// # Invariants
///
/// - A pointer in `parts` is null or points to a part that lives as long as the directory.
/// - An entry of a part is null or came from [`GraceBox::into_raw`] of a [`Block`] at the address of the
///   entry.
/// - All entries of a block are in one part, and a part is in the slot of its number.
/// - The first entry of a block owns its box. The block is freed only when it is in no entry, after a
///   grace period.
pub(crate) struct Directory {
    /// Where block 0 starts, in units of [`SIZE`]: kmemleak would take an address for a reference to the
    /// first area.
    first: usize,
    /// Number of entries.
    capacity: usize,
    /// Whether there can be coarse blocks.
    coarse: bool,
    /// The slots. A part is in the slot of its number.
    parts: KVec<Atomic<*mut Part>>,
    /// All slots in use are below this one: walks over all parts end here. It only rises.
    slots_end: Atomic<usize>,
}

impl Directory {
    /// Creates a directory without blocks, for blocks in `home`.
    pub(crate) fn new(home: Span) -> Result<Self> {
        let coarse = home.size() / COARSE_SIZE >= MIN_COARSE;
        // With this alignment, no coarse block has entries in two parts.
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
        let capacity = bytes / SIZE;
        let count = capacity.div_ceil(FANOUT).min(MAX_PARTS);
        let mut parts = KVec::with_capacity(count, GFP_NOWAIT)?;
        for _ in 0..count {
            parts.push(Atomic::new(ptr::null_mut()), GFP_NOWAIT)?;
        }
        // INVARIANT: All pointers in `parts` are null.
        Ok(Self {
            first: start / SIZE,
            capacity,
            coarse,
            parts,
            slots_end: Atomic::new(0),
        })
    }

    /// Returns all addresses at which blocks can be.
    pub(crate) fn window(&self) -> Option<Span> {
        Span::with_size(
            self.first.checked_mul(SIZE)?,
            self.capacity.checked_mul(SIZE)?,
        )
    }

    /// Returns the maximum number of fine blocks.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity.min(FANOUT * MAX_PARTS)
    }

    /// Returns whether there can be coarse blocks.
    pub(crate) fn has_coarse(&self) -> bool {
        self.coarse
    }

    /// Returns the index of the entry for `addr`.
    pub(crate) fn index_of(&self, addr: usize) -> Option<usize> {
        (addr / SIZE).checked_sub(self.first)
    }

    /// Returns the slot for the part of block `index`.
    #[inline(always)]
    fn slot(&self, index: usize) -> Option<&Atomic<*mut Part>> {
        self.parts.get(index / FANOUT % MAX_PARTS)
    }

    /// Makes sure that there is a part for block `index`. Fails with `EBUSY` if another part has its slot.
    /// Sleeps if `flags` allow it.
    pub(crate) fn prepare(&self, index: usize, flags: Flags) -> Result {
        if index >= self.capacity {
            return Err(EINVAL);
        }
        if self.is_prepared(index) {
            return Ok(());
        }
        let number = index / FANOUT;
        let slot = self.slot(index).ok_or(EINVAL)?;
        // Relaxed: the exchange below decides.
        if slot.load(Relaxed).is_null() {
            let new = KBox::into_raw(KBox::new(Part::new(number, flags)?, flags)?);
            self.raise_slots_end((number % MAX_PARTS).wrapping_add(1));
            // INVARIANT: All entries of the part are null, and it is never freed before the directory.
            // Full: a release is needed, so that a CPU that finds the part finds it initialized.
            if slot.cmpxchg(ptr::null_mut(), new, Full).is_err() {
                // SAFETY: The exchange failed, so nobody else has the pointer.
                drop(unsafe { KBox::from_raw(new) });
            }
        }
        // Another CPU may have used the slot meanwhile.
        if self.is_prepared(index) {
            Ok(())
        } else {
            Err(EBUSY)
        }
    }

    /// Returns the first address of the lowest part above that of `addr` which exists or has a free slot.
    pub(crate) fn next_usable(&self, addr: usize) -> Option<usize> {
        let number = self.index_of(addr)? / FANOUT;
        for step in 1..=MAX_PARTS {
            let index = number.checked_add(step)?.checked_mul(FANOUT)?;
            if index >= self.capacity {
                return None;
            }
            // Relaxed: `prepare()` looks again.
            if self.is_prepared(index) || self.slot(index)?.load(Relaxed).is_null() {
                return self.first.checked_add(index)?.checked_mul(SIZE);
            }
        }
        None
    }

    /// Lets walks over all parts include the first `count` slots.
    ///
    /// The caller publishes a part afterwards, with a full barrier between, and inserting a block is a
    /// full barrier too. So a purge that begins after an area of the part was retired walks over the part.
    fn raise_slots_end(&self, count: usize) {
        let mut old = self.slots_end.load(Relaxed);
        while old < count {
            // Full: orders it before the part is published.
            match self.slots_end.cmpxchg(old, count, Full) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Returns whether there is a part for block `index`.
    pub(crate) fn is_prepared(&self, index: usize) -> bool {
        self.part(index).is_some()
    }

    /// Returns the part in slot `slot`.
    #[inline(always)]
    fn part_in(&self, slot: usize) -> Option<&Part> {
        // Relaxed: all reads of the part depend on the address, see `prepare()`.
        let part = self.parts.get(slot)?.load(Relaxed);
        // SAFETY: By the type invariants, the pointer is null or valid as long as `self` is.
        unsafe { part.as_ref() }
    }

    #[inline(always)]
    fn part(&self, index: usize) -> Option<&Part> {
        let number = index / FANOUT;
        self.part_in(number % MAX_PARTS)
            .filter(|part| part.number == number)
    }

    /// Returns the bitmaps for block `index`, and its bit in them.
    pub(crate) fn maps(&self, index: usize) -> Option<(&Maps, usize)> {
        Some((&self.part(index)?.maps, index % FANOUT))
    }

    /// Returns the bitmaps of all parts, with the slot of the part and the block index of bit 0.
    pub(crate) fn all_maps(&self) -> impl DoubleEndedIterator<Item = (usize, usize, &Maps)> {
        self.maps_in(0..usize::MAX)
    }

    /// Returns the bitmaps of the parts in `slots`, with the slot of the part and the block index of bit 0.
    pub(crate) fn maps_in(
        &self,
        slots: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (usize, usize, &Maps)> {
        // Relaxed: see `raise_slots_end()`.
        let end = slots.end.min(self.slots_end.load(Relaxed));
        (slots.start..end).filter_map(|slot| {
            let part = self.part_in(slot)?;
            Some((slot, part.number.checked_mul(FANOUT)?, &part.maps))
        })
    }

    /// Returns the block at entry `index`, as long as `rcu` is held. Any context in which RCU is watching.
    ///
    /// The block has index `index`, or is a coarse block with a lower index.
    #[inline(always)]
    pub(crate) fn block_in<'a>(&'a self, index: usize, rcu: &'a Guard) -> Option<&'a Block> {
        // Relaxed: all reads of the block depend on the address, see `insert()`.
        let raw = self.entry(index)?.load(Relaxed);
        // SAFETY: `raw` was in an entry after the RCU read lock was taken, which `rcu` shows.
        unsafe { Self::peek(raw, rcu) }
    }

    fn entry(&self, index: usize) -> Option<&Atomic<*mut c_void>> {
        self.part(index)?.entries.get(index % FANOUT)
    }

    /// Returns the block at `raw` unless that is null.
    ///
    /// # Safety
    ///
    /// `raw` was in an entry after the RCU read lock was taken.
    #[inline(always)]
    unsafe fn peek(raw: *mut c_void, _rcu: &Guard) -> Option<&Block> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the safety requirements and the type invariants, the grace period before the block is
        // freed cannot end while the RCU read lock is held.
        Some(unsafe { GraceBox::<Block>::peek(raw) })
    }

    /// Returns the block at `addr`, with the bitmaps of its part and its bit in them.
    #[inline(always)]
    pub(crate) fn block_and_maps<'a>(
        &'a self,
        addr: usize,
        rcu: &'a Guard,
    ) -> Option<(&'a Block, &'a Maps, usize)> {
        let index = self.index_of(addr)?;
        let part = self.part(index)?;
        // Relaxed: see `block_in()`.
        let raw = part.entries.get(index % FANOUT)?.load(Relaxed);
        // SAFETY: `raw` was in an entry after the RCU read lock was taken, which `rcu` shows.
        let block = unsafe { Self::peek(raw, rcu) }?;
        // All entries of a block are in one part.
        let bit = self.index_of(block.start())? % FANOUT;
        Some((block, &part.maps, bit))
    }

    /// Returns the block at `addr`.
    #[inline(always)]
    pub(crate) fn block_at<'a>(&'a self, addr: usize, rcu: &'a Guard) -> Option<&'a Block> {
        self.block_in(self.index_of(addr)?, rcu)
    }

    /// Returns the block with index `index`, or [`None`] for an entry inside a coarse block: there,
    /// `index` is a stale index of a freed block.
    pub(crate) fn block<'a>(&'a self, index: usize, rcu: &'a Guard) -> Option<&'a Block> {
        let block = self.block_in(index, rcu)?;
        (self.index_of(block.start()) == Some(index)).then_some(block)
    }

    /// Returns the entries of block `index`, which is at `span`, if they are all in one part.
    fn entries(&self, index: usize, span: Span) -> Option<&[Atomic<*mut c_void>]> {
        let first = index % FANOUT;
        let end = first.checked_add(span.size() / SIZE)?;
        self.part(index)?.entries.get(first..end)
    }

    /// Inserts a block at its address. Returns its index, or the block if the place is taken or has no
    /// part.
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
        // INVARIANT: The pointer came from `into_raw()`, and this entry owns the box.
        // Full: a release is needed, here and below, so that a CPU that finds the block finds it
        // initialized.
        if first.cmpxchg(ptr::null_mut(), raw, Full).is_err() {
            // SAFETY: `raw` came from `into_raw()` above, and the exchange failed, so nobody else has it.
            return Err(unsafe { GraceBox::from_raw(raw) });
        }
        for entry in others {
            // INVARIANT: The pointer came from `into_raw()`, and the first entry owns the box.
            if entry.cmpxchg(ptr::null_mut(), raw, Full).is_err() {
                mm::refuse!("there is a block in block {}", index);
            }
        }
        Ok(index)
    }

    /// Removes block `index` from all its entries.
    pub(crate) fn remove(&self, index: usize) -> Option<GraceBox<Block>> {
        let rcu = Guard::new();
        let raw = self.entry(index)?.load(Relaxed);
        // SAFETY: `raw` was in an entry after the RCU read lock was taken, which `rcu` shows.
        let span = unsafe { Self::peek(raw, &rcu) }?.span()?;
        if self.index_of(span.first()) != Some(index) {
            return None;
        }
        let (first, others) = self.entries(index, span)?.split_first()?;
        // If it is still `raw`, it is still this block: the RCU read lock keeps the memory from being
        // reused.
        first.cmpxchg(raw, ptr::null_mut(), Release).ok()?;
        drop(rcu);
        for entry in others {
            // An entry that holds another block stays as it is.
            let _ = entry.cmpxchg(raw, ptr::null_mut(), Release);
        }
        // SAFETY: By the type invariants, the pointer came from `into_raw()`, and the first entry owned the
        // box. Only one exchange can take it from there. No entry holds it any more, so nobody finds it.
        Some(unsafe { GraceBox::from_raw(raw) })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        for slot in 0..self.parts.len() {
            let Some(number) = self.part_in(slot).map(|part| part.number) else {
                continue;
            };
            let first = number.wrapping_mul(FANOUT);
            for bit in 0..FANOUT {
                drop(self.remove(first.wrapping_add(bit)));
            }
        }
        for part in self.parts.iter() {
            let part = part.load(Relaxed);
            if !part.is_null() {
                // SAFETY: By the type invariants, the part is valid, and it came from `KBox::into_raw()`.
                drop(unsafe { KBox::from_raw(part) });
            }
        }
    }
}

/// All CPUs share a directory, so parts and blocks must be `Send` and `Sync`.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Part>();
    is_shared::<Block>();
};

impl Part {
    fn new(number: usize, flags: Flags) -> Result<Self> {
        let mut entries = KVec::with_capacity(FANOUT, flags)?;
        for _ in 0..FANOUT {
            entries.push(Atomic::new(ptr::null_mut()), flags)?;
        }
        Ok(Self {
            number,
            entries,
            maps: Maps::new(),
        })
    }
}
