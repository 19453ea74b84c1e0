// SPDX-License-Identifier: GPL-2.0

//! Areas of the tree that are out of use, and how often a range became free: who finds no gap searches again when one did.

use super::prelude::*;

/// Why a search and store under the lock failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Miss {
    NoRoom,
    NoMemory,
}

impl From<Miss> for Error {
    fn from(miss: Miss) -> Self {
        match miss {
            Miss::NoRoom => EBUSY,
            Miss::NoMemory => ENOMEM,
        }
    }
}

/// Areas of the tree that are out of use.
pub(crate) struct Freed {
    /// Those that are lazy.
    lazy: Locked<LazyList>,
    /// Pages of these, and of those that a purge has taken and not freed.
    pages: CacheAligned<Atomic<usize>>,
    /// Those that could not be erased for lack of memory.
    stuck: Locked<AreaList<Flushed>>,
    /// Their number, written under their lock.
    stuck_count: Atomic<usize>,
    /// How often a range of the tree became free; and how often when a block last found no gap, and its size.
    pub(super) times: Atomic<usize>,
    no_gap: [Atomic<usize>; 2],
}

impl Freed {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            lazy: Locked::new(LazyList::EMPTY, c"vmap_rust lazy", static_lock_class!())?,
            pages: CacheAligned::new(Atomic::new(0)),
            stuck: Locked::new(AreaList::new(), c"vmap_rust stuck", static_lock_class!())?,
            stuck_count: Atomic::new(0),
            times: Atomic::new(1),
            no_gap: [const { Atomic::new(0) }; 2],
        })
    }

    /// Adds a lazy area. Returns about how many pages are lazy. Spins.
    pub(super) fn add(&self, area: Area<Lazy>) -> usize {
        if let Some(area) = LazyArea::new(area) {
            let pages = area.span().size() / PAGE_SIZE;
            let mut lazy = self.lazy.lock();
            // Relaxed: written under the lock, so that a purge does not subtract what was not added. It orders nothing.
            self.pages.fetch_add(pages, Relaxed);
            lazy.push_first(area);
        }
        self.pages()
    }

    /// Returns the number of lazy pages.
    pub(super) fn pages(&self) -> usize {
        // Relaxed: as in `add()`.
        self.pages.load(Relaxed)
    }

    /// Takes all lazy areas. Spins.
    pub(super) fn take(&self) -> LazyList {
        self.lazy.lock().take()
    }

    /// Adds stuck areas. Spins.
    pub(super) fn add_stuck(&self, areas: AreaList<Flushed>) {
        let mut stuck = self.stuck.lock();
        stuck.append(areas);
        self.stuck_count.store(stuck.len(), Relaxed);
    }

    /// Takes all stuck areas. Takes no lock if there is none.
    pub(super) fn take_stuck(&self) -> AreaList<Flushed> {
        if self.stuck() == 0 {
            return AreaList::new();
        }
        let mut stuck = self.stuck.lock();
        self.stuck_count.store(0, Relaxed);
        core::mem::replace(&mut *stuck, AreaList::new())
    }

    /// Returns the number of stuck areas.
    pub(super) fn stuck(&self) -> usize {
        // Relaxed: one that was added a moment ago can wait.
        self.stuck_count.load(Relaxed)
    }

    /// Stops counting pages of an area that a purge has freed.
    pub(super) fn freed(&self, pages: usize) {
        // Relaxed: as in `add()`.
        self.pages.fetch_sub(pages, Relaxed);
    }

    /// Returns how often a range became free if a block of `size` bytes may find a gap: not if there was none since one
    /// became free.
    pub(super) fn may_have_gap(&self, size: usize) -> Option<usize> {
        let [times, least] = self.no_gap.each_ref().map(|value| value.load(Relaxed));
        // Relaxed: a request that sees an old value is served without a block.
        let now = self.times.load(Relaxed);
        (times != now || size < least).then_some(now)
    }

    /// Notes that there is no gap for a block of `size` bytes, as a search found that began at `times`. Under the tree lock,
    /// so that both values are of one search.
    pub(super) fn note_no_gap(&self, _: &TableGuard<'_>, size: usize, times: usize) {
        let [noted, least] = &self.no_gap;
        // There is no gap for a larger block, either.
        let size = match noted.load(Relaxed) == times {
            true => size.min(least.load(Relaxed)),
            false => size,
        };
        least.store(size, Relaxed);
        noted.store(times, Relaxed);
    }
}
