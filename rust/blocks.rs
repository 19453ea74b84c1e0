// SPDX-License-Identifier: GPL-2.0

//! All blocks: which CPU allocates from which, where there is room, and what a purge does with them.
//!
//! Each CPU has a current block for each band of sizes. Allocating from it and freeing to it takes no
//! lock. When it has no room, the CPU takes another block of the band out of the pool, the lowest first,
//! and puts the old one in; only that takes a lock, once for the many areas of a block.
//!
//! That a block is the current one of a CPU means that no other CPU takes it out of the pool, and nothing
//! else: a task that was moved to another CPU may still allocate from it, which is harmless.

use crate::{
    area::{
        Area,
        AreaPtr,
        Attributes,
        Seen,
        Unlinked, //
    },
    bits::{
        self,
        UNITS, //
    },
    block::{
        Block,
        Small,
        BANDS,
        COARSE_SIZE,
        SIZE, //
    },
    dir::{
        Directory,
        Removed, //
    },
    flush::{
        Flush,
        Plan, //
    },
    grace::{
        GraceBox,
        Guard, //
    },
    lock::Locked,
    mm::{
        self,
        Tlb, //
    },
    percpu::{
        Cpu,
        Cpus, //
    },
    range::{
        Span,
        PAGE_SIZE, //
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

/// A space with fewer blocks has none: a few would leave no room for large areas.
const MIN_BLOCKS: usize = 64;

/// At most one in this many parts of the space is for blocks.
const SHARE: usize = 4;

/// How many blocks without enough room are looked at, for one that has it, before a new one is taken.
const TRIES: usize = 8;

/// The same before a request fails.
const MANY_TRIES: usize = 256;

/// So many lazy bytes all CPUs together count for themselves at most, before they add them to the count
/// of all: a quarter of what C allows one CPU, `lazy_max_pages()` in mm/vmalloc.c.
const LAZY_UNCOUNTED: usize = 8 << 20;

/// Most lazy pages that a CPU counts for itself.
const LAZY_BATCH: usize = 64;

/// Blocks that are kept when all is quiet.
const MIN_KEEP: usize = 2;

/// What the lock of the pool protects besides the maps `held`, `partial` and `empty` of the directory.
struct Pool {
    /// For each band, the number of the block to look at first.
    cursor: [usize; BANDS],
    /// Blocks there are, or are about to be.
    live: usize,
    /// Bytes of all blocks, and of the coarse ones among them.
    bytes: usize,
    coarse_bytes: usize,
    /// For each band, the number of blocks in the map `partial`: without any, nothing is searched.
    partial: [usize; BANDS],
    /// For each band, blocks that are empty and not held.
    empty: [usize; BANDS],
    /// For each band, blocks that were taken out of the pool since the last purge.
    taken: [usize; BANDS],
    /// How many empty ones of each band a purge leaves.
    keep: [usize; BANDS],
}

/// Adds one to the count of a band.
fn count_up(counts: &mut [usize; BANDS], band: usize) {
    if let Some(count) = counts.get_mut(band) {
        *count = count.saturating_add(1);
    }
}

/// What of a block of `bytes` bytes counts as that of a coarse one.
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

    /// Does not count one any more.
    fn subtract(&mut self, bytes: usize) {
        self.live = self.live.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.coarse_bytes = self.coarse_bytes.saturating_sub(coarse_part(bytes));
    }

    /// The search for room in a block of `band` goes on at block `from`.
    fn go_on_at(&mut self, band: usize, from: usize) {
        if let Some(cursor) = self.cursor.get_mut(band) {
            *cursor = from;
        }
    }
}

/// All blocks of a space.
pub(crate) struct Blocks {
    dir: Directory,
    pool: Locked<Pool>,
    /// Most bytes that blocks may have.
    limit: usize,
    /// About how many pages became lazy since the last purge began, but for those that CPUs count for
    /// themselves.
    lazy: Atomic<usize>,
    /// So many pages a CPU counts for itself.
    lazy_batch: usize,
}

/// What a purge has taken over.
#[must_use = "the pages are lost if they are not freed"]
pub(crate) struct Snapshot {
    units: usize,
}

impl Snapshot {
    /// Is it enough to tell what is needed? A purge of less than a block comes too soon after the last one.
    pub(crate) fn is_telling(&self) -> bool {
        self.units >= UNITS
    }
}

/// How many blocks there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockCensus {
    pub(crate) live: usize,
    /// Not held, with room.
    pub(crate) partial: usize,
    pub(crate) empty: usize,
}

