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
        Unlinked, //
    },
    cache::{
        self,
        RangeCache,
        Sweep, //
    },
    fit::{
        highest_congruent,
        lowest_fit,
        Gaps,
        Member, //
    },
    lazy::LazySet,
    maple::StoreError,
    mm::{
        self,
        Gfp,
        Tlb, //
    },
    pins::{
        PinGuard,
        Pins, //
    },
    range::{
        is_aligned,
        Span,
        PAGE_SIZE, //
    },
    stats::{
        count,
        Counters, //
    },
    table::{
        Spare,
        Table,
        TableGuard,
        Use, //
    },
};
use kernel::{
    prelude::*,
    static_lock_class, //
};

/// How many ranges are given back or cached under one hold of the lock.
const BATCH: usize = 32;

/// How many cached ranges a request that must not sleep gives back to make room.
const MAX_ATOMIC: usize = 256;

/// A purge of fewer areas than one in this many of those that are cached gives back none of them.
const MUCH: usize = 8;

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

/// What the lock of the index protects besides the index.
pub(crate) struct Shared {
    cache: RangeCache,
    pub(crate) counters: Counters,
}

/// A space of addresses and all areas in it.
pub(crate) struct Space<T: Tlb> {
    table: Table<Shared>,
    tlb: T,
    lazy: LazySet,
    pins: Pins,
    /// Ranges are cached for requests for exactly this window.
    home: Span,
}

/// Why a search or a store under the lock did not give an area.
enum Miss {
    NoRoom,
    NoMemory,
}

impl<T: Tlb> Space<T> {
    /// An empty space. Ranges inside `home` are cached for requests for `home`.
    pub(crate) fn new(home: Span, tlb: T) -> Result<Self> {
        let shared = Shared {
            cache: RangeCache::new()?,
            counters: Counters::default(),
        };
        Ok(Self {
            table: Table::new(shared, c"vmap_rust index", static_lock_class!())?,
            tlb,
            lazy: LazySet::new()?,
            pins: Pins::new()?,
            home,
        })
    }

    /// Reserves a range and makes it a busy area. `ENOMEM` without memory for metadata, `EBUSY`
    /// without room. Sleeps only if the request's flags allow it.
    pub(crate) fn alloc(&self, req: &Request) -> Result<AreaPtr> {
        if let Some(area) = self.alloc_cached(req) {
            return Ok(area);
        }

        let Some(area) = Area::alloc(req.gfp, req.node) else {
            count(&mut self.table.lock().data().counters.no_memory);
            return Err(ENOMEM);
        };
        let area = match self.alloc_searched(req, area) {
            Ok(area) => return Ok(area),
            Err((area, Miss::NoMemory)) => {
                drop(area);
                count(&mut self.table.lock().data().counters.no_memory);
                return Err(ENOMEM);
            }
            Err((area, Miss::NoRoom)) => area,
        };

        // Cached ranges are room as well.
        if self.drain(req.gfp) > 0 {
            if let Ok(area) = self.alloc_searched(req, area) {
                return Ok(area);
            }
        }
        count(&mut self.table.lock().data().counters.no_room);
        Err(EBUSY)
    }

