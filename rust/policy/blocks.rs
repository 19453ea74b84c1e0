// SPDX-License-Identifier: GPL-2.0

//! All blocks: which CPU allocates from which block, which blocks have room, and what a purge does with
//! them.
//!
//! Each CPU has a current block for each band of sizes. Allocating from it and freeing to it takes no
//! lock. When it has no room, the CPU takes a block with room of the band out of the pool, or makes a new
//! one, and puts the old one into the pool. This takes the pool lock, once for the many areas of a block.
//!
//! A current block is not in the pool, so no other CPU takes it. A task that has moved to another CPU may
//! still allocate from the block of its old CPU, which is harmless.
//!
//! A block in the pool still has an *owner*: the CPU whose current block it was. That CPU has the objects of
//! the block in its caches, so it remembers the block and takes it again. Other CPUs of its NUMA node take it
//! only if it is *idle*, that is, if it became current more than [`IDLE_EPOCHS`] representative purges ago, or
//! if its owner had no place to remember it.
//! If there is no room for a new block, any CPU takes it.
//!
//! Blocks take at most a quarter of the space, and each CPU needs several. If there are too many CPUs for
//! that, a group of CPUs shares its current blocks: those of the first CPU of the group. When the limit is
//! reached all the same, current blocks that are idle go back to the pool.