impl Blocks {
    /// No blocks, for a space of which `home` is served from blocks.
    /// There are at most as many as `limit` fine ones, or what is reasonable for the size of `home`.
    pub(crate) fn new(home: Span, limit: Option<usize>) -> Result<Self> {
        let dir = Directory::new(home)?;
        let limit = limit.unwrap_or(match dir.capacity() {
            MIN_BLOCKS.. => dir.capacity() / SHARE,
            _ => 0,
        });
        let limit = limit.saturating_mul(SIZE);
        let pool = Pool {
            cursor: [0; BANDS],
            live: 0,
            bytes: 0,
            coarse_bytes: 0,
            partial: [0; BANDS],
            empty: [0; BANDS],
            taken: [0; BANDS],
            keep: [MIN_KEEP; BANDS],
        };
        Ok(Self {
            dir,
            pool: Locked::new(pool, c"vmap_rust pool", static_lock_class!())?,
            limit,
            lazy: Atomic::new(0),
            lazy_batch: (LAZY_UNCOUNTED / PAGE_SIZE / mm::cpu_count()).min(LAZY_BATCH),
        })
    }

    /// A request for `size` bytes at a multiple of `align`, if blocks serve such ones.
    #[inline(always)]
    pub(crate) fn small(&self, size: usize, align: usize) -> Option<Small> {
        if self.limit == 0 {
            return None;
        }
        Small::new(size, align, self.dir.has_coarse())
    }

    /// Where blocks can be.
    pub(crate) fn window(&self) -> Option<Span> {
        self.dir.window()
    }

    /// Makes an area in the current block of this CPU. No lock.
    #[inline]
    pub(crate) fn alloc(
        &self,
        cpu: &Cpu,
        small: Small,
        attributes: &Attributes,
    ) -> Option<AreaPtr> {
        let rcu = Guard::new();
        // Relaxed: a hint of which block to ask.
        let current = cpu.current.get(small.band())?.load(Relaxed);
        let block = self.dir.block_in(current.checked_sub(1)?, &rcu)?;
        // The block there may be another one by now, also one with another number.
        if !block.serves(small) {
            return None;
        }
        block.alloc(small, attributes)
    }

    /// Makes an area in another block of the band, which becomes the current one. Spins.
    pub(crate) fn refill(
        &self,
        cpu: &Cpu,
        small: Small,
        attributes: &Attributes,
    ) -> Option<AreaPtr> {
        let mut pool = self.pool.lock();
        // Has somebody else on this CPU done it meanwhile?
        if let Some(area) = self.alloc(cpu, small, attributes) {
            return Some(area);
        }
        let (index, area) = self.take_partial(&mut pool, small.band(), small, attributes, TRIES)?;
        self.make_current(&mut pool, cpu, small.band(), index);
        cpu.counters.refill.one();
        Some(area)
    }

    /// As [`Blocks::refill`], from all blocks that can serve it, those of other CPUs and of lower bands
    /// of the same kind as well: for when there is no room for a new one.
    pub(crate) fn steal(
        &self,
        cpus: &Cpus,
        small: Small,
        attributes: &Attributes,
    ) -> Option<AreaPtr> {
        self.put_current(cpus);
        let cpu = cpus.here();
        let mut pool = self.pool.lock();
        for band in small.bands().rev() {
            pool.go_on_at(band, 0);
            let found = self.take_partial(&mut pool, band, small, attributes, MANY_TRIES);
            if let Some((index, area)) = found {
                self.make_current(&mut pool, cpu, band, index);
                cpu.counters.steal.one();
                return Some(area);
            }
        }
        None
    }

