// SPDX-License-Identifier: GPL-2.0

//! The tree: areas with an entry of their own, from the request to the free range.
//!
//! A search for a gap and the store there must happen under one hold of the tree lock. If memory for the store can
//! be had only without the lock, the search is made again, because others may have changed the tree meanwhile.
//!
//! Freeing a range may need memory. Without it, the area is *stuck* in a list until the next purge or drain. Some are *kept*
//! ([`crate::policy::kept`]). Blocks have entries, too: [`crate::policy::supply`] makes and frees them.

use super::{
    kept::Kept,
    prelude::*, //
};

/// Maximum number of searches for one request.
pub(super) const MAX_RETRIES: u32 = 16;

/// Returns whether freeing for this cause may sleep.
pub(super) fn may_sleep(cause: Cause, gfp: Gfp) -> bool {
    cause != Cause::Request || gfp.may_block()
}

/// The tree of a space, and its areas that are out of use.
pub(crate) struct Tree {
    pub(super) index: Index,
    /// Areas that are lazy.
    lazy: Locked<LazyList>,
    /// Pages of these, and of those that a purge has taken and has neither freed nor kept nor found stuck.
    lazy_pages: CacheAligned<Atomic<usize>>,
    /// Flushed areas that could not be erased for lack of memory.
    stuck: Locked<AreaList<Flushed>>,
    /// Their number, written under their lock.
    stuck_count: Atomic<usize>,
    /// Flushed areas that wait for a request.
    kept: Locked<Kept>,
    /// Their number, written under their lock.
    kept_count: Atomic<usize>,
    /// How often a range became free.
    times: Atomic<usize>,
    /// The value of `times` when a search for a block last found no gap, and the least size that was searched for in vain
    /// then. Only a hint: readers may see the values of two searches, which costs a search or a block.
    no_gap: [Atomic<usize>; 2],
}

impl Tree {
    pub(super) fn new(home: Span) -> Result<Self> {
        Ok(Self {
            index: Index::new(home, c"vmap_rust index", static_lock_class!())?,
            lazy: Locked::new(LazyList::default(), c"vmap_rust lazy", static_lock_class!())?,
            lazy_pages: CacheAligned::new(Atomic::new(0)),
            stuck: Locked::new(AreaList::new(), c"vmap_rust stuck", static_lock_class!())?,
            stuck_count: Atomic::new(0),
            kept: Locked::new(Kept::new(home)?, c"vmap_rust kept", static_lock_class!())?,
            kept_count: Atomic::new(0),
            times: Atomic::new(1),
            no_gap: [const { Atomic::new(0) }; 2],
        })
    }

    /// Serves a request from the lowest gap that fits, or, for 1 GiB or more, the lowest with room for a multiple of that. If
    /// `all_pages`, which is for modules, lookups find each page of the area at once, as far as there is memory; else only where
    /// that takes no array of the page map. `EBUSY` without a gap, `ENOMEM` without memory. Sleeps if the request allows it.
    pub(super) fn reserve(&self, req: &Request, all_pages: bool) -> Result<Area<Reserved>> {
        // A request that can never fit allocates nothing.
        if !can_fit(req.window, req.size, req.align) {
            return Err(EBUSY);
        }
        let mut area = Area::alloc(req.gfp, req.node).ok_or(ENOMEM)?;
        let mut index = self.index.lock();
        for nth in 0..MAX_RETRIES {
            let fit = |index: &mut _, align| lowest_fit(index, req.window, req.size, align);
            // Lookups find a part of the page map at once that the area covers.
            let aligned = match req.size {
                PART.. if !all_pages => fit(&mut index, req.align.max(PART)),
                _ => None,
            };
            let span = aligned
                .or_else(|| fit(&mut index, req.align))
                .ok_or(EBUSY)?;
            if nth == 0 && index.lacks(span, all_pages) {
                // Allocate memory without the lock. The gap may be taken meanwhile, so search again.
                drop(index);
                self.index.prepare(span, all_pages, req.gfp.flags());
                index = self.index.lock();
                continue;
            }
            area = match index.reserve(area, span) {
                Ok(area) => return Ok(area),
                Err((_, StoreError::Mismatch)) => {
                    mm::refuse("a gap is not free", &[span.first(), span.end()], &[]);
                    return Err(EBUSY);
                }
                Err((area, StoreError::NoMemory)) => area,
            };
            // The lock may have been dropped: search again.
            if !index.nomem(req.gfp) {
                break;
            }
        }
        Err(ENOMEM)
    }

