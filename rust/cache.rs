// SPDX-License-Identifier: GPL-2.0

//! Ranges that are kept for the next request of exactly their size.
//!
//! Giving a range back to the tree and searching for one again are the expensive steps. A range
//! that is kept needs none of them: its entry changes its tag when somebody gets it. A range that could not be given back
//! for want of memory is kept as well, so that nothing is lost and freeing never fails.
//!
//! How many are worth keeping is what was needed lately: each purge gives back as many of a size as
//! have lain idle since the purge before. The depot of Solaris' slab allocator trims itself so.

use crate::{
    area::{
        Area,
        AreaList,
        Cached, //
    },
    mm, //
};
use kernel::prelude::*;

/// Ranges of 1 to this many pages have a list of their size: up to 2 MiB of 4 KiB pages and a guard page.
pub(crate) const MAX_PAGES: usize = 513;

/// How many ranges of the right size are looked at for one with the right alignment.
const MAX_TRIES: usize = 4;

/// Ranges of one size, or of sizes that have no list of their own.
struct List {
    areas: AreaList<Cached>,
    /// So many of them nobody has needed since the last sweep, taking those that came later as if they
    /// had been there all the time. At most as many as there are.
    idle: usize,
}

impl List {
    const fn new() -> Self {
        Self {
            areas: AreaList::new(),
            idle: 0,
        }
    }

    /// Adds a range. A purge sweeps first and adds then, mostly, so it is there when the time to lie
    /// idle begins.
    fn push(&mut self, area: Area<Cached>) {
        self.areas.push(area);
        self.idle = self.idle.wrapping_add(1);
    }

    fn pop(&mut self) -> Option<Area<Cached>> {
        let area = self.areas.pop();
        self.idle = self.idle.min(self.areas.len());
        area
    }
}

/// The ranges that are kept.
///
/// # Invariants
///
/// List `n` of `sizes` has areas of `n + 1` pages.
pub(crate) struct RangeCache {
    sizes: KVec<List>,
    large: List,
    len: usize,
}

impl RangeCache {
    /// An empty cache.
    pub(crate) fn new() -> Result<Self> {
        let mut sizes = KVec::with_capacity(MAX_PAGES, GFP_NOWAIT)?;
        for _ in 0..MAX_PAGES {
            sizes.push(List::new(), GFP_NOWAIT)?;
        }
        Ok(Self {
            sizes,
            large: List::new(),
            len: 0,
        })
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Checks the counts, and returns the number of ranges.
    pub(crate) fn validate(&self) -> Result<usize> {
        let mut total = self.large.areas.len();
        let mut sane = self.large.idle <= self.large.areas.len();
        for list in self.sizes.iter() {
            total = total.wrapping_add(list.areas.len());
            sane &= list.idle <= list.areas.len();
        }
        if !sane || total != self.len {
            mm::refuse!(
                "{} cached ranges, {} in lists, idle as many: {}",
                self.len,
                total,
                sane
            );
            return Err(EINVAL);
        }
        Ok(total)
    }

    /// Keeps a range.
    pub(crate) fn put(&mut self, area: Area<Cached>) {
        let list = area.pages().checked_sub(1);
        // INVARIANT: The list is chosen by the size.
        match list.and_then(|index| self.sizes.get_mut(index)) {
            Some(list) => list.push(area),
            None => self.large.push(area),
        }
        self.len = self.len.wrapping_add(1);
    }

    /// Takes a range of `pages` pages that `fits`, if one of the first few does.
    pub(crate) fn take(
        &mut self,
        pages: usize,
        fits: impl Fn(&Area<Cached>) -> bool,
    ) -> Option<Area<Cached>> {
        let list = self.sizes.get_mut(pages.checked_sub(1)?)?;
        for _ in 0..list.areas.len().min(MAX_TRIES) {
            let area = list.areas.pop()?;
            if fits(&area) {
                list.idle = list.idle.min(list.areas.len());
                self.len = self.len.wrapping_sub(1);
                return Some(area);
            }
            // Another one comes to the front for the next request.
            list.areas.push(area);
        }
        None
    }

    /// Takes out the next range of a sweep, the large ones first: they are room for most.
    pub(crate) fn sweep(&mut self, sweep: &mut Sweep) -> Option<Area<Cached>> {
        while let Some(index) = MAX_PAGES.checked_sub(sweep.done) {
            let list = match self.sizes.get_mut(index) {
                Some(list) => list,
                None => &mut self.large,
            };
            let left = sweep.left.get_or_insert(match sweep.all {
                true => list.areas.len(),
                false => list.idle,
            });
            if let Some(rest) = left.checked_sub(1) {
                *left = rest;
                if let Some(area) = list.pop() {
                    self.len = self.len.wrapping_sub(1);
                    return Some(area);
                }
            }
            // What is left now and not taken until the next sweep is what is idle then.
            list.idle = list.areas.len();
            sweep.left = None;
            sweep.done = sweep.done.wrapping_add(1);
        }
        None
    }
}

/// How far a sweep over all lists has come. It ends also if what it takes out is put back: it looks
/// at as many ranges of a list as that had when the sweep came to it.
pub(crate) struct Sweep {
    /// All of each list, or only what is idle.
    all: bool,
    /// Lists that it is through with.
    done: usize,
    /// How many of the list are still to come.
    left: Option<usize>,
}

impl Sweep {
    /// A sweep over all ranges.
    pub(crate) const ALL: Self = Self::new(true);
    /// A sweep over those that nobody has needed since the sweep before.
    pub(crate) const IDLE: Self = Self::new(false);

    const fn new(all: bool) -> Self {
        Self {
            all,
            done: 0,
            left: None,
        }
    }
}
