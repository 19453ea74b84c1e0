// SPDX-License-Identifier: GPL-2.0

//! Tests that are possible only on the build host: searches in all small spaces, a TLB with KASAN shadow, and
//! allocations that fail while a space is created.

use crate::{
    base::{
        fit::{
            highest_congruent,
            lowest_fit,
            lowest_gap_fit,
            Gaps,
            Member, //
        },
        range::{
            is_aligned,
            Span,
            PAGE_SIZE, //
        }, //
    },
    check::fixtures::FlushLog,
    policy::space::{
        Census,
        Request,
        Space, //
    },
    state::{
        area::Attributes,
        block, //
    },
    sys::{
        maple::MEANWHILE,
        mm::{
            self,
            Gfp,
            Tlb, //
        }, //
    }, //
};
use kernel::prelude::*;
use std::sync::Mutex;

/// Number of pages of a small space, and the page number of the first one, which is not aligned.
const PAGES: usize = 8;
const FIRST: usize = 11;

/// A small space: a bit for each page that is reserved. All other addresses are reserved.
struct Small(u8);

fn pages(first: usize, count: usize) -> Span {
    Span::with_size(first * PAGE_SIZE, count * PAGE_SIZE).expect("not empty")
}

impl Small {
    fn is_free(&self, span: Span) -> bool {
        let mut numbers = span.first() / PAGE_SIZE..span.end() / PAGE_SIZE;
        numbers
            .all(|page| (FIRST..FIRST + PAGES).contains(&page) && self.0 >> (page - FIRST) & 1 == 0)
    }

    /// Returns all gaps in ascending order.
    fn gaps(&self) -> Vec<Span> {
        let all = (FIRST..FIRST + PAGES).flat_map(|first| {
            let counts = 1..=FIRST + PAGES - first;
            counts.map(move |count| pages(first, count))
        });
        let free: Vec<Span> = all.filter(|&span| self.is_free(span)).collect();
        let largest = |span: &&Span| !free.iter().any(|gap| gap != *span && gap.covers(**span));
        free.iter().filter(largest).copied().collect()
    }

    /// Returns the parts of gaps in `window` that have at least `bytes` bytes, in ascending order.
    fn with_room(&self, window: Span, bytes: usize) -> Vec<Span> {
        let gaps = self.gaps().into_iter();
        let parts = gaps.filter_map(|gap| gap.clip(window));
        parts.filter(|gap| gap.size() >= bytes).collect()
    }
}

impl Gaps for Small {
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        let gap = *self.with_room(window, bytes).first()?;
        Span::with_size(gap.first(), bytes)
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        let gap = *self.with_room(window, bytes).last()?;
        Span::new(gap.last() - (bytes - 1), gap.last())
    }

    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        self.gaps().into_iter().find(|gap| gap.contains(addr))
    }
}

/// Calls `check` with each small space, each window in it and each alignment.
fn in_small_spaces(check: impl Fn(Small, Span, usize)) {
    for taken in 0..=u8::MAX {
        for first in FIRST..FIRST + PAGES {
            for count in 1..=FIRST + PAGES - first {
                for align in [1, 2, 4, 8] {
                    check(Small(taken), pages(first, count), align * PAGE_SIZE);
                }
            }
        }
    }
}

/// Iterates over all spans of `size` bytes in `window` that start at a multiple of `align`, in ascending
/// order.
fn places(window: Span, size: usize, align: usize) -> impl DoubleEndedIterator<Item = Span> {
    let firsts = (window.first()..window.end()).step_by(PAGE_SIZE);
    firsts.filter_map(move |first| {
        let span = Span::with_size(first, size)?;
        (is_aligned(first, align) && window.covers(span)).then_some(span)
    })
}

