// SPDX-License-Identifier: GPL-2.0

//! All blocks: how requests and frees find their block, and how blocks serve them without a lock.
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
//!
//! The rest of what [`Blocks`] does is in `blocks_refill` (how a CPU gets another block), `blocks_current` (how a
//! block becomes current, and goes back to the pool), `blocks_limit` (how many blocks there are), `blocks_purge`
//! (what a purge does with them) and `blocks_check` (counts and checks). `pool` has what the pool lock protects.

use crate::{
    base::{
        bits::Bit,
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
        },
        pool::Pool, //
    },
    state::{
        area::{
            Area,
            AreaPtr,
            Attributes,
            Leaving,
            NeverMapped,
            Seen,
            Unlinked, //
        },
        block::{
            Band,
            Block,
            Small,
            BANDS,
            COARSE_SIZE,
            SIZE,
            STEPS, //
        },
        by_band::ByBand,
        dir::Directory,
        lack::Lack, //
    },
    sys::{
        grace::Guard,
        lock::Locked,
        mm,
        per_cpu::CacheAligned, //
    }, //
};
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
pub(super) const MIN_BLOCKS: usize = 48;

/// Blocks take at most 1/`SHARE` of the space.
pub(super) const SHARE: usize = 4;

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

/// All blocks of a space.
pub(crate) struct Blocks {
    pub(super) dir: Directory,
    pub(super) pool: Locked<Pool>,
    /// Maximum number of bytes of all blocks.
    pub(super) limit: usize,
    /// Bytes of the space, if blocks take at most a share of what large areas leave of it.
    pub(super) share: Option<usize>,
    /// Estimate of the pages that became lazy since the last purge began, without those in per-CPU counts.
    pub(super) lazy: CacheAligned<Atomic<usize>>,
    /// Number of areas that all CPUs had retired when the last purge began.
    pub(super) retired: CacheAligned<Atomic<usize>>,
    /// With this many lazy pages, a purge is to begin.
    lazy_most: usize,
    /// A CPU adds its count to `lazy` when it reaches this many pages.
    lazy_batch: usize,
    /// Each `1 << shift` CPUs share their current fine blocks, and their current coarse ones.
    group_shifts: [u32; 2],
    /// Counts what may have made room for a block, or in a block.
    pub(super) room: CacheAligned<Atomic<usize>>,
    /// For each band, what the last search over all its blocks lacked when there was no room for a new one either, and
    /// when that was: see [`Blocks::lacking`].
    no_room: ByBand<Atomic<usize>>,
    /// Number of empty blocks in the pool, changed under its lock.
    pub(super) empty: CacheAligned<Atomic<usize>>,
}

/// A moment at which there may have been room for a block or in a block.
pub(crate) struct Room(pub(super) usize);

