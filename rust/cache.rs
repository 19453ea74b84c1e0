// SPDX-License-Identifier: GPL-2.0

//! Ranges that are kept for the next request of exactly their size.
//!
//! Giving a range back to the tree and searching for one again are the expensive steps. A range that is
//! kept needs none of them: its entry stays, and its object becomes busy again. A range that could not be
//! given back for want of memory is kept as well, so that nothing is lost and freeing never fails.
//!
//! Each CPU has ranges of its own; only if it has none of the right size, those of others are asked for.
//!
//! How many are worth keeping is what was needed lately: each purge first gives back those that are
//! still here from the purge before, and then puts its own in. The depot of Solaris' slab allocator
//! trims itself in a similar way.

use crate::{
    area::{
        Area,
        AreaList,
        Cached, //
    },
    lock::Locked,
    mm, //
};
use kernel::{
    prelude::*,
    static_lock_class,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// Number of lists of a CPU; sizes share them.
const LISTS: usize = 32;

/// How many ranges of a list are looked at for one of the right size and alignment.
const MAX_TRIES: usize = 4;

/// Ranges of sizes that have the same list.
type List = AreaList<Cached>;

/// Takes a range that `fits` out of a list, if one of the first few does.
fn take_from(list: &mut List, fits: &impl Fn(&Area<Cached>) -> bool) -> Option<Area<Cached>> {
    for _ in 0..list.len().min(MAX_TRIES) {
        let area = list.pop()?;
        if fits(&area) {
            return Some(area);
        }
        // Another one comes to the front for the next request.
        list.push(area);
    }
    None
}

/// What one CPU keeps.
struct Part {
    lists: Locked<[List; LISTS]>,
    /// How many ranges, or more, for who thinks of looking for one here. Rises with the lock held.
    len: Atomic<usize>,
}

/// The ranges that are kept.
pub(crate) struct RangeCache(KVec<Part>);

/// The list for a size.
fn list_of(pages: usize) -> usize {
    pages % LISTS
}

impl Part {
    fn new() -> Result<Self> {
        let lists = [const { List::new() }; LISTS];
        Ok(Self {
            lists: Locked::new(lists, c"vmap_rust cache", static_lock_class!())?,
            len: Atomic::new(0),
        })
    }

    fn take(&self, pages: usize, fits: &impl Fn(&Area<Cached>) -> bool) -> Option<Area<Cached>> {
        // Relaxed: what is missed is searched for in the tree.
        if self.len.load(Relaxed) == 0 {
            return None;
        }
        let area = take_from(self.lists.lock().get_mut(list_of(pages))?, fits)?;
        self.len.fetch_sub(1, Relaxed);
        Some(area)
    }
}

/// Where a range was found.
pub(crate) enum Place {
    Here,
    Elsewhere,
}

impl RangeCache {
    /// An empty cache.
    pub(crate) fn new() -> Result<Self> {
        let count = mm::cpu_count();
        let mut parts = KVec::with_capacity(count, GFP_NOWAIT)?;
        for _ in 0..count {
            parts.push(Part::new()?, GFP_NOWAIT)?;
        }
        Ok(Self(parts))
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|part| part.len.load(Relaxed)).sum()
    }

    /// Checks the counts, and returns the number of ranges.
    pub(crate) fn validate(&self) -> Result<usize> {
        let mut total = 0_usize;
        for part in self.0.iter() {
            let lists = part.lists.lock();
            let here: usize = lists.iter().map(List::len).sum();
            // Who takes one out counts it until after that.
            let counted = part.len.load(Relaxed);
            if counted < here {
                mm::refuse!("{} cached ranges, {} counted", here, counted);
                return Err(EINVAL);
            }
            total = total.wrapping_add(here);
        }
        Ok(total)
    }

    /// Keeps a range at part `part`, or here.
    pub(crate) fn put(&self, area: Area<Cached>, part: Option<usize>) {
        let part = self
            .0
            .get(part.unwrap_or_else(mm::cpu_hint))
            .or(self.0.first());
        let Some(part) = part else {
            return;
        };
        let index = list_of(area.pages());
        if let Some(list) = part.lists.lock().get_mut(index) {
            // Relaxed: as in `Part::take()`.
            part.len.fetch_add(1, Relaxed);
            list.push(area);
        }
    }

    /// Takes a range of `pages` pages that `fits`, if one of the first few does.
    pub(crate) fn take(
        &self,
        pages: usize,
        fits: impl Fn(&Area<Cached>) -> bool,
    ) -> Option<(Area<Cached>, Place)> {
        let fits = |area: &Area<Cached>| area.pages() == pages && fits(area);
        let here = mm::cpu_hint();
        if let Some(area) = self.0.get(here).and_then(|part| part.take(pages, &fits)) {
            return Some((area, Place::Here));
        }
        let mut others = self
            .0
            .iter()
            .enumerate()
            .filter(|&(index, _)| index != here);
        others.find_map(|(_, part)| Some((part.take(pages, &fits)?, Place::Elsewhere)))
    }

    /// Takes out the next range of a sweep.
    pub(crate) fn sweep(&self, sweep: &mut Sweep) -> Option<Area<Cached>> {
        while let Some(part) = self.0.get(sweep.done / LISTS) {
            // Relaxed: as in `Part::take()`.
            if part.len.load(Relaxed) == 0 && sweep.left.is_none() {
                sweep.done = (sweep.done / LISTS).wrapping_add(1).wrapping_mul(LISTS);
                continue;
            }
            let mut lists = part.lists.lock();
            while let Some(list) = lists.get_mut(sweep.done % LISTS) {
                let left = sweep.left.get_or_insert(list.len());
                if let Some(rest) = left.checked_sub(1) {
                    *left = rest;
                    if let Some(area) = list.pop() {
                        part.len.fetch_sub(1, Relaxed);
                        return Some(area);
                    }
                }
                sweep.left = None;
                sweep.done = sweep.done.wrapping_add(1);
                if sweep.done % LISTS == 0 {
                    break;
                }
            }
        }
        None
    }
}

/// How far a sweep over all lists has come. It ends also if what it takes out is put back: it looks
/// at as many ranges of a list as that had when the sweep came to it.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Lists that it is through with.
    done: usize,
    /// How many of the list are still to come.
    left: Option<usize>,
}
