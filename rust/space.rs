// SPDX-License-Identifier: GPL-2.0

//! The allocator: which part serves a request, and what becomes of a range that is freed.

use crate::{
    area::{
        Area,
        AreaList,
        AreaPtr,
        Attributes,
        Flushed,
        New,
        Seen,
        Unlinked,
        Use, //
    },
    block::{
        Block,
        Small, //
    },
    blocks::{
        self,
        BlockCensus,
        Blocks,
        NoBlock, //
    },
    cache::{
        Place,
        RangeCache,
        Sweep, //
    },
    fit::{
        highest_congruent,
        lowest_fit,
        lowest_gap_fit,
        Gaps,
        Member, //
    },
    flush::{
        Flush,
        Plan, //
    },
    grace::{
        GraceBox,
        Guard, //
    },
    lazy::{
        self,
        LazySet, //
    },
    maple::StoreError,
    mm::{
        self,
        Gfp,
        Tlb, //
    },
    percpu::Cpus,
    pins::{
        PinGuard,
        Pins, //
    },
    range::{
        is_aligned,
        Span,
        PAGE_SIZE, //
    },
    stats::Totals,
    table::{
        Entry,
        Next,
        Spare,
        Table,
        TableGuard, //
    },
};
use kernel::{
    prelude::*,
    static_lock_class, //
};

/// How many entries are looked at under one hold of the lock of the tree: each is a walk from the root.
const LOOKS: usize = 16;

/// How many freed areas are sorted between two chances for others to run.
const BATCH: usize = 32;

/// How many cached ranges a request that must not sleep gives back to make room.
const MAX_ATOMIC: usize = 256;

/// A purge of less than one in this many of the cached ranges says nothing about demand.
const TRIM_MIN_FRACTION: usize = 8;

/// The largest ranges that are cached: 32 MiB with 4 KiB pages.
const MAX_CACHED: usize = 8192;

/// How often the search is done again after memory was got without the lock. Each time, others may
/// have changed the tree such that more memory is needed; this many times in a row is no bad luck.
const MAX_RETRIES: u32 = 16;

/// What an area has to be like.
pub(crate) struct Request {
    /// Where it may be.
    pub(crate) window: Span,
    /// Size in bytes, a multiple of [`PAGE_SIZE`].
    pub(crate) size: usize,
    /// A power of two.
    pub(crate) align: usize,
    /// What C wants to have in the area.
    pub(crate) attributes: Attributes,
    /// How to allocate metadata.
    pub(crate) gfp: Gfp,
    /// NUMA node of the metadata, or -1.
    pub(crate) node: i32,
}

/// A space of addresses and all areas in it.
pub(crate) struct Space<T: Tlb> {
    table: Table,
    blocks: Blocks,
    cache: RangeCache,
    cpus: Cpus,
    tlb: T,
    lazy: LazySet,
    pins: Pins,
    /// Blocks and cached ranges serve requests for exactly this window.
    home: Span,
}

/// Why a search or a store under the lock did not give an area.
enum Miss {
    NoRoom,
    NoMemory,
}

impl<T: Tlb> Space<T> {
    /// An empty space. Requests for `home` are served from blocks, if it is large enough for them, and
    /// from cached ranges.
    pub(crate) fn new(home: Span, tlb: T) -> Result<Self> {
        Self::with_blocks(home, tlb, None)
    }

