// SPDX-License-Identifier: GPL-2.0

//! Tests that need what only the host has: searches in all small spaces there are, a TLB with shadow
//! memory, and memory that fails while a space is made.

use crate::{
    area::Attributes,
    block,
    fit::{
        highest_congruent,
        lowest_fit,
        lowest_gap_fit,
        Gaps,
        Member, //
    },
    mm::{
        self,
        Gfp,
        Tlb, //
    },
    range::{
        is_aligned,
        Span,
        PAGE_SIZE, //
    },
    space::{
        Census,
        Request,
        Space, //
    },
    trace::FlushLog,
};
use kernel::prelude::*;
use std::sync::Mutex;

/// Pages of a small space, and the number of the first one: no multiple of what is aligned to.
const PAGES: usize = 8;
const FIRST: usize = 11;

/// A small space: which of its pages are taken. All others are.
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

    /// All gaps, from the lowest to the highest.
    fn gaps(&self) -> Vec<Span> {
        let all = (FIRST..FIRST + PAGES).flat_map(|first| {
            let counts = 1..=FIRST + PAGES - first;
            counts.map(move |count| pages(first, count))
        });
        let free: Vec<Span> = all.filter(|&span| self.is_free(span)).collect();
        let largest = |span: &&Span| !free.iter().any(|gap| gap != *span && gap.covers(**span));
        free.iter().filter(largest).copied().collect()
    }

    /// Those with room for `bytes` bytes in `window`.
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

/// Calls `check` with each small space, each window in it and each of the alignments.
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

/// Places of `size` bytes in `window` at multiples of `align`, upwards.
fn places(window: Span, size: usize, align: usize) -> impl DoubleEndedIterator<Item = Span> {
    let firsts = (window.first()..window.end()).step_by(PAGE_SIZE);
    firsts.filter_map(move |first| {
        let span = Span::with_size(first, size)?;
        (is_aligned(first, align) && window.covers(span)).then_some(span)
    })
}

/// The lowest place in the lowest gap that has room for it wherever that begins; if there is no such gap, the
/// lowest place of all.
#[test]
fn lowest_place_of_all_small_spaces() {
    in_small_spaces(|mut small, window, align| {
        for size in (1..5).map(|count| count * PAGE_SIZE) {
            let padded = small.with_room(window, size + align - PAGE_SIZE);
            let best = match padded.first() {
                Some(&gap) => places(gap, size, align).next(),
                None => places(window, size, align).find(|&span| small.is_free(span)),
            };
            assert_eq!(lowest_fit(&mut small, window, size, align), best);
            // Only in the lowest gap that is as large.
            let gap = small.with_room(window, size).first().copied();
            let best = gap.and_then(|gap| places(gap, size, align).next());
            assert_eq!(lowest_gap_fit(&mut small, window, size, align), best);
        }
    });
}

#[test]
fn highest_base_of_all_small_spaces() {
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

#[test]
fn members_that_are_nowhere() {
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

/// A space in which there is room for so many blocks, and for nothing else that is as large as a block.
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

/// What was done to the shadow and the TLB, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Done {
    Flush(Span),
    Release(Span),
    FlushShadow(Span),
}

/// A TLB, and shadow of areas, if there is any.
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

/// Allocates areas of each of the sizes, and retires all but the last one. Where they are.
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
    fn span_of(&self, area: crate::area::AreaPtr) -> Span {
        self.table_entry(area).expect("a busy area is in the index")
    }
}

/// The shadow of each area is released after the TLB is flushed and before the range can be had again:
/// of those in blocks and others, and of none that is in use.
#[test]
fn shadow_goes_with_the_areas() {
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
            // All flushes, then all releases, then one flush of what covers them.
            let (flushes, rest) = done.split_at(first_shadow.expect("shadow is released"));
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
        // Blocks that go take along what areas had together.
        space.purge(None, true);
        let released =
            |what: &Done| matches!(what, Done::Release(span) if span.size() >= block::SIZE);
        assert_eq!(space.tlb().take().iter().any(released), has_shadow);
        assert_eq!(space.validate().ok(), Some(Census::default()));
    }
}

/// Allocates areas of each of the sizes for each CPU, and retires them there.
fn retire_everywhere<const N: usize>(space: &Space<ShadowLog>, sizes: [usize; N]) {
    for cpu in 0..mm::cpu_count() {
        let mut left = Some(sizes.map(|size| {
            let area = space.alloc(&request(space, size)).expect("room");
            let start = space.start_of_busy(area).expect("busy");
            space.unlink(start).expect("busy")
        }));
        // Each thread is on another CPU than the one before.
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

/// Ranges that were freed on other CPUs are cached there, and found from here.
#[test]
fn a_range_that_another_cpu_keeps_is_found() {
    let cpus = mm::cpu_count();
    // Among them those of the first and the last list of a CPU.
    let sizes = [1, 31, 32].map(|pages| pages * PAGE_SIZE);
    let count = sizes.len() * cpus;
    let home = Span::with_size(64 << 20, sizes.iter().sum::<usize>() * cpus).expect("not empty");
    // With shadow, the CPU that purges keeps all.
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

/// All that the CPUs keep is given back when there is no room: of the last list of each, and of the first.
#[test]
fn what_other_cpus_keep_is_room() {
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

/// Ranges of other sizes are not in the way of one that is cached.
#[test]
fn cached_ranges_of_many_sizes_are_found() {
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
    // One in the middle first.
    for pages in (SIZES / 2..=SIZES).chain(1..SIZES / 2) {
        assert!(space.alloc(&request(&space, pages * PAGE_SIZE)).is_ok());
    }
    assert_eq!(space.counters().alloc_cached, SIZES);
    free_everything(&space);
}

/// Who comes to a CPU where nobody was before starts a block there, though others have room: so a test
/// that counts blocks has to stay where it is.
#[test]
fn a_cpu_where_nobody_was_starts_a_block() {
    let home = Span::with_size(32 * block::SIZE, 16 * block::SIZE).expect("not empty");
    let space = Space::with_blocks(home, FlushLog::new().expect("memory"), Some(16));
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

/// A space is made or not: with the n-th allocation failing there is none, and nothing is left.
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
    // Those of the CPUs at least.
    assert!(failed > mm::cpu_count());
}

/// A request that may sleep is served though there is no memory under a lock: it is got without the lock.
#[test]
fn memory_that_is_missing_under_a_lock_is_got_without_it() {
    let home = Span::with_size(64 << 20, 64 * PAGE_SIZE).expect("not empty");
    let space = Space::new(home, FlushLog::new().expect("memory")).expect("memory");
    // The object is the first one, the entry the second one.
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

    // For a block: its memory, parts of the directory, and then its entry, after which it is there.
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
    // None while what it consists of fails; one with its entry failing, and with nothing.
    assert!(blocks.len() > 3);
    let (without, with) = blocks.split_at(blocks.len() - 2);
    assert!(without.iter().all(|&live| live == 0));
    assert_eq!(with, [1, 1]);
}

/// The same for what makes room: all that was cached is given back, but for the range whose entry was the one
/// there was no memory for.
#[test]
fn a_drain_goes_on_after_a_range_without_memory() {
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

/// The same for an empty block; without sleeping, nobody waits for memory, and the block stays.
#[test]
fn an_empty_block_without_memory_is_tried_once_more_if_there_is_time() {
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
        // The object of the area is the first one, the entry of the block the second one.
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

/// A request that must not sleep makes room by giving back 256 ranges or blocks, and leaves the others.
#[test]
fn what_must_not_sleep_gives_back_256() {
    const MOST: usize = 256;
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