/// The expected result is the lowest fit in the lowest gap that is large enough for any start of the gap, or
/// without such a gap the lowest fit of all gaps.
#[test]
fn lowest_fit_is_right_in_all_small_spaces() {
    in_small_spaces(|mut small, window, align| {
        for size in (1..5).map(|count| count * PAGE_SIZE) {
            let padded = small.with_room(window, size + align - PAGE_SIZE);
            let best = match padded.first() {
                Some(&gap) => places(gap, size, align).next(),
                None => places(window, size, align).find(|&span| small.is_free(span)),
            };
            assert_eq!(lowest_fit(&mut small, window, size, align), best);
            // `lowest_gap_fit()` tries only the lowest gap of at least the size.
            let gap = small.with_room(window, size).first().copied();
            let best = gap.and_then(|gap| places(gap, size, align).next());
            assert_eq!(lowest_gap_fit(&mut small, window, size, align), best);
        }
    });
}

#[test]
fn highest_base_is_right_in_all_small_spaces() {
    let sets: [&[(usize, usize)]; 6] = [
        &[(0, 1)],
        &[(0, 2), (3, 1)],
        &[(1, 1), (2, 2)],
        &[(3, 1), (0, 1)],
        &[(0, 1), (0, 2)],
        &[(0, 4), (4, 3), (7, 1)],
    ];
    in_small_spaces(|mut small, window, align| {
        for set in sets {
            let members = set.iter().map(|&(offset, size)| Member {
                offset: offset * PAGE_SIZE,
                size: size * PAGE_SIZE,
            });
            let fits = |base: &Span| {
                members.clone().all(|member| {
                    let span = member.at(base.first()).expect("no overflow");
                    window.covers(span) && small.is_free(span)
                })
            };
            let bases = places(window, PAGE_SIZE, align);
            let best = bases.rev().find(fits).map(Span::first);
            assert_eq!(highest_congruent(&mut small, window, members, align), best);
        }
    });
}

/// A small space in which others reserve pages at each pause of a search.
struct Busy {
    small: Small,
    reserved_at_pause: Vec<u8>,
    pauses: usize,
}

impl Gaps for Busy {
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        self.small.lowest_gap(window, bytes)
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        self.small.highest_gap(window, bytes)
    }

    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        self.small.gap_around(addr)
    }

    fn pause(&mut self) {
        self.pauses += 1;
        self.small.0 |= self.reserved_at_pause.pop().unwrap_or(0);
    }
}

/// Searches pause after each gap that does not fit, and what they return is free although others reserve
/// pages meanwhile.
#[test]
fn long_searches_pause_and_see_what_changed() {
    let mut pauses = 0;
    for reserved in 0..=u8::MAX {
        let at_pause = (0..PAGES).map(|page| vec![1 << page]);
        for reserved_at_pause in at_pause.chain([vec![], vec![0b1000_0001, 0b0011_0000]]) {
            let window = pages(FIRST, PAGES);
            let members = [(0, 2), (3, 1)].map(|(offset, size)| Member {
                offset: offset * PAGE_SIZE,
                size: size * PAGE_SIZE,
            });
            let busy = || Busy {
                small: Small(reserved),
                reserved_at_pause: reserved_at_pause.clone(),
                pauses: 0,
            };
            let mut set = busy();
            if let Some(span) = lowest_fit(&mut set, window, 2 * PAGE_SIZE, 4 * PAGE_SIZE) {
                assert!(set.small.is_free(span));
            }
            pauses += set.pauses;
            let mut set = busy();
            let base = highest_congruent(&mut set, window, members.into_iter(), PAGE_SIZE);
            if let Some(base) = base {
                let spans = members.map(|member| member.at(base).expect("no overflow"));
                assert!(spans.into_iter().all(|span| set.small.is_free(span)));
            }
            pauses += set.pauses;
        }
    }
    assert!(pauses > 1000);
}

