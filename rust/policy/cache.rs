// SPDX-License-Identifier: GPL-2.0

//! Cached ranges: each is kept for the next request of exactly its size.
//!
//! Freeing a range in the tree and searching for one are the expensive steps. A cached range needs
//! neither: its entry stays, and its object becomes busy again. A range that could not be freed for lack
//! of memory is cached as well, so freeing never fails.
//!
//! Each CPU has a part with cached ranges, of its own or shared with other CPUs, and a part has a list for
//! each size. The first of these lists is on the cache line of the lock, so that CPUs with ranges of one size
//! move only this line and the objects. A request uses the parts of other CPUs only if its own has no range
//! of the right size. It takes the locks of those parts alone that have one: a summary word for each group
//! of sizes has a bit for each part.
//!
//! A bit changes under the lock of its part, and requests read it without the lock, as they read the size in
//! the first list of their own part. If what they see is out of date, a request takes a lock in vain, or
//! searches the tree although a range was just cached.
//!
//! The cache holds about as many ranges as were needed lately: each representative purge first gives back
//! half of those that are left from earlier purges, and then adds its own. The depot of the Solaris slab
//! allocator is trimmed in a similar way.

use crate::{
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
        },
        per_cpu::{
            CacheAligned,
            PerCpu, //
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

/// Maximum number of parts, as in [`crate::policy::lazy`]; at most the number of bits of a summary word.
const MAX_PARTS: usize = crate::policy::lazy::MAX_PARTS;

/// Number of sizes that a part keeps apart. Ranges of further sizes share a list.
const SIZES: usize = 64;

/// Number of lists of a part: one for each size, and that of further sizes.
const LISTS: usize = SIZES + 1;

/// Maximum number of ranges that a request tries in vain because of their addresses, for example for lack
/// of alignment. They cost a cache miss each, with a lock held.
const MAX_TRIES: usize = 16;

/// Number of groups of sizes. It is prime, and 2 is a primitive root, so sizes near different powers of
/// two are in different groups.
const GROUPS: usize = 61;

/// The size of a list of several sizes: no range has it.
const MIXED: usize = 0;

/// For each group of sizes, and then for lists of several sizes: which parts have such ranges.
type Summary = [Atomic<usize>; GROUPS + 1];

/// Returns the number of the summary word for lists of `pages` pages.
fn group_of(pages: usize) -> usize {
    match pages {
        MIXED => GROUPS,
        pages => pages % GROUPS,
    }
}

/// Cached ranges of one size, or [`MIXED`].
struct List {
    pages: usize,
    ranges: AreaList<Cached>,
}

impl List {
    const EMPTY: Self = Self {
        pages: MIXED,
        ranges: AreaList::new(),
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
struct Lists {
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
struct Known {
    /// Number of ranges in the lists.
    len: Atomic<usize>,
    /// See [`Lists::first_pages`].
    first_pages: Atomic<usize>,
}

/// The cached ranges of a CPU, or of several that share them.
struct Part {
    lists: Locked<Lists, Known>,
    /// The bit of this part in the words of the summary, written under the lock.
    bit: usize,
}

impl Part {
    fn new(node: Node, bit: usize) -> Result<Self> {
        let known = Known {
            len: Atomic::new(0),
            first_pages: Atomic::new(MIXED),
        };
        let (lists, name) = (Lists::new(node)?, c"vmap_rust cache");
        Ok(Self {
            lists: Locked::with_beside(node, lists, known, name, static_lock_class!())?,
            bit,
        })
    }

    fn len(&self) -> usize {
        // Relaxed: callers without the lock need only an estimate.
        self.lists.beside().len.load(Relaxed)
    }

    /// Sets what others read without the lock. The number of ranges is now `len`.
    fn note(&self, lists: &Lists, len: usize) {
        let known = self.lists.beside();
        // Relaxed: readers tolerate what is out of date.
        known.len.store(len, Relaxed);
        known.first_pages.store(lists.first_pages(), Relaxed);
    }

    /// Returns whether the first list has ranges of `pages` pages. Expects that it has, and that the caller
    /// takes one.
    fn has_first(&self, pages: usize) -> bool {
        self.lists.prefetch();
        // Relaxed: a stale size costs a search or a lock.
        self.lists.beside().first_pages.load(Relaxed) == pages
    }

    fn put(&self, area: Area<Cached>, summary: &Summary) {
        let mut lists = self.lists.lock();
        let index = lists.find_or_start(area.pages());
        let Some(list) = lists.get_mut(index) else {
            // Cannot happen: all lists exist. The drop of the area reports the leak.
            return;
        };
        list.ranges.push(area);
        let group = group_of(list.pages);
        self.note(&lists, self.len().wrapping_add(1));
        if let Some(word) = summary.get(group) {
            // Relaxed: a stale bit costs a search or a lock. The bit is clear, so the sum has no carry.
            if word.load(Relaxed) & self.bit == 0 {
                word.add(self.bit, Relaxed);
            }
        }
    }

    /// Takes a range of `pages` pages that `fits`.
    fn take(
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
            self.taken(&mut lists, index, summary);
            Some(area)
        })
    }

    /// Takes the next range of a sweep.
    fn sweep(&self, sweep: &mut Sweep, summary: &Summary) -> Option<Area<Cached>> {
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
                    self.taken(&mut lists, sweep.list, summary);
                    return Some(area);
                }
            }
            sweep.left = None;
            sweep.list = sweep.list.wrapping_add(1);
        }
        None
    }

    /// Updates what depends on the number of ranges after one was taken from list `index`.
    fn taken(&self, lists: &mut Lists, index: usize, summary: &Summary) {
        self.note(lists, self.len().wrapping_sub(1));
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
    fn validate(&self, summary: &Summary) -> Result<usize> {
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

/// The CPU in whose lists a range was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Here,
    Elsewhere,
}

/// All cached ranges.
pub(crate) struct RangeCache {
    parts: PerCpu<Part>,
    summary: CacheAligned<Summary>,
}

impl RangeCache {
    /// Creates an empty cache.
    pub(crate) fn new() -> Result<Self> {
        Self::for_cpus(mm::cpu_count())
    }

    /// Creates an empty cache for `cpus` CPUs.
    fn for_cpus(cpus: usize) -> Result<Self> {
        let mut bit = 1_usize;
        let parts = PerCpu::with_len(cpus.min(MAX_PARTS), |node| {
            let part = Part::new(node, bit);
            bit = bit.wrapping_shl(1);
            part
        })?;
        Ok(Self {
            parts,
            summary: CacheAligned::new([const { Atomic::new(0) }; GROUPS + 1]),
        })
    }

    /// Returns the memory of the part of CPU `cpu`; [`None`] if several CPUs share it and another one is the
    /// first of them. Spins.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn memory_of_cpu(&self, cpu: usize) -> Option<[*const c_void; 3]> {
        let part = (self.parts.index(cpu) == cpu).then(|| self.parts.get(cpu))?;
        let lists = part.lists.lock();
        let vector = lists.others.lists.as_ptr();
        let lists = core::ptr::from_ref(&*lists).cast();
        Some([core::ptr::from_ref(part).cast(), lists, vector.cast()])
    }

    /// Returns the number of ranges. Reads a count of each part.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(Part::len).sum()
    }

    /// Checks the counts. Returns the number of ranges.
    pub(crate) fn validate(&self) -> Result<usize> {
        self.parts.iter().try_fold(0_usize, |total, part| {
            Ok(total.wrapping_add(part.validate(&self.summary)?))
        })
    }

    /// Adds a range to the part of CPU `cpu`, by default of this one.
    pub(crate) fn put(&self, area: Area<Cached>, cpu: Option<usize>) {
        let part = self.parts.get(cpu.unwrap_or_else(mm::cpu_hint));
        part.put(area, &self.summary);
    }

    /// Takes a range of `pages` pages that `fits`, of this CPU if it has one. Gives up after
    /// [`MAX_TRIES`] ranges of this size that do not fit.
    pub(crate) fn take(
        &self,
        pages: usize,
        fits: impl Fn(&Area<Cached>) -> bool,
    ) -> Option<(Area<Cached>, Place)> {
        self.take_at(mm::cpu_hint(), pages, fits)
    }

    /// Returns the parts that may have ranges of `pages` pages, as bits.
    fn candidates(&self, pages: usize) -> usize {
        let groups = [group_of(pages), group_of(MIXED)];
        let words = groups.map(|group| self.summary.get(group));
        // Relaxed: a stale bit costs a search or a lock.
        let words = words.into_iter().flatten().map(|word| word.load(Relaxed));
        words.fold(0, |parts, word| parts | word)
    }

    /// [`RangeCache::take`] on CPU `cpu`.
    fn take_at(
        &self,
        cpu: usize,
        pages: usize,
        fits: impl Fn(&Area<Cached>) -> bool,
    ) -> Option<(Area<Cached>, Place)> {
        let here = self.parts.index(cpu);
        let mut tries = MAX_TRIES;
        let own = self.parts.get(here);
        let is_own_first = own.has_first(pages);
        if is_own_first {
            // Without the summary, which others change.
            if let Some(area) = own.take(pages, &mut tries, &fits, &self.summary) {
                return Some((area, Place::Here));
            }
        }
        // Begin with this part. CPUs with other numbers begin elsewhere, so they take other locks first.
        // CAST: It is less than the number of bits, which is a `u32`.
        let mut left = self.candidates(pages).rotate_right(here as u32);
        if is_own_first {
            left &= !1;
        }
        while left != 0 && tries != 0 {
            // CAST: A number of bits fits in a `usize`.
            let step = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            let part = self.parts.get(here.wrapping_add(step) % MAX_PARTS);
            if let Some(area) = part.take(pages, &mut tries, &fits, &self.summary) {
                let place = match step {
                    0 => Place::Here,
                    _ => Place::Elsewhere,
                };
                return Some((area, place));
            }
        }
        None
    }

    /// Adds the range again that a sweep took out last.
    pub(crate) fn put_back(&self, area: Area<Cached>, sweep: &Sweep) {
        self.put(area, Some(sweep.part));
    }

    /// Takes out the next range of a sweep.
    pub(crate) fn sweep(&self, sweep: &mut Sweep) -> Option<Area<Cached>> {
        while sweep.part < self.parts.len() {
            let part = self.parts.get(sweep.part);
            if let Some(area) = part.sweep(sweep, &self.summary) {
                return Some(area);
            }
            *sweep = Sweep {
                part: sweep.part.wrapping_add(1),
                ..Sweep::default()
            };
        }
        None
    }
}

