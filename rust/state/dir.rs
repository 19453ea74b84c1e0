// SPDX-License-Identifier: GPL-2.0

//! The directory of blocks: finds the block at an address without a lock.
//!
//! It has two levels, and an entry for each [`SIZE`] bytes, so a lookup takes a few loads with any number
//! of blocks and CPUs. A coarse block has several entries; the number of a block ([`BlockNumber`]) is that
//! of its first one. The entries of 1 GiB (with pages of 4 KiB) are one *part* of the
//! directory. Each part also has bitmaps with a bit for each entry ([`crate::state::maps`]).
//!
//! Parts are made when a block needs them, and kept in a table of [`MAX_PARTS`] slots. The slot of a part
//! is its number modulo the number of slots. So blocks can be anywhere in the space, wherever large areas
//! are, but not in two parts with the same slot.
//!
//! A block that was removed from the directory is freed after an RCU grace period.

#[cfg(CONFIG_VMAP_RUST)]
use crate::sys::layout::small;
use crate::{
    base::{
        bits::Bit,
        range::{
            align_up,
            Span,
            PAGE_SIZE, //
        }, //
    },
    state::{
        area::{
            Area,
            Unlinked, //
        },
        block::{
            Block,
            COARSE_SIZE,
            SIZE, //
        },
        block_number::BlockNumber,
        maps::{
            Entry,
            Maps,
            PartMaps, //
        }, //
    },
    sys::{
        grace::{
            GraceBox,
            Guard, //
        },
        mm::{
            self,
            Node, //
        }, //
    }, //
};
#[cfg(CONFIG_VMAP_RUST)]
use core::mem::offset_of;
use core::{
    ops::Range,
    ptr, //
};
#[cfg(CONFIG_VMAP_RUST)]
use kernel::bindings;
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

/// The pointers in the entries of a block: that in the first one, and the others.
type Pointers<'a> = (&'a Atomic<*mut c_void>, &'a [Atomic<*mut c_void>]);

/// The lower level of the directory.
struct Part {
    /// The number of its first entry, divided by [`FANOUT`].
    number: usize,
    /// Each is null or a block that the directory owns.
    entries: KBox<[Atomic<*mut c_void>; FANOUT]>,
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
    parts: KBox<[Atomic<*mut Part>; MAX_PARTS]>,
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
        let parts = Node::ANY.new_array(|| Atomic::new(ptr::null_mut()), GFP_NOWAIT)?;
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

    /// Returns the number of a block that begins at `addr`, if there can be one.
    pub(crate) fn number_at(&self, addr: usize) -> Option<BlockNumber> {
        let entry = self.entry_of(addr)?;
        (entry < self.capacity).then(|| BlockNumber::of_entry(entry))
    }

    /// Returns the number of the entry for `addr`, which may be higher than that of the last one.
    #[inline(always)]
    fn entry_of(&self, addr: usize) -> Option<usize> {
        (addr / SIZE).checked_sub(self.first)
    }

    /// Returns the slot for part `number`.
    #[inline(always)]
    fn slot(&self, number: usize) -> &Atomic<*mut Part> {
        // By the remainder, no check remains.
        &self.parts[number % MAX_PARTS]
    }

    /// Makes sure that there is a part for block `block`. Fails with `EBUSY` if another part has its slot.
    /// Sleeps if `flags` allow it.
    pub(crate) fn prepare(&self, block: BlockNumber, flags: Flags) -> Result {
        if self.is_prepared(block) {
            return Ok(());
        }
        let number = block.entry() / FANOUT;
        let slot = self.slot(number);
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
        if self.is_prepared(block) {
            Ok(())
        } else {
            Err(EBUSY)
        }
    }

