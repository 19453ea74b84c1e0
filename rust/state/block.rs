// SPDX-License-Identifier: GPL-2.0

//! A block: an aligned range of addresses whose units are allocated by a bitmap.
//!
//! [`crate::state::band`] has the sizes of blocks and units. Each unit is in one of these states:
//!
//! | unit is | in `free` | in `lazy` | in `flushing` |
//! |---|---|---|---|
//! | free | 1 | 0 | 0 |
//! | part of an area that is busy or unlinked | 0 | 0 | 0 |
//! | lazy, and no purge has taken it yet | 0 | 1 | 0 |
//! | taken by a purge, about to be TLB-flushed | 0 | 0 | 1 |
//!
//! A unit has one owner while it changes state: the CPU that claimed it, the CPU that unlinked its area, or
//! the purge that took it out of `lazy`.
//!
//! The area objects are part of the block ([`crate::state::objects`]). Its units are in *groups* of the size of
//! the band's smallest area, and each group has one object. The object of an area is that of the group of
//! its first unit, so no two areas share an object.
//!
//! A lookup looks at the object of the group of the address, and then at those before it. It ends where
//! even the largest area that was ever in the block would end below the address (the *reach* of the
//! block). That is one to three objects, unless a request of a higher band was served from the block.
//!
//! What a CPU writes when it allocates, what another writes when it frees, and what lookups read, are on
//! different cache lines.