/// The position of a sweep over all lists. It takes at most as many ranges of a list as the list had when
/// the sweep reached it, so it ends even if all of them are added again.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Number of parts that are done.
    part: usize,
    /// Number of lists of the current part that are done.
    list: usize,
    /// Number of ranges of the current list still to take.
    left: Option<usize>,
}

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[kernel::prelude::kunit_tests(vmap_rust_cache)]
mod tests {
    use super::*;
    use crate::{
        base::range::{
            Span,
            PAGE_SIZE, //
        },
        check::model::Random,
        state::{
            area::Attributes,
            pins::Pins,
            table::Table, //
        },
        sys::{
            grace::Guard,
            maple::StoreError, //
        }, //
    };

    /// An index to make cached ranges in, one above the other.
    struct Ranges {
        table: Table,
        pins: Pins,
        next: usize,
    }

    impl Ranges {
        fn new() -> Result<Self> {
            Ok(Self {
                table: Table::new(c"vmap_rust test index", static_lock_class!())?,
                pins: Pins::new()?,
                next: 1 << 30,
            })
        }

        fn make(&mut self, pages: usize) -> Result<Area<Cached>> {
            let span = Span::with_size(self.next, pages * PAGE_SIZE).ok_or(EINVAL)?;
            self.next = span.end();
            let mut area = Area::alloc(mm::Gfp::KERNEL, -1).ok_or(ENOMEM)?;
            let mut table = self.table.lock();
            loop {
                use crate::base::fit::Gaps;
                table.gap_around(span.first()).ok_or(EINVAL)?;
                area = match table.publish(area, span, &Attributes::NONE) {
                    Ok(_) => break,
                    Err((_, StoreError::Mismatch)) => return Err(EINVAL),
                    Err((area, StoreError::NoMemory)) => area,
                };
                if !table.nomem(mm::Gfp::KERNEL) {
                    return Err(ENOMEM);
                }
            }
            drop(table);
            let area = self.table.unlink(span.first(), &Guard::new());
            let area = self.pins.wait_for_readers(area.ok_or(EINVAL)?);
            Ok(area.never_mapped().cached())
        }