    /// Serves a request with a kept area. Takes no lock for one that is sure to find none. `has_window` says that the request is
    /// not for any address.
    pub(super) fn reserve_kept(&self, req: &Request, has_window: bool) -> Option<Area<Reserved>> {
        if !Kept::is_for(req, has_window) {
            return None;
        }
        let mut kept = self.kept.lock();
        let found = kept.take(req);
        self.note_kept(&kept);
        drop(kept);
        let area = found?.reserve_again()?;
        self.index.note_again(&area);
        Some(area)
    }

    /// Notes how many areas are kept. The caller has changed that.
    fn note_kept(&self, kept: &Kept) {
        // Relaxed: the count orders nothing.
        self.kept_count.write_once(kept.len());
    }

    pub(super) fn kept(&self) -> usize {
        // Relaxed: one that was kept a moment ago may be missed.
        self.kept_count.read_once()
    }

    /// Makes an unmapped area lazy. Returns about how many pages are lazy. Takes the lock of the list.
    pub(super) fn retire(&self, area: Area<Unlinked>) -> usize {
        let area = area.retire();
        let mut lazy = self.lazy.lock();
        let pages = lazy.push_first(area);
        // Relaxed: written under the lock, so that a purge does not subtract what was not added. It orders nothing.
        self.lazy_pages.fetch_add(pages, Relaxed);
        drop(lazy);
        self.lazy_pages()
    }

    pub(super) fn lazy_pages(&self) -> usize {
        // Relaxed: as in `retire()`.
        self.lazy_pages.read_once()
    }

    pub(super) fn take_lazy(&self) -> LazyList {
        core::mem::take(&mut *self.lazy.lock())
    }

    /// Frees the ranges of areas that a purge has flushed. Returns the number of their pages. Sleepable context.
    pub(super) fn free_flushed(&self, mut areas: AreaList<Flushed>, cpus: &Cpus) -> usize {
        let mut pages = 0_usize;
        let mut others = AreaList::new();
        while let Some(area) = areas.pop() {
            areas.prefetch();
            let freed = area.pages();
            let mut kept = self.kept.lock();
            let refused = kept.add(area, &mut others);
            self.note_kept(&kept);
            drop(kept);
            // One store for each hold of the lock: it can take thousands of instructions.
            if let Some(area) = refused {
                self.give_back(area, cpus);
            }
            while let Some(area) = others.pop() {
                self.give_back(area, cpus);
                mm::cond_resched();
            }
            // Relaxed: it orders nothing. The pages of an area that is taken were added before.
            self.lazy_pages.fetch_sub(freed, Relaxed);
            pages = pages.wrapping_add(freed);
            mm::cond_resched();
        }
        pages
    }

    /// Frees the range of a flushed area. Without memory for that, the next purge tries again. Takes the tree lock.
    pub(super) fn give_back(&self, area: Area<Flushed>, cpus: &Cpus) {
        let mut index = self.index.lock();
        let result = self.try_give_back(&mut index, area, cpus);
        drop(index);
        if let Err(area) = result {
            self.add_stuck(area);
        }
    }

    /// Frees the range of a flushed area. Returns the area if there is no memory for that.
    fn try_give_back(
        &self,
        index: &mut IndexGuard<'_>,
        area: Area<Flushed>,
        cpus: &Cpus,
    ) -> Result<(), Area<Flushed>> {
        let counters = &cpus.here().counters;
        match index.give_back(area) {
            Ok(area) => {
                // Frees the object, which has no range any more.
                drop(area);
                self.has_more_room();
                counters.give_back.one();
                Ok(())
            }
            Err((area, StoreError::NoMemory)) => {
                counters.give_back_nomem.one();
                Err(area)
            }
            Err((area, StoreError::Mismatch)) => {
                // Leak it: a range without an entry must not be reused. The drop reports the leak.
                let start = area.span().map_or(0, Span::first);
                mm::refuse("an area is not in the index", &[start], &[]);
                drop(area);
                Ok(())
            }
        }
    }