    /// Takes a block of the band that has room out of the pool, and makes the area in it.
    fn take_partial(
        &self,
        pool: &mut Pool,
        band: usize,
        small: Small,
        attributes: &Attributes,
        tries: usize,
    ) -> Option<(usize, AreaPtr)> {
        if pool.partial.get(band).copied()? == 0 {
            pool.go_on_at(band, 0);
            return None;
        }
        let rcu = Guard::new();
        let mut from = pool.cursor.get(band).copied()?;
        for _ in 0..tries {
            let Some(index) = self.next_partial(band, from) else {
                from = 0;
                break;
            };
            from = index.saturating_add(1);
            let block = self.dir.block(index, &rcu);
            let Some(block) = block.filter(|block| block.serves(small)) else {
                continue;
            };
            if let Some(area) = block.alloc(small, attributes) {
                self.hold(pool, index);
                count_up(&mut pool.taken, band);
                pool.go_on_at(band, 0);
                return Some((index, area));
            }
        }
        // The next one goes on here, so that all are looked at in the end.
        pool.go_on_at(band, from);
        None
    }

    /// The lowest block of the pool from `from` on that has room for the band.
    fn next_partial(&self, band: usize, from: usize) -> Option<usize> {
        for (first, maps) in self.dir.all_maps() {
            let start = match from.checked_sub(first) {
                Some(bit) if bit >= UNITS => continue,
                Some(bit) => bit,
                None => 0,
            };
            let found = bits::next_set(&maps.partial.get(band)?.words(), start);
            if let Some(bit) = found {
                return first.checked_add(bit);
            }
        }
        None
    }

    /// Takes a block out of the pool, if it is in it.
    fn hold(&self, pool: &mut Pool, index: usize) {
        let Some((maps, bit)) = self.dir.maps(index) else {
            return;
        };
        let empty = maps.empty.has(bit);
        if empty {
            maps.empty.clear_bit(bit);
        }
        let counts = pool.partial.iter_mut().zip(&mut pool.empty);
        for (map, (partial_count, empty_count)) in maps.partial.iter().zip(counts) {
            if map.has(bit) {
                map.clear_bit(bit);
                *partial_count = partial_count.saturating_sub(1);
                // What is empty is partial as well.
                *empty_count = empty_count.saturating_sub(usize::from(empty));
            }
        }
        if !maps.held.has(bit) {
            maps.held.set_bit(bit);
        }
    }

    /// Puts a block into the pool that a CPU is done with.
    fn put(&self, pool: &mut Pool, index: usize) {
        if let Some((maps, bit)) = self.dir.maps(index) {
            if maps.held.has(bit) {
                maps.held.clear_bit(bit);
            }
        }
        self.update(pool, index);
    }

    /// Says what room there is in a block, if it is in the pool.
    fn update(&self, pool: &mut Pool, index: usize) {
        let rcu = Guard::new();
        let (Some((maps, bit)), Some(block)) = (self.dir.maps(index), self.dir.block(index, &rcu))
        else {
            return;
        };
        if maps.held.has(bit) {
            return;
        }
        if let Some(partial) = maps.partial.get(block.band()) {
            if !partial.has(bit) && block.is_useful() {
                partial.set_bit(bit);
                count_up(&mut pool.partial, block.band());
            }
        }
        if !maps.empty.has(bit) && block.is_empty() {
            maps.empty.set_bit(bit);
            count_up(&mut pool.empty, block.band());
        }
    }

    /// Makes a held block the current one, and puts the one before it into the pool.
    fn make_current(&self, pool: &mut Pool, cpu: &Cpu, band: usize, index: usize) {
        let Some(current) = cpu.current.get(band) else {
            return;
        };
        // Relaxed: as in `alloc()`. It changes only with the lock held.
        let before = current.xchg(index.wrapping_add(1), Relaxed);
        if let Some(before) = before.checked_sub(1) {
            self.put(pool, before);
        }
    }

    /// Puts the current blocks of all CPUs into the pool, also of those that are offline.
    pub(crate) fn put_current(&self, cpus: &Cpus) {
        for cpu in cpus.iter() {
            let mut pool = self.pool.lock();
            for current in &cpu.current {
                // Relaxed: as in `make_current()`.
                if let Some(index) = current.xchg(0, Relaxed).checked_sub(1) {
                    self.put(&mut pool, index);
                }
            }
        }
    }

