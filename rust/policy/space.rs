// SPDX-License-Identifier: GPL-2.0

//! The allocator: decides whether a block, the cache or the tree serves a request, and what becomes of a
//! freed range.

use crate::{
    base::{
        fit::{
            highest_congruent,
            lowest_fit,
            lowest_gap_fit,
            Gaps,
            Member, //
        },
        range::{
            is_aligned,
            Span,
            PAGE_SIZE, //
        },
        stats::Totals, //
    },
    policy::{
        blocks::{
            Blocks,
            NoBlock, //
        },
        blocks_check::BlockCensus,
        blocks_purge,
        cache::{
            Place,
            RangeCache,
            Sweep, //
        },
        lazy::{
            self,
            LazySet, //
        },
        percpu::Cpus, //
    },
    state::{
        area::{
            Area,
            AreaList,
            AreaPtr,
            Attributes,
            Cached,
            Flushed,
            New,
            Seen,
            State,
            Unlinked,
            Use, //
        },
        block::{
            Block,
            Small, //
        },
        flush::{
            Flush,
            Plan, //
        },
        pins::{
            PinGuard,
            Pins, //
        },
        table::{
            Entry,
            Next,
            Spare,
            Table,
            TableGuard, //
        }, //
    },
    sys::{
        grace::{
            GraceBox,
            Guard, //
        },
        maple::StoreError,
        mm::{
            self,
            Gfp,
            Tlb, //
        },
        per_cpu::CacheAligned, //
    }, //
};
use kernel::{
    prelude::*,
    static_lock_class,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Entries read while the tree lock is held once. Each is a walk from the root.
const LOOKS: usize = 16;

/// Freed areas handled between two calls of `cond_resched()`.
const BATCH: usize = 32;

/// Maximum number of cached ranges, and of empty blocks, that a request without sleeping drains to make room.
const MAX_ATOMIC: usize = 32;

/// At how many cached ranges a drain looks for each that it may free.
const LOOKS_PER_RANGE: usize = 16;

/// A purge of fewer large areas than 1/8 of the cached ranges says nothing about demand.
const TRIM_MIN_FRACTION: usize = 8;

/// Maximum size of a cached range in pages: 32 MiB with 4 KiB pages.
const MAX_CACHED: usize = 8192;

/// Maximum number of searches for one request. A search is repeated after memory was allocated without the
/// lock, because others may have changed the tree meanwhile.
const MAX_RETRIES: u32 = 16;

/// How much to drain, and how.
#[derive(Clone, Copy)]
struct Budget {
    /// Maximum number of cached ranges, and of empty blocks, to free.
    most: usize,
    /// Only cached ranges with pages in this window help, if it is given.
    window: Option<Span>,
    /// For memory to change the tree.
    gfp: Gfp,
    /// Whether the context is sleepable.
    may_sleep: bool,
    /// Whether memory is short, so that the reserves must not be used.
    is_reclaim: bool,
}

impl Budget {
    /// Everything, in sleepable context, without waiting for memory.
    const ALL: Self = Self {
        most: usize::MAX,
        window: None,
        gfp: Gfp::NOWAIT,
        may_sleep: true,
        is_reclaim: false,
    };

    /// What a request with `gfp` may spend when it found no room in `window`.
    fn of_request(gfp: Gfp, window: Span) -> Self {
        let may_sleep = gfp.may_block();
        Self {
            most: if may_sleep { usize::MAX } else { MAX_ATOMIC },
            window: Some(window),
            gfp,
            may_sleep,
            is_reclaim: false,
        }
    }

    /// Returns whether freeing `span` may make the room that is needed.
    fn is_helped_by(self, span: Option<Span>) -> bool {
        self.window
            .is_none_or(|window| span.and_then(|span| span.clip(window)).is_some())
    }

    /// At most `most`, in memory reclaim.
    fn of_reclaim(most: usize) -> Self {
        Self {
            most,
            window: None,
            gfp: Gfp::RECLAIM,
            may_sleep: true,
            is_reclaim: true,
        }
    }

    /// At most `most`, in any context.
    const fn atomic(most: usize) -> Self {
        Self {
            most,
            window: None,
            gfp: Gfp::NOWAIT,
            may_sleep: false,
            is_reclaim: false,
        }
    }
}

/// A request for an area.
pub(crate) struct Request {
    /// The addresses where the area may be.
    pub(crate) window: Span,
    /// Size in bytes, a multiple of [`PAGE_SIZE`].
    pub(crate) size: usize,
    /// Alignment in bytes, a power of two.
    pub(crate) align: usize,
    /// The fields of the area that C sets.
    pub(crate) attributes: Attributes,
    /// The gfp flags for metadata.
    pub(crate) gfp: Gfp,
    /// NUMA node of the metadata, or -1 for any node.
    pub(crate) node: i32,
}

/// An address space and all areas in it.
pub(crate) struct Space<T: Tlb> {
    table: Table,
    blocks: Blocks,
    cache: RangeCache,
    cpus: Cpus,
    tlb: T,
    lazy: LazySet,
    pins: Pins,
    /// Blocks and cached ranges serve only requests for exactly this window.
    home: Span,
    /// Bytes of all entries of the tree in `home`, changed under the tree lock.
    reserved: CacheAligned<Atomic<usize>>,
    /// Number of cached ranges outside `home`: those that could not be freed for lack of memory. Changed under the
    /// tree lock.
    strays: Atomic<usize>,
}

/// Why a search and store under the lock failed.
enum Miss {
    NoRoom,
    NoMemory,
}

impl<T: Tlb> Space<T> {
    /// Creates an empty space. Blocks, if `home` is large enough for them, and cached ranges serve
    /// requests for `home`.
    pub(crate) fn new(home: Span, tlb: T) -> Result<Self> {
        Self::with_blocks(home, tlb, None)
    }

    /// Creates an empty space whose blocks together are at most as large as `limit` fine blocks. [`None`]
    /// means the default limit for the size of `home`.
    pub(crate) fn with_blocks(home: Span, tlb: T, limit: Option<usize>) -> Result<Self> {
        Ok(Self {
            table: Table::new(c"vmap_rust index", static_lock_class!())?,
            blocks: Blocks::new(home, limit)?,
            cache: RangeCache::new()?,
            cpus: Cpus::new()?,
            tlb,
            lazy: LazySet::new()?,
            pins: Pins::new()?,
            home,
            reserved: CacheAligned::new(Atomic::new(0)),
            strays: Atomic::new(0),
        })
    }

    /// Returns the memory that was allocated for CPU `cpu` and no other.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn memory_of_cpu(&self, cpu: usize) -> impl Iterator<Item = *const c_void> {
        let state = self.cpus.of(cpu);
        let former = state.former.as_ptr().cast();
        let state = [core::ptr::from_ref(state).cast(), former];
        let lazy = self.lazy.memory_of_cpu(cpu).into_iter().flatten();
        let cache = self.cache.memory_of_cpu(cpu).into_iter().flatten();
        Iterator::chain(state.into_iter(), Iterator::chain(lazy, cache))
    }

    /// Reserves a range and makes it a busy area. Fails with `ENOMEM` without memory for metadata, with
    /// `EBUSY` without room. Sleeps only if the request's flags allow it.
    pub(crate) fn alloc(&self, req: &Request) -> Result<AreaPtr> {
        // Blocks lie anywhere in `home`: a request with a window of its own must not get a range outside
        // it.
        let small = match req.window == self.home {
            true => self.blocks.small(req.size, req.align),
            false => None,
        };
        let cpu = self.cpus.here();
        if let Some(small) = small {
            let area = self.blocks.alloc(&self.cpus, cpu, small, &req.attributes);
            if let Some(area) = area {
                cpu.counters.hit.one();
                return Ok(area);
            }
            if let Some(area) = self.alloc_refilled(req, small) {
                return Ok(area);
            }
        }
        self.alloc_large(req, small)
    }

    /// Serves a request that blocks do not serve, or for which they have no room.
    #[inline(never)]
    fn alloc_large(&self, req: &Request, small: Option<Small>) -> Result<AreaPtr> {
        if let Some(area) = self.alloc_cached(req) {
            return Ok(area);
        }
        let counters = &self.cpus.here().counters;
        let area = match Area::alloc(req.gfp, req.node) {
            None => None,
            Some(area) => match self.alloc_searched(req, area) {
                Ok(area) => return Ok(area),
                Err((_, Miss::NoMemory)) => None,
                Err((area, Miss::NoRoom)) => Some(area),
            },
        };

        // Room in the blocks of other CPUs needs neither a gap nor memory.
        if let Some(small) = small {
            if let Some(area) = self.blocks.steal(&self.cpus, small, &req.attributes) {
                return Ok(area);
            }
        }
        let Some(area) = area else {
            counters.no_memory.one();
            return Err(ENOMEM);
        };
        if self.can_drain_help(req.window) && self.drain(req.gfp, req.window) > 0 {
            if let Some(area) = small.and_then(|small| self.alloc_refilled(req, small)) {
                return Ok(area);
            }
            if let Ok(area) = self.alloc_searched(req, area) {
                return Ok(area);
            }
        }
        counters.no_room.one();
        Err(EBUSY)
    }

    /// Serves a request from a block in the pool, or from a new block, which becomes the current one.
    #[inline(never)]
    fn alloc_refilled(&self, req: &Request, small: Small) -> Option<AreaPtr> {
        let room = self.blocks.may_have_room(small)?;
        let area = self.blocks.refill(&self.cpus, small, &req.attributes);
        if area.is_some() {
            return area;
        }
        let block = match self.reserve_block(small) {
            true => self.new_block(small, req.gfp).inspect_err(|_| {
                self.blocks.unreserve(small.block_size());
            }),
            false => Err(Miss::NoRoom),
        };
        let block = match block {
            Ok(block) => block,
            Err(miss) => {
                let (cpus, blocks) = (&self.cpus, &self.blocks);
                let room = matches!(miss, Miss::NoRoom).then_some(room);
                return blocks.take_anyones(cpus, small, &req.attributes, room);
            }
        };
        match self.blocks.adopt(&self.cpus, block, small, &req.attributes) {
            Ok(area) => area,
            Err(block) => {
                // Leak the range: it stays reserved, and reuse would not be safe.
                mm::refuse!("there are two blocks at {:?}", block.span());
                self.blocks.unreserve(small.block_size());
                None
            }
        }
    }

    /// Counts a new block for requests like `small`, if the limits allow it. At the limit, blocks of other
    /// bands that are empty, or idle on other CPUs, make room.
    fn reserve_block(&self, small: Small) -> bool {
        let reserved = self.reserved.load(Relaxed);
        if self.blocks.reserve(small.block_size(), reserved) {
            return true;
        }
        self.blocks.return_idle(&self.cpus);
        self.blocks.empty() > 0
            && self.free_blocks(true, Budget::atomic(1)) > 0
            && self.blocks.reserve(small.block_size(), reserved)
    }

    /// Creates a block for requests like `small`, and reserves the lowest free range of its size. Sleeps
    /// if `gfp` allows it.
    fn new_block(&self, small: Small, gfp: Gfp) -> Result<GraceBox<Block>, Miss> {
        // Allocate memory before the lock is taken.
        let flags = gfp.flags();
        let block = Block::new(small.band(), self.tlb.is_randomized(), flags);
        let block = block.and_then(|block| GraceBox::new(block, flags));
        let mut block = block.map_err(|_| Miss::NoMemory)?;
        let mut window = self.blocks.window().ok_or(Miss::NoRoom)?;
        let size = small.block_size();
        let mut table = self.table.lock();
        for _ in 0..MAX_RETRIES {
            // Try the lowest gap first: the gap that a freed block leaves has exactly this size.
            let span = lowest_gap_fit(&mut table, window, size, size)
                .or_else(|| lowest_fit(&mut table, window, size, size))
                .ok_or(Miss::NoRoom)?;
            if !self.blocks.is_prepared(span.first()) {
                // Allocate memory without the lock. The gap may be taken meanwhile, so search again.
                drop(table);
                match self.blocks.prepare(span.first(), flags) {
                    Ok(()) => {}
                    Err(EBUSY) => {
                        // There can be no block: search in parts where there can be.
                        let next = self.blocks.next_usable(span.first());
                        window = next
                            .and_then(|next| Span::from_bounds(next, window.end()))
                            .ok_or(Miss::NoRoom)?;
                    }
                    Err(_) => return Err(Miss::NoMemory),
                }
                table = self.table.lock();
                continue;
            }
            match table.reserve_block(span) {
                Ok(()) => {
                    self.count(&table, span, true);
                    block.place(span.first());
                    return Ok(block);
                }
                Err(StoreError::Mismatch) => return Err(Miss::NoRoom),
                // The lock may have been dropped: search again.
                Err(StoreError::NoMemory) => {
                    if !table.nomem(gfp) {
                        return Err(Miss::NoMemory);
                    }
                }
            }
        }
        Err(Miss::NoMemory)
    }

    /// Serves a request from a cached range of its size.
    fn alloc_cached(&self, req: &Request) -> Option<AreaPtr> {
        if req.window != self.home {
            return None;
        }
        let (area, place) = self.cache.take(req.size / PAGE_SIZE, |area| {
            // The cache may hold ranges outside `home` that could not be freed.
            area.span()
                .is_some_and(|span| self.home.covers(span) && is_aligned(span.first(), req.align))
        })?;
        let span = area.span()?;
        let counters = &self.cpus.here().counters;
        counters.alloc_cached.one();
        if let Place::Elsewhere = place {
            counters.cached_elsewhere.one();
        }
        // The entry of a cached range is still in the tree.
        Some(area.prepare(span, &req.attributes).busy())
    }

    /// Serves a request from the lowest gap of the tree that fits.
    fn alloc_searched(
        &self,
        req: &Request,
        mut area: Area<New>,
    ) -> Result<AreaPtr, (Area<New>, Miss)> {
        let mut table = self.table.lock();
        for _ in 0..MAX_RETRIES {
            let Some(span) = lowest_fit(&mut table, req.window, req.size, req.align) else {
                return Err((area, Miss::NoRoom));
            };
            area = match table.publish(area, span, &req.attributes) {
                Ok(area) => {
                    self.count(&table, span, true);
                    self.cpus.here().counters.alloc_tree.one();
                    return Ok(area);
                }
                Err((area, StoreError::NoMemory)) => area,
                Err((area, StoreError::Mismatch)) => {
                    mm::refuse!("{:?} is not free", span);
                    return Err((area, Miss::NoRoom));
                }
            };
            // The lock may have been dropped: search again.
            if !table.nomem(req.gfp) {
                break;
            }
        }
        Err((area, Miss::NoMemory))
    }

    /// Reserves a range for each of `members` at the highest common base in `window`, and passes the areas
    /// to `sink` in order. Reserves all or none. Sleeps if `gfp` allows it.
    pub(crate) fn alloc_congruent(
        &self,
        window: Span,
        members: impl Iterator<Item = Member> + Clone,
        align: usize,
        gfp: Gfp,
        mut sink: impl FnMut(usize, AreaPtr),
    ) -> Result {
        let mut drained = false;
        for _ in 0..MAX_RETRIES {
            // Allocate the area objects before the lock is taken.
            let mut areas = AreaList::new();
            for _ in members.clone() {
                areas.push(Area::alloc(gfp, -1).ok_or(ENOMEM)?);
            }

            let mut table = self.table.lock();
            let Some(base) = highest_congruent(&mut table, window, members.clone(), align) else {
                drop(table);
                if drained || !self.can_drain_help(window) || self.drain(gfp, window) == 0 {
                    return Err(EBUSY);
                }
                drained = true;
                continue;
            };
            match self.publish_all(&mut table, base, members.clone(), areas, gfp, &mut sink) {
                Ok(()) => return Ok(()),
                Err(Miss::NoMemory) => return Err(ENOMEM),
                // The lock was dropped, and the gap of a member was taken meanwhile.
                Err(Miss::NoRoom) => {}
            }
        }
        Err(ENOMEM)
    }

    /// Publishes `members` at `base`, all or none.
    fn publish_all(
        &self,
        table: &mut TableGuard<'_>,
        base: usize,
        members: impl Iterator<Item = Member> + Clone,
        mut areas: AreaList<New>,
        gfp: Gfp,
        sink: &mut impl FnMut(usize, AreaPtr),
    ) -> Result<(), Miss> {
        for (index, member) in members.clone().enumerate() {
            // One entry each time the lock is held. If another request takes the gap of a member meanwhile, the
            // search is made again.
            table.relock();
            let published = match (member.at(base), areas.pop()) {
                (Some(span), Some(area)) => self.publish_at(table, span, area, gfp),
                _ => Err(Miss::NoRoom),
            };
            match published {
                Ok(area) => sink(index, area),
                Err(miss) => {
                    for member in members.take(index) {
                        table.relock();
                        if let Some(area) = table.unlink(base.wrapping_add(member.offset)) {
                            // Lockless readers may have found it. Waiting for them here cannot deadlock:
                            // no reader takes the tree lock while it holds a pin.
                            let area = self.pins.wait_for_readers(area);
                            self.put_back(table, area.never_mapped());
                        }
                    }
                    return Err(miss);
                }
            }
        }
        let counters = &self.cpus.here().counters;
        counters.alloc_congruent.add(members.count());
        Ok(())
    }

    /// Publishes `area` at `span` if that is free.
    fn publish_at(
        &self,
        table: &mut TableGuard<'_>,
        span: Span,
        mut area: Area<New>,
        gfp: Gfp,
    ) -> Result<AreaPtr, Miss> {
        for _ in 0..MAX_RETRIES {
            // A store must follow a search without dropping the lock between.
            if !table
                .gap_around(span.first())
                .is_some_and(|gap| gap.covers(span))
            {
                return Err(Miss::NoRoom);
            }
            area = match table.publish(area, span, &Attributes::NONE) {
                Ok(area) => {
                    self.count(table, span, true);
                    return Ok(area);
                }
                Err((area, _)) => area,
            };
            if !table.nomem(gfp) {
                break;
            }
        }
        Err(Miss::NoMemory)
    }

    /// Returns the busy area that contains `addr`, with its bounds and flags.
    #[inline(always)]
    fn look(&self, addr: usize, rcu: &Guard) -> Option<(AreaPtr, Seen)> {
        match self.blocks.find(addr, rcu) {
            Ok(found) => found,
            Err(NoBlock) => self.table.find(addr, rcu),
        }
    }

    /// Returns the busy area that contains `addr`. Takes no lock; any context in which RCU is watching.
    pub(crate) fn find(&self, addr: usize) -> Option<AreaPtr> {
        Some(self.look(addr, &Guard::new())?.0)
    }

    /// Unlinks the busy area that contains `addr`. Never allocates, sleeps or fails. Takes a lock only if
    /// a reader has pinned the area.
    pub(crate) fn unlink(&self, addr: usize) -> Option<Area<Unlinked>> {
        let rcu = Guard::new();
        let area = match self.blocks.unlink(addr, &rcu) {
            Ok(found) => found,
            Err(NoBlock) => self.table.unlink(addr, &rcu),
        };
        drop(rcu);
        Some(self.pins.wait_for_readers(area?))
    }

    /// Pins the lowest busy area that ends above `addr`. Spins; task context.
    pub(crate) fn get(&self, addr: usize) -> Option<(AreaPtr, PinGuard<'_>)> {
        loop {
            let found = self.next_busy(addr)?;
            let start = found.1.span().first();
            let pin = self.pins.pin(start)?;
            // The area may have been unlinked before the lock of the pin was taken, and a new area may be
            // at its address. So compare everything that was seen.
            if self.look(start, &Guard::new()) == Some(found) {
                return Some((found.0, pin));
            }
        }
    }

    /// Pins the busy area that contains `addr` unless that means waiting. Any context.
    pub(crate) fn try_get(&self, addr: usize) -> Option<(AreaPtr, PinGuard<'_>)> {
        let rcu = Guard::new();
        let found = self.look(addr, &rcu)?;
        let pin = self.pins.try_pin(found.1.span().first())?;
        // The area may have been unlinked before the lock of the pin was taken.
        (self.look(addr, &rcu) == Some(found)).then_some((found.0, pin))
    }

    /// Returns the lowest busy area that ends above `addr`. Task context.
    fn next_busy(&self, addr: usize) -> Option<(AreaPtr, Seen)> {
        let mut addr = addr;
        loop {
            // With PREEMPT_RT, a lockless walk would spin behind a writer that it has preempted. Taking
            // the lock gives priority inheritance.
            let next = if cfg!(CONFIG_PREEMPT_RT) {
                self.table.lock().next(addr)
            } else {
                self.table.next(addr)
            };
            match next? {
                Next::Busy(area, seen) => return Some((area, seen)),
                Next::Block(span) => {
                    if let Some(found) = self.blocks.next_busy(span, addr) {
                        return Some(found);
                    }
                    addr = span.last().checked_add(1)?;
                }
            }
        }
    }

    /// Returns the pins, for unpinning what [`Space::get`] has pinned.
    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Makes an unmapped area lazy. Returns about how many pages are lazy; 0, so that no purge begins, if
    /// this CPU has counted only few since it was asked last. Takes no lock for an area of a block.
    pub(crate) fn retire(&self, area: Area<Unlinked>) -> usize {
        let cpu = self.cpus.here();
        if area.is_in_block() {
            return match self.blocks.retire(cpu, area) {
                0 => 0,
                pages => pages.wrapping_add(self.lazy.estimate()),
            };
        }
        self.retire_large(area)
    }

    #[inline(never)]
    fn retire_large(&self, area: Area<Unlinked>) -> usize {
        self.cpus.here().counters.retire_tree.one();
        self.lazy
            .add(area.retire())
            .wrapping_add(self.blocks.lazy_estimate())
    }

    /// Frees an area that was never mapped.
    pub(crate) fn release(&self, area: Area<Unlinked>) {
        self.cpus.here().counters.release.one();
        if area.is_in_block() {
            self.blocks.release(&self.cpus, area);
        } else {
            self.put_back(&mut self.table.lock(), area.never_mapped());
        }
    }

    /// Flushes all areas retired before the call, and `also`, and frees these areas. Drains cached ranges
    /// and empty blocks too if `drain`. Returns how many areas were flushed; if 0, nothing was flushed.
    /// Sleepable context, with `vmap_purge_lock` held.
    pub(crate) fn purge(&self, also: Option<Span>, drain: bool) -> usize {
        let mut plan = Plan::new();
        let pages = self.blocks.snapshot(&self.cpus, &mut plan);
        let areas = self.lazy.snapshot(&mut plan);
        if plan.is_empty() {
            // Flush nothing: vm_unmap_aliases() comes with every change of page attributes, and mostly
            // finds nothing to flush.
            if drain {
                self.give_back_all(Budget::ALL);
            }
            return 0;
        }
        let purged = plan.areas();
        let blocks_representative = pages.is_representative();
        // Trim cached ranges that nobody used since the last purge.
        let cache_representative = areas.areas() > 0
            && areas.areas().saturating_mul(TRIM_MIN_FRACTION) >= self.cache.len();
        if !drain && (cache_representative || blocks_representative) {
            // Half of them: how many are used until the next purge varies.
            let most = self.cache.len().div_ceil(2);
            self.sweep(Budget {
                most,
                ..Budget::ALL
            });
        }
        if let (Some(also), true) = (also, purged > 0) {
            plan.add(also);
        }
        let flush = plan.run(&self.tlb);
        if purged > 0 {
            let counters = &self.cpus.here().counters;
            counters.purge.one();
            counters.purge_areas.add(purged);
        }
        self.free_flushed(areas, pages, &flush, drain);
        self.blocks.end_purge(blocks_representative);
        if drain {
            self.give_back_all(Budget::ALL);
        } else {
            self.free_blocks(false, Budget::ALL);
        }
        purged
    }

    /// Frees or caches what a purge has taken and flushed.
    fn free_flushed(
        &self,
        mut areas: lazy::Snapshot,
        pages: blocks_purge::Snapshot,
        flush: &Flush,
        drain: bool,
    ) {
        let mut clean = AreaList::new();
        if let (true, Some(cover)) = (self.tlb.has_shadow(), flush.cover()) {
            self.blocks.release_shadow(&pages, flush, &self.tlb);
            for part in 0..self.lazy.parts() {
                let mut flushed = areas.take_flushed(part, flush);
                while let Some(area) = flushed.pop() {
                    if let Some(span) = area.span() {
                        self.tlb.release_shadow(span);
                    }
                    clean.push(area);
                    mm::cond_resched();
                }
            }
            self.tlb.flush_shadow(cover);
        }
        self.blocks.free(&self.cpus, pages, flush);
        self.free_areas(clean, None, drain);
        for part in 0..self.lazy.parts() {
            let flushed = areas.take_flushed(part, flush);
            self.free_areas(flushed, Some(part), drain);
        }
    }

    /// Frees areas, or caches their ranges at CPU `part`, by default at this one.
    fn free_areas(&self, mut areas: AreaList<Flushed>, part: Option<usize>, drain: bool) {
        areas.prefetch();
        while !areas.is_empty() {
            let mut pages = 0_usize;
            let mut large = AreaList::new();
            for _ in 0..BATCH {
                let Some(area) = areas.pop() else {
                    break;
                };
                areas.prefetch();
                pages = pages.wrapping_add(area.pages());
                if !drain && self.is_cacheable(&area) {
                    self.keep(area, part);
                } else {
                    large.push(area);
                }
            }
            self.lazy.freed(pages);
            while let Some(area) = large.pop() {
                // One store for each hold of the lock: it can take thousands of instructions.
                self.put_back(&mut self.table.lock(), area);
                mm::cond_resched();
            }
            mm::cond_resched();
        }
    }

    /// Returns whether requests for all of `home` could use the range of `area`.
    fn is_cacheable(&self, area: &Area<Flushed>) -> bool {
        area.pages() <= MAX_CACHED && area.span().is_some_and(|span| self.home.covers(span))
    }

    /// Caches the range of a flushed area.
    fn keep(&self, area: Area<Flushed>, part: Option<usize>) {
        self.cache.put(area.cached(), part);
        self.cpus.here().counters.cache_put.one();
    }

    /// Frees the range of a flushed area, or caches it if there is no memory for freeing it.
    fn put_back(&self, table: &mut TableGuard<'_>, area: Area<Flushed>) {
        if let Err(area) = self.give_back(table, area) {
            if self.is_stray(&area) {
                self.count_strays(usize::wrapping_add);
            }
            self.keep(area, None);
        }
    }

    /// Returns whether the range of an area is outside `home`.
    fn is_stray<S: State>(&self, area: &Area<S>) -> bool {
        !area.span().is_some_and(|span| self.home.covers(span))
    }

    /// Adds one to the number of cached ranges outside `home`, or subtracts one. The tree lock is held.
    fn count_strays(&self, change: fn(usize, usize) -> usize) {
        // Relaxed: written only under the lock, and read as an estimate.
        self.strays
            .store(change(self.strays.load(Relaxed), 1), Relaxed);
    }

    /// Counts an entry that was added to the tree, or removed if not `added`. The tree lock is held, of which
    /// `_table` is the proof.
    fn count(&self, _table: &TableGuard<'_>, span: Span, added: bool) {
        if !self.home.covers(span) {
            return;
        }
        // Relaxed: written only under the lock, and read as an estimate.
        let before = self.reserved.load(Relaxed);
        let after = match added {
            true => before.wrapping_add(span.size()),
            false => before.wrapping_sub(span.size()),
        };
        self.reserved.store(after, Relaxed);
    }

    /// Frees the range of an area. Returns the area if there is no memory for that.
    fn give_back<S: Spare>(
        &self,
        table: &mut TableGuard<'_>,
        area: Area<S>,
    ) -> Result<(), Area<S>> {
        let counters = &self.cpus.here().counters;
        let span = area.span();
        match table.give_back(area) {
            Ok(area) => {
                drop(area);
                if let Some(span) = span {
                    self.count(table, span, false);
                }
                counters.give_back.one();
                self.blocks.note_room();
                Ok(())
            }
            Err((area, StoreError::NoMemory)) => {
                counters.give_back_nomem.one();
                Err(area)
            }
            Err((area, StoreError::Mismatch)) => {
                mm::refuse!("{:?} is not in the index", area.span());
                // Leak it: a range without an entry must not be reused. The drop reports the leak.
                drop(area);
                Ok(())
            }
        }
    }

    /// Returns whether draining can make room in `window`: blocks and almost all cached ranges are in `home`.
    fn can_drain_help(&self, window: Span) -> bool {
        window.clip(self.home).is_some() || self.strays.load(Relaxed) != 0
    }

    /// Drains cached ranges and empty blocks for a request with `gfp` that found no room in `window`. Returns
    /// how many were freed.
    fn drain(&self, gfp: Gfp, window: Span) -> usize {
        self.give_back_all(Budget::of_request(gfp, window))
    }

    /// Drains about `most` cached ranges and empty blocks during memory reclaim. Neither waits for memory nor
    /// takes it from the reserves. Sleepable context. Returns how many were freed.
    pub(crate) fn drain_for_reclaim(&self, most: usize) -> usize {
        let swept = self.sweep(Budget::of_reclaim(most));
        if swept >= most {
            return swept;
        }
        self.blocks.return_current(&self.cpus);
        let rest = Budget::of_reclaim(most.wrapping_sub(swept));
        swept.wrapping_add(self.free_blocks(true, rest))
    }

    /// Frees cached ranges and empty blocks, as many of both as `budget` allows. Returns how many of both.
    fn give_back_all(&self, budget: Budget) -> usize {
        self.blocks.return_current(&self.cpus);
        self.sweep(budget)
            .wrapping_add(self.free_blocks(true, budget))
    }

    /// Frees cached ranges, one each time it takes the lock. Ends at the first range that needs more memory
    /// than there is; that one stays cached. Returns how many were freed.
    fn sweep(&self, budget: Budget) -> usize {
        let mut sweep = Sweep::default();
        let (mut given_back, mut looks) = (0_usize, 0_usize);
        while given_back < budget.most && looks < budget.most.saturating_mul(LOOKS_PER_RANGE) {
            looks = looks.wrapping_add(1);
            let mut table = self.lock_table(budget);
            // Under the lock: the index and the cache change together.
            let Some(area) = self.cache.sweep(&mut sweep) else {
                break;
            };
            if !budget.is_helped_by(area.span()) {
                self.cache.put_back(area, &sweep);
            } else if let Err(area) = self.give_back_cached(&mut table, area) {
                self.cache.put(area, None);
                if !budget.gfp.may_block() || !table.nomem(budget.gfp) {
                    break;
                }
            } else {
                given_back = given_back.wrapping_add(1);
            }
            drop(table);
            if budget.may_sleep {
                mm::cond_resched();
            }
        }
        given_back
    }

    /// Frees a cached range. Returns its area if there is no memory for that.
    fn give_back_cached(
        &self,
        table: &mut TableGuard<'_>,
        area: Area<Cached>,
    ) -> Result<(), Area<Cached>> {
        let is_stray = self.is_stray(&area);
        self.give_back(table, area)?;
        if is_stray {
            self.count_strays(usize::wrapping_sub);
        }
        Ok(())
    }

    /// Locks the index for giving ranges back.
    fn lock_table(&self, budget: Budget) -> TableGuard<'_> {
        let mut table = self.table.lock();
        if budget.is_reclaim {
            table.spare_reserves();
        }
        table
    }

    /// Frees empty blocks: all of them if `all`, else those above the number to keep. Returns how many were
    /// freed.
    fn free_blocks(&self, all: bool, budget: Budget) -> usize {
        let mut freed = 0_usize;
        while freed < budget.most {
            let Some(removed) = self.blocks.take_empty(&self.cpus, all) else {
                break;
            };
            let Some(span) = removed.span() else {
                break;
            };
            if budget.may_sleep && self.tlb.has_shadow() {
                // KASAN shadow that several areas shared could not be released with one of them.
                self.tlb.release_shadow(span);
                self.tlb.flush_shadow(span);
            }
            let mut table = self.lock_table(budget);
            let mut result = table.free_block(span);
            if result == Err(StoreError::NoMemory)
                && budget.gfp.may_block()
                && table.nomem(budget.gfp)
            {
                result = table.free_block(span);
            }
            if result.is_ok() {
                self.count(&table, span, false);
            }
            drop(table);
            let counters = &self.cpus.here().counters;
            if result.is_err() {
                counters.give_back_nomem.one();
                self.blocks.restore(&self.cpus, removed);
                break;
            }
            drop(removed);
            counters.block_freed.one();
            freed = freed.wrapping_add(1);
            self.blocks.note_room();
            if budget.may_sleep {
                mm::cond_resched();
            }
        }
        freed
    }

    /// Returns the lowest range that ends above `addr` and is reserved, but neither busy, nor cached, nor
    /// free space in a block. Sleepable context.
    pub(crate) fn next_lazy(&self, addr: usize) -> Option<Span> {
        let mut addr = addr;
        loop {
            let mut table = self.table.lock();
            let mut block = None;
            for _ in 0..LOOKS {
                let (span, entry) = table.entry_from(addr)?;
                match entry {
                    Entry::Area(_, Use::Unlinked) => return Some(span),
                    Entry::Area(..) => addr = span.last().checked_add(1)?,
                    Entry::Block => {
                        block = Some(span);
                        break;
                    }
                }
            }
            drop(table);
            if let Some(span) = block {
                if let Some(lazy) = self.blocks.next_lazy(span, addr) {
                    return Some(lazy);
                }
                addr = span.last().checked_add(1)?;
            }
            mm::cond_resched();
        }
    }

    /// Returns the number of cached ranges.
    pub(crate) fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Returns the number of cached ranges and empty blocks, which reclaim can free.
    pub(crate) fn reclaimable(&self) -> usize {
        self.cache.len().wrapping_add(self.blocks.empty())
    }

    /// Returns the number of lazy pages.
    pub(crate) fn lazy_pages(&self) -> usize {
        self.blocks.lazy_pages().wrapping_add(self.lazy.pages())
    }

    /// Returns how many blocks exist, are partial, and are empty.
    pub(crate) fn blocks(&self) -> BlockCensus {
        self.blocks.census()
    }

    /// Returns the sums of the counters of all CPUs.
    pub(crate) fn counters(&self) -> Totals {
        self.cpus.totals()
    }

    /// Returns the TLB of the space.
    #[inline(always)]
    pub(crate) fn tlb(&self) -> &T {
        &self.tlb
    }

    /// Returns the range for which the index holds `area` as busy. Walks all areas.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn table_entry(&self, area: AreaPtr) -> Option<Span> {
        let mut addr = 0;
        loop {
            let (found, seen) = self.next_busy(addr)?;
            if found == area {
                return Some(seen.span());
            }
            addr = seen.span().last().checked_add(1)?;
        }
    }

    /// Returns the addresses of an area that the caller owns, if the index holds it as busy.
    pub(crate) fn span_of_busy(&self, area: AreaPtr) -> Option<Span> {
        let rcu = Guard::new();
        let start = self.table.start_of(area, &rcu)?;
        let (found, seen) = self.look(start, &rcu)?;
        (found == area && seen.span().first() == start).then_some(seen.span())
    }

    /// Returns the start of an area that the caller owns, if the index holds it as busy.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn start_of_busy(&self, area: AreaPtr) -> Option<usize> {
        self.span_of_busy(area).map(Span::first)
    }

    /// Returns the start of a pinned area.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn start_of_pinned(&self, area: AreaPtr, _pin: &PinGuard<'_>) -> usize {
        self.table.start_of(area, &Guard::new()).unwrap_or(0)
    }

    /// Returns the window that blocks and cached ranges serve.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn home(&self) -> Span {
        self.home
    }

    /// Checks the index against blocks and cache: entries are whole pages and do not overlap, blocks are
    /// sound, and there are as many cached entries as the cache counts.
    ///
    /// Holds the tree lock during the whole walk: for tests and debugging.
    pub(crate) fn validate(&self) -> Result<Census> {
        self.blocks.validate(&self.cpus, self.is_quiet())?;
        // Ranges enter and leave the cache without the tree lock, so compare the numbers only if the cache
        // did not change meanwhile.
        let before = self.cache.validate()?;
        let mut table = self.table.lock();
        let mut census = Census::default();
        let (mut addr, mut strays) = (0, 0_usize);
        while let Some((span, entry)) = table.entry_from(addr) {
            let sane = span.first() >= addr
                && is_aligned(span.first(), PAGE_SIZE)
                && is_aligned(span.end(), PAGE_SIZE);
            if !sane {
                mm::refuse!("index holds {:?} as {:?} after {:#x}", span, entry, addr);
                return Err(EINVAL);
            }
            match entry {
                Entry::Area(_, Use::Busy) => census.busy += 1,
                Entry::Area(_, Use::Unlinked) => census.unlinked += 1,
                Entry::Area(_, Use::Cached) => {
                    census.cached += 1;
                    strays += usize::from(!self.home.covers(span));
                }
                Entry::Block => {
                    census.blocks += 1;
                    // A block that is being inserted or removed may be missing.
                    if let Some(contents) =
                        self.blocks.validate_block(span.first(), self.is_quiet())
                    {
                        let contents = contents?;
                        census.busy += contents.busy;
                        census.unlinked += contents.unlinked;
                        census.lazy_pages += contents.lazy_pages;
                    }
                }
            }
            addr = match span.last().checked_add(1) {
                Some(next) => next,
                None => break,
            };
        }
        let counted = self.strays.load(Relaxed);
        drop(table);
        if strays != counted {
            mm::refuse!("{} cached ranges outside home, {} counted", strays, counted);
            return Err(EINVAL);
        }
        let after = self.cache.validate()?;
        if before == after && self.is_quiet() && census.cached != after {
            mm::refuse!("{} cached ranges, {} in the index", after, census.cached);
            return Err(EINVAL);
        }
        Ok(census)
    }

    /// Returns whether nobody else uses the space, as in tests with a space of their own.
    fn is_quiet(&self) -> bool {
        self.tlb.is_test()
    }
}

/// Numbers of areas by state, and of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) busy: usize,
    pub(crate) unlinked: usize,
    pub(crate) cached: usize,
    pub(crate) blocks: usize,
    /// Lazy pages in blocks.
    pub(crate) lazy_pages: usize,
}