    /// Frees the ranges of up to `most` stuck areas, and then of kept ones if `and_kept`, until there is no memory for one.
    /// Returns how many. Takes the tree lock; sleeps for memory if `gfp` allows it. One at a time: what is left, others find.
    pub(super) fn free_stuck(
        &self,
        most: usize,
        and_kept: bool,
        gfp: Gfp,
        cause: Cause,
        cpus: &Cpus,
    ) -> usize {
        let may_sleep = may_sleep(cause, gfp);
        let most = if may_sleep {
            most
        } else {
            most.min(MAX_ATOMIC)
        };
        let mut freed = 0_usize;
        while freed < most {
            let kept = || and_kept.then(|| self.take_kept()).flatten();
            let Some(area) = self.take_stuck().or_else(kept) else {
                break;
            };
            let mut index = self.lock_to_free(cause);
            let mut result = self.try_give_back(&mut index, area, cpus);
            if result.is_err() && gfp.may_block() && index.nomem(gfp) {
                result = result.or_else(|area| self.try_give_back(&mut index, area, cpus));
            }
            drop(index);
            if let Err(area) = result {
                self.add_stuck(area);
                break;
            }
            freed = freed.wrapping_add(1);
            if may_sleep {
                mm::cond_resched();
            }
        }
        freed
    }

    fn add_stuck(&self, area: Area<Flushed>) {
        let mut stuck = self.stuck.lock();
        stuck.push(area);
        // Relaxed: the count orders nothing.
        self.stuck_count.write_once(stuck.len());
    }

    /// Takes a stuck area. Takes no lock if there is none.
    fn take_stuck(&self) -> Option<Area<Flushed>> {
        if self.stuck() == 0 {
            return None;
        }
        let mut stuck = self.stuck.lock();
        let area = stuck.pop();
        // Relaxed: the count orders nothing.
        self.stuck_count.write_once(stuck.len());
        area
    }

    /// Takes a kept area, to free it. Takes no lock if there is none.
    fn take_kept(&self) -> Option<Area<Flushed>> {
        if self.kept() == 0 {
            return None;
        }
        let mut kept = self.kept.lock();
        let area = kept.pop();
        self.note_kept(&kept);
        area
    }

    pub(super) fn stuck(&self) -> usize {
        // Relaxed: one that was added a moment ago can wait.
        self.stuck_count.read_once()
    }

    /// Locks the index for freeing ranges.
    pub(super) fn lock_to_free(&self, cause: Cause) -> IndexGuard<'_> {
        let mut index = self.index.lock();
        if cause == Cause::Reclaim {
            index.spare_reserves();
        }
        index
    }

    pub(super) fn has_more_room(&self) {
        // Relaxed: see `times_freed()`.
        self.times.add(1, Relaxed);
    }

    pub(super) fn times_freed(&self) -> usize {
        // Relaxed: a request that sees an old value is served without a block, or searches once more in vain.
        self.times.read_once()
    }

    /// Returns how often a range became free if a block of `size` bytes may find a gap: not if there was none since one
    /// became free.
    pub(super) fn may_have_gap(&self, size: usize) -> Option<usize> {
        let [times, least] = self.no_gap.each_ref().map(|value| value.read_once());
        let now = self.times_freed();
        (times != now || size < least).then_some(now)
    }

    /// Notes that there is no gap for a block of `size` bytes, as a search found that began at `times`. Under the tree lock:
    /// searches do not mix what they write.
    pub(super) fn note_no_gap(&self, _: &IndexGuard<'_>, size: usize, times: usize) {
        let [noted, least] = &self.no_gap;
        // There is no gap for a larger block, either.
        let size = if noted.read_once() == times {
            size.min(least.read_once())
        } else {
            size
        };
        least.write_once(size);
        noted.write_once(times);
    }
}
