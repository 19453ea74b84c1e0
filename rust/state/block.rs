// SPDX-License-Identifier: GPL-2.0

//! A block: an aligned range of addresses, divided into slots of one class ([`crate::state::class`]). An area has a slot
//! of its own, and the slot an object ([`crate::state::objects`]). Each slot is in one of these states:
//!
//! | slot is | in `free` | in `lazy` | in `flushing` |
//! |---|---|---|---|
//! | free | 1 | 0 | 0 |
//! | that of an area that is reserved, busy or unlinked; any in a closed block | 0 | 0 | 0 |
//! | lazy, and no purge has taken it yet | 0 | 1 | 0 |
//! | taken by a purge, until that has flushed and freed it | 0 | 0 | 1 |
//!
//! A slot has one owner while it changes state: the CPU that claimed it, the CPU that unlinked its area, or
//! the purge that took it out of `lazy`.
//!
//! The bits that a CPU writes when it allocates, those that another writes when it frees, and the head that
//! lookups read are on different cache lines. All three use the line of the object.

use super::prelude::*;
use core::num::NonZero;

/// The number of a block: its start, in units of [`SIZE`]. So a count or an address is not mistaken for one, and kmemleak
/// takes none for a reference to the first area.
///
/// It may be stale: the block may have been freed since, and another one may be at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct BlockNumber(NonZero<usize>);

impl BlockNumber {
    /// Returns the number of a block that starts at `addr`; [`None`] if none can start there.
    pub(crate) fn at(addr: usize) -> Option<Self> {
        if is_aligned(addr, SIZE) {
            NonZero::new(addr / SIZE).map(Self)
        } else {
            None
        }
    }

    pub(crate) const fn start(self) -> usize {
        self.0.get().wrapping_mul(SIZE)
    }
}

/// A place for the number of a block, or none. All accesses are relaxed: a number is only a hint unless a lock protects
/// the place.
#[repr(transparent)]
pub(crate) struct BlockHint(Atomic<usize>);

impl BlockHint {
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    pub(crate) fn get(&self) -> Option<BlockNumber> {
        NonZero::new(self.0.read_once()).map(BlockNumber)
    }

    pub(crate) fn set(&self, number: Option<BlockNumber>) {
        self.0.write_once(number.map_or(0, |number| number.0.get()));
    }
}

/// Values of [`Block::status`].
pub(super) const UNSEATED: usize = 0;
pub(super) const SEATED: usize = 1;
pub(super) const REMOVED: usize = 2;

/// Where a block is. The pool changes it under its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A CPU allocates from it, or it is about to be one's, or to be removed.
    Held = 0,
    /// In the pool, without a free slot: in no list.
    Full = 1,
    /// In the list of partial blocks, and in that of the CPU that allocated from it last.
    Owned = 2,
    /// In the list of partial blocks.
    Orphan = 3,
    /// In the list of empty blocks, and in that of the CPU that allocated from it last.
    Empty = 4,
}

/// What the pool knows of a block, written under its lock, and what a purge does. On lines that lookups do not read.
pub(crate) struct Links {
    /// The next block and the one before, of lists of each kind.
    pub(crate) chains: [[BlockHint; 2]; 2],
    place: Atomic<usize>,
    owner: Atomic<usize>,
    /// The next block of the plan that has taken slots of this one, and whether one has: see [`crate::state::flush`].
    pub(super) next_in_plan: BlockHint,
    pub(super) is_in_plan: Atomic<usize>,
}

impl Links {
    pub(crate) fn place(&self) -> Place {
        // Relaxed: changed under the lock of the pool; others may read it for a report.
        match self.place.read_once() {
            1 => Place::Full,
            2 => Place::Owned,
            3 => Place::Orphan,
            4 => Place::Empty,
            _ => Place::Held,
        }
    }

    pub(crate) fn set_place(&self, place: Place) {
        // CAST: The variants are small numbers.
        self.place.write_once(place as usize);
    }