    /// Serves a request from a cached range of its size.
    fn alloc_cached(&self, req: &Request) -> Option<AreaPtr> {
        // Only such requests: a range that others might not get must not be taken from them.
        if req.window != self.home || req.size > cache::MAX_PAGES * PAGE_SIZE {
            return None;
        }
        let mut table = self.table.lock();
        let area = table.data().cache.take(req.size / PAGE_SIZE, |area| {
            // One that could not be given back may be anywhere.
            area.span()
                .is_some_and(|span| self.home.covers(span) && is_aligned(span.first(), req.align))
        })?;
        let area = table.reuse(area, &req.attributes)?;
        count(&mut table.data().counters.alloc_cached);
        Some(area)
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
                    count(&mut table.data().counters.alloc_tree);
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
        table: &mut TableGuard<'_, Shared>,
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
                            Self::put_back(table, area.never_mapped());
                        }
                    }
                    return Err(miss);
                }
            }
        }
        let counters = &mut table.data().counters;
        counters.alloc_congruent = counters.alloc_congruent.wrapping_add(members.count());
        Ok(())
    }

    /// Publishes `area` at `span`, if that is free.
    fn publish_at(
        table: &mut TableGuard<'_, Shared>,
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

    /// The busy area that contains `addr`. No lock; any context in which RCU is watching.
    pub(crate) fn find(&self, addr: usize) -> Option<AreaPtr> {
        self.table.find(addr)
    }

    /// Takes the busy area that contains `addr` out of use. Never allocates, sleeps or fails.
    pub(crate) fn unlink(&self, addr: usize) -> Option<Area<Unlinked>> {
        let mut table = self.table.lock();
        let area = table.unlink(addr)?;
        count(&mut table.data().counters.unlink);
        drop(table);
        Some(self.pins.wait_for_readers(area))
    }

    /// Pins the lowest busy area that ends above `addr`. Spins; task context.
    pub(crate) fn get(&self, addr: usize) -> Option<(AreaPtr, PinGuard<'_>)> {
        loop {
            let (span, area) = self.next_busy(addr)?;
            let pin = self.pins.pin(span.first())?;
            // Was it unlinked before we had the pin? Its address may have a new area by now, so
            // compare all that was seen.
            if self.table.busy_at(span.first()) == Some((span, area)) {
                return Some((area, pin));
            }
        }
    }

    /// Pins the busy area that contains `addr`, unless that means waiting. Any context.
    pub(crate) fn try_get(&self, addr: usize) -> Option<(AreaPtr, PinGuard<'_>)> {
        let (span, area) = self.table.busy_at(addr)?;
        let pin = self.pins.try_pin(span.first())?;
        // As in `get()`.
        (self.table.busy_at(addr) == Some((span, area))).then_some((area, pin))
    }

    /// The lowest busy area that ends above `addr`. Task context.
    fn next_busy(&self, addr: usize) -> Option<(Span, AreaPtr)> {
        if !cfg!(CONFIG_PREEMPT_RT) {
            return self.table.next_busy(addr);
        }
        // There, a task that walks the tree without the lock may have preempted the one that
        // changes it, and would wait for it for ever if its priority is higher. The lock lends it.
        let mut table = self.table.lock();
        let mut addr = addr;
        loop {
            let (span, what, area) = table.entry_from(addr)?;
            if what == Use::Busy {
                return Some((span, area));
            }
            addr = span.last().checked_add(1)?;
        }
    }

    /// Access to the pins, to let go of what [`Space::get`] has pinned.
    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Takes over an area that was unmapped, but not flushed. Returns how many pages wait for a
    /// purge now.
    pub(crate) fn retire(&self, area: Area<Unlinked>) -> usize {
        self.lazy.add(area.retire())
    }

    /// Takes over an area that was never mapped.
    pub(crate) fn release(&self, area: Area<Unlinked>) {
        let mut table = self.table.lock();
        count(&mut table.data().counters.release);
        Self::put_back(&mut table, area.never_mapped());
    }

    /// Flushes everything retired before the call, and `also`, and makes it free. Gives back cached
    /// ranges too if `drain`. Returns how many areas were flushed; nothing was, if 0. Sleepable
    /// context, with `vmap_purge_lock` held.
    pub(crate) fn purge(&self, also: Option<Span>, drain: bool) -> usize {
        let purged = match self.lazy.snapshot() {
            Some(snapshot) => {
                // Room for what comes, by leaving what was not asked for. A purge of a few areas comes
                // too soon after the last one to tell what is needed.
                if !drain && snapshot.len().saturating_mul(MUCH) >= self.cached() {
                    self.sweep(Sweep::IDLE, Gfp::NOWAIT, usize::MAX);
                }
                let (areas, cover) = snapshot.flush(&self.tlb, also);
                self.free_flushed(areas, cover, drain)
            }
            None => 0,
        };
        if drain {
            self.sweep(Sweep::ALL, Gfp::NOWAIT, usize::MAX);
        }
        purged
    }

    /// Makes flushed areas, which `cover` covers, free or cached.
    fn free_flushed(&self, mut areas: AreaList<Flushed>, cover: Span, drain: bool) -> usize {
        let total = areas.len();
        let mut pages = 0_usize;
        let mut clean = AreaList::new();
        while let Some(area) = areas.pop() {
            pages = pages.wrapping_add(area.pages());
            if let Some(span) = area.span() {
                self.tlb.release_shadow(span);
            }
            clean.push(area);
            if clean.len() % BATCH == 0 {
                mm::cond_resched();
            }
        }
        self.tlb.flush_shadow(cover);
        self.lazy.flushed(pages);

        while !clean.is_empty() {
            let mut table = self.table.lock();
            for _ in 0..BATCH {
                let Some(area) = clean.pop() else {
                    break;
                };
                if !drain && self.is_cacheable(&area) {
                    Self::cache(&mut table, area);
                } else {
                    Self::put_back(&mut table, area);
                }
            }
            drop(table);
            mm::cond_resched();
        }

        let mut table = self.table.lock();
        let counters = &mut table.data().counters;
        count(&mut counters.purge);
        counters.purge_areas = counters.purge_areas.wrapping_add(total);
        total
    }

    /// Is the range of `area` one that requests for all of `home` could use?
    fn is_cacheable(&self, area: &Area<Flushed>) -> bool {
        area.pages() <= cache::MAX_PAGES && area.span().is_some_and(|span| self.home.covers(span))
    }

    /// Keeps the range of a flushed area.
    fn cache(table: &mut TableGuard<'_, Shared>, area: Area<Flushed>) {
        let area = table.cache(area);
        let shared = table.data();
        shared.cache.put(area);
        count(&mut shared.counters.cache_put);
    }

    /// Makes the range of a flushed area free, or keeps it if there is no memory for that now.
    fn put_back(table: &mut TableGuard<'_, Shared>, area: Area<Flushed>) {
        if let Err(area) = Self::give_back(table, area) {
            Self::cache(table, area);
        }
    }

    /// Makes the range of an area free.
    fn give_back<S: Spare>(
        table: &mut TableGuard<'_, Shared>,
        area: Area<S>,
    ) -> Result<(), Area<S>> {
        match table.give_back(area) {
            Ok(area) => {
                drop(area);
                count(&mut table.data().counters.give_back);
                Ok(())
            }
            Err((area, StoreError::NoMemory)) => {
                count(&mut table.data().counters.give_back_nomem);
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

    /// Gives back cached ranges, for a request with `gfp` that had no room. Returns how many.
    fn drain(&self, gfp: Gfp) -> usize {
        if gfp.may_block() {
            self.sweep(Sweep::ALL, gfp, usize::MAX)
        } else {
            self.sweep(Sweep::ALL, gfp, MAX_ATOMIC)
        }
    }

    /// Gives back all cached ranges, from memory reclaim: sleepable, but without waiting for
    /// memory.
    pub(crate) fn drain_for_reclaim(&self) {
        self.sweep(Sweep::ALL, Gfp::NOWAIT, usize::MAX);
    }

    /// Gives back the cached ranges of a sweep, [`BATCH`] under one hold of the lock. What there is
    /// no memory for, as `gfp` allows, stays cached. Looks at `most` ranges; if that is all of
    /// them, lets others run between. Returns how many were given back.
    fn sweep(&self, mut sweep: Sweep, gfp: Gfp, most: usize) -> usize {
        let mut given_back = 0_usize;
        let mut seen = 0;
        while seen < most {
            let mut table = self.table.lock();
            for _ in 0..BATCH {
                // One by one, so that no range is out of sight when the lock is dropped.
                let Some(area) = table.data().cache.sweep(&mut sweep) else {
                    return given_back;
                };
                match Self::give_back(&mut table, area) {
                    Ok(()) => given_back = given_back.wrapping_add(1),
                    Err(area) => {
                        table.data().cache.put(area);
                        if gfp.may_block() && !table.nomem(gfp) {
                            return given_back;
                        }
                    }
                }
            }
            drop(table);
            seen = seen.saturating_add(BATCH);
            if most == usize::MAX {
                mm::cond_resched();
            }
        }
        given_back
    }

    /// The lowest range that ends above `addr` and is reserved, but neither busy nor cached.
    /// Sleepable context.
    pub(crate) fn next_lazy(&self, addr: usize) -> Option<Span> {
        let mut addr = addr;
        loop {
            let mut table = self.table.lock();
            for _ in 0..BATCH {
                let (span, what, _) = table.entry_from(addr)?;
                if what == Use::Unlinked {
                    return Some(span);
                }
                addr = span.last().checked_add(1)?;
            }
            drop(table);
            mm::cond_resched();
        }
    }

    /// Number of cached ranges.
    pub(crate) fn cached(&self) -> usize {
        self.table.lock().data().cache.len()
    }

    /// Number of pages that wait for a purge.
    pub(crate) fn lazy_pages(&self) -> usize {
        self.lazy.pages()
    }

    /// A copy of the counters.
    pub(crate) fn counters(&self) -> Counters {
        self.table.lock().data().counters
    }

    /// What it flushes.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn tlb(&self) -> &T {
        &self.tlb
    }

    /// The range for which the index holds `area` as busy.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn table_entry(&self, area: AreaPtr) -> Option<Span> {
        self.table.span_of(area)
    }

    /// Walks the whole index and checks it against everything else that is known: entries do not
    /// overlap, are whole pages, and the cached ones are as many as the cache holds.
    ///
    /// Holds the lock all the time: for tests and debugging.
    pub(crate) fn validate(&self) -> Result<Census> {
        let mut table = self.table.lock();
        let mut census = Census::default();
        let mut addr = 0;
        while let Some((span, what, area)) = table.entry_from(addr) {
            let sane = span.first() >= addr
                && is_aligned(span.first(), PAGE_SIZE)
                && is_aligned(span.end(), PAGE_SIZE);
            if !sane {
                mm::refuse!(
                    "index holds {:?} as {:?} {:?} after {:#x}",
                    span,
                    what,
                    area,
                    addr
                );
                return Err(EINVAL);
            }
            count(match what {
                Use::Busy => &mut census.busy,
                Use::Unlinked => &mut census.unlinked,
                Use::Cached => &mut census.cached,
            });
            addr = match span.last().checked_add(1) {
                Some(next) => next,
                None => break,
            };
        }
        let cached = table.data().cache.validate()?;
        if cached != census.cached {
            mm::refuse!("{} cached ranges, {} in the index", cached, census.cached);
            return Err(EINVAL);
        }
        Ok(census)
    }
}

/// How many areas are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) busy: usize,
    pub(crate) unlinked: usize,
    pub(crate) cached: usize,
}
