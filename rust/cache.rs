// SPDX-License-Identifier: GPL-2.0

//! Cached ranges: each is kept for the next request of exactly its size.
//!
//! Freeing a range in the tree and searching for one are the expensive steps. A cached range needs
//! neither: its entry stays, and its object becomes busy again. A range that could not be freed for lack
//! of memory is cached as well, so freeing never fails.
//!
//! Each CPU has cached ranges of its own. Those of other CPUs are used only if it has none of the right
//! size.
//!
//! The cache holds about as many ranges as were needed lately: each purge first frees those that are left
//! from the purge before, and then adds its own. The depot of the Solaris slab allocator is trimmed in a
//! similar way.

use crate::{
    area::{
        Area,
        AreaList,
        Cached, //
    },
    lock::Locked,
    mm,
    per_cpu::PerCpu, //
};
use kernel::{
    prelude::*,
    static_lock_class,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// Number of lists of a CPU. Several sizes share a list.
const LISTS: usize = 32;

/// Maximum number of ranges of a list to try for one request.
const MAX_TRIES: usize = 4;

/// Cached ranges of all sizes of one list.
type List = AreaList<Cached>;

/// Takes a range that `fits` out of a list, if one of the first few does.
fn take_from(list: &mut List, fits: &impl Fn(&Area<Cached>) -> bool) -> Option<Area<Cached>> {
    for _ in 0..list.len().min(MAX_TRIES) {
        let area = list.pop()?;
        if fits(&area) {
            return Some(area);
        }
        // The next request sees another range first.
        list.push(area);
    }
    None
}

/// The cached ranges of one CPU.
struct Part {
    lists: Locked<[List; LISTS]>,
    /// Number of ranges in the lists, perhaps too high: a range is counted until after it was taken. If it
    /// is 0, a request does not take the lock.
    len: Atomic<usize>,
}

/// All cached ranges.
pub(crate) struct RangeCache(PerCpu<Part>);

/// Returns the number of the list for a size.
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
        // Relaxed: a range that is missed here only costs a search in the tree.
        if self.len.load(Relaxed) == 0 {
            return None;
        }
        let area = take_from(self.lists.lock().get_mut(list_of(pages))?, fits)?;
        self.len.fetch_sub(1, Relaxed);
        Some(area)
    }
}

/// The CPU in whose lists a range was found.
pub(crate) enum Place {
    Here,
    Elsewhere,
}

impl RangeCache {
    /// Creates an empty cache.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(PerCpu::new(Part::new)?))
    }

    /// Returns the number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|part| part.len.load(Relaxed)).sum()
    }

    /// Checks the counts. Returns the number of ranges.
    pub(crate) fn validate(&self) -> Result<usize> {
        let mut total = 0_usize;
        for part in self.0.iter() {
            let lists = part.lists.lock();
            let here: usize = lists.iter().map(List::len).sum();
            // The count may be higher: it is decremented after the range was taken.
            let counted = part.len.load(Relaxed);
            if counted < here {
                mm::refuse!("{} cached ranges, {} counted", here, counted);
                return Err(EINVAL);
            }
            total = total.wrapping_add(here);
        }
        Ok(total)
    }

    /// Adds a range to the lists of CPU `part`, by default of this one.
    pub(crate) fn put(&self, area: Area<Cached>, part: Option<usize>) {
        let part = self.0.get(part.unwrap_or_else(mm::cpu_hint));
        let index = list_of(area.pages());
        if let Some(list) = part.lists.lock().get_mut(index) {
            // Relaxed: a missed range only costs a search in the tree.
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
        if let Some(area) = self.0.get(here).take(pages, &fits) {
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
        while sweep.done / LISTS < self.0.len() {
            let part = self.0.get(sweep.done / LISTS);
            // Relaxed: a missed range stays until the next sweep.
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

/// The position of a sweep over all lists. It takes at most as many ranges of a list as the list had when
/// the sweep reached it, so it ends even if all of them are added again.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Number of lists that are done.
    done: usize,
    /// Number of ranges of the current list still to take.
    left: Option<usize>,
}