    /// Returns the CPU, or the first one of the group of CPUs, that allocates from the block or did last.
    pub(crate) fn owner(&self) -> CpuNumber {
        CpuNumber::new(self.owner.read_once())
    }

    /// Notes who allocates from the block.
    pub(crate) fn set_owner(&self, cpu: CpuNumber) {
        self.owner.write_once(cpu.number());
    }
}

/// A slot that was claimed for an area at `span`. The drop gives the slot back.
///
/// # Invariants
///
/// - The bit of the slot was cleared in `free` of the block, and only the owner of this makes the slot free again.
/// - `span` is in the slot.
pub(crate) struct Claimed<'block> {
    block: &'block Block,
    slot: Bit,
    span: Span,
}

impl Claimed<'_> {
    /// Returns the object of the slot, and the addresses of the area.
    #[inline(always)]
    pub(super) fn object(&self) -> (AreaPtr, Span) {
        (self.block.objects.of(self.slot), self.span)
    }

    /// Reports that somebody uses the slot, which stays claimed.
    #[cold]
    pub(super) fn leak(self) {
        let (start, slot) = (self.block.start(), self.slot.number());
        core::mem::forget(self);
        mm::refuse("a slot is not free", &[start], &[slot]);
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        // Full: see `Blocks::claim()`.
        self.block.free.set_and_fence(self.slot, self.slot.mask());
    }
}

/// A block.
///
/// # Invariants
///
/// - A slot is set in one of `free`, `lazy` and `flushing`, or it has one owner: a [`Claimed`], an area, a batch
///   ([`crate::state::batch`]), or the function that moves it from one map to another.
/// - A closed block has no slot in these maps, and no area: it is new, or all its slots were free when they were claimed.
pub(crate) struct Block {
    /// The number of the first page: the address itself would be a reference to the first area for kmemleak.
    first_page: usize,
    slot_pages: usize,
    /// See [`Class::reciprocal`].
    reciprocal: u64,
    class: Class,
    /// See [`Class::slots`]: readers of all areas need it for each.
    pub(super) slot_count: usize,
    /// Whether areas are placed at random instead of at the lowest address.
    is_randomized: bool,
    pub(super) objects: Objects,
    links: CacheAligned<Links>,
    /// See [`crate::state::dir::Seat`].
    pub(super) status: Atomic<usize>,
    pub(super) free: Map,
    pub(super) lazy: Map,
    pub(super) flushing: Map,
}

impl Block {
    /// Creates a closed block of `class` without an address. It places areas at random if `is_randomized`.
    /// Sleeps if `flags` allow it.
    pub(crate) fn new(
        class: Class,
        is_randomized: bool,
        flags: Flags,
    ) -> Result<Unpublished<Self>> {
        let block = Self {
            first_page: 0,
            slot_pages: class.slot_pages(),
            reciprocal: class.reciprocal(),
            class,
            slot_count: class.slots(),
            is_randomized,
            objects: Objects::new(class.slots(), flags)?,
            links: CacheAligned::new(Links {
                chains: [const { [const { BlockHint::new() }; 2] }; 2],
                place: Atomic::new(0),
                owner: Atomic::new(0),
                next_in_plan: BlockHint::new(),
                is_in_plan: Atomic::new(0),
            }),
            status: Atomic::new(REMOVED),
            free: Map::new(),
            lazy: Map::new(),
            flushing: Map::new(),
        };
        let block = Unpublished::new(block, flags)?;
        // kmemleak looks for references only where a block has some: its padding may have addresses of areas.
        #[cfg(CONFIG_DEBUG_KMEMLEAK)]
        block.scan_only_links(flags);
        #[cfg(CONFIG_DEBUG_KMEMLEAK)]
        block.objects.scan_pointers(flags);
        Ok(block)
    }