#[test]
fn members_without_size_or_outside_the_address_space_have_no_base() {
    let window = pages(FIRST, PAGES);
    let base = |offset, size| {
        let members = [Member { offset, size }].into_iter();
        highest_congruent(&mut Small(0), window, members, PAGE_SIZE)
    };
    assert!(base(0, PAGE_SIZE).is_some());
    assert_eq!(base(0, 0), None);
    assert_eq!(base(PAGE_SIZE, 0), None);
    assert_eq!(base(usize::MAX, PAGE_SIZE), None);
    assert_eq!(base(usize::MAX - PAGE_SIZE, PAGE_SIZE), None);
    assert_eq!(base(0, (PAGES + 1) * PAGE_SIZE), None);
    let none = core::iter::empty();
    assert_eq!(
        highest_congruent(&mut Small(0), window, none, PAGE_SIZE),
        None
    );
}

/// Returns a home with room for `blocks` fine blocks, and for no other aligned range as large as a block.
fn home_of(blocks: usize) -> Span {
    let start = 31 * block::SIZE + PAGE_SIZE;
    Span::from_bounds(start, (32 + blocks) * block::SIZE).expect("not empty")
}

fn request(space: &Space<impl Tlb>, size: usize) -> Request {
    Request {
        window: space.home(),
        size,
        align: 1,
        attributes: Attributes::NONE,
        gfp: Gfp::KERNEL,
        node: -1,
    }
}

/// An operation on the KASAN shadow or the TLB.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Done {
    Flush(Span),
    Release(Span),
    FlushShadow(Span),
}

/// A TLB that records all operations in order, with or without KASAN shadow.
struct ShadowLog {
    has_shadow: bool,
    done: Mutex<Vec<Done>>,
}

impl ShadowLog {
    fn new(has_shadow: bool) -> Self {
        Self {
            has_shadow,
            done: Mutex::default(),
        }
    }

    fn push(&self, what: Done) {
        self.done.lock().expect("no panic").push(what);
    }

    fn take(&self) -> Vec<Done> {
        std::mem::take(&mut *self.done.lock().expect("no panic"))
    }
}

impl Tlb for ShadowLog {
    fn flush(&self, span: Span, _: usize) {
        self.push(Done::Flush(span));
    }

    fn has_shadow(&self) -> bool {
        self.has_shadow
    }

    fn release_shadow(&self, span: Span) {
        self.push(Done::Release(span));
    }

    fn flush_shadow(&self, span: Span) {
        self.push(Done::FlushShadow(span));
    }
}

/// Allocates an area of each size, and retires all but the last. Returns their spans.
fn retire_some<const N: usize>(space: &Space<ShadowLog>, sizes: [usize; N]) -> [Span; N] {
    let spans = sizes.map(|size| {
        let area = space.alloc(&request(space, size)).expect("room");
        space.span_of(area)
    });
    for span in &spans[..N - 1] {
        space.retire(space.unlink(span.first()).expect("busy"));
    }
    spans
}

impl Space<ShadowLog> {
    fn span_of(&self, area: crate::state::area::AreaPtr) -> Span {
        self.table_entry(area).expect("a busy area is in the index")
    }
}