impl Room {
    /// Returns the count without its highest bits, in their place.
    fn shifted(&self) -> usize {
        self.0.wrapping_shl(Lack::BITS)
    }
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
        let cpus = mm::cpu_count();
        let coarse = if dir.has_coarse() { limit / 2 } else { 0 };
        let group_shifts = [
            group_shift(cpus, (limit - coarse) / SIZE, STEPS),
            group_shift(cpus, coarse / COARSE_SIZE, BANDS - STEPS),
        ];
        Ok(Self {
            dir,
            pool: Locked::new(Pool::new(), c"vmap_rust pool", static_lock_class!())?,
            limit,
            share,
            lazy: CacheAligned::new(Atomic::new(0)),
            retired: CacheAligned::new(Atomic::new(0)),
            lazy_most: limit / PAGE_SIZE / 2,
            lazy_batch: lazy::batch(cpus).clamp(*LAZY_BATCH.start(), *LAZY_BATCH.end()),
            group_shifts,
            room: CacheAligned::new(Atomic::new(0)),
            no_room: ByBand::new(|_| Atomic::new(Lack::NOTHING.as_bits())),
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
    pub(super) fn group_shift(&self, small: Small) -> u32 {
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
        let current = seat.current.of(small.band()).get()?;
        let block = self.dir.block_in(current, &rcu)?;
        // The entry may hold another block by now, even one with another number.
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
        let now = Room(self.room.load(Relaxed).wrapping_add(1));
        let lack = self.lacking(small.band(), &now);
        (!lack.is_of(small)).then_some(now)
    }

    /// Returns what `band` lacked at `room`, as far as it is noted.
    fn lacking(&self, band: Band, room: &Room) -> Lack {
        // Both are in one word, as two words could be of two searches.
        let noted = self.no_room.of(band).load(Relaxed);
        match noted.wrapping_shr(Lack::BITS) == room.shifted().wrapping_shr(Lack::BITS) {
            true => Lack::from_bits(noted),
            false => Lack::NOTHING,
        }
    }

    /// Notes what `band` lacks in the pool when there is no room for a new block. With the pool lock held.
    #[cold]
    pub(super) fn note_no_room(&self, band: Band, lack: Lack, room: Room) {
        let lack = self.lacking(band, &room).or(lack);
        // Relaxed: what made room after `room` was asked for has changed the count, or will.
        let noted = room.shifted() | lack.as_bits();
        self.no_room.of(band).store(noted, Relaxed);
    }

    /// Returns whether there is a part of the directory for a block at `addr`.
    pub(crate) fn is_prepared(&self, addr: usize) -> bool {
        self.dir
            .number_at(addr)
            .is_some_and(|number| self.dir.is_prepared(number))
    }

    /// Creates a part of the directory for a block at `addr`. Fails with `EBUSY` if there can be none. Sleeps
    /// if `flags` allow it.
    pub(crate) fn prepare(&self, addr: usize, flags: Flags) -> Result {
        self.dir
            .prepare(self.dir.number_at(addr).ok_or(EINVAL)?, flags)
    }

    /// Returns the lowest address above `addr` at which there can be blocks when [`Blocks::prepare`] has
    /// failed with `EBUSY` for `addr`.
    pub(crate) fn next_usable(&self, addr: usize) -> Option<usize> {
        self.dir.next_usable(addr)
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
    ) -> Result<Option<Area<Leaving>>, NoBlock> {
        let block = self.dir.block_at(addr, rcu).ok_or(NoBlock)?;
        Ok(block.unlink(addr))
    }

    /// Returns the lowest busy area that ends above `addr` in the block at `block`.
    pub(crate) fn next_busy(&self, block: Span, addr: usize) -> Option<(AreaPtr, Seen)> {
        let rcu = Guard::new();
        let found = self.dir.block_at(block.first(), &rcu)?;
        found.next_busy(addr)
    }

    /// Returns the lowest area behind `last` in the block that contains `addr` that is neither busy nor free, see
    /// [`Block::next_lazy`].
    pub(crate) fn next_lazy(&self, addr: usize, last: Option<Span>) -> Option<Span> {
        let rcu = Guard::new();
        self.dir.block_at(addr, &rcu)?.next_lazy(last)
    }

    /// Makes an unmapped area of a block lazy. Returns about how many pages are lazy, 0 if that is not to be
    /// asked now, or [`PURGE_NOW`] if they are half of what all blocks may have. Any context.
    pub(crate) fn retire(&self, cpu: &Cpu, area: Area<Unlinked>) -> usize {
        let Some((entry, pages)) = self.dir.retire(area) else {
            // Cannot happen: a block with an area in it stays. The drop of the area reports the leak.
            return 0;
        };
        // `Directory::retire()` ends with a full barrier. A purge that clears the dirty bit takes the lazy pages
        // afterwards, so either this sees the bit clear, or the purge takes the pages.
        entry.maps.dirty.insert(entry.bit);
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

    /// Returns the number of lazy pages, summed over all blocks. Sleepable context.
    pub(crate) fn lazy_pages(&self) -> usize {
        let mut pages = 0_usize;
        for part in self.dir.all_maps() {
            let maps = part.maps;
            let rcu = Guard::new();
            for bit in Bit::all().filter(|&bit| maps.dirty.has(bit) || maps.flushing.has(bit)) {
                let block = self.dir.block(part.entry(bit).number, &rcu);
                pages = pages.wrapping_add(block.map_or(0, Block::lazy_pages));
            }
            drop(rcu);
            mm::cond_resched();
        }
        pages
    }

    /// Frees an area of a block that was never mapped. Spins.
    pub(crate) fn release(&self, cpus: &Cpus, area: Area<Unlinked>, proof: NeverMapped) {
        let rcu = Guard::new();
        let addr = area.span().map_or(0, Span::first);
        let Some((block, entry)) = self.dir.block_and_entry(addr, &rcu) else {
            // Cannot happen: a block with an area in it stays. The drop of the area reports the leak.
            return;
        };
        block.release(area, proof);
        drop(rcu);
        self.update(&mut self.pool.lock(), cpus, entry);
        // A partial block may have more room now.
        self.note_room();
    }
}

/// Error: no block is at an address.
pub(crate) struct NoBlock;