    pub(super) fn place_at(&mut self, start: usize) {
        self.first_page = start / PAGE_SIZE;
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// Returns the number of the block; [`None`] if it has no address yet.
    pub(crate) fn number(&self) -> Option<BlockNumber> {
        BlockNumber::at(self.start())
    }

    pub(crate) fn start(&self) -> usize {
        self.first_page.wrapping_mul(PAGE_SIZE)
    }

    pub(crate) fn span(&self) -> Option<Span> {
        Span::with_size(self.start(), self.class.block_size())
    }

    /// Returns the bit of the block in maps of its part of the directory.
    #[inline(always)]
    pub(super) fn bit_in_part(&self) -> Bit {
        Bit::in_row(self.first_page / TABLE_PAGES)
    }

    /// Returns the slot at `addr`, which is in the block. Behind the last slot, it is one that is never used.
    #[inline(always)]
    pub(super) fn slot_at(&self, addr: usize) -> Bit {
        Bit::in_row(self.number_of((addr / PAGE_SIZE).wrapping_sub(self.first_page)))
    }

    /// Returns the number of the slot that has page `page` of the block; of a page of no block, any number.
    #[inline(always)]
    fn number_of(&self, page: usize) -> usize {
        // CAST: A number of pages fits in a `u64`, and that of a slot in a `usize`.
        ((page as u64).wrapping_mul(self.reciprocal) >> 32) as usize
    }

    /// Returns whether `addr` is in a slot of the block.
    #[inline(always)]
    pub(super) fn has(&self, addr: usize) -> bool {
        let page = (addr / PAGE_SIZE).wrapping_sub(self.first_page);
        page < self.slot_count.wrapping_mul(self.slot_pages)
    }

    #[inline(always)]
    pub(super) fn address_of(&self, number: usize) -> usize {
        let page = number.wrapping_mul(self.slot_pages);
        self.first_page.wrapping_add(page).wrapping_mul(PAGE_SIZE)
    }

    /// Returns the addresses of `count` slots from slot `first` on.
    pub(crate) fn slots(&self, first: Bit, count: usize) -> Option<Span> {
        let end = first.number().checked_add(count)?;
        Span::from_bounds(self.address_of(first.number()), self.address_of(end))
    }

    /// Claims a free slot for an area of `size` bytes. Takes no lock of the allocator. Not in NMIs, nor in interrupts with
    /// PREEMPT_RT.
    #[inline(always)]
    pub(crate) fn claim(&self, size: usize) -> Option<Claimed<'_>> {
        // Not a size for this class, or 0.
        if size.wrapping_sub(1) / PAGE_SIZE >= self.slot_pages {
            return None;
        }
        let slot = if self.is_randomized {
            self.claim_randomized()
        } else {
            self.free.claim()
        }?;
        let Some(span) = Span::with_size(self.address_of(slot.number()), size) else {
            // Cannot happen: it is in the slot.
            self.free.set(slot);
            return None;
        };
        // INVARIANT: The bit was just cleared here. By the check above, the area has no more pages than the slot.
        Some(Claimed {
            block: self,
            slot,
            span,
        })
    }

    /// Reserves areas at fixed offsets from a common base in free slots: all, in order, or none. Takes no lock.
    pub(crate) fn alloc_set(
        &self,
        members: impl Iterator<Item = Member> + Clone,
    ) -> Option<AreaList<Reserved>> {
        // What is in no block is not in the bounds of a slot either, which are looked at below.
        let number = |member: Member| self.number_of(member.offset / PAGE_SIZE);
        let last = members.clone().map(number).fold(0, usize::max);
        let words = self.free.words();
        for first in (0..self.slot_count.saturating_sub(last)).rev() {
            let slot = |member| Bit::in_row(first.wrapping_add(number(member)));
            if !members.clone().all(|member| map::has(&words, slot(member))) {
                continue;
            }
            let base = self.address_of(first);
            let span = |member: Member| {
                let span = member.at(base)?;
                let bounds = self.slots(slot(member), 1)?;
                bounds.covers(span).then_some(span)
            };
            if members.clone().any(|member| span(member).is_none()) {
                // Not a set for this class.
                return None;
            }
            let mut slots = members.clone().map(slot);
            if let Some(taken) = slots.find(|&slot| !self.free.claim_bit(slot)) {
                // Another CPU was faster. Nobody has seen what was claimed.
                for slot in members.clone().map(slot).take_while(|&slot| slot != taken) {
                    self.free.set(slot);
                }
                continue;
            }
            let mut areas = AreaList::new();
            for member in members {
                // INVARIANT: All these bits were just cleared here, and `span()` checks that each area is in its slot.
                let claimed = Claimed {
                    block: self,
                    slot: slot(member),
                    span: span(member)?,
                };
                // Without an object, the slots of the others stay claimed.
                areas.push(claimed.reserve()?);
            }
            return Some(areas);
        }
        None
    }