    /// May there be one more block of `bytes` bytes? If so it counts from now on.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let mut pool = self.pool.lock();
        let coarse_bytes = pool.coarse_bytes.saturating_add(coarse_part(bytes));
        let ok = pool.bytes.saturating_add(bytes) <= self.limit
            // Coarse ones leave room for fine ones.
            && coarse_bytes <= (self.limit / 2).max(COARSE_SIZE);
        if ok {
            pool.add(bytes);
        }
        ok
    }

    /// Undoes [`Blocks::reserve`].
    pub(crate) fn unreserve(&self, bytes: usize) {
        self.pool.lock().subtract(bytes);
    }

    /// Is there a part of the directory for a block at `addr`?
    pub(crate) fn is_prepared(&self, addr: usize) -> bool {
        self.dir
            .index_of(addr)
            .is_some_and(|index| self.dir.is_prepared(index))
    }

    /// Makes a part of the directory for a block at `addr`. Sleeps if `flags` allow it.
    pub(crate) fn prepare(&self, addr: usize, flags: Flags) -> Result {
        self.dir
            .prepare(self.dir.index_of(addr).ok_or(EINVAL)?, flags)
    }

    /// Takes in a new block, whose range is reserved for it, as the current one, and makes an area in
    /// it.
    pub(crate) fn adopt(
        &self,
        cpu: &Cpu,
        block: GraceBox<Block>,
        small: Small,
        attributes: &Attributes,
    ) -> Result<Option<AreaPtr>, GraceBox<Block>> {
        // Held from the first moment on: nobody takes it out of the pool, who still had something to do
        // with the former block of that number. And closed until all of its entries are there: who still
        // has that number for its current block could allocate what cannot be found.
        let mut pool = self.pool.lock();
        let index = self.dir.insert(block)?;
        self.hold(&mut pool, index);
        count_up(&mut pool.taken, small.band());
        let rcu = Guard::new();
        let area = self.dir.block(index, &rcu).and_then(|block| {
            block.open();
            // Hardly anybody else allocates from the block yet, so there is room.
            block.alloc(small, attributes)
        });
        self.make_current(&mut pool, cpu, small.band(), index);
        cpu.counters.block_new.one();
        cpu.counters.refill.one();
        Ok(area)
    }

    /// The busy area in a block that contains `addr`: `Err` if there is no block. No lock.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        addr: usize,
        rcu: &Guard,
    ) -> Result<Option<(AreaPtr, Seen)>, NoBlock> {
        let block = self.dir.block_at(addr, rcu).ok_or(NoBlock)?;
        Ok(block.find(addr))
    }

    /// As [`Blocks::find`], and the area is not found any more.
    pub(crate) fn unlink(
        &self,
        addr: usize,
        rcu: &Guard,
    ) -> Result<Option<Area<crate::area::Leaving>>, NoBlock> {
        let block = self.dir.block_at(addr, rcu).ok_or(NoBlock)?;
        Ok(block.unlink(addr))
    }

    /// The lowest busy area that ends above `addr`, in the block at `addr`.
    pub(crate) fn next_busy(&self, block: Span, addr: usize) -> Option<(AreaPtr, Seen)> {
        let rcu = Guard::new();
        let found = self.dir.block_at(block.first(), &rcu)?;
        found.next_busy(addr)
    }

    /// The lowest area that ends above `addr` and is neither busy nor free, in a block.
    pub(crate) fn next_lazy(&self, block: Span, addr: usize) -> Option<Span> {
        let rcu = Guard::new();
        let found = self.dir.block_at(block.first(), &rcu)?;
        found.next_lazy(addr)
    }

    /// A block with its number.
    fn numbered<'a>(&self, block: &'a Block) -> Option<(usize, &'a Block)> {
        Some((self.dir.index_of(block.start())?, block))
    }

    /// Takes over an unmapped area of a block. Returns about how many pages are lazy now. Any context.
    pub(crate) fn retire(&self, cpu: &Cpu, area: Area<Unlinked>) -> usize {
        let rcu = Guard::new();
        let addr = area.span().map_or(0, Span::first);
        let found = self.dir.block_at(addr, &rcu);
        let Some((index, block)) = found.and_then(|block| self.numbered(block)) else {
            // Cannot be: a block with an area in it stays. The token says what is lost.
            return self.lazy.load(Relaxed);
        };
        let pages = block.retire(area);
        // After the full barrier in `Block::retire()`: either this sees that the purge, which clears the
        // bit and then takes the lazy pages, has cleared it, or the purge takes the pages.
        if let Some((maps, bit)) = self.dir.maps(index) {
            maps.dirty.insert(bit);
        }
        cpu.counters.retire_block.one();

        // Relaxed, and no exchange: numbers that say when it is time to purge. What a task that is preempted
        // here gets wrong is gone with the next purge.
        let here = cpu.lazy.load(Relaxed).saturating_add(pages);
        if here < self.lazy_batch {
            cpu.lazy.store(here, Relaxed);
            self.lazy.load(Relaxed)
        } else {
            cpu.lazy.store(0, Relaxed);
            self.lazy.fetch_add(here, Relaxed).saturating_add(here)
        }
    }

    /// Returns about how many pages of blocks are lazy, without those that CPUs count for themselves.
    pub(crate) fn lazy_estimate(&self) -> usize {
        // Relaxed: a number that says when it is time to purge.
        self.lazy.load(Relaxed)
    }

    /// Lazy pages of all blocks, block by block.
    pub(crate) fn lazy_pages(&self) -> usize {
        let rcu = Guard::new();
        let mut pages = 0_usize;
        for (first, maps) in self.dir.all_maps() {
            for bit in (0..UNITS).filter(|&bit| maps.dirty.has(bit) || maps.flushing.has(bit)) {
                let block = self.dir.block(first.wrapping_add(bit), &rcu);
                pages = pages.wrapping_add(block.map_or(0, Block::lazy_pages));
            }
        }
        pages
    }

    /// Takes over an area of a block that was never mapped. Spins.
    pub(crate) fn release(&self, area: Area<Unlinked>) {
        let rcu = Guard::new();
        let addr = area.span().map_or(0, Span::first);
        let found = self.dir.block_at(addr, &rcu);
        let Some((index, block)) = found.and_then(|block| self.numbered(block)) else {
            return;
        };
        block.release(area);
        drop(rcu);
        self.update(&mut self.pool.lock(), index);
    }

    /// Takes over all that was retired before the call, and plans to flush it. Sleepable context, and
    /// only one purge at a time.
    pub(crate) fn snapshot(&self, plan: &mut Plan) -> Snapshot {
        // Relaxed: as in `retire()`.
        self.lazy.store(0, Relaxed);
        let mut units = 0_usize;
        for (first, maps) in self.dir.all_maps() {
            let dirty = maps.dirty.take();
            for bit in bits::set_bits(&dirty) {
                let rcu = Guard::new();
                let taken = self
                    .dir
                    .block(first.wrapping_add(bit), &rcu)
                    .and_then(Block::snapshot);
                drop(rcu);
                if let Some(taken) = taken {
                    maps.flushing.set_bit(bit);
                    plan.add(taken.cover, taken.areas);
                    units = units.wrapping_add(taken.units);
                }
                mm::cond_resched();
            }
        }
        Snapshot { units }
    }

    /// Releases what else goes with the pages of a snapshot, before they become free. Sleepable context.
    pub(crate) fn release_shadow(&self, _snapshot: &Snapshot, _flush: &Flush, tlb: &impl Tlb) {
        self.each_flushing(false, |_, block| {
            for (first, pages) in bits::runs(&block.flushing()) {
                if let Some(span) = block.run(first, pages) {
                    tlb.release_shadow(span);
                }
            }
        });
    }

    /// Makes exactly the pages of a snapshot free. Sleepable context.
    pub(crate) fn free(&self, _snapshot: Snapshot, _flush: &Flush) {
        self.each_flushing(true, |index, block| {
            block.free_flushed();
            self.update(&mut self.pool.lock(), index);
        });
    }

    /// Calls `what` for each block that a purge is at work on; for the last time if `done`.
    fn each_flushing(&self, done: bool, what: impl Fn(usize, &Block)) {
        for (first, maps) in self.dir.all_maps() {
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

    /// Ends a purge: as many empty blocks may stay as were taken out of the pool since the last one, and
    /// some more, or half of what was allowed then; if that purge `is_telling`.
    pub(crate) fn end_purge(&self, is_telling: bool) {
        let mut pool = self.pool.lock();
        pool.cursor = [0; BANDS];
        if is_telling {
            let taken = core::mem::take(&mut pool.taken);
            for (keep, taken) in pool.keep.iter_mut().zip(taken) {
                let needed = taken.saturating_add(taken / 4);
                *keep = needed.saturating_add(MIN_KEEP).max(*keep / 2);
            }
        }
    }

    /// Takes out an empty block, the highest first, if there are more than may stay, or any if `all`.
    /// Its range is still reserved.
    pub(crate) fn take_empty(&self, all: bool) -> Option<Removed> {
        let mut pool = self.pool.lock();
        let counts = pool.empty.iter().zip(&pool.keep);
        let mut too_many = counts.map(|(&empty, &keep)| empty > if all { 0 } else { keep });
        let band = too_many.position(|too_many| too_many)?;
        for (first, maps) in self.dir.all_maps().rev() {
            let partial = maps.partial.get(band)?.words();
            let both = bits::and(&partial, &maps.empty.words());
            let Some(bit) = bits::last_set(&both) else {
                continue;
            };
            let index = first.wrapping_add(bit);
            self.hold(&mut pool, index);
            let rcu = Guard::new();
            let block = self.dir.block(index, &rcu);
            let Some(block) = block.filter(|block| block.close()) else {
                // A task that was moved to another CPU has allocated from it.
                self.put(&mut pool, index);
                return None;
            };
            pool.subtract(block.size());
            let removed = self.dir.remove(index);
            // Before there can be another block of that number.
            maps.held.clear_bit(bit);
            return removed;
        }
        None
    }

    /// Puts a block back that [`Blocks::take_empty`] has taken out.
    pub(crate) fn restore(&self, removed: Removed) {
        let Some(index) = self.dir.put_back(removed) else {
            return;
        };
        let rcu = Guard::new();
        // Only now: who still knows the block may allocate from it, and the areas must be found.
        let block = self.dir.block(index, &rcu);
        if let Some(block) = block {
            block.open();
        }
        let mut pool = self.pool.lock();
        pool.add(block.map_or(0, Block::size));
        self.update(&mut pool, index);
    }

    /// Number of empty blocks.
    pub(crate) fn empty(&self) -> usize {
        self.pool.lock().empty.iter().sum()
    }

    /// How many blocks there are of which kind.
    pub(crate) fn census(&self) -> BlockCensus {
        let pool = self.pool.lock();
        BlockCensus {
            live: pool.live,
            partial: pool.partial.iter().sum(),
            empty: pool.empty.iter().sum(),
        }
    }

    /// Checks a block, and tells what is in it; [`None`] if there is none at `addr`.
    pub(crate) fn validate_block(
        &self,
        addr: usize,
        quiet: bool,
    ) -> Option<Result<crate::block::Contents>> {
        let rcu = Guard::new();
        Some(self.dir.block_at(addr, &rcu)?.validate(quiet))
    }

    /// Checks what the pool knows of the blocks. Holds its lock all the time: for tests and debugging. If
    /// `quiet`, nobody is about to take a block in or out.
    pub(crate) fn validate(&self, cpus: &Cpus, quiet: bool) -> Result {
        let pool = self.pool.lock();
        let rcu = Guard::new();
        let mut empty = 0_usize;
        let mut held = 0_usize;
        let mut partials = [0_usize; BANDS];
        let (mut live, mut bytes) = (0_usize, 0_usize);
        for (first, maps) in self.dir.all_maps() {
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
                // Also if there is one with another number.
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
            for index in &cpu.current {
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
        if partials != pool.partial {
            mm::refuse!("{:?} partial blocks, counted {:?}", partials, pool.partial);
            return Err(EINVAL);
        }
        let counted: usize = pool.empty.iter().sum();
        if empty != counted || held != current {
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

/// There is no block at an address.
pub(crate) struct NoBlock;