/// This holds for areas in blocks and in the tree. The KASAN shadow of busy areas is kept.
#[test]
fn kasan_shadow_is_released_between_tlb_flush_and_reuse() {
    let home = home_of(19);
    for has_shadow in [false, true] {
        let log = ShadowLog::new(has_shadow);
        let space = Space::with_blocks(home, log, Some(4)).expect("memory");
        let [low, large, middle, high] =
            retire_some(&space, [2, 200, 3, 2].map(|count| count * PAGE_SIZE));
        assert_eq!(space.tlb().take(), []);
        assert_eq!(space.purge(None, false), 3);
        let done = space.tlb().take();
        let flushed = |what: &Done| matches!(what, Done::Flush(_));
        assert!(done.iter().any(flushed));
        let first_shadow = done.iter().position(|what| !flushed(what));
        if !has_shadow {
            assert_eq!(first_shadow, None);
        } else {
            // First all TLB flushes, then all releases, then one flush of the KASAN shadow that covers them.
            let (flushes, rest) = done.split_at(first_shadow.expect("KASAN shadow is released"));
            assert!(flushes.iter().all(flushed) && !rest.iter().any(flushed));
            let (last, releases) = rest.split_last().expect("not empty");
            let covers = |what: &Done, span: Span| match *what {
                Done::Release(released) => released.covers(span),
                Done::FlushShadow(all) => all.covers(span),
                Done::Flush(_) => false,
            };
            assert!(matches!(last, Done::FlushShadow(_)));
            for span in [low, large, middle] {
                assert!(releases.iter().any(|what| covers(what, span)));
                assert!(covers(last, span));
            }
            for what in releases {
                assert!(matches!(what, Done::Release(span) if span.clip(high).is_none()));
            }
        }
        space.retire(space.unlink(high.first()).expect("busy"));
        // Removing a block releases the KASAN shadow of pages shared by its areas.
        space.purge(None, true);
        let released =
            |what: &Done| matches!(what, Done::Release(span) if span.size() >= block::SIZE);
        assert_eq!(space.tlb().take().iter().any(released), has_shadow);
        assert_eq!(space.validate().ok(), Some(Census::default()));
    }
}

/// Allocates an area of each size for each CPU, and retires them on that CPU.
fn retire_everywhere<const N: usize>(space: &Space<ShadowLog>, sizes: [usize; N]) {
    for cpu in 0..mm::cpu_count() {
        let mut left = Some(sizes.map(|size| {
            let area = space.alloc(&request(space, size)).expect("room");
            let start = space.start_of_busy(area).expect("busy");
            space.unlink(start).expect("busy")
        }));
        // Each new thread is on the next CPU.
        while let Some(areas) = left.take() {
            let retire = move || {
                if mm::cpu_hint() != cpu {
                    return Some(areas);
                }
                for area in areas {
                    space.retire(area);
                }
                None
            };
            left = std::thread::scope(|scope| scope.spawn(retire).join().expect("no panic"));
        }
    }
}

/// A CPU counts small numbers of pages for itself. The exact number includes them, and a purge counts all.
#[test]
fn lazy_pages_that_are_not_yet_counted_are_not_lost() {
    let cpus = mm::cpu_count();
    let home = Span::with_size(64 << 20, 64 << 20).expect("not empty");
    let space = Space::with_blocks(home, ShadowLog::new(false), Some(0)).expect("memory");
    // Below and above what a CPU counts for itself: 1,024 pages with 4 CPUs.
    for size in [3, 1100].map(|pages| pages * PAGE_SIZE) {
        retire_everywhere(&space, [size]);
        assert_eq!(space.lazy_pages(), cpus * size / PAGE_SIZE);
        let area = space.alloc(&request(&space, PAGE_SIZE)).expect("room");
        let start = space.start_of_busy(area).expect("busy");
        let estimate = space.retire(space.unlink(start).expect("busy"));
        let hidden = if size == 3 * PAGE_SIZE {
            estimate == 0
        } else {
            estimate >= cpus * 1100
        };
        assert!(hidden, "{estimate} pages");
        assert_eq!(space.purge(None, true), cpus + 1);
        assert_eq!(space.lazy_pages(), 0);
    }
    free_everything(&space);
}

#[test]
fn a_range_cached_by_another_cpu_is_reused() {
    let cpus = mm::cpu_count();
    // They include sizes of the first and the last list of a CPU.
    let sizes = [1, 31, 32].map(|pages| pages * PAGE_SIZE);
    let count = sizes.len() * cpus;
    let home = Span::with_size(64 << 20, sizes.iter().sum::<usize>() * cpus).expect("not empty");
    // With KASAN shadow, the purging CPU would cache all ranges.
    let space = Space::new(home, ShadowLog::new(false)).expect("memory");
    retire_everywhere(&space, sizes);
    assert_eq!(space.purge(None, false), count);
    assert_eq!(space.cached(), count);
    for size in sizes {
        for _ in 0..cpus {
            space.alloc(&request(&space, size)).expect("room");
        }
    }
    let counters = space.counters();
    assert_eq!(counters.alloc_cached, count);
    assert_eq!(counters.cached_elsewhere, count - sizes.len());
    free_everything(&space);
}