    /// Claims a free slot near a random one.
    #[cold]
    #[inline(never)]
    fn claim_randomized(&self) -> Option<Bit> {
        // The upper half of the product is any number below that of the slots.
        // CAST: As in `number_of()`.
        let near = u64::from(mm::random()).wrapping_mul(self.slot_count as u64) >> 32;
        self.free.claim_near(Bit::in_row(near as usize))
    }

    /// Returns the busy area that contains `addr`.
    #[inline(always)]
    pub(crate) fn find(&self, addr: usize) -> Option<Busy> {
        self.objects
            .look(self.slot_at(addr))
            .filter(|area| area.contains(addr))
    }

    /// `addr` is in the block.
    #[inline(always)]
    pub(super) fn object_at(&self, addr: usize) -> AreaPtr {
        self.objects.of(self.slot_at(addr))
    }

    /// Returns the lowest busy area that ends above `addr`, which is in the block, and begins at or below `last`. A step costs
    /// about the same however many areas the block has: it looks at no object whose slot is free.
    pub(crate) fn next_busy(&self, addr: usize, last: usize) -> Option<Busy> {
        let mut from = self.slot_at(addr).number();
        loop {
            // Bits behind the last slot are clear, too.
            let slot = self.free.next_clear(from)?;
            from = slot.number().wrapping_add(1);
            // An area begins in its slot.
            if from > self.slot_count || self.address_of(slot.number()) > last {
                return None;
            }
            let found = self.objects.look(slot);
            if found.is_some_and(|area| area.span().last() >= addr) {
                return found.filter(|area| area.span().first() <= last);
            }
        }
    }

    /// Returns the lowest area at or above `addr`, which is in the block, that was lazy during the call, one that a purge was
    /// flushing included. It looks at no other object. A slot that is freed and reserved again meanwhile may be taken for a lazy
    /// area, and one that a purge takes meanwhile may be missed: it is in neither map for a moment.
    pub(crate) fn next_lazy(&self, addr: usize) -> Option<Span> {
        let mut from = self.slot_at(addr).number();
        loop {
            let slot = map::next_set_in([&self.lazy, &self.flushing], from)?;
            match self.objects.not_busy(slot) {
                // The object keeps the bounds of the area.
                Some((span, false)) if span.first() >= addr => return Some(span),
                _ => from = slot.number().wrapping_add(1),
            }
        }
    }

    /// Returns whether all slots are free. Others may change it.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_first(self.slot_count)
    }

    /// Returns whether no slot is free. Others may change it.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_clear()
    }

    /// Returns the number of pages, in whole slots, that wait for a purge to take them.
    pub(crate) fn lazy_pages(&self) -> usize {
        map::weight(&self.lazy.words()).wrapping_mul(self.slot_pages)
    }

    /// Closes the block if all of it is free, by claiming all slots: nobody can allocate from it then.
    pub(super) fn close(&self) -> bool {
        self.free.claim_all(&map::first(self.slot_count))
    }

    /// Opens a closed block that is in the directory by freeing all slots.
    pub(super) fn open(&self) {
        self.free.set_words(&map::first(self.slot_count));
    }
}