use crate::{
    base::{
        bits::{
            self,
            UNITS, //
        },
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    policy::{
        lazy,
        percpu::{
            Cpu,
            Cpus, //
        }, //
    },
    state::{
        area::{
            Area,
            AreaPtr,
            Attributes,
            Seen,
            Unlinked, //
        },
        block::{
            Block,
            Small,
            Tried,
            BANDS,
            COARSE_SIZE,
            SIZE,
            STEPS, //
        },
        dir::{
            Directory,
            Maps,
            Removed, //
        },
        flush::{
            Flush,
            Plan, //
        }, //
    },
    sys::{
        grace::{
            GraceBox,
            Guard, //
        },
        lock::Locked,
        mm::{
            self,
            Node,
            Tlb, //
        },
        per_cpu::CacheAligned, //
    }, //
};
use core::ops::Range;
use kernel::{
    alloc::Flags,
    prelude::*,
    static_lock_class,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// A space with room for fewer blocks has no blocks: a few would leave no room for large areas. 128 MiB
/// have room for 63.
const MIN_BLOCKS: usize = 48;

/// Blocks take at most 1/`SHARE` of the space.
const SHARE: usize = 4;

/// Maximum number of former blocks, and then of idle ones, that a refill searches before it makes a new block.
const MAX_REFILL_TRIES: usize = 4;

/// Maximum number of blocks that a search among those of all CPUs searches while it holds the lock.
const MAX_STEAL_TRIES: usize = 8;

/// Maximum number of blocks at which a search for an idle block, or among those of all CPUs, looks while it holds
/// the lock. Most looks end at the owner of the block, or at what an earlier search did not find in it.
const MAX_LOOKS: usize = 16;

/// A block that became current more than this many epochs ago is idle. An epoch ends with a representative
/// purge.
pub(crate) const IDLE_EPOCHS: usize = 8;

/// Minimum and maximum number of lazy pages in a per-CPU count. With the maximum, CPUs add to the common count so
/// rarely that its cache line hardly ever moves.
const LAZY_BATCH: core::ops::RangeInclusive<usize> = 4..=128;

/// Returns how many CPUs, as a power of two, share current blocks, so that the current blocks of all CPUs,
/// one for each of `bands` bands, are at most half of the `blocks` blocks that there can be.
fn group_shift(cpus: usize, blocks: usize, bands: usize) -> u32 {
    let groups = (blocks / (2 * bands)).max(1);
    cpus.max(1)
        .div_ceil(groups)
        .next_power_of_two()
        .trailing_zeros()
}

/// A number of lazy pages that exceeds `lazy_max_pages()` in mm/vmalloc.c on any system, so that C begins a
/// purge.
const PURGE_NOW: usize = usize::MAX / 2;

/// Minimum number of empty blocks of a band that a purge keeps.
const MIN_KEEP: usize = 2;

/// What the pool lock protects, besides the maps `held`, `partial` and `empty` of the directory.
struct Pool {
    bands: [Band; BANDS],
    /// Number of blocks that exist or are being made.
    live: usize,
    /// Bytes of all blocks, and of the coarse blocks among them.
    bytes: usize,
    coarse_bytes: usize,
    /// Whether [`Blocks::reserve`] has refused a block since [`Blocks::unreserve`] last noted room.
    has_refused: bool,
    /// Number of representative purges.
    epoch: usize,
    /// The epoch in which idle current blocks were last taken back.
    idle_taken: usize,
}

/// What the pool knows of the blocks of one band.
#[derive(Clone, Copy)]
struct Band {
    /// Where in the directory the next search starts, among blocks of this CPU or idle ones, and among all.
    cursors: [Position; 2],
    /// The value of [`Blocks::room`] before the search among all blocks began at the first one.
    room: usize,
    /// Number of blocks in the map `partial`; if it is 0, there is no search.
    partial: usize,
    /// Number of blocks in the map `empty`.
    empty: usize,
    /// Number of blocks taken into use since the last representative purge.
    taken: usize,
    /// Number of empty blocks that a purge keeps.
    keep: usize,
}

/// A place in a walk over the bitmaps of the directory: slot of the part, and bit.
type Position = (usize, usize);

/// Which blocks of the pool a search may take.
#[derive(Clone, Copy)]
enum Whose {
    /// Those of CPU `.0`, and those of its NUMA node that their owner has not used since before epoch `.1`.
    OwnOrIdle(usize, usize),
    Anyones,
    /// The same, also those in which earlier searches found no room: a task that gives claimed units back makes
    /// room without a note.
    AnyonesAgain,
}

impl Whose {
    /// Returns the number of the cursor of such searches.
    fn cursor(self) -> usize {
        usize::from(!matches!(self, Self::OwnOrIdle(..)))
    }

    fn may_take(self, block: &Block) -> bool {
        match self {
            Self::Anyones | Self::AnyonesAgain => true,
            Self::OwnOrIdle(cpu, before) => {
                let (owner, since) = block.owner();
                owner == cpu || since < before && Node::of_cpu(owner) == Node::of_cpu(cpu)
            }
        }
    }
}

/// Returns how many bytes a block of `bytes` bytes adds to the count of coarse blocks.
fn coarse_part(bytes: usize) -> usize {
    if bytes > SIZE {
        bytes
    } else {
        0
    }
}

impl Pool {
    /// Counts a block of `bytes` bytes.
    fn add(&mut self, bytes: usize) {
        self.live = self.live.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.coarse_bytes = self.coarse_bytes.saturating_add(coarse_part(bytes));
    }

    /// Stops counting a block of `bytes` bytes.
    fn subtract(&mut self, bytes: usize) {
        self.live = self.live.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.coarse_bytes = self.coarse_bytes.saturating_sub(coarse_part(bytes));
    }

    /// Sets where the next search of a kind starts.
    fn set_cursor(&mut self, band: usize, which: usize, to: Position) {
        if let Some(cursor) = self
            .bands
            .get_mut(band)
            .and_then(|band| band.cursors.get_mut(which))
        {
            *cursor = to;
        }
    }

    /// Lets the next search among all blocks of `band` start at the first one.
    fn rewind(&mut self, band: usize) {
        self.set_cursor(band, Whose::Anyones.cursor(), (0, 0));
    }

    /// Returns whether the next search among all blocks of `band` starts at the first one: the last one has
    /// reached the end and found nothing, or there was none.
    fn has_searched_all(&self, band: usize) -> bool {
        let cursors = self.bands.get(band).map(|band| band.cursors);
        cursors.and_then(|cursors| cursors.get(Whose::Anyones.cursor()).copied()) == Some((0, 0))
    }

    /// Calls `what` with the band `band`, which exists.
    fn change(&mut self, band: usize, what: impl FnOnce(&mut Band)) {
        if let Some(band) = self.bands.get_mut(band) {
            what(band);
        }
    }
}

/// All blocks of a space.
pub(crate) struct Blocks {
    dir: Directory,
    pool: Locked<Pool>,
    /// Maximum number of bytes of all blocks.
    limit: usize,
    /// Bytes of the space, if blocks take at most a share of what large areas leave of it.
    share: Option<usize>,
    /// Estimate of the pages that became lazy since the last purge began, without those in per-CPU counts.
    lazy: CacheAligned<Atomic<usize>>,
    /// Number of areas that all CPUs had retired when the last purge began.
    retired: CacheAligned<Atomic<usize>>,
    /// With this many lazy pages, a purge is to begin.
    lazy_most: usize,
    /// A CPU adds its count to `lazy` when it reaches this many pages.
    lazy_batch: usize,
    /// Each `1 << shift` CPUs share their current fine blocks, and their current coarse ones.
    group_shifts: [u32; 2],
    /// Counts what may have made room for a block, or in a block.
    room: CacheAligned<Atomic<usize>>,
    /// For each band, the value of `room` plus one when a search over all its blocks found no room, and there
    /// was no room for a new one.
    no_room: [Atomic<usize>; BANDS],
    /// Number of empty blocks in the pool, changed under its lock.
    empty: CacheAligned<Atomic<usize>>,
}

/// A moment at which there may have been room for a block or in a block.
pub(crate) struct Room(usize);

/// Proof that a purge has taken its lazy pages.
#[must_use = "pages that are not freed leak"]
pub(crate) struct Snapshot {
    units: usize,
    /// The slots of the parts of the directory in which it has found dirty blocks, and perhaps others between.
    slots: Range<usize>,
}

impl Snapshot {
    /// Returns whether the purge is large enough to estimate demand: it frees at least the units of a
    /// block.
    pub(crate) fn is_representative(&self) -> bool {
        self.units >= UNITS
    }
}

/// Numbers of blocks by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockCensus {
    pub(crate) live: usize,
    /// Blocks in the pool with room.
    pub(crate) partial: usize,
    pub(crate) empty: usize,
}

impl Blocks {
    /// Creates an empty set of blocks in `home`. Their bytes are limited to those of `limit` fine blocks,
    /// by default to a share of `home`.
    pub(crate) fn new(home: Span, limit: Option<usize>) -> Result<Self> {
        let dir = Directory::new(home)?;
        let share = limit.is_none().then_some(home.size());
        let limit = limit.unwrap_or(match dir.capacity() {
            MIN_BLOCKS.. => dir.capacity() / SHARE,
            _ => 0,
        });
        let limit = limit.saturating_mul(SIZE);
        let band = Band {
            cursors: [(0, 0); 2],
            room: 0,
            partial: 0,
            empty: 0,
            taken: 0,
            keep: MIN_KEEP,
        };
        let pool = Pool {
            bands: [band; BANDS],
            live: 0,
            bytes: 0,
            coarse_bytes: 0,
            has_refused: false,
            // So that epoch 0 is long ago.
            epoch: IDLE_EPOCHS + 1,
            idle_taken: 0,
        };
        let cpus = mm::cpu_count();
        let coarse = if dir.has_coarse() { limit / 2 } else { 0 };
        let group_shifts = [
            group_shift(cpus, (limit - coarse) / SIZE, STEPS),
            group_shift(cpus, coarse / COARSE_SIZE, BANDS - STEPS),
        ];
        Ok(Self {
            dir,
            pool: Locked::new(pool, c"vmap_rust pool", static_lock_class!())?,
            limit,
            share,
            lazy: CacheAligned::new(Atomic::new(0)),
            retired: CacheAligned::new(Atomic::new(0)),
            lazy_most: limit / PAGE_SIZE / 2,
            lazy_batch: lazy::batch(cpus).clamp(*LAZY_BATCH.start(), *LAZY_BATCH.end()),
            group_shifts,
            room: CacheAligned::new(Atomic::new(0)),
            no_room: [const { Atomic::new(0) }; BANDS],
            empty: CacheAligned::new(Atomic::new(0)),
        })
    }

    /// Returns the request for `size` bytes at a multiple of `align`, if blocks serve such requests.
    #[inline(always)]
    pub(crate) fn small(&self, size: usize, align: usize) -> Option<Small> {
        if self.limit == 0 {
            return None;
        }
        Small::new(size, align, self.dir.has_coarse())
    }

    /// Returns the addresses at which blocks can be.
    pub(crate) fn window(&self) -> Option<Span> {
        self.dir.window()
    }

    /// Returns how many CPUs share current blocks for `small`, as a power of two.
    #[inline(always)]
    fn group_shift(&self, small: Small) -> u32 {
        let [fine, coarse] = self.group_shifts;
        if small.is_coarse() {
            coarse
        } else {
            fine
        }
    }

    /// Allocates an area from the current block of CPU `cpu`, on which this runs. Takes no lock.
    #[inline(always)]
    pub(crate) fn alloc(
        &self,
        cpus: &Cpus,
        cpu: &Cpu,
        small: Small,
        attributes: &Attributes,
    ) -> Option<AreaPtr> {
        let seat = match self.group_shift(small) {
            0 => cpu,
            shift => cpus.of(cpus.first_of_group(shift)),
        };
        let rcu = Guard::new();
        // Relaxed: the index is only a hint of which block to ask.
        let current = seat.current.get(small.band())?.load(Relaxed);
        let block = self.dir.block_in(current.checked_sub(1)?, &rcu)?;
        // The entry may hold another block by now, even one with another index.
        if !block.serves(small) {
            return None;
        }
        block.alloc(small, attributes)
    }

    /// Notes that there may be room for a block, or in a block, where there was none.
    pub(crate) fn note_room(&self) {
        // Relaxed: a request that does not see it yet is served without a block.
        self.room.add(1, Relaxed);
    }

    /// Returns whether there may be room for `small` in the pool, or for a new block, as a proof of when
    /// this was asked. [`None`] if there was none and nothing has changed since.
    pub(crate) fn may_have_room(&self, small: Small) -> Option<Room> {
        let now = self.room.load(Relaxed).wrapping_add(1);
        let none = self.no_room.get(small.band())?;
        (none.load(Relaxed) != now).then_some(Room(now))
    }

    /// Notes that there is no room for `small`: not in the pool, and not for a new block.
    #[cold]
    fn note_no_room(&self, small: Small, room: Room) {
        if let Some(none) = self.no_room.get(small.band()) {
            // Relaxed: what made room after `room` was asked for has changed the count, or will.
            none.store(room.0, Relaxed);
        }
    }

    /// Allocates an area from a block in the pool that this CPU owns or that is idle. It becomes the current
    /// block of the band. Spins.
    pub(crate) fn refill(
        &self,
        cpus: &Cpus,
        small: Small,
        attributes: &Attributes,
    ) -> Option<AreaPtr> {
        let cpu = cpus.here();
        let mut pool = self.pool.lock();
        // Another task on this CPU may have refilled it meanwhile.
        if let Some(area) = self.alloc(cpus, cpu, small, attributes) {
            return Some(area);
        }
        let seat = cpus.first_of_group(self.group_shift(small));
        let (index, area) = match self.take_own(&mut pool, cpus, seat, small, attributes) {
            Some(found) => found,
            None => {
                let whose = Whose::OwnOrIdle(seat, pool.epoch.saturating_sub(IDLE_EPOCHS));
                let band = small.band();
                self.take_partial(&mut pool, band, small, attributes, MAX_REFILL_TRIES, whose)?
            }
        };
        self.make_current(&mut pool, cpus, small, small.band(), index);
        cpu.counters.refill.one();
        Some(area)
    }

    /// Allocates an area from any block that can serve the request, also from blocks of other CPUs and of
    /// lower bands of the same kind: for lack of room for a new block. Spins.
    pub(crate) fn steal(
        &self,
        cpus: &Cpus,
        small: Small,
        attributes: &Attributes,
    ) -> Option<AreaPtr> {
        self.return_current(cpus);
        for band in small.bands().rev() {
            // All blocks, in bounded holds of the lock. Other CPUs may move the cursor meanwhile, so count.
            let partial = {
                let mut pool = self.pool.lock();
                pool.rewind(band);
                pool.bands.get(band).map_or(0, |band| band.partial)
            };
            for _ in 0..partial.div_ceil(MAX_STEAL_TRIES) {
                let mut pool = self.pool.lock();
                let tries = MAX_STEAL_TRIES;
                let whose = Whose::AnyonesAgain;
                let found = self.take_partial(&mut pool, band, small, attributes, tries, whose);
                if let Some((index, area)) = found {
                    self.make_current(&mut pool, cpus, small, band, index);
                    cpus.here().counters.steal.one();
                    return Some(area);
                }
            }
        }
        None
    }

    /// Allocates an area from a block of the band of the request in the pool, also of one that another
    /// CPU owns: for lack of room for a new block since `room`, or, if that is [`None`], for lack of memory.
    /// Spins.
    pub(crate) fn take_anyones(
        &self,
        cpus: &Cpus,
        small: Small,
        attributes: &Attributes,
        room: Option<Room>,
    ) -> Option<AreaPtr> {
        let mut pool = self.pool.lock();
        let (band, tries) = (small.band(), MAX_STEAL_TRIES);
        if pool.has_searched_all(band) {
            let now = self.room.load(Relaxed);
            pool.change(band, |band| band.room = now);
        }
        let found = self.take_partial(&mut pool, band, small, attributes, tries, Whose::Anyones);
        let Some((index, area)) = found else {
            // Otherwise the next request continues the search. Room that was made behind the search, or for
            // this request, while it went on, must not be hidden.
            let began = pool.bands.get(band).map(|band| band.room.wrapping_add(1));
            if let (Some(room), true) = (room, pool.has_searched_all(band)) {
                if began == Some(room.0) {
                    self.note_no_room(small, room);
                }
            }
            return None;
        };
        self.make_current(&mut pool, cpus, small, band, index);
        cpus.here().counters.refill.one();
        Some(area)
    }

    /// Takes a block with room that CPU `seat` remembers out of the pool, and allocates the area from it.
    fn take_own(
        &self,
        pool: &mut Pool,
        cpus: &Cpus,
        seat: usize,
        small: Small,
        attributes: &Attributes,
    ) -> Option<(usize, AreaPtr)> {
        let band = small.band();
        let former = cpus.of(seat).former.get(band)?;
        let rcu = Guard::new();
        let (mut from, mut tries) = (0, 0);
        while tries < MAX_REFILL_TRIES {
            let index = former.lowest(from)?;
            from = index.saturating_add(1);
            let maps = self.dir.maps(index);
            let is_partial = maps
                .is_some_and(|(maps, bit)| maps.partial.get(band).is_some_and(|map| map.has(bit)));
            let block = self.dir.block(index, &rcu).filter(|_| is_partial);
            // Others may have taken it since, or it was freed.
            let Some(block) = block.filter(|block| block.owner().0 == seat) else {
                former.forget(index);
                continue;
            };
            match block.alloc_in_pool(small, attributes) {
                Tried::Found(area) => {
                    self.take_into_use(pool, band, index);
                    return Some((index, area));
                }
                Tried::NoRoom => tries = tries.saturating_add(1),
                Tried::Lacks => {}
            }
        }
        None
    }

    /// Takes a block of `band` with room out of the pool, and allocates the area from it.
    fn take_partial(
        &self,
        pool: &mut Pool,
        band: usize,
        small: Small,
        attributes: &Attributes,
        tries: usize,
        whose: Whose,
    ) -> Option<(usize, AreaPtr)> {
        let Band {
            cursors, partial, ..
        } = *pool.bands.get(band)?;
        let which = whose.cursor();
        if partial == 0 {
            pool.set_cursor(band, which, (0, 0));
            return None;
        }
        let rcu = Guard::new();
        let mut from = *cursors.get(which)?;
        let (mut looks, mut searches) = (0, 0);
        while looks < MAX_LOOKS && searches < tries {
            looks = looks.saturating_add(1);
            let Some(((slot, bit), index)) = self.next_partial(band, from) else {
                from = (0, 0);
                break;
            };
            from = (slot, bit.saturating_add(1));
            let block = self.dir.block(index, &rcu);
            let block = block.filter(|block| block.serves(small) && whose.may_take(block));
            let Some(block) = block else {
                continue;
            };
            if let Whose::AnyonesAgain = whose {
                block.note_room();
            }
            match block.alloc_in_pool(small, attributes) {
                Tried::Found(area) => {
                    self.take_into_use(pool, band, index);
                    if let Whose::OwnOrIdle(..) = whose {
                        from = (0, 0);
                    }
                    // Otherwise the next search continues: those before have no room before the next purge.
                    pool.set_cursor(band, which, from);
                    return Some((index, area));
                }
                Tried::NoRoom => searches = searches.saturating_add(1),
                Tried::Lacks => {}
            }
        }
        // The next search continues here, so that searches reach all blocks in the end.
        pool.set_cursor(band, which, from);
        None
    }

    /// Returns the place and the index of the first block in the pool, from `from` on, with room for the
    /// band.
    fn next_partial(&self, band: usize, from: Position) -> Option<(Position, usize)> {
        for (slot, first, maps) in self.dir.maps_in(from.0..usize::MAX) {
            let start = if slot == from.0 { from.1 } else { 0 };
            let found = bits::next_set(&maps.partial.get(band)?.words(), start);
            if let Some(bit) = found {
                return Some(((slot, bit), first.checked_add(bit)?));
            }
        }
        None
    }

    /// Marks a block held, which takes it out of the pool.
    fn mark_held(&self, pool: &mut Pool, index: usize) {
        let Some((maps, bit)) = self.dir.maps(index) else {
            return;
        };
        let empty = maps.empty.has(bit);
        if empty {
            maps.empty.clear_bit(bit);
            self.empty.fetch_sub(1, Relaxed);
        }
        for (map, band) in maps.partial.iter().zip(&mut pool.bands) {
            if map.has(bit) {
                map.clear_bit(bit);
                band.partial = band.partial.saturating_sub(1);
                // An empty block is also partial.
                band.empty = band.empty.saturating_sub(usize::from(empty));
                break;
            }
        }
        if !maps.held.has(bit) {
            maps.held.set_bit(bit);
        }
    }

    /// Marks a block of `band` held that is about to be a current block, and counts it.
    fn take_into_use(&self, pool: &mut Pool, band: usize, index: usize) {
        self.mark_held(pool, index);
        pool.change(band, |band| band.taken = band.taken.saturating_add(1));
    }

    /// Returns a held block to the pool.
    fn return_to_pool(&self, pool: &mut Pool, cpus: &Cpus, index: usize) {
        if let Some((maps, bit)) = self.dir.maps(index) {
            if maps.held.has(bit) {
                maps.held.clear_bit(bit);
            }
        }
        self.update(pool, cpus, index);
    }

    /// Marks a block partial or empty, if it is in the pool and has the room.
    fn update(&self, pool: &mut Pool, cpus: &Cpus, index: usize) {
        let rcu = Guard::new();
        let (Some((maps, bit)), Some(block)) = (self.dir.maps(index), self.dir.block(index, &rcu))
        else {
            return;
        };
        block.note_room();
        if maps.held.has(bit) {
            return;
        }
        let band = block.band();
        if let Some(partial) = maps.partial.get(band) {
            if !partial.has(bit) && block.is_useful() {
                partial.set_bit(bit);
                pool.change(band, |band| band.partial = band.partial.saturating_add(1));
                let owner = cpus.of(block.owner().0);
                if !owner
                    .former
                    .get(band)
                    .is_some_and(|former| former.push(index))
                {
                    // It has many others: the CPU that comes first may take this one.
                    block.disown();
                }
                self.note_room();
            }
        }
        if !maps.empty.has(bit) && block.is_empty() {
            maps.empty.set_bit(bit);
            pool.change(band, |band| band.empty = band.empty.saturating_add(1));
            self.empty.add(1, Relaxed);
            self.note_room();
        }
    }

    /// Makes a held block the current block for `band` of the CPU, or group of CPUs, on which this runs, and
    /// returns the previous one to the pool.
    fn make_current(&self, pool: &mut Pool, cpus: &Cpus, small: Small, band: usize, index: usize) {
        let seat = cpus.first_of_group(self.group_shift(small));
        let cpu = cpus.of(seat);
        let (Some(current), Some(former)) = (cpu.current.get(band), cpu.former.get(band)) else {
            return;
        };
        former.forget(index);
        let rcu = Guard::new();
        if let Some(block) = self.dir.block(index, &rcu) {
            block.set_owner(seat, pool.epoch);
        }
        drop(rcu);
        // Relaxed, here and below: readers use it as a hint. It is written only under the pool lock.
        let before = current.xchg(index.wrapping_add(1), Relaxed);
        if let Some(before) = before.checked_sub(1) {
            self.return_to_pool(pool, cpus, before);
        }
    }

    /// Returns the current blocks of all CPUs to the pool, including CPUs that are offline.
    pub(crate) fn return_current(&self, cpus: &Cpus) {
        self.return_if(cpus, usize::MAX);
    }

    /// Returns current blocks that are idle to the pool, at most once in an epoch.
    pub(crate) fn return_idle(&self, cpus: &Cpus) {
        let mut pool = self.pool.lock();
        let epoch = pool.epoch;
        if core::mem::replace(&mut pool.idle_taken, epoch) != epoch {
            drop(pool);
            // A CPU that still uses its block takes it again with the next refill.
            self.return_if(cpus, epoch.saturating_sub(IDLE_EPOCHS));
        }
    }

    /// Returns the current blocks that became that before epoch `before` to the pool.
    fn return_if(&self, cpus: &Cpus, before: usize) {
        for cpu in cpus.iter() {
            // Most CPUs have none: do not take the lock for them.
            if cpu.current.iter().all(|current| current.load(Relaxed) == 0) {
                continue;
            }
            let mut pool = self.pool.lock();
            for current in cpu.current.iter() {
                let Some(index) = current.load(Relaxed).checked_sub(1) else {
                    continue;
                };
                let rcu = Guard::new();
                let since = self
                    .dir
                    .block(index, &rcu)
                    .map_or(0, |block| block.owner().1);
                drop(rcu);
                if since < before {
                    current.store(0, Relaxed);
                    self.return_to_pool(&mut pool, cpus, index);
                }
            }
        }
    }

    /// Counts one more block of `bytes` bytes, if the limits allow it. Returns whether they do. `reserved` is
    /// the number of bytes of all entries of the tree.
    pub(crate) fn reserve(&self, bytes: usize, reserved: usize) -> bool {
        let mut pool = self.pool.lock();
        // A space that is nearly full has fewer, but not fewer than a small space.
        let large = reserved.saturating_sub(pool.bytes);
        let limit = match self.share {
            Some(size) => {
                let share = size.saturating_sub(large) / SHARE;
                self.limit.min(share.max(MIN_BLOCKS * SIZE))
            }
            None => self.limit,
        };
        let coarse_bytes = pool.coarse_bytes.saturating_add(coarse_part(bytes));
        let ok = pool.bytes.saturating_add(bytes) <= limit
            // Coarse blocks leave room for fine ones.
            && coarse_bytes <= (limit / 2).max(COARSE_SIZE);
        if ok {
            pool.add(bytes);
        } else {
            pool.has_refused = true;
        }
        ok
    }

    /// Undoes [`Blocks::reserve`].
    pub(crate) fn unreserve(&self, bytes: usize) {
        let mut pool = self.pool.lock();
        pool.subtract(bytes);
        // Only if another request may have found no room: the caller may be about to note that there is none.
        if core::mem::take(&mut pool.has_refused) {
            self.note_room();
        }
    }

    /// Returns whether there is a part of the directory for a block at `addr`.
    pub(crate) fn is_prepared(&self, addr: usize) -> bool {
        self.dir
            .index_of(addr)
            .is_some_and(|index| self.dir.is_prepared(index))
    }

    /// Creates a part of the directory for a block at `addr`. Fails with `EBUSY` if there can be none. Sleeps
    /// if `flags` allow it.
    pub(crate) fn prepare(&self, addr: usize, flags: Flags) -> Result {
        self.dir
            .prepare(self.dir.index_of(addr).ok_or(EINVAL)?, flags)
    }

    /// Returns the lowest address above `addr` at which there can be blocks when [`Blocks::prepare`] has
    /// failed with `EBUSY` for `addr`.
    pub(crate) fn next_usable(&self, addr: usize) -> Option<usize> {
        self.dir.next_usable(addr)
    }

    /// Inserts a new block, whose range is reserved, makes it the current block, and allocates an area
    /// from it. Returns the block if its place is taken.
    pub(crate) fn adopt(
        &self,
        cpus: &Cpus,
        block: GraceBox<Block>,
        small: Small,
        attributes: &Attributes,
    ) -> Result<Option<AreaPtr>, GraceBox<Block>> {
        // Mark it held before publishing it: a CPU with a stale index must not take it from the pool. It
        // stays closed until all its entries are set: areas in it must be found at each of their
        // addresses.
        let mut pool = self.pool.lock();
        let index = self.dir.insert(block)?;
        self.take_into_use(&mut pool, small.band(), index);
        let rcu = Guard::new();
        let area = self.dir.block(index, &rcu).and_then(|block| {
            block.open();
            // Few others can have allocated from the block yet, so there is room.
            block.alloc(small, attributes)
        });
        self.make_current(&mut pool, cpus, small, small.band(), index);
        let cpu = cpus.here();
        cpu.counters.block_new.one();
        cpu.counters.refill.one();
        Ok(area)
    }

    /// Returns the busy area in a block that contains `addr`; `Err` if no block is there. Takes no lock.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        addr: usize,
        rcu: &Guard,
    ) -> Result<Option<(AreaPtr, Seen)>, NoBlock> {
        let block = self.dir.block_at(addr, rcu).ok_or(NoBlock)?;
        Ok(block.find(addr))
    }

    /// Unlinks the busy area in a block that contains `addr`; `Err` if no block is there. Takes no lock.
    pub(crate) fn unlink(
        &self,
        addr: usize,
        rcu: &Guard,
    ) -> Result<Option<Area<crate::state::area::Leaving>>, NoBlock> {
        let block = self.dir.block_at(addr, rcu).ok_or(NoBlock)?;
        Ok(block.unlink(addr))
    }

    /// Returns the lowest busy area that ends above `addr` in the block at `block`.
    pub(crate) fn next_busy(&self, block: Span, addr: usize) -> Option<(AreaPtr, Seen)> {
        let rcu = Guard::new();
        let found = self.dir.block_at(block.first(), &rcu)?;
        found.next_busy(addr)
    }

    /// Returns the lowest area that ends above `addr` and is neither busy nor free in the block at
    /// `block`.
    pub(crate) fn next_lazy(&self, block: Span, addr: usize) -> Option<Span> {
        let rcu = Guard::new();
        let found = self.dir.block_at(block.first(), &rcu)?;
        found.next_lazy(addr)
    }

    /// Makes an unmapped area of a block lazy. Returns about how many pages are lazy, 0 if that is not to be
    /// asked now, or [`PURGE_NOW`] if they are half of what all blocks may have. Any context.
    pub(crate) fn retire(&self, cpu: &Cpu, area: Area<Unlinked>) -> usize {
        let rcu = Guard::new();
        let addr = area.span().map_or(0, Span::first);
        let Some((block, maps, bit)) = self.dir.block_and_maps(addr, &rcu) else {
            // Cannot happen: a block with an area in it stays. The drop of the area reports the leak.
            return 0;
        };
        let pages = block.retire(area);
        // `Block::retire()` ends with a full barrier. A purge that clears the dirty bit takes the lazy pages
        // afterwards, so either this sees the bit clear, or the purge takes the pages.
        maps.dirty.insert(bit);
        cpu.counters.retire_block.one();

        // Relaxed: the count says when to purge, and orders nothing. A load and a store are enough: the
        // next purge corrects what a preempted task gets wrong.
        let here = cpu.lazy.load(Relaxed).saturating_add(pages);
        if here < self.lazy_batch {
            // The common count is not even read: its cache line would move.
            cpu.lazy.store(here, Relaxed);
            0
        } else {
            cpu.lazy.store(0, Relaxed);
            let pages = self.lazy.fetch_add(here, Relaxed).saturating_add(here);
            if pages < self.lazy_most {
                pages
            } else {
                PURGE_NOW
            }
        }
    }

    /// Returns an estimate of the lazy pages in blocks, without those in per-CPU counts.
    pub(crate) fn lazy_estimate(&self) -> usize {
        // Relaxed: the count says when to purge, and orders nothing.
        self.lazy.load(Relaxed)
    }

    /// Returns the number of lazy pages, summed over all blocks.
    pub(crate) fn lazy_pages(&self) -> usize {
        let rcu = Guard::new();
        let mut pages = 0_usize;
        for (_, first, maps) in self.dir.all_maps() {
            for bit in (0..UNITS).filter(|&bit| maps.dirty.has(bit) || maps.flushing.has(bit)) {
                let block = self.dir.block(first.wrapping_add(bit), &rcu);
                pages = pages.wrapping_add(block.map_or(0, Block::lazy_pages));
            }
        }
        pages
    }

    /// Frees an area of a block that was never mapped. Spins.
    pub(crate) fn release(&self, cpus: &Cpus, area: Area<Unlinked>) {
        let rcu = Guard::new();
        let addr = area.span().map_or(0, Span::first);
        let Some(block) = self.dir.block_at(addr, &rcu) else {
            return;
        };
        let index = self.dir.index_of(block.start());
        block.release(area);
        drop(rcu);
        if let Some(index) = index {
            self.update(&mut self.pool.lock(), cpus, index);
        }
        // A partial block may have more room now.
        self.note_room();
    }

    /// Takes all pages that were retired before the call, and adds them to `plan`. Sleepable context, and
    /// only one purge at a time.
    pub(crate) fn snapshot(&self, cpus: &Cpus, plan: &mut Plan) -> Snapshot {
        // Relaxed: the count orders nothing. Retires read it, so do not store the same value.
        if self.lazy.load(Relaxed) != 0 {
            self.lazy.store(0, Relaxed);
        }
        let (mut units, slots) = self.take_dirty(plan, 0..usize::MAX, |_, _| {});
        if !slots.is_empty() && units < UNITS {
            // The bits of blocks in use stay set through large purges: CPUs that retire areas read them, and
            // need not fetch their cache line again. A small purge clears those of unused blocks, so that the
            // next one need not look at them. A full barrier is between clearing a bit and looking again, see
            // `Blocks::retire()`.
            let clear = |maps: &Maps, bit| {
                if !maps.flushing.has(bit) {
                    maps.dirty.remove_and_fence(bit);
                }
            };
            let (more, _) = self.take_dirty(plan, slots.clone(), clear);
            units = units.wrapping_add(more);
        }
        if units > 0 {
            // About: an area is counted after it was retired, and the count of a CPU may go back.
            let retired = cpus.retired();
            let before = self.retired.xchg(retired, Relaxed);
            plan.count(retired.wrapping_sub(before).clamp(1, units));
        }
        Snapshot { units, slots }
    }

    /// Takes the lazy pages of the blocks in `slots` whose dirty bit is set, and adds them to `plan`. Calls
    /// `before` with the maps and the bit of each block first. Returns how many units it took, and the slots
    /// with such blocks.
    fn take_dirty(
        &self,
        plan: &mut Plan,
        slots: Range<usize>,
        before: impl Fn(&Maps, usize),
    ) -> (usize, Range<usize>) {
        let mut units = 0_usize;
        let mut found = 0..0;
        for (slot, first, maps) in self.dir.maps_in(slots) {
            for bit in bits::set_bits(&maps.dirty.words()) {
                if found.is_empty() {
                    found.start = slot;
                }
                found.end = slot.saturating_add(1);
                before(maps, bit);
                let rcu = Guard::new();
                let block = self.dir.block(first.wrapping_add(bit), &rcu);
                // What this purge has taken of the block already must not be lost.
                let block = block.filter(|_| !maps.flushing.has(bit));
                let taken = block.and_then(Block::snapshot);
                drop(rcu);
                if let Some(taken) = taken {
                    maps.flushing.set_bit(bit);
                    plan.add(taken.cover);
                    units = units.wrapping_add(taken.units);
                }
                mm::cond_resched();
            }
        }
        (units, found)
    }

    /// Releases the KASAN shadow of the pages of a snapshot, before they become free. Sleepable context.
    pub(crate) fn release_shadow(&self, snapshot: &Snapshot, _flush: &Flush, tlb: &impl Tlb) {
        self.each_flushing(snapshot, false, |_, block| {
            for (first, pages) in bits::runs(&block.flushing()) {
                if let Some(span) = block.run(first, pages) {
                    tlb.release_shadow(span);
                }
            }
        });
    }

    /// Frees exactly the pages of a snapshot. Sleepable context.
    pub(crate) fn free(&self, cpus: &Cpus, snapshot: Snapshot, _flush: &Flush) {
        self.each_flushing(&snapshot, true, |index, block| {
            block.free_flushed();
            self.update(&mut self.pool.lock(), cpus, index);
        });
        // Partial blocks may have more room now.
        if snapshot.units > 0 {
            self.note_room();
        }
    }

    /// Calls `what` for each block with pages of a snapshot. If `done`, also ends their purge.
    fn each_flushing(&self, snapshot: &Snapshot, done: bool, what: impl Fn(usize, &Block)) {
        for (_, first, maps) in self.dir.maps_in(snapshot.slots.clone()) {
            let flushing = if done {
                maps.flushing.take()
            } else {
                maps.flushing.words()
            };
            for bit in bits::set_bits(&flushing) {
                let index = first.wrapping_add(bit);
                let rcu = Guard::new();
                if let Some(block) = self.dir.block(index, &rcu) {
                    what(index, block);
                }
                drop(rcu);
                mm::cond_resched();
            }
        }
    }

    /// Ends a purge. If it `is_representative`, each band may keep as many empty blocks as were taken into
    /// use since the last such purge, plus a quarter, plus [`MIN_KEEP`]; but at least half of what it
    /// could keep before.
    pub(crate) fn end_purge(&self, is_representative: bool) {
        let mut pool = self.pool.lock();
        if is_representative {
            pool.epoch = pool.epoch.wrapping_add(1);
        }
        for band in &mut pool.bands {
            if band.cursors != [(0, 0); 2] {
                // Not the same value again: that would move the cache line.
                band.cursors = [(0, 0); 2];
            }
            if is_representative {
                let taken = core::mem::take(&mut band.taken);
                let needed = taken.saturating_add(taken / 4);
                band.keep = needed.saturating_add(MIN_KEEP).max(band.keep / 2);
            }
        }
    }

    /// Takes out the highest empty block of a band with more than it may keep, or of any band if `all`.
    /// The range of the block stays reserved.
    pub(crate) fn take_empty(&self, cpus: &Cpus, all: bool) -> Option<Removed> {
        let mut pool = self.pool.lock();
        let has_too_many = |band: &Band| band.empty > if all { 0 } else { band.keep };
        let band = pool.bands.iter().position(has_too_many)?;
        for (_, first, maps) in self.dir.all_maps().rev() {
            let partial = maps.partial.get(band)?.words();
            let both = bits::and(&partial, &maps.empty.words());
            let Some(bit) = bits::last_set(&both) else {
                continue;
            };
            let index = first.wrapping_add(bit);
            self.mark_held(&mut pool, index);
            let rcu = Guard::new();
            let block = self.dir.block(index, &rcu);
            let Some(block) = block.filter(|block| block.close()) else {
                // A task that moved to another CPU has allocated from it.
                self.return_to_pool(&mut pool, cpus, index);
                return None;
            };
            pool.subtract(block.size());
            self.note_room();
            let removed = self.dir.remove(index);
            // Clear it before another block can have this index.
            maps.held.clear_bit(bit);
            return removed;
        }
        None
    }

    /// Inserts a block again that [`Blocks::take_empty`] has taken out.
    pub(crate) fn restore(&self, cpus: &Cpus, removed: Removed) {
        let Some(index) = self.dir.put_back(removed) else {
            return;
        };
        let rcu = Guard::new();
        // Open it only after inserting it: a CPU that found the block earlier may allocate from it, and
        // its areas must be found.
        let block = self.dir.block(index, &rcu);
        if let Some(block) = block {
            block.open();
        }
        let mut pool = self.pool.lock();
        pool.add(block.map_or(0, Block::size));
        self.update(&mut pool, cpus, index);
    }

    /// Returns the number of empty blocks. Takes no lock.
    pub(crate) fn empty(&self) -> usize {
        self.empty.load(Relaxed)
    }

    /// Returns how many blocks exist, are partial, and are empty.
    pub(crate) fn census(&self) -> BlockCensus {
        let pool = self.pool.lock();
        BlockCensus {
            live: pool.live,
            partial: pool.bands.iter().map(|band| band.partial).sum(),
            empty: self.empty(),
        }
    }

    /// Checks the block at `addr` and returns its contents; [`None`] if no block is there.
    pub(crate) fn validate_block(
        &self,
        addr: usize,
        quiet: bool,
    ) -> Option<Result<crate::state::block::Contents>> {
        let rcu = Guard::new();
        Some(self.dir.block_at(addr, &rcu)?.validate(quiet))
    }

    /// Checks the pool against the blocks. Holds the pool lock during the whole walk: for tests and
    /// debugging. `quiet` means that nobody is inserting or removing a block.
    pub(crate) fn validate(&self, cpus: &Cpus, quiet: bool) -> Result {
        let pool = self.pool.lock();
        let rcu = Guard::new();
        let mut empty = 0_usize;
        let mut held = 0_usize;
        let mut partials = [0_usize; BANDS];
        let (mut live, mut bytes) = (0_usize, 0_usize);
        for (_, first, maps) in self.dir.all_maps() {
            for (count, map) in partials.iter_mut().zip(&maps.partial) {
                *count = count.wrapping_add(bits::weight(&map.words()));
            }
            for bit in 0..UNITS {
                let index = first.wrapping_add(bit);
                let partial = maps.partial.iter().any(|map| map.has(bit));
                let known = partial || maps.empty.has(bit) || maps.held.has(bit);
                let block = self.dir.block(index, &rcu);
                live = live.wrapping_add(usize::from(block.is_some()));
                bytes = bytes.wrapping_add(block.map_or(0, Block::size));
                // An entry inside a coarse block must have no bits set either.
                if known && block.is_none() {
                    mm::refuse!("the pool knows block {}, which is not there", index);
                    return Err(EINVAL);
                }
                if maps.held.has(bit) && (partial || maps.empty.has(bit)) {
                    mm::refuse!("block {} is held and in the pool", index);
                    return Err(EINVAL);
                }
                empty = empty.wrapping_add(usize::from(maps.empty.has(bit)));
                held = held.wrapping_add(usize::from(maps.held.has(bit)));
            }
        }
        let mut current = 0_usize;
        for cpu in cpus.iter() {
            for index in cpu.current.iter() {
                current = current.wrapping_add(usize::from(index.load(Relaxed) != 0));
            }
        }
        if quiet && (live, bytes) != (pool.live, pool.bytes) {
            mm::refuse!(
                "{} blocks of {} bytes, counted {} of {}",
                live,
                bytes,
                pool.live,
                pool.bytes
            );
            return Err(EINVAL);
        }
        let counted = pool.bands.map(|band| band.partial);
        if partials != counted {
            mm::refuse!("{:?} partial blocks, counted {:?}", partials, counted);
            return Err(EINVAL);
        }
        let counted: usize = pool.bands.iter().map(|band| band.empty).sum();
        if empty != counted || empty != self.empty() || held != current {
            mm::refuse!(
                "{} empty blocks, counted {}; {} held, {} current",
                empty,
                counted,
                held,
                current
            );
            return Err(EINVAL);
        }
        Ok(())
    }
}

/// Error: no block is at an address.
pub(crate) struct NoBlock;