    /// As [`Space::new`], with at most so many blocks.
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
        })
    }

    /// Reserves a range and makes it a busy area. `ENOMEM` without memory for metadata, `EBUSY`
    /// without room. Sleeps only if the request's flags allow it.
    pub(crate) fn alloc(&self, req: &Request) -> Result<AreaPtr> {
        // Only such requests: a range that others might not get must not be taken from them.
        let small = match req.window == self.home {
            true => self.blocks.small(req.size, req.align),
            false => None,
        };
        let cpu = self.cpus.here();
        if let Some(small) = small {
            if let Some(area) = self.blocks.alloc(cpu, small, &req.attributes) {
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

        // Room in the blocks of others takes neither a gap nor memory.
        if let Some(small) = small {
            if let Some(area) = self.blocks.steal(&self.cpus, small, &req.attributes) {
                return Ok(area);
            }
        }
        let Some(area) = area else {
            counters.no_memory.one();
            return Err(ENOMEM);
        };
        // Cached ranges and empty blocks are room as well.
        if self.drain(req.gfp) > 0 {
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

    /// Serves a request from another block than the current one, if need be from a new one.
    #[inline(never)]
    fn alloc_refilled(&self, req: &Request, small: Small) -> Option<AreaPtr> {
        let cpu = self.cpus.here();
        let area = self.blocks.refill(cpu, small, &req.attributes);
        if area.is_some() {
            return area;
        }
        if !self.blocks.reserve(small.block_size()) {
            return None;
        }
        let Some(block) = self.new_block(small, req.gfp) else {
            self.blocks.unreserve(small.block_size());
            return None;
        };
        match self.blocks.adopt(cpu, block, small, &req.attributes) {
            Ok(area) => area,
            Err(block) => {
                // The range stays reserved: safe, but lost.
                mm::refuse!("there are two blocks at {:?}", block.span());
                self.blocks.unreserve(small.block_size());
                None
            }
        }
    }

    /// Makes a block for such requests, and reserves the lowest range for it that there is. Sleeps if
    /// `gfp` allows it.
    fn new_block(&self, small: Small, gfp: Gfp) -> Option<GraceBox<Block>> {
        // Memory first, without a lock.
        let flags = gfp.flags();
        let mut block = GraceBox::new(
            Block::new(small.band(), self.tlb.is_randomized(), flags).ok()?,
            flags,
        )
        .ok()?;
        let (window, size) = (self.blocks.window()?, small.block_size());
        let mut table = self.table.lock();
        for _ in 0..MAX_RETRIES {
            // The place of a former block is exactly as large as one.
            let span = match lowest_gap_fit(&mut table, window, size, size) {
                Some(span) => span,
                None => lowest_fit(&mut table, window, size, size)?,
            };
            if !self.blocks.is_prepared(span.first()) {
                // Memory is not allocated under the lock. What is free has to be searched again.
                drop(table);
                self.blocks.prepare(span.first(), flags).ok()?;
                table = self.table.lock();
                continue;
            }
            match table.reserve_block(span) {
                Ok(()) => {
                    block.place(span.first());
                    return Some(block);
                }
                Err(StoreError::Mismatch) => return None,
                // The lock may have been dropped: search again.
                Err(StoreError::NoMemory) => {
                    if !table.nomem(gfp) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Serves a request from a cached range of its size.
    fn alloc_cached(&self, req: &Request) -> Option<AreaPtr> {
        if req.window != self.home {
            return None;
        }
        let (area, place) = self.cache.take(req.size / PAGE_SIZE, |area| {
            // One that could not be given back may be anywhere.
            area.span()
                .is_some_and(|span| self.home.covers(span) && is_aligned(span.first(), req.align))
        })?;
        let span = area.span()?;
        let counters = &self.cpus.here().counters;
        counters.alloc_cached.one();
        if let Place::Elsewhere = place {
            counters.cached_elsewhere.one();
        }
        // Its entry is still there.
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

    /// Reserves a range for each of `members` at the highest common base in `window` and hands the
    /// areas to `sink`, in order; all or nothing. Sleeps if `gfp` allows it.
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
            // Objects first: there is no going back to the allocator of objects with the lock held.
            let mut areas = AreaList::new();
            for _ in members.clone() {
                areas.push(Area::alloc(gfp, -1).ok_or(ENOMEM)?);
            }

            let mut table = self.table.lock();
            let Some(base) = highest_congruent(&mut table, window, members.clone(), align) else {
                drop(table);
                if drained || self.drain(gfp) == 0 {
                    return Err(EBUSY);
                }
                drained = true;
                continue;
            };
            match self.publish_all(&mut table, base, members.clone(), areas, gfp, &mut sink) {
                Ok(()) => return Ok(()),
                Err(Miss::NoMemory) => return Err(ENOMEM),
                // Somebody else was faster while there was no memory.
                Err(Miss::NoRoom) => {}
            }
        }
        Err(ENOMEM)
    }

    /// Publishes `members` at `base`. If that fails, nothing is published.
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
            let published = match (member.at(base), areas.pop()) {
                (Some(span), Some(area)) => Self::publish_at(table, span, area, gfp),
                _ => Err(Miss::NoRoom),
            };
            match published {
                Ok(area) => sink(index, area),
                Err(miss) => {
                    for member in members.take(index) {
                        if let Some(area) = table.unlink(base.wrapping_add(member.offset)) {
                            // Readers without the lock may have found it. They never want the lock
                            // while they have a pin, so waiting for them here cannot deadlock.
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

    /// Publishes `area` at `span`, if that is free.
    fn publish_at(
        table: &mut TableGuard<'_>,
        span: Span,
        mut area: Area<New>,
        gfp: Gfp,
    ) -> Result<AreaPtr, Miss> {
        for _ in 0..MAX_RETRIES {
            // A store follows a search, under the same hold of the lock.
            if !table
                .gap_around(span.first())
                .is_some_and(|gap| gap.covers(span))
            {
                return Err(Miss::NoRoom);
            }
            area = match table.publish(area, span, &Attributes::NONE) {
                Ok(area) => return Ok(area),
                Err((area, _)) => area,
            };
            if !table.nomem(gfp) {
                break;
            }
        }
        Err(Miss::NoMemory)
    }

    /// The busy area that contains `addr`, and what it is.
    #[inline(always)]
    fn look(&self, addr: usize, rcu: &Guard) -> Option<(AreaPtr, Seen)> {
        match self.blocks.find(addr, rcu) {
            Ok(found) => found,
            Err(NoBlock) => self.table.find(addr, rcu),
        }
    }

    /// The busy area that contains `addr`. No lock; any context in which RCU is watching.
    pub(crate) fn find(&self, addr: usize) -> Option<AreaPtr> {
        Some(self.look(addr, &Guard::new())?.0)
    }

    /// Takes the busy area that contains `addr` out of use. Never allocates, sleeps or fails. No lock,
    /// unless somebody has pinned it.
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
            // Was it unlinked before we had the pin? Its address may have a new area by now, so
            // compare all that was seen.
            if self.look(start, &Guard::new()) == Some(found) {
                return Some((found.0, pin));
            }
        }
    }

    /// Pins the busy area that contains `addr`, unless that means waiting. Any context.
    pub(crate) fn try_get(&self, addr: usize) -> Option<(AreaPtr, PinGuard<'_>)> {
        let rcu = Guard::new();
        let found = self.look(addr, &rcu)?;
        let pin = self.pins.try_pin(found.1.span().first())?;
        // As in `get()`.
        (self.look(addr, &rcu) == Some(found)).then_some((found.0, pin))
    }

    /// The lowest busy area that ends above `addr`. Task context.
    fn next_busy(&self, addr: usize) -> Option<(AreaPtr, Seen)> {
        let mut addr = addr;
        loop {
            // With PREEMPT_RT, a task that walks the tree without the lock may have preempted the one
            // that changes it, and would wait for it for ever if its priority is higher. The lock lends
            // it.
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

    /// Access to the pins, to let go of what [`Space::get`] has pinned.
    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Takes over an area that was unmapped, but not flushed. Returns about how many pages wait for a
    /// purge now. No lock for an area of a block.
    pub(crate) fn retire(&self, area: Area<Unlinked>) -> usize {
        let cpu = self.cpus.here();
        if area.is_in_block() {
            return self
                .blocks
                .retire(cpu, area)
                .wrapping_add(self.lazy.pages());
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

    /// Takes over an area that was never mapped.
    pub(crate) fn release(&self, area: Area<Unlinked>) {
        self.cpus.here().counters.release.one();
        if area.is_in_block() {
            self.blocks.release(area);
        } else {
            self.put_back(&mut self.table.lock(), area.never_mapped());
        }
    }

    /// Flushes everything retired before the call, and `also`, and makes it free. Gives back cached
    /// ranges and empty blocks too if `drain`. Returns how many areas were flushed; nothing was, if 0.
    /// Sleepable context, with `vmap_purge_lock` held.
    pub(crate) fn purge(&self, also: Option<Span>, drain: bool) -> usize {
        let mut plan = Plan::new();
        let pages = self.blocks.snapshot(&mut plan);
        let areas = self.lazy.snapshot(&mut plan);
        if plan.is_empty() {
            // vm_unmap_aliases() comes with every change of page attributes, mostly to find nothing.
            if drain {
                self.give_back_all(Gfp::NOWAIT, usize::MAX);
            }
            return 0;
        }
        let purged = plan.areas();
        let is_telling = pages.is_telling();
        // Trim cached ranges that nobody used since the last purge.
        let much = areas.areas() > 0
            && areas.areas().saturating_mul(TRIM_MIN_FRACTION) >= self.cache.len();
        if !drain && (much || is_telling) {
            self.sweep(Gfp::NOWAIT, usize::MAX);
        }
        if let (Some(also), true) = (also, purged > 0) {
            plan.add(also, 0);
        }
        let flush = plan.run(&self.tlb);
        if purged > 0 {
            let counters = &self.cpus.here().counters;
            counters.purge.one();
            counters.purge_areas.add(purged);
        }
        self.free_flushed(&areas, pages, &flush, drain);
        self.blocks.end_purge(is_telling);
        if drain {
            self.give_back_all(Gfp::NOWAIT, usize::MAX);
        } else {
            self.free_blocks(false, Gfp::NOWAIT, usize::MAX);
        }
        purged
    }

    /// Makes what a purge has set apart and flushed free or cached.
    fn free_flushed(
        &self,
        areas: &lazy::Snapshot,
        pages: blocks::Snapshot,
        flush: &Flush,
        drain: bool,
    ) {
        let mut clean = AreaList::new();
        if let (true, Some(cover)) = (self.tlb.has_shadow(), flush.cover()) {
            self.blocks.release_shadow(&pages, flush, &self.tlb);
            for part in 0..self.lazy.parts() {
                let mut flushed = self.lazy.take_flushed(part, areas, flush);
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
        self.blocks.free(pages, flush);
        self.free_areas(clean, None, drain);
        for part in 0..self.lazy.parts() {
            let flushed = self.lazy.take_flushed(part, areas, flush);
            self.free_areas(flushed, Some(part), drain);
        }
    }

    /// Makes areas free, or keeps their ranges at part `part` of the cache, or here.
    fn free_areas(&self, mut areas: AreaList<Flushed>, part: Option<usize>, drain: bool) {
        while !areas.is_empty() {
            let mut pages = 0_usize;
            let mut large = AreaList::new();
            for _ in 0..BATCH {
                let Some(area) = areas.pop() else {
                    break;
                };
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

    /// Is the range of `area` one that requests for all of `home` could use?
    fn is_cacheable(&self, area: &Area<Flushed>) -> bool {
        area.pages() <= MAX_CACHED && area.span().is_some_and(|span| self.home.covers(span))
    }

    /// Keeps the range of a flushed area.
    fn keep(&self, area: Area<Flushed>, part: Option<usize>) {
        self.cache.put(area.cached(), part);
        self.cpus.here().counters.cache_put.one();
    }

    /// Makes the range of a flushed area free, or keeps it if there is no memory for that now.
    fn put_back(&self, table: &mut TableGuard<'_>, area: Area<Flushed>) {
        if let Err(area) = self.give_back(table, area) {
            self.keep(area, None);
        }
    }

    /// Makes the range of an area free.
    fn give_back<S: Spare>(
        &self,
        table: &mut TableGuard<'_>,
        area: Area<S>,
    ) -> Result<(), Area<S>> {
        let counters = &self.cpus.here().counters;
        match table.give_back(area) {
            Ok(area) => {
                drop(area);
                counters.give_back.one();
                Ok(())
            }
            Err((area, StoreError::NoMemory)) => {
                counters.give_back_nomem.one();
                Err(area)
            }
            Err((area, StoreError::Mismatch)) => {
                mm::refuse!("{:?} is not in the index", area.span());
                // Nobody may get a range that is not known to be reserved; that it is lost is said.
                drop(area);
                Ok(())
            }
        }
    }

    /// Gives back cached ranges and empty blocks, for a request with `gfp` that had no room. Returns how
    /// many.
    fn drain(&self, gfp: Gfp) -> usize {
        let most = if gfp.may_block() {
            usize::MAX
        } else {
            MAX_ATOMIC
        };
        self.give_back_all(gfp, most)
    }

    /// Gives back all cached ranges and empty blocks, from memory reclaim: sleepable, but without
    /// waiting for memory.
    pub(crate) fn drain_for_reclaim(&self) {
        self.give_back_all(Gfp::NOWAIT, usize::MAX);
    }

    /// Gives back cached ranges and empty blocks, about `most` of each. Returns how many.
    fn give_back_all(&self, gfp: Gfp, most: usize) -> usize {
        self.blocks.put_current(&self.cpus);
        self.sweep(gfp, most)
            .wrapping_add(self.free_blocks(true, gfp, most))
    }

    /// Gives back cached ranges, each under a hold of the lock of its own. What there is no memory for, as
    /// `gfp` allows, stays cached. Looks at `most` ranges; if that is all of them, lets others run
    /// between. Returns how many were given back.
    fn sweep(&self, gfp: Gfp, most: usize) -> usize {
        let mut sweep = Sweep::default();
        let mut given_back = 0_usize;
        for _ in 0..most {
            let mut table = self.table.lock();
            // With the lock held, so that no range is out of sight when it is dropped.
            let Some(area) = self.cache.sweep(&mut sweep) else {
                break;
            };
            match self.give_back(&mut table, area) {
                Ok(()) => given_back = given_back.wrapping_add(1),
                Err(area) => {
                    self.cache.put(area, None);
                    if gfp.may_block() && !table.nomem(gfp) {
                        break;
                    }
                }
            }
            drop(table);
            if most == usize::MAX {
                mm::cond_resched();
            }
        }
        given_back
    }

    /// Gives empty blocks back to the tree, `most` at most: those that are not needed, or all of them.
    /// Returns how many.
    fn free_blocks(&self, all: bool, gfp: Gfp, most: usize) -> usize {
        let mut freed = 0_usize;
        while freed < most {
            let Some(removed) = self.blocks.take_empty(all) else {
                break;
            };
            let Some(span) = removed.span() else {
                break;
            };
            if most == usize::MAX && self.tlb.has_shadow() {
                // What several areas had together, and could not be released with any one of them.
                self.tlb.release_shadow(span);
                self.tlb.flush_shadow(span);
            }
            let mut table = self.table.lock();
            let mut result = table.free_block(span);
            if result == Err(StoreError::NoMemory) && gfp.may_block() && table.nomem(gfp) {
                result = table.free_block(span);
            }
            drop(table);
            let counters = &self.cpus.here().counters;
            if result.is_err() {
                counters.give_back_nomem.one();
                self.blocks.restore(removed);
                break;
            }
            drop(removed);
            counters.block_freed.one();
            freed = freed.wrapping_add(1);
            if most == usize::MAX {
                mm::cond_resched();
            }
        }
        freed
    }

    /// The lowest range that ends above `addr` and is reserved, but neither busy nor cached nor the free
    /// rest of a block. Sleepable context.
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

    /// Number of cached ranges.
    pub(crate) fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Number of cached ranges and empty blocks: what reclaim can get back.
    pub(crate) fn reclaimable(&self) -> usize {
        self.cache.len().wrapping_add(self.blocks.empty())
    }

    /// Number of pages that wait for a purge.
    pub(crate) fn lazy_pages(&self) -> usize {
        self.blocks.lazy_pages().wrapping_add(self.lazy.pages())
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> BlockCensus {
        self.blocks.census()
    }

    /// What all CPUs have counted.
    pub(crate) fn counters(&self) -> Totals {
        self.cpus.totals()
    }

    /// What it flushes.
    #[inline(always)]
    pub(crate) fn tlb(&self) -> &T {
        &self.tlb
    }

    /// The range for which the index holds `area` as busy. Walks all areas.
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

    /// The addresses of an area that is busy and the caller's, if that is what the index says.
    pub(crate) fn span_of_busy(&self, area: AreaPtr) -> Option<Span> {
        let rcu = Guard::new();
        let start = self.table.start_of(area, &rcu)?;
        let (found, seen) = self.look(start, &rcu)?;
        (found == area && seen.span().first() == start).then_some(seen.span())
    }

    /// Where it starts.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn start_of_busy(&self, area: AreaPtr) -> Option<usize> {
        self.span_of_busy(area).map(Span::first)
    }

    /// Where an area starts that is pinned.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn start_of_pinned(&self, area: AreaPtr, _pin: &PinGuard<'_>) -> usize {
        self.table.start_of(area, &Guard::new()).unwrap_or(0)
    }

    /// The window that blocks and cached ranges serve.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn home(&self) -> Span {
        self.home
    }

    /// Walks the whole index and checks it against everything else that is known: entries do not
    /// overlap, are whole pages, blocks are sound, and the cached ranges are as many as the cache holds.
    ///
    /// Holds the lock all the time: for tests and debugging.
    pub(crate) fn validate(&self) -> Result<Census> {
        self.blocks.validate(&self.cpus, self.is_quiet())?;
        // Ranges become cached and busy without the lock of the tree: the numbers are compared if they
        // were the same before and after.
        let before = self.cache.validate()?;
        let mut table = self.table.lock();
        let mut census = Census::default();
        let mut addr = 0;
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
                Entry::Area(_, Use::Cached) => census.cached += 1,
                Entry::Block => {
                    census.blocks += 1;
                    // One that is just being taken in or out may not be there.
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
        drop(table);
        let after = self.cache.validate()?;
        if before == after && self.is_quiet() && census.cached != after {
            mm::refuse!("{} cached ranges, {} in the index", after, census.cached);
            return Err(EINVAL);
        }
        Ok(census)
    }

    /// Does nobody else use the space? Only in tests, on spaces of their own.
    fn is_quiet(&self) -> bool {
        self.tlb.is_test()
    }
}

/// How many areas are in which state, and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) busy: usize,
    pub(crate) unlinked: usize,
    pub(crate) cached: usize,
    pub(crate) blocks: usize,
    /// Lazy pages in blocks.
    pub(crate) lazy_pages: usize,
}