        /// Frees a range, and returns its size.
        fn free(&self, mut area: Area<Cached>) -> Result<usize> {
            let pages = area.pages();
            let mut table = self.table.lock();
            loop {
                area = match table.give_back(area) {
                    Ok(_) => return Ok(pages),
                    Err((_, StoreError::Mismatch)) => return Err(EINVAL),
                    Err((area, StoreError::NoMemory)) => area,
                };
                if !table.nomem(mm::Gfp::KERNEL) {
                    return Err(ENOMEM);
                }
            }
        }

        fn free_all(&self, cache: &RangeCache) -> Result<usize> {
            let mut sweep = Sweep::default();
            let mut freed = 0;
            while let Some(area) = cache.sweep(&mut sweep) {
                self.free(area)?;
                freed += 1;
            }
            assert_eq!(cache.validate()?, 0);
            Ok(freed)
        }
    }

    /// The sizes that a CPU looks for, and on which CPU they are.
    #[test]
    fn a_range_is_found_among_many_others_of_any_size() -> Result {
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(8)?;
        // The second row is of the groups of the first: 1025, 2049 and 4097 modulo 61 are 49, 36 and 10.
        let wanted = [1025, 2049, 4097];
        let others = [49, 110, 171, 232, 36, 97, 10, 71, 132];
        for cpu in [2, 5] {
            for round in 0..6 {
                for &pages in Iterator::chain(others.iter(), &wanted) {
                    if round == 3 || !wanted.contains(&pages) {
                        cache.put(ranges.make(pages)?, Some(cpu));
                    }
                }
            }
        }
        assert_eq!(cache.validate()?, 2 * (6 * others.len() + wanted.len()));
        for pages in wanted {
            for (cpu, place) in [(5, Place::Here), (5, Place::Elsewhere)] {
                let (area, found) = cache.take_at(cpu, pages, |_| true).ok_or(EINVAL)?;
                assert_eq!((area.pages(), found), (pages, place));
                ranges.free(area)?;
            }
            assert!(cache.take_at(0, pages, |_| true).is_none());
        }
        assert_eq!(ranges.free_all(&cache)?, 12 * others.len());
        Ok(())
    }