/// A request without room drains all lists of all CPUs, from the first to the last.
#[test]
fn ranges_cached_by_other_cpus_are_drained_for_a_request() {
    let cpus = mm::cpu_count();
    let sizes = [31, 32, 32].map(|pages| pages * PAGE_SIZE);
    let home = Span::with_size(64 << 20, sizes.iter().sum::<usize>() * cpus).expect("not empty");
    let space = Space::new(home, ShadowLog::new(false)).expect("memory");
    retire_everywhere(&space, sizes);
    space.purge(None, false);
    assert_eq!(space.cached(), sizes.len() * cpus);
    assert!(space.alloc(&request(&space, home.size())).is_ok());
    assert_eq!(space.cached(), 0);
    free_everything(&space);
}

#[test]
fn a_cached_range_is_found_among_those_of_other_sizes() {
    const SIZES: usize = 10;
    let home = Span::with_size(64 << 20, 64 * PAGE_SIZE).expect("not empty");
    let space = Space::new(home, FlushLog::new().expect("memory")).expect("memory");
    for pages in 1..=SIZES {
        let area = space.alloc(&request(&space, pages * PAGE_SIZE));
        let start = space.start_of_busy(area.expect("room")).expect("busy");
        space.retire(space.unlink(start).expect("busy"));
    }
    space.purge(None, false);
    assert_eq!(space.cached(), SIZES);
    // Start with a size in the middle.
    for pages in (SIZES / 2..=SIZES).chain(1..SIZES / 2) {
        assert!(space.alloc(&request(&space, pages * PAGE_SIZE)).is_ok());
    }
    assert_eq!(space.counters().alloc_cached, SIZES);
    free_everything(&space);
}

/// So a test that counts blocks must stay on one CPU.
#[test]
fn a_cpu_without_a_block_starts_one_although_others_have_room() {
    let home = Span::with_size(32 * block::SIZE, 128 * block::SIZE).expect("not empty");
    let space = Space::with_blocks(home, FlushLog::new().expect("memory"), Some(128));
    let space = space.expect("memory");
    let here = mm::cpu_hint();
    space.alloc(&request(&space, PAGE_SIZE)).expect("room");
    assert_eq!(space.counters().block_new, 1);
    let is_elsewhere = || {
        let elsewhere = mm::cpu_hint() != here;
        if elsewhere {
            space.alloc(&request(&space, PAGE_SIZE)).expect("room");
        }
        elsewhere
    };
    std::thread::scope(|scope| while !scope.spawn(is_elsewhere).join().expect("no panic") {});
    assert_eq!(space.counters().block_new, 2);
    free_everything(&space);
}

/// Each failure leaves no space, and is noticed.
#[test]
fn every_allocation_of_a_new_space_fails_once() {
    let home = Span::with_size(block::SIZE, 20 * block::SIZE).expect("not empty");
    let mut failed = 0;
    for nth in 1.. {
        mm::fail_nth(nth);
        let space = FlushLog::new().and_then(|log| Space::with_blocks(home, log, Some(4)));
        let left = mm::fail_nth(0);
        match space {
            Ok(space) => {
                assert!(left > 0, "allocation {nth} failed, and nobody noticed");
                assert!(space.validate().is_ok());
                break;
            }
            Err(err) => assert_eq!(err, ENOMEM),
        }
        failed += 1;
    }
    // Each CPU needs at least one allocation.
    assert!(failed > mm::cpu_count());
}

