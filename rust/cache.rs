// SPDX-License-Identifier: GPL-2.0

//! Ranges that are kept for the next request of exactly their size.
//!
//! Giving a range back to the tree and searching for one again are the expensive steps. A range
//! that is kept needs none of them: its entry changes its tag. A range that could not be given back
//! for want of memory is kept as well, so that nothing is lost and freeing never fails.

use crate::area::{
    Area,
    AreaList,
    Cached, //
};
use kernel::prelude::*;

/// Ranges of 1 to this many pages have a list of their size.
pub(crate) const MAX_PAGES: usize = 256;

/// How many ranges of the right size are looked at for one with the right alignment.
const MAX_TRIES: usize = 4;

/// The ranges that are kept.
///
/// # Invariants
///
/// List `n` of `sizes` has areas of `n + 1` pages.
pub(crate) struct RangeCache {
    sizes: KVec<AreaList<Cached>>,
    large: AreaList<Cached>,
    len: usize,
}

impl RangeCache {
    /// An empty cache.
    pub(crate) fn new() -> Result<Self> {
        let mut sizes = KVec::with_capacity(MAX_PAGES, GFP_NOWAIT)?;
        for _ in 0..MAX_PAGES {
            sizes.push(AreaList::new(), GFP_NOWAIT)?;
        }
        Ok(Self {
            sizes,
            large: AreaList::new(),
            len: 0,
        })
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.len
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
        for _ in 0..list.len().min(MAX_TRIES) {
            let area = list.pop()?;
            if fits(&area) {
                self.len = self.len.wrapping_sub(1);
                return Some(area);
            }
            // Another one comes to the front for the next request.
            list.push(area);
        }
        None
    }

    /// Takes out the next range of a sweep.
    pub(crate) fn sweep(&mut self, sweep: &mut Sweep) -> Option<Area<Cached>> {
        while sweep.list <= MAX_PAGES {
            let list = match self.sizes.get_mut(sweep.list) {
                Some(list) => list,
                None => &mut self.large,
            };
            let left = sweep.left.get_or_insert(list.len() / sweep.part);
            if let Some(rest) = left.checked_sub(1) {
                *left = rest;
                if let Some(area) = list.pop() {
                    self.len = self.len.wrapping_sub(1);
                    return Some(area);
                }
            }
            sweep.left = None;
            sweep.list = sweep.list.wrapping_add(1);
        }
        None
    }
}

/// How far a sweep over all lists has come. What is put back during the sweep is not seen again.
pub(crate) struct Sweep {
    /// One in how many ranges of each list.
    part: usize,
    list: usize,
    /// How many of the list are still to come.
    left: Option<usize>,
}

impl Sweep {
    /// A sweep over all ranges.
    pub(crate) const ALL: Self = Self::new(1);
    /// A sweep over about a quarter of each size.
    pub(crate) const QUARTER: Self = Self::new(4);

    const fn new(part: usize) -> Self {
        Self {
            part,
            list: 0,
            left: None,
        }
    }
}
