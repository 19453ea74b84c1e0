// SPDX-License-Identifier: GPL-2.0

//! The cached ranges of a CPU, or of several CPUs that share them: a list for each size.
//!
//! The sizes in use are few, so a list is found by looking at one after the other. What other CPUs ask first is
//! beside the lock and in the summary, and can be read without the lock: whether a part has a size at all.

use crate::{
    policy::cache::Sweep,
    state::area::{
        Area,
        AreaList,
        Cached, //
    },
    sys::{
        lock::Locked,
        mm::{
            self,
            Node, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    static_lock_class,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// Number of sizes that a part keeps apart. Ranges of further sizes share a list.
pub(super) const SIZES: usize = 64;

/// Number of lists of a part: one for each size, and that of further sizes.
pub(super) const LISTS: usize = SIZES + 1;

/// Number of groups of sizes. It is prime, and 2 is a primitive root, so sizes near different powers of
/// two are in different groups.
pub(super) const GROUPS: usize = 61;

/// The size of a list of several sizes: no range has it.
pub(super) const MIXED: usize = 0;

/// For each group of sizes, and then for lists of several sizes: which parts have such ranges.
pub(super) type Summary = [Atomic<usize>; GROUPS + 1];

/// Returns the number of the summary word for lists of `pages` pages.
pub(super) fn group_of(pages: usize) -> usize {
    match pages {
        MIXED => GROUPS,
        pages => pages % GROUPS,
    }
}

/// Cached ranges of one size, or [`MIXED`].
struct List {
    pages: usize,
    ranges: AreaList<Cached>,
    /// Whether a request took a range since the last [`Part::evict`] that looked at the list.
    used: bool,
}

impl List {
    const EMPTY: Self = Self {
        pages: MIXED,
        ranges: AreaList::new(),
        used: false,
    };

    /// Takes out the first range that `fits`. Each range that does not costs one of `tries`.
    fn take(
        &mut self,
        tries: &mut usize,
        fits: &impl Fn(&Area<Cached>) -> bool,
    ) -> Option<Area<Cached>> {
        for _ in 0..self.ranges.len().min(*tries) {
            self.ranges.prefetch();
            let area = self.ranges.pop()?;
            if fits(&area) {
                self.used = true;
                return Some(area);
            }
            // The next request sees another range first.
            self.ranges.push(area);
            *tries = tries.wrapping_sub(1);
        }
        None
    }
}

/// The lists of a part: [`SIZES`] lists of one size each, then the one of several sizes. An empty list keeps
/// its size until another size needs the list, so that a sweep finds what was added again where it was.
pub(super) struct Lists {
    first: List,
    others: KBox<Others>,
}

/// All lists but the first one.
struct Others {
    lists: KVec<List>,
    /// Of all lists, those of one size from here on are empty. At least 1.
    used: usize,
}

impl Lists {
    fn new(node: Node) -> Result<Self> {
        let mut lists = node.new_vec(LISTS.wrapping_sub(1), GFP_NOWAIT)?;
        for _ in 1..LISTS {
            lists.push(List::EMPTY, GFP_NOWAIT)?;
        }
        Ok(Self {
            first: List::EMPTY,
            others: node.new_box(Others { lists, used: 1 }, GFP_NOWAIT)?,
        })
    }

    fn iter(&self) -> impl Iterator<Item = &List> {
        Iterator::chain(core::iter::once(&self.first), self.others.lists.iter())
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut List> {
        match index.checked_sub(1) {
            None => Some(&mut self.first),
            Some(other) => self.others.lists.get_mut(other),
        }
    }

    /// Returns the index of the list of a size.
    fn find(&self, pages: usize) -> Option<usize> {
        if self.first.pages == pages {
            return Some(0);
        }
        let mut lists = self.iter().take(self.others.used);
        lists.position(|list| list.pages == pages)
    }

    /// Returns the index of the list to which a range of `pages` pages is added.
    fn find_or_start(&mut self, pages: usize) -> usize {
        if let Some(index) = self.find(pages) {
            return index;
        }
        let mut lists = self.iter().take(SIZES);
        let Some(index) = lists.position(|list| list.ranges.is_empty()) else {
            return SIZES;
        };
        drop(lists);
        if let Some(list) = self.get_mut(index) {
            list.pages = pages;
        }
        // All lists before it have ranges.
        self.set_used(self.others.used.max(index.wrapping_add(1)));
        index
    }

    /// Sets the number of lists that may have ranges. Writes only what changes: with ranges of one size, the
    /// cache line stays where it is.
    fn set_used(&mut self, used: usize) {
        if self.others.used != used {
            self.others.used = used;
        }
    }

    /// Forgets the sizes of the last lists if they are empty.
    fn shrink(&mut self) {
        let mut used = self.others.used;
        let others = &self.others.lists;
        while used > 1
            && others
                .get(used.wrapping_sub(2))
                .is_some_and(|list| list.ranges.is_empty())
        {
            used = used.wrapping_sub(1);
        }
        self.set_used(used);
    }

    /// Returns whether a list of a group has ranges.
    fn has(&self, group: usize) -> bool {
        let single = self.iter().take(self.others.used);
        Iterator::chain(single, self.others.lists.last())
            .any(|list| !list.ranges.is_empty() && group_of(list.pages) == group)
    }

    /// Returns the size of the ranges in the first list, [`MIXED`] if there are none.
    fn first_pages(&self) -> usize {
        match self.first.ranges.is_empty() {
            true => MIXED,
            false => self.first.pages,
        }
    }
}

/// What others read of a part without its lock.
pub(super) struct Known {
    /// Number of ranges in the lists.
    len: Atomic<usize>,
    /// Number of their pages.
    pages: Atomic<usize>,
    /// See [`Lists::first_pages`].
    first_pages: Atomic<usize>,
}

/// The cached ranges of a CPU, or of several that share them.
pub(super) struct Part {
    pub(super) lists: Locked<Lists, Known>,
    /// The bit of this part in the words of the summary, written under the lock.
    bit: usize,
}

impl Part {
    pub(super) fn new(node: Node, bit: usize) -> Result<Self> {
        let known = Known {
            len: Atomic::new(0),
            pages: Atomic::new(0),
            first_pages: Atomic::new(MIXED),
        };
        let (lists, name) = (Lists::new(node)?, c"vmap_rust cache");
        Ok(Self {
            lists: Locked::with_beside(node, lists, known, name, static_lock_class!())?,
            bit,
        })
    }

    /// Returns the memory of the part. Spins.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(super) fn memory(&self) -> [*const c_void; 3] {
        let lists = self.lists.lock();
        let vector = lists.others.lists.as_ptr();
        let lists = core::ptr::from_ref(&*lists).cast();
        [core::ptr::from_ref(self).cast(), lists, vector.cast()]
    }

    /// Returns the number of ranges.
    pub(super) fn len(&self) -> usize {
        // Relaxed: callers without the lock need only an estimate.
        self.lists.beside().len.load(Relaxed)
    }

    /// Returns the number of pages of all ranges.
    pub(super) fn pages(&self) -> usize {
        // Relaxed: callers without the lock need only an estimate.
        self.lists.beside().pages.load(Relaxed)
    }

    /// Sets what others read without the lock. There are now `len` ranges with `pages` pages.
    fn note(&self, lists: &Lists, len: usize, pages: usize) {
        let known = self.lists.beside();
        // Relaxed: readers tolerate what is out of date.
        known.len.store(len, Relaxed);
        known.pages.store(pages, Relaxed);
        known.first_pages.store(lists.first_pages(), Relaxed);
    }

    /// Returns whether the first list has ranges of `pages` pages. Expects that it has, and that the caller
    /// takes one.
    pub(super) fn has_first(&self, pages: usize) -> bool {
        self.lists.prefetch();
        // Relaxed: a stale size costs a search or a lock.
        self.lists.beside().first_pages.load(Relaxed) == pages
    }

    pub(super) fn put(&self, area: Area<Cached>, summary: &Summary) {
        let pages = area.pages();
        let mut lists = self.lists.lock();
        let index = lists.find_or_start(pages);
        let Some(list) = lists.get_mut(index) else {
            // Cannot happen: all lists exist. The drop of the area reports the leak.
            return;
        };
        list.ranges.push(area);
        let group = group_of(list.pages);
        let (len, pages) = (self.len().wrapping_add(1), self.pages().wrapping_add(pages));
        self.note(&lists, len, pages);
        if let Some(word) = summary.get(group) {
            // Relaxed: a stale bit costs a search or a lock. The bit is clear, so the sum has no carry.
            if word.load(Relaxed) & self.bit == 0 {
                word.add(self.bit, Relaxed);
            }
        }
    }

    /// Takes a range of `pages` pages that `fits`.
    pub(super) fn take(
        &self,
        pages: usize,
        tries: &mut usize,
        fits: &impl Fn(&Area<Cached>) -> bool,
        summary: &Summary,
    ) -> Option<Area<Cached>> {
        let fits = |area: &Area<Cached>| area.pages() == pages && fits(area);
        let mut lists = self.lists.lock();
        let indexes = [lists.find(pages), Some(SIZES)];
        indexes.into_iter().flatten().find_map(|index| {
            let area = lists.get_mut(index)?.take(tries, &fits)?;
            self.taken(&mut lists, index, area.pages(), summary);
            Some(area)
        })
    }

    /// Takes the next range of a sweep.
    pub(super) fn sweep(&self, sweep: &mut Sweep, summary: &Summary) -> Option<Area<Cached>> {
        // A missed range stays until the next sweep.
        if self.len() == 0 {
            return None;
        }
        let mut lists = self.lists.lock();
        while let Some(list) = lists.get_mut(sweep.list) {
            let left = sweep.left.get_or_insert(list.ranges.len());
            if let Some(rest) = left.checked_sub(1) {
                *left = rest;
                if let Some(area) = list.ranges.pop() {
                    self.taken(&mut lists, sweep.list, area.pages(), summary);
                    return Some(area);
                }
            }
            sweep.left = None;
            sweep.list = sweep.list.wrapping_add(1);
        }
        None
    }

    /// Takes the oldest range of the first list from `index` on that has ranges and that no request has used since
    /// the last call that looked at it. Sets `index` to the list after it.
    pub(super) fn evict(&self, index: &mut usize, summary: &Summary) -> Option<Area<Cached>> {
        if self.len() == 0 {
            *index = LISTS;
            return None;
        }
        let mut lists = self.lists.lock();
        loop {
            let mut current = *index;
            if (lists.others.used..SIZES).contains(&current) {
                current = SIZES;
            }
            let list = lists.get_mut(current)?;
            *index = current.wrapping_add(1);
            if !core::mem::take(&mut list.used) {
                if let Some(area) = list.ranges.pop() {
                    self.taken(&mut lists, current, area.pages(), summary);
                    return Some(area);
                }
            }
        }
    }

    /// Updates what depends on the ranges after one of `pages` pages was taken from list `index`.
    fn taken(&self, lists: &mut Lists, index: usize, pages: usize, summary: &Summary) {
        let (len, pages) = (self.len().wrapping_sub(1), self.pages().wrapping_sub(pages));
        self.note(lists, len, pages);
        let list = lists.get_mut(index);
        let Some(group) =
            list.and_then(|list| list.ranges.is_empty().then_some(group_of(list.pages)))
        else {
            return;
        };
        if let Some(word) = summary.get(group).filter(|_| !lists.has(group)) {
            // Relaxed: a stale bit costs a search or a lock. The bit is set, so there is no borrow.
            word.fetch_sub(self.bit, Relaxed);
        }
        lists.shrink();
    }

    /// Checks the count and the bits. Returns the number of ranges.
    pub(super) fn validate(&self, summary: &Summary) -> Result<usize> {
        let lists = self.lists.lock();
        let len = lists.iter().map(|list| list.ranges.len()).sum();
        let known = self.lists.beside().first_pages.load(Relaxed);
        if known != lists.first_pages() {
            mm::refuse!("first list of {} pages, not {}", lists.first_pages(), known);
            return Err(EINVAL);
        }
        if self.len() != len {
            mm::refuse!("{} cached ranges, {} counted", len, self.len());
            return Err(EINVAL);
        }
        for (group, word) in summary.iter().enumerate() {
            let has_bit = word.load(Relaxed) & self.bit != 0;
            if has_bit != lists.has(group) {
                mm::refuse!("bit {:#x} of group {} is {}", self.bit, group, has_bit);
                return Err(EINVAL);
            }
        }
        Ok(len)
    }
}