/// A request that may sleep drops the lock and allocates again, so it is served.
#[test]
fn a_failed_allocation_under_a_lock_is_repeated_without_it() {
    let home = Span::with_size(64 << 20, 64 * PAGE_SIZE).expect("not empty");
    let space = Space::new(home, FlushLog::new().expect("memory")).expect("memory");
    // The first allocation is the object, the second one the tree entry.
    mm::fail_nth(2);
    assert!(space.alloc(&request(&space, PAGE_SIZE)).is_ok());
    assert_eq!(mm::fail_nth(0), 0);
    let members = [0, 3, 9].map(|page| Member {
        offset: page * PAGE_SIZE,
        size: PAGE_SIZE,
    });
    for nth in 4..=6 {
        mm::fail_nth(nth);
        let members = members.into_iter();
        let result = space.alloc_congruent(home, members, PAGE_SIZE, Gfp::KERNEL, |_, _| ());
        assert!(result.is_ok());
        assert_eq!(mm::fail_nth(0), 0);
    }
    assert_eq!(space.validate().expect("sound").busy, 10);
    free_everything(&space);

    // A block allocates its memory, parts of the directory, and last its tree entry.
    let home = home_of(19);
    let mut blocks = Vec::new();
    for nth in 1.. {
        let log = FlushLog::new().expect("memory");
        let space = Space::with_blocks(home, log, Some(4)).expect("memory");
        mm::fail_nth(nth);
        let result = space.alloc(&request(&space, PAGE_SIZE));
        let left = mm::fail_nth(0);
        assert!(result.is_ok());
        blocks.push(space.blocks().live);
        free_everything(&space);
        if left > 0 {
            break;
        }
    }
    // No block if its memory or directory fails; a block if only its entry fails, or nothing.
    assert!(blocks.len() > 3);
    let (without, with) = blocks.split_at(blocks.len() - 2);
    assert!(without.iter().all(|&live| live == 0));
    assert_eq!(with, [1, 1]);
}

/// The tree lock is released before each member. If another request takes the gap of a member meanwhile, those that
/// are reserved are given back, and the search is made again.
#[test]
fn members_are_searched_for_again_if_a_gap_is_taken() {
    let home = Span::with_size(64 << 20, 16 * PAGE_SIZE).expect("not empty");
    let log = FlushLog::new().expect("memory");
    let space: &Space<FlushLog> = Box::leak(Box::new(Space::new(home, log).expect("memory")));
    let members = [0, 3, 5].map(|page| Member {
        offset: page * PAGE_SIZE,
        size: PAGE_SIZE,
    });
    // The highest base is that of page 10.
    let take = |page: usize| -> Box<dyn FnOnce()> {
        Box::new(move || {
            let mut other = request(space, PAGE_SIZE);
            other.window =
                Span::with_size(home.first() + page * PAGE_SIZE, PAGE_SIZE).expect("a page");
            assert!(space.alloc(&other).is_ok());
        })
    };
    // Called from the last to the first: before the first member nothing happens, before the second one its page is
    // taken, and in the second attempt (at page 9) before the third one.
    let nothing = || -> Box<dyn FnOnce()> { Box::new(|| ()) };
    let mut meanwhile = vec![nothing(), take(13), nothing(), nothing(), take(14)];
    meanwhile.reverse();
    MEANWHILE.set(meanwhile);
    let result =
        space.alloc_congruent(home, members.into_iter(), PAGE_SIZE, Gfp::KERNEL, |_, _| ());
    assert!(result.is_ok());
    assert!(MEANWHILE.take().is_empty());
    assert_eq!(space.validate().expect("sound").busy, 5);
    free_everything(space);
}