#[cfg(CONFIG_VMAP_RUST)]
use crate::sys::layout::small;
use crate::{
    base::{
        bits::{
            self,
            Bit,
            Run,
            Words,
            UNITS, //
        },
        cpu::CpuNumber,
        map::Map,
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    state::{
        area::{
            Area,
            AreaPtr,
            Attributes,
            Flushed,
            Leaving,
            NeverMapped,
            Seen,
            Unlinked, //
        },
        flush::{
            Pages,
            Plan, //
        },
        objects::Objects,
        owner::Owner, //
    },
    sys::{
        mm,
        per_cpu::CacheAligned, //
    }, //
};
#[cfg(CONFIG_VMAP_RUST)]
use core::mem::offset_of;
#[cfg(CONFIG_VMAP_RUST)]
use kernel::bindings;
use kernel::{
    alloc::Flags,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

pub(crate) use crate::state::{
    band::{
        Band,
        Small,
        BANDS,
        COARSE_SIZE,
        SIZE,
        STEPS, //
    },
    block_check::Contents, //
};

/// The result of [`Block::alloc_in_pool`].
pub(crate) enum Tried {
    Found(AreaPtr),
    /// A search found no room.
    NoRoom,
    /// An earlier search found no room.
    Lacks,
}

/// Proof that units of a block were claimed for an area.
///
/// # Invariants
///
/// The units cover exactly the area that is made of it, and nobody else claims them before its owner, or the purge
/// that has flushed it, makes them free.
pub(super) struct Claim(());

/// A block.
pub(crate) struct Block {
    /// Number of the first unit, counted from address 0: the address itself would be a reference to the
    /// first area for kmemleak.
    first_unit: usize,
    band: Band,
    /// Bytes in a unit, as a power of two.
    pub(super) unit_shift: u32,
    /// Units in a group, which is the smallest area of its band, as a power of two.
    grain_shift: u32,
    /// Whether areas are placed at random instead of at the lowest address.
    is_randomized: bool,
    /// Units of the largest area that was ever in the block, at least those of the largest of its band.
    reach: Atomic<usize>,
    pub(super) objects: Objects,
    owner: CacheAligned<Owner>,
    pub(super) free: Map,
    pub(super) lazy: Map,
    pub(super) flushing: Map,
}

impl Block {
    /// Describes blocks and their objects to debuggers. A block is `at` bytes behind what the directory points to.
    #[cfg(CONFIG_VMAP_RUST)]
    pub(super) const fn describe(info: &mut bindings::vmap_rust_debug_info, at: usize) {
        info.block_first_unit = small(at + offset_of!(Self, first_unit));
        info.block_band = small(at + offset_of!(Self, band));
        info.block_unit_shift = small(at + offset_of!(Self, unit_shift));
        info.block_group_shift = small(at + offset_of!(Self, grain_shift));
        info.block_reach = small(at + offset_of!(Self, reach));
        info.block_free = small(at + offset_of!(Self, free));
        info.block_lazy = small(at + offset_of!(Self, lazy));
        info.block_flushing = small(at + offset_of!(Self, flushing));
        info.fine_size = small(SIZE);
        info.coarse_size = small(COARSE_SIZE);
        info.coarse_bands = small(STEPS);
        info.units = small(UNITS);
        let owner = at + offset_of!(Self, owner) + CacheAligned::<Owner>::VALUE;
        Owner::describe(info, owner);
        Objects::describe(info, at + offset_of!(Self, objects));
    }

    /// Creates a closed block of `band` without an address. It places areas at random if `is_randomized`.
    /// Sleeps if `flags` allow it.
    pub(crate) fn new(band: Band, is_randomized: bool, flags: Flags) -> Result<Self> {
        let grain_shift = band.grain_shift();
        Ok(Self {
            first_unit: 0,
            band,
            unit_shift: (band.block_size() / UNITS).trailing_zeros(),
            grain_shift,
            is_randomized,
            reach: Atomic::new(band.most_units()),
            objects: Objects::new(UNITS.wrapping_shr(grain_shift), flags)?,
            owner: CacheAligned::new(Owner::new()),
            free: Map::new(false),
            lazy: Map::new(false),
            flushing: Map::new(false),
        })
    }

    /// Sets the address of the block.
    pub(crate) fn place(&mut self, start: usize) {
        self.first_unit = start.wrapping_shr(self.unit_shift);
    }

    /// Returns the first address of the block.
    pub(crate) fn start(&self) -> usize {
        self.address_of(0)
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.band.block_size()
    }

    /// Returns the addresses of the block.
    pub(crate) fn span(&self) -> Option<Span> {
        Span::with_size(self.start(), self.size())
    }

    /// Returns the size of a unit in bytes.
    pub(crate) fn unit_size(&self) -> usize {
        1_usize.wrapping_shl(self.unit_shift)
    }

    /// Returns the band of the block.
    pub(crate) fn band(&self) -> Band {
        self.band
    }

    /// Returns the CPU whose current block it is or was last, and the epoch of the pool in which it became
    /// that. Without the pool lock, both may change at once.
    pub(crate) fn owner(&self) -> (CpuNumber, usize) {
        self.owner.get()
    }

    /// Notes that it is the current block of CPU `cpu` since `epoch`. With the pool lock held.
    pub(crate) fn set_owner(&self, cpu: CpuNumber, epoch: usize) {
        self.owner.set(cpu, epoch);
    }

    /// Notes that it became a current block so long ago that it is idle. With the pool lock held.
    pub(crate) fn disown(&self) {
        self.owner.disown();
    }

    /// [`Block::alloc`] for a block in the pool, with the pool lock held. Returns [`Tried::Lacks`] at once if the
    /// block had no room for as many units, and [`Block::note_room`] was not called since.
    pub(crate) fn alloc_in_pool(&self, small: Small, attributes: &Attributes) -> Tried {
        if self.owner.lacks(small) {
            return Tried::Lacks;
        }
        if let Some(area) = self.alloc(small, attributes) {
            return Tried::Found(area);
        }
        self.owner.note_lack(small);
        Tried::NoRoom
    }

    /// Notes that units may have become free. With the pool lock held.
    pub(crate) fn note_room(&self) {
        self.owner.note_room();
    }

    /// Returns the number of the object of the area that starts at unit `first`.
    pub(super) fn object_of(&self, first: Bit) -> usize {
        first.number().wrapping_shr(self.grain_shift)
    }

    /// Returns the size of the smallest area of its band, in units.
    pub(super) fn grain(&self) -> usize {
        1_usize.wrapping_shl(self.grain_shift)
    }

    pub(super) fn unit_of(&self, addr: usize) -> Option<Bit> {
        let unit = addr
            .wrapping_shr(self.unit_shift)
            .checked_sub(self.first_unit)?;
        Bit::new(unit)
    }

    fn address_of(&self, unit: usize) -> usize {
        self.first_unit
            .wrapping_add(unit)
            .wrapping_shl(self.unit_shift)
    }

    /// Returns the number of units to reserve for an area of `bytes` bytes.
    pub(super) fn units_for(&self, bytes: usize) -> usize {
        let last = bytes.saturating_sub(1).wrapping_shr(self.unit_shift);
        last.wrapping_add(1).max(2)
    }

    pub(super) fn pages_in(&self, units: usize) -> usize {
        units.wrapping_shl(self.unit_shift) / PAGE_SIZE
    }

    /// Returns whether the band of the block can serve the request.
    pub(crate) fn serves(&self, small: Small) -> bool {
        small.fits(self.band)
    }

    /// Returns whether the smallest area of its band fits.
    pub(crate) fn is_useful(&self) -> bool {
        bits::find_run(&self.free.words(), self.grain(), 0).is_some()
    }

    /// Returns whether all units are free.
    pub(crate) fn is_empty(&self) -> bool {
        bits::weight(&self.free.words()) == UNITS
    }

    /// Allocates a busy area from free units, for a request that the block serves. Takes no lock; any
    /// context.
    #[inline]
    pub(crate) fn alloc(&self, small: Small, attributes: &Attributes) -> Option<AreaPtr> {
        let randomized = match self.is_randomized {
            true => self.claim_randomized(small),
            false => None,
        };
        let first = randomized.or_else(|| {
            self.free
                .claim(small.units, small.align, self.grain(), &self.owner.hint)
        })?;
        // INVARIANT: The units were claimed just now.
        let claim = Claim(());
        let object = self.objects.occupy(self.object_of(first));
        let (Some(area), Some(span)) = (
            object,
            Span::with_size(self.address_of(first.number()), small.size),
        ) else {
            // The units stay reserved: a leak is safe, reuse would not be.
            mm::refuse!(
                "unit {} of the block at {:#x} is not free",
                first.number(),
                self.start()
            );
            return None;
        };
        let area = area.prepare(span, attributes);
        if small.band() != self.band {
            // Before the area is busy: every lookup of a busy area looks that far back.
            self.reach_at_least(small.units);
        }
        Some(area.claimed(claim).busy())
    }

    /// Makes lookups look at the objects of areas of up to `units` units.
    #[cold]
    #[inline(never)]
    fn reach_at_least(&self, units: usize) {
        // Relaxed, here and in readers: a CPU that knows that the area is busy knows what was written before.
        let mut old = self.reach.load(Relaxed);
        while old < units {
            match self.reach.cmpxchg(old, units, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Returns the lowest object, by number, of an area that may contain `unit`.
    #[inline(always)]
    pub(super) fn first_object_for(&self, unit: Bit) -> usize {
        let back = self.reach.load(Relaxed).wrapping_sub(1);
        let first = unit.number().saturating_sub(back);
        first.wrapping_shr(self.grain_shift)
    }

    /// Claims free units near a random unit.
    #[cold]
    #[inline(never)]
    fn claim_randomized(&self, small: Small) -> Option<Bit> {
        self.free
            .claim_near(small.units, small.align, Bit::in_row(mm::random()))
    }

    /// Returns the busy area that contains `addr`. The caller keeps the block from being freed.
    #[inline(always)]
    pub(crate) fn find(&self, addr: usize) -> Option<(AreaPtr, Seen)> {
        let (_, area, seen) = self.object_with::<false>(addr)?;
        Some((area, seen))
    }

    /// Returns the busy area that contains `addr`, with the number of its object; if `LEAVE`, for
    /// [`Objects::leave`].
    #[inline(always)]
    fn object_with<const LEAVE: bool>(&self, addr: usize) -> Option<(usize, AreaPtr, Seen)> {
        let unit = self.unit_of(addr)?;
        let mut object = self.object_of(unit);
        loop {
            let found = match LEAVE {
                true => self.objects.look_to_leave(object),
                false => self.objects.look(object),
            };
            match found {
                Some((area, seen)) if seen.contains(addr) => return Some((object, area, seen)),
                _ if object > self.first_object_for(unit) => object = object.wrapping_sub(1),
                _ => return None,
            }
        }
    }

    /// Unlinks the busy area that contains `addr`.
    pub(crate) fn unlink(&self, addr: usize) -> Option<Area<Leaving>> {
        let (object, _, seen) = self.object_with::<true>(addr)?;
        self.objects.leave(object, seen)
    }

    /// Returns the units that are reserved for an area at `span` of this block.
    #[inline(always)]
    fn units_at(&self, span: Span) -> Option<Run> {
        Run::new(self.unit_of(span.first())?, self.units_for(span.size()))
    }

    /// Makes an area at `span` lazy: unmapped, not TLB-flushed. Ends with a full barrier, after which nothing of the
    /// block is used: a purge may make the units free, and then the block may go.
    #[inline(always)]
    pub(crate) fn retire(&self, area: Area<Unlinked>, span: Span) {
        let Some(units) = self.units_at(span) else {
            // Cannot happen: the area is in the block. The drop of the area reports the leak.
            return;
        };
        // Before the bits: from then on a purge may make the units free for the next user.
        area.vacate();
        self.lazy.set_and_fence(units);
    }

    /// Frees an area that was never mapped: its units are free at once.
    pub(crate) fn release(&self, area: Area<Unlinked>, _: NeverMapped) {
        let Some(units) = area.span().and_then(|span| self.units_at(span)) else {
            // Cannot happen: the area is in the block. The drop of the area reports the leak.
            return;
        };
        area.vacate();
        self.make_free(&bits::run_at(units));
    }

    /// Makes units free that the caller owns.
    fn make_free(&self, words: &Words) {
        self.free.set_words(words);
        // Relaxed: only a hint; a claim that fails from there searches all words.
        let Some(first) = words.iter().position(|&word| word != 0) else {
            return;
        };
        if first < self.owner.hint.load(Relaxed) {
            self.owner.hint.store(first, Relaxed);
        }
    }

    /// Takes all lazy units for a purge, which is the only one, and adds them to its `plan`. Returns the
    /// smallest span that covers them, if there are some.
    pub(crate) fn snapshot(&self, plan: &mut Plan) -> Option<Span> {
        let words = self.lazy.take();
        let first = bits::next_set(&words, 0)?;
        let end = bits::last_set(&words)?.number().wrapping_add(1);
        self.flushing.store(&words);
        let cover = Span::from_bounds(self.address_of(first.number()), self.address_of(end))?;
        let units = bits::weight(&words);
        plan.add_units(cover, units, self.pages_in(units));
        Some(cover)
    }

    /// Returns the units that a purge has taken.
    pub(crate) fn flushing(&self) -> Words {
        self.flushing.words()
    }

    /// Returns the addresses of a run of units.
    pub(crate) fn run(&self, units: Run) -> Option<Span> {
        let bytes = units.len().wrapping_shl(self.unit_shift);
        Span::with_size(self.address_of(units.first().number()), bytes)
    }

    /// Makes the units free that a purge has taken and TLB-flushed: `_pages` are those of its plan.
    pub(crate) fn free_flushed(&self, _pages: &Pages<Flushed>) {
        let words = self.flushing.words();
        self.flushing.store(&[0; bits::WORDS]);
        self.make_free(&words);
    }

    /// Returns the number of pages, in whole units, that wait for a TLB flush.
    pub(crate) fn lazy_pages(&self) -> usize {
        let [flushing, lazy] = [&self.flushing, &self.lazy].map(|map| bits::weight(&map.words()));
        self.pages_in(lazy.wrapping_add(flushing))
    }

    /// Closes the block if all of it is free, by claiming all units: nobody can allocate from it then.
    pub(crate) fn close(&self) -> bool {
        self.free.claim_at(Run::ALL)
    }

    /// Opens a closed block by freeing all units. The directory must have all its entries before.
    pub(crate) fn open(&self) {
        self.free.set(Run::ALL);
    }
}