    #[test]
    fn a_size_that_nobody_has_cached_takes_no_lock() -> Result {
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(8)?;
        cache.put(ranges.make(1025)?, Some(3));
        cache.put(ranges.make(2049)?, Some(6));
        let locked = cache.parts.get(3).lists.lock();
        // These would spin for ever, or lockdep would report them.
        for cpu in 0..8 {
            assert!(cache.take_at(cpu, 4097, |_| true).is_none());
        }
        drop(locked);
        assert_eq!(cache.candidates(4097), 0);
        // Only the lock of one part.
        assert_eq!(cache.candidates(2049), 1 << 6);
        assert!(cache.take_at(0, 2049, |_| false).is_none());
        assert_eq!(cache.candidates(1025), 1 << 3);
        assert_eq!(ranges.free_all(&cache)?, 2);
        assert_eq!((cache.candidates(1025), cache.candidates(2049)), (0, 0));
        Ok(())
    }

    #[test]
    fn cpus_share_parts_if_there_are_many() -> Result {
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(3 * MAX_PARTS)?;
        assert_eq!(cache.parts.len(), MAX_PARTS);
        for cpu in 0..3 * MAX_PARTS {
            cache.put(ranges.make(2000)?, Some(cpu));
        }
        assert_eq!(cache.candidates(2000), (1 << MAX_PARTS) - 1);
        for cpu in (0..3 * MAX_PARTS).rev() {
            let (area, place) = cache.take_at(cpu, 2000, |_| true).ok_or(EINVAL)?;
            assert_eq!(place, Place::Here);
            ranges.free(area)?;
        }
        cache.put(ranges.make(2000)?, Some(MAX_PARTS + 1));
        assert_eq!(cache.candidates(2000), 2);
        let (area, place) = cache.take_at(0, 2000, |_| true).ok_or(EINVAL)?;
        assert_eq!(place, Place::Elsewhere);
        ranges.free(area)?;
        assert_eq!(cache.validate()?, 0);
        Ok(())
    }

    /// A request with an alignment skips ranges of its size, but not for ever.
    #[test]
    fn ranges_that_do_not_fit_are_skipped() -> Result {
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(2)?;
        let mut last = 0;
        for _ in 0..2 * MAX_TRIES {
            let area = ranges.make(3)?;
            last = area.span().ok_or(EINVAL)?.first();
            cache.put(area, Some(1));
        }
        let is_last = |area: &Area<Cached>| area.span().is_some_and(|span| span.first() == last);
        assert!(cache.take_at(0, 3, is_last).is_none());
        // The next request sees the others.
        let (area, _) = cache.take_at(0, 3, is_last).ok_or(EINVAL)?;
        ranges.free(area)?;
        assert_eq!(ranges.free_all(&cache)?, 2 * MAX_TRIES - 1);
        Ok(())
    }