/// The drain returns all cached ranges to the tree, except the one whose erase has no memory.
#[test]
fn a_drain_continues_after_a_range_without_memory() {
    const AREAS: usize = 8;
    let home = Span::with_size(64 << 20, AREAS * PAGE_SIZE).expect("not empty");
    for nth in 2..2 + AREAS as u32 {
        let space = Space::new(home, FlushLog::new().expect("memory")).expect("memory");
        for _ in 0..AREAS {
            space.alloc(&request(&space, PAGE_SIZE)).expect("room");
        }
        for page in 0..AREAS {
            let area = space.unlink(home.first() + page * PAGE_SIZE);
            space.retire(area.expect("busy"));
        }
        space.purge(None, false);
        assert_eq!(space.cached(), AREAS);
        mm::fail_nth(nth);
        let result = space.alloc(&request(&space, AREAS * PAGE_SIZE));
        assert_eq!(mm::fail_nth(0), 0);
        assert_eq!(result.err(), Some(EBUSY));
        assert_eq!(space.cached(), 1);
        assert_eq!(space.counters().give_back_nomem, 1);
        free_everything(&space);
    }
}

/// A request that must not sleep does not try again, and the block stays.
#[test]
fn a_request_that_may_sleep_retries_to_free_an_empty_block() {
    let home = home_of(1);
    for gfp in [Gfp::KERNEL, Gfp::NOWAIT] {
        let log = FlushLog::new().expect("memory");
        let space = Space::with_blocks(home, log, Some(1)).expect("memory");
        let area = space.alloc(&request(&space, PAGE_SIZE)).expect("room");
        let start = space.start_of_busy(area).expect("busy");
        space.retire(space.unlink(start).expect("busy"));
        space.purge(None, false);
        assert_eq!(space.blocks().live, 1);
        let mut req = request(&space, block::SIZE);
        req.gfp = gfp;
        // The first allocation is the object of the area, the second one erases the entry of the block.
        mm::fail_nth(2);
        let result = space.alloc(&req);
        assert_eq!(mm::fail_nth(0), 0);
        let sleeps = gfp.may_block();
        assert_eq!(result.is_ok(), sleeps);
        assert_eq!(space.blocks().live, usize::from(!sleeps));
        assert_eq!(space.counters().give_back_nomem, usize::from(!sleeps));
        assert_eq!(space.reclaimable(), usize::from(!sleeps));
        free_everything(&space);
    }
}

#[test]
fn a_request_that_must_not_sleep_drains_32_ranges_or_blocks() {
    const MOST: usize = 32;
    const PLACES: usize = MOST + 40;
    let pages = Span::with_size(block::SIZE, PLACES * PAGE_SIZE).expect("not empty");
    for (home, limit, unit) in [
        (pages, 0, PAGE_SIZE),
        (home_of(PLACES), PLACES, block::SIZE),
    ] {
        let log = FlushLog::new().expect("memory");
        let space = Space::with_blocks(home, log, Some(limit)).expect("memory");
        let kept = || match limit {
            0 => space.cached(),
            _ => space.blocks().live,
        };
        let size = unit.min(block::MAX_UNITS * PAGE_SIZE);
        let mut starts = Vec::new();
        while let Ok(area) = space.alloc(&request(&space, size)) {
            starts.push(space.start_of_busy(area).expect("busy"));
        }
        for start in starts {
            space.retire(space.unlink(start).expect("busy"));
        }
        space.purge(None, false);
        assert_eq!(kept(), PLACES);
        let mut req = request(&space, 2 * unit);
        req.gfp = Gfp::NOWAIT;
        assert!(space.alloc(&req).is_ok());
        assert_eq!(kept(), PLACES - MOST);
        free_everything(&space);
    }
}

fn free_everything(space: &Space<impl Tlb>) {
    while let Some((area, pin)) = space.get(0) {
        let span = space
            .table_entry(area)
            .expect("a busy area is in the index");
        drop(pin);
        space.retire(space.unlink(span.first()).expect("busy"));
    }
    space.purge(None, true);
    assert_eq!(space.validate().ok(), Some(Census::default()));
}