    /// Returns the first address of the lowest part above that of `addr` which exists or has a free slot.
    pub(crate) fn next_usable(&self, addr: usize) -> Option<usize> {
        let number = self.entry_of(addr)? / FANOUT;
        for step in 1..=MAX_PARTS {
            let entry = number.checked_add(step)?.checked_mul(FANOUT)?;
            if entry >= self.capacity {
                return None;
            }
            // Relaxed: `prepare()` looks again.
            if self.part(entry).is_some() || self.slot(entry / FANOUT).load(Relaxed).is_null() {
                return self.first.checked_add(entry)?.checked_mul(SIZE);
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

    /// Returns whether there is a part for block `block`.
    pub(crate) fn is_prepared(&self, block: BlockNumber) -> bool {
        self.part(block.entry()).is_some()
    }

    /// Returns the part in the slot for part `number`.
    #[inline(always)]
    fn part_in(&self, number: usize) -> Option<&Part> {
        // Relaxed: all reads of the part depend on the address, see `prepare()`.
        let part = self.slot(number).load(Relaxed);
        // SAFETY: By the type invariants, the pointer is null or valid as long as `self` is.
        unsafe { part.as_ref() }
    }

    /// Returns the part that has `entry`.
    #[inline(always)]
    fn part(&self, entry: usize) -> Option<&Part> {
        let number = entry / FANOUT;
        self.part_in(number).filter(|part| part.number == number)
    }

    /// Returns the entry of block `number`; [`None`] if its part does not exist, which never is so for a number that
    /// a block of this directory had.
    pub(crate) fn entry(&self, number: BlockNumber) -> Option<Entry<'_>> {
        Some(Entry {
            number,
            maps: &self.part(number.entry())?.maps,
            bit: Bit::in_row(number.entry()),
        })
    }

    /// Returns the bitmaps of all parts.
    pub(crate) fn all_maps(&self) -> impl DoubleEndedIterator<Item = PartMaps<'_>> {
        self.maps_in(0..usize::MAX)
    }

    /// Returns the bitmaps of the parts in `slots`.
    pub(crate) fn maps_in(
        &self,
        slots: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = PartMaps<'_>> {
        // Relaxed: see `raise_slots_end()`.
        let end = slots.end.min(self.slots_end.load(Relaxed));
        (slots.start..end).filter_map(|slot| {
            let part = self.part_in(slot)?;
            Some(PartMaps {
                slot,
                maps: &part.maps,
                number: part.number,
            })
        })
    }

    /// Returns the block at the entry with number `number`, as long as `rcu` is held. Any context in which RCU is
    /// watching.
    ///
    /// The block has this number, or is a coarse block with a lower one.
    #[inline(always)]
    pub(crate) fn block_in<'a>(&'a self, number: BlockNumber, rcu: &'a Guard) -> Option<&'a Block> {
        self.block_at_entry(number.entry(), rcu)
    }

    #[inline(always)]
    fn block_at_entry<'a>(&'a self, entry: usize, rcu: &'a Guard) -> Option<&'a Block> {
        // Relaxed: all reads of the block depend on the address, see `insert()`.
        let raw = self.part(entry)?.pointer(entry).load(Relaxed);
        // SAFETY: `raw` was in an entry after the RCU read lock was taken, which `rcu` shows.
        unsafe { Self::peek(raw, rcu) }
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

    /// Returns the block at `addr`, and its first entry.
    #[inline(always)]
    pub(crate) fn block_and_entry<'a, 'rcu>(
        &'a self,
        addr: usize,
        rcu: &'rcu Guard,
    ) -> Option<(&'rcu Block, Entry<'a>)> {
        let entry = self.entry_of(addr)?;
        let part = self.part(entry)?;
        // Relaxed: see `block_at_entry()`.
        let raw = part.pointer(entry).load(Relaxed);
        // SAFETY: `raw` was in an entry after the RCU read lock was taken, which `rcu` shows.
        let block = unsafe { Self::peek(raw, rcu) }?;
        let first = self.entry_of(block.start())?;
        let entry = Entry {
            number: BlockNumber::of_entry(first),
            // All entries of a block are in one part.
            maps: &part.maps,
            bit: Bit::in_row(first),
        };
        Some((block, entry))
    }

    /// Makes an unmapped area of a block lazy. Returns the first entry of the block, and the size of the area in pages,
    /// which may be less than the block keeps reserved for it. Ends with a full barrier. Any context.
    #[inline(always)]
    pub(crate) fn retire(&self, area: Area<Unlinked>) -> Option<(Entry<'_>, usize)> {
        let span = area.span()?;
        let entry = self.entry_of(span.first())?;
        let part = self.part(entry)?;
        // Relaxed: the entry does not change as long as the area is in the block.
        let raw = part.pointer(entry).load(Relaxed);
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the invariants of `Area`, units of the block are reserved for the area, so all units cannot be
        // claimed and the block stays in the directory. `Block::retire()` uses nothing of it after it has given the last
        // of these units to a purge.
        let block = unsafe { GraceBox::<Block>::peek(raw) };
        let first = self.entry_of(block.start())?;
        block.retire(area, span);
        let entry = Entry {
            number: BlockNumber::of_entry(first),
            // All entries of a block are in one part.
            maps: &part.maps,
            bit: Bit::in_row(first),
        };
        Some((entry, span.size() / PAGE_SIZE))
    }

    /// Returns the block at `addr`.
    #[inline(always)]
    pub(crate) fn block_at<'a>(&'a self, addr: usize, rcu: &'a Guard) -> Option<&'a Block> {
        self.block_at_entry(self.entry_of(addr)?, rcu)
    }

    /// Returns block `number`, or [`None`] for an entry inside a coarse block: there, `number` is the stale
    /// number of a freed block.
    pub(crate) fn block<'a>(&'a self, number: BlockNumber, rcu: &'a Guard) -> Option<&'a Block> {
        let block = self.block_in(number, rcu)?;
        (self.entry_of(block.start()) == Some(number.entry())).then_some(block)
    }

    /// Returns the pointers in the entries of a block at `span`, the first one and the others, if they are all in
    /// one part.
    fn pointers(&self, number: BlockNumber, span: Span) -> Option<Pointers<'_>> {
        let first = Bit::in_row(number.entry()).number();
        let end = first.checked_add(span.size() / SIZE)?;
        let part = self.part(number.entry())?;
        part.entries.get(first..end)?.split_first()
    }

    /// Inserts a block at its address. Returns its first entry, or the block if the place is taken or has no
    /// part.
    pub(crate) fn insert(&self, block: GraceBox<Block>) -> Result<Entry<'_>, GraceBox<Block>> {
        let place = block.span().and_then(|span| {
            let number = self.number_at(span.first())?;
            Some((self.entry(number)?, self.pointers(number, span)?))
        });
        let Some((entry, (first, others))) = place else {
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
        for other in others {
            // INVARIANT: The pointer came from `into_raw()`, and the first entry owns the box.
            if other.cmpxchg(ptr::null_mut(), raw, Full).is_err() {
                mm::refuse!("there is a block in block {}", entry.number.entry());
            }
        }
        Ok(entry)
    }

    /// Removes block `number` from all its entries.
    pub(crate) fn remove(&self, number: BlockNumber) -> Option<GraceBox<Block>> {
        let rcu = Guard::new();
        let part = self.part(number.entry())?;
        let raw = part.pointer(number.entry()).load(Relaxed);
        // SAFETY: `raw` was in an entry after the RCU read lock was taken, which `rcu` shows.
        let span = unsafe { Self::peek(raw, &rcu) }?.span()?;
        if self.entry_of(span.first()) != Some(number.entry()) {
            return None;
        }
        let (first, others) = self.pointers(number, span)?;
        // If it is still `raw`, it is still this block: the RCU read lock keeps the memory from being
        // reused.
        first.cmpxchg(raw, ptr::null_mut(), Release).ok()?;
        drop(rcu);
        for other in others {
            // An entry that holds another block stays as it is.
            let _ = other.cmpxchg(raw, ptr::null_mut(), Release);
        }
        // SAFETY: By the type invariants, the pointer came from `into_raw()`, and the first entry owned the
        // box. Only one exchange can take it from there. No entry holds it any more, so nobody finds it.
        Some(unsafe { GraceBox::from_raw(raw) })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        for part in self.all_maps() {
            for bit in Bit::all() {
                drop(self.remove(part.entry(bit).number));
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

/// For debuggers.
#[cfg(CONFIG_VMAP_RUST)]
impl Directory {
    /// Describes a directory that is at offset `at` of the space, its parts, and its blocks.
    pub(crate) const fn describe(info: &mut bindings::vmap_rust_debug_info, at: usize) {
        info.space_dir_first = small(at + offset_of!(Self, first));
        info.space_dir_capacity = small(at + offset_of!(Self, capacity));
        info.space_dir_parts = small(at + offset_of!(Self, parts));
        info.space_dir_slots_end = small(at + offset_of!(Self, slots_end));
        info.dir_slots = small(MAX_PARTS);
        info.part_entries = small(FANOUT);

        info.part_number = small(offset_of!(Part, number));
        info.part_table = small(offset_of!(Part, entries));
        Maps::describe(info, offset_of!(Part, maps));
        Block::describe(info, GraceBox::<Block>::VALUE);
    }
}

impl Part {
    fn new(number: usize, flags: Flags) -> Result<Self> {
        Ok(Self {
            number,
            entries: Node::ANY.new_array(|| Atomic::new(ptr::null_mut()), flags)?,
            maps: Maps::new(),
        })
    }

    /// Returns the pointer in `entry`, which is one of this part.
    #[inline(always)]
    fn pointer(&self, entry: usize) -> &Atomic<*mut c_void> {
        // By the remainder, no check remains.
        &self.entries[entry % FANOUT]
    }
}