    /// With more sizes than lists, the rest shares a list. Emptied lists serve new sizes.
    #[test]
    fn there_may_be_more_sizes_than_lists() -> Result {
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(1)?;
        for _ in 0..3 {
            for pages in 1..=SIZES + MAX_TRIES {
                cache.put(ranges.make(pages)?, Some(0));
            }
            assert_eq!(cache.validate()?, SIZES + MAX_TRIES);
            for pages in (1..=SIZES + MAX_TRIES).rev() {
                let (area, _) = cache.take_at(0, pages, |_| true).ok_or(EINVAL)?;
                assert_eq!(ranges.free(area)?, pages);
                assert!(cache.take_at(0, pages, |_| true).is_none());
                cache.validate()?;
            }
        }
        Ok(())
    }

    /// Also if all are added again: to the first CPU, or to one that the sweep has not reached.
    #[test]
    fn a_sweep_takes_each_range_and_ends() -> Result {
        for (again, expected) in [(0, [1, 1, 1, 1]), (2, [2, 2, 1, 1])] {
            let mut ranges = Ranges::new()?;
            let cache = RangeCache::for_cpus(4)?;
            let mut starts = KVec::new();
            for cpu in 0..4 {
                for pages in [7, 7, 8, 9] {
                    starts.push((cpu, ranges.next), GFP_KERNEL)?;
                    cache.put(ranges.make(pages + cpu)?, Some(cpu));
                }
            }
            let mut seen = KVec::new();
            let mut sweep = Sweep::default();
            while let Some(area) = cache.sweep(&mut sweep) {
                seen.push(area.span().ok_or(EINVAL)?.first(), GFP_KERNEL)?;
                cache.put(area, Some(again));
                assert!(seen.len() <= 2 * starts.len());
            }
            for &(cpu, start) in starts.iter() {
                let times = seen.iter().filter(|&&seen| seen == start).count();
                assert_eq!(times, expected[cpu]);
            }
            assert_eq!(cache.validate()?, starts.len());
            assert_eq!(ranges.free_all(&cache)?, starts.len());
        }
        Ok(())
    }

    #[test]
    fn random_steps_agree_with_a_list() -> Result {
        const CPUS: usize = 5;
        let seed = mm::random_seed();
        pr_info!("random steps of the range cache: seed {:#x}\n", seed);
        let mut random = Random::new(seed);
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(CPUS)?;
        // Of each cached range the CPU and the size.
        let mut model: KVec<(usize, usize)> = KVec::new();
        for _ in 0..3000 {
            let cpu = random.below(CPUS);
            let pages = [1025, 49, 110, 2049, 36, 4097, 1][random.below(7)];
            let has = |cpu| model.contains(&(cpu, pages));
            let word = (0..CPUS).fold(0, |word, cpu| word | usize::from(has(cpu)) << cpu);
            assert_eq!(cache.candidates(pages) & word, word);
            if random.below(2) == 0 && model.len() < 60 {
                model.push((cpu, pages), GFP_KERNEL)?;
                cache.put(ranges.make(pages)?, Some(cpu));
                continue;
            }
            let expected = if word & 1 << cpu != 0 {
                Some(Place::Here)
            } else if word != 0 {
                Some(Place::Elsewhere)
            } else {
                None
            };
            let found = cache.take_at(cpu, pages, |_| true);
            let place = found.as_ref().map(|&(_, place)| place);
            assert_eq!(place, expected);
            if let Some((area, _)) = found {
                assert_eq!(ranges.free(area)?, pages);
                // The next CPU with a range of this size.
                let from = (0..CPUS).map(|step| (cpu + step) % CPUS);
                let from = from.clone().find(|&cpu| has(cpu)).ok_or(EINVAL)?;
                let mut left = 1;
                model.retain(|&mut known| {
                    let take = left == 1 && known == (from, pages);
                    left -= usize::from(take);
                    !take
                });
            }
            assert_eq!(cache.len(), model.len());
            assert_eq!(cache.validate()?, model.len());
        }
        assert_eq!(ranges.free_all(&cache)?, model.len());
        Ok(())
    }
}
