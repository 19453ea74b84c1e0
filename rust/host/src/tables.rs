// SPDX-License-Identifier: GPL-2.0

//! When page tables are taken: only of ranges that nobody has, and before the flush after which these are free.

use crate::{
    check::fixtures::Step,
    policy::Options,
    prelude::*,
    state::{
        class::{MOST_PAGES, TABLE_PAGES},
        watched::{Done, Unmapped, Watch, Watched},
    },
};
use kernel::hooks::last_event;
use std::cell::Cell;

/// Pages of small areas, and how many of them a block has.
const PAGES: usize = 16;
const SLOTS: usize = TABLE_PAGES / PAGES;

/// Returns what was done to the TLB, without KASAN shadow, and without flushes of no tables.
fn done(space: &Space<FlushLog>) -> Vec<Step> {
    let mut all = Vec::<Step>::new();
    for step in space.tlb().take_all().done.into_iter().flatten() {
        let is_after_tables = matches!(all.last(), Some(Step::TakeTables(_)));
        match step {
            Step::FlushTables if !is_after_tables => (),
            Step::Release(_) | Step::FlushShadow(_) => (),
            _ => all.push(step),
        }
    }
    all
}

/// Makes areas of `bytes` lazy, and returns what a purge of them does.
fn purged(space: &Space<FlushLog>, bytes: usize, count: usize) -> (Vec<Span>, Vec<Step>) {
    let starts: Vec<usize> = (0..count)
        .map(|_| alloc(space, &request(space, bytes)))
        .collect();
    let spans = starts.iter().map(|&start| span_of(start, bytes)).collect();
    for start in starts {
        retire(space, start);
    }
    done(space);
    space.purge(None, false);
    (spans, done(space))
}

/// The purge of a large area takes its tables before the flush, also if it keeps the area. All smaller ones keep theirs.
#[test]
fn tables_of_large_areas_are_taken_before_the_flush() {
    const LARGE: usize = (MOST_PAGES + 1) * PAGE_SIZE;
    let space = space_of(span_of(1 << 42, 1 << 42), 4);
    for bytes in [PAGE_SIZE, PAGES * PAGE_SIZE, 4 * SIZE] {
        let (_, done) = purged(&space, bytes, 2);
        assert!(matches!(done[..], [Step::Flush(_)]), "{bytes:#x}: {done:?}");
    }
    for (bytes, kept) in [(1 << 30, 2), (1 << 37, 2), (LARGE, 4), (LARGE, 4)] {
        let (spans, done_now) = purged(&space, bytes, 2);
        let [Step::TakeTables(first), Step::TakeTables(second), Step::Flush(cover)] = done_now[..]
        else {
            panic!("{done_now:?}");
        };
        assert!(spans.contains(&first) && spans.contains(&second) && first != second);
        assert!(cover.covers(first) && cover.covers(second));
        assert_eq!(space.kept(), kept);
    }
    free_everything(&space);
}

/// A block that is removed loses its tables, with one flush for all, before another area gets its range. Not for a request,
/// which does not hold the lock of C.
#[test]
fn tables_of_removed_blocks_are_taken() {
    for cause in ["request", "purge", "reclaim"] {
        let space = space_of(home_of(32), 32);
        for start in alloc_many(&space, PAGES, 4 * SLOTS) {
            retire(&space, start);
        }
        space.return_all();
        // Nothing is above what classes keep.
        space.purge(None, false);
        let live = space.blocks().live;
        assert!(live > 0);
        done(&space);
        match cause {
            // For all of the space but what is in front of the blocks.
            "request" => assert_ne!(alloc(&space, &request(&space, 32 * SIZE)), 0),
            "purge" => assert_eq!(space.purge(None, true), 0),
            _ => assert_eq!(space.drain_for_reclaim(usize::MAX), live),
        }
        assert_eq!(space.blocks().live, 0);
        let done = done(&space);
        if cause == "request" {
            assert_eq!(done, []);
            continue;
        }
        let (last, taken) = done.split_last().expect("not empty");
        assert_eq!(*last, Step::FlushTables);
        assert_eq!(taken.len(), live);
        assert!(taken
            .iter()
            .all(|step| matches!(step, Step::TakeTables(span) if span.size() == SIZE)));
    }
}

/// Sees that page tables are taken only of ranges without an area in use, and that these are not free before the flush.
#[derive(Default)]
struct Careful {
    space: Cell<Option<&'static Space<Watched<Unmapped, Careful>>>>,
    /// Blocks and lone areas whose ranges were free when tables were taken, and how often these were flushed.
    before: Cell<Option<usize>>,
    flushes: Cell<usize>,
}

impl Careful {
    fn freed(&self) -> usize {
        let counters = self.space.get().expect("set by the test").counters();
        counters.block_freed + counters.give_back
    }

    fn check(&self) {
        if let Some(before) = self.before.take() {
            assert_eq!(self.freed(), before);
            self.flushes.set(self.flushes.get() + 1);
        }
    }
}

impl Watch for Careful {
    fn flush(&self, _: Span, _: usize, flush: impl FnOnce() -> Done) -> Done {
        self.check();
        flush()
    }

    fn take_tables(&self, span: Span) {
        let space = self.space.get().expect("set by the test");
        let area = space.get(span.first(), span.last());
        assert!(area.is_none_or(|area| area.area().span().first() > span.last()));
        let before = self.before.get().unwrap_or_else(|| self.freed());
        assert_eq!(before, self.freed());
        self.before.set(Some(before));
    }

    fn flush_tables(&self) {
        self.check();
    }
}

/// Whatever is freed: tables of ranges in use stay, and a flush is between the taking of tables and a range that is free.
#[test]
fn ranges_are_free_after_the_flush_of_their_tables() {
    let tlb = Watched {
        tlb: Unmapped { has_shadow: false },
        watch: Careful::default(),
    };
    let space = Space::new(span_of(1 << 42, 1 << 42), tlb, Options::default()).expect("memory");
    let space = &*Box::leak(Box::new(space));
    space.tlb().watch.space.set(Some(space));
    let sizes = [1, 4, PAGES, 700, MOST_PAGES + 1, MOST_PAGES + 2, 1 << 18];
    for round in 0..200 {
        let pages = sizes[round % sizes.len()];
        let count = if pages < 700 { 40 * SLOTS } else { 12 };
        let starts: Vec<usize> = (0..count)
            .map(|_| alloc(space, &request(space, pages * PAGE_SIZE)))
            .collect();
        // One stays for a round.
        let (kept, freed) = starts.split_first().expect("not empty");
        freed.iter().for_each(|&start| {
            retire(space, start);
        });
        space.purge(None, round % 5 == 4);
        retire(space, *kept);
        if round % 7 == 6 {
            space.drain_for_reclaim(usize::MAX);
        }
    }
    free_everything(space);
    assert!(space.tlb().watch.flushes.get() > 100);
}

/// A TLB that takes a page table of each 2 MiB.
#[derive(Default)]
struct Counted(Cell<usize>);

// SAFETY: No TLB holds a translation of what was never mapped.
unsafe impl Tlb for Counted {
    fn flush(&self, _: Span, _: usize) -> usize {
        self.0.take()
    }

    unsafe fn take_tables(&self, span: Span) {
        self.0.set(self.0.get() + span.size() / SIZE);
    }

    fn flush_tables(&self) -> usize {
        self.0.take()
    }

    fn has_shadow(&self) -> bool {
        false
    }

    unsafe fn release_shadow(&self, _: Span) {}

    fn flush_shadow(&self, _: Span) {}
}

/// Those of a large area with its purge, those of blocks with the drain. Nothing is said if there are none.
#[test]
fn tables_that_are_freed_are_counted_and_traced() {
    let home = span_of(1 << 42, 1 << 42);
    let space = Space::new(home, Counted::default(), Options::default()).expect("memory");
    let [page, large] = [PAGE_SIZE, 1 << 30].map(|size| alloc(&space, &request(&space, size)));
    let event = |what: &dyn Fn()| last_event("vmap_rust_tables", what);
    assert_eq!(event(&|| release(&space, page)), None);
    assert_eq!(space.counters().tables_freed, 0);
    assert_eq!(event(&|| release(&space, large)), Some(vec![512]));
    assert_eq!(space.counters().tables_freed, 512);
    let drain = || assert_ne!(space.drain_for_reclaim(usize::MAX), 0);
    assert_eq!(event(&drain), Some(vec![1]));
    assert_eq!(space.counters().tables_freed, 513);
    free_everything(&space);
}

/// A class that purges find unused keeps its current block while an area is there, and no class in use loses an empty one.
#[test]
fn current_blocks_stay_if_they_are_used_or_their_classes() {
    let space = space_of(home_of(32), 32);
    let hit = |pages| {
        let area = space.alloc_current(pages * PAGE_SIZE, 1, Attributes::NONE);
        area.map(|area| area.span().first())
    };
    let live = alloc(&space, &request(&space, PAGE_SIZE));
    release(&space, alloc(&space, &request(&space, PAGES * PAGE_SIZE)));
    for _ in 0..200 {
        release(&space, hit(PAGES).expect("the empty block of a used class"));
    }
    release(&space, hit(1).expect("a block with an area"));
    retire(&space, live);
    free_everything(&space);
}

/// A class that purges find unused keeps no block in the end, not even a current one; one that is used keeps two.
#[test]
fn a_class_that_is_not_used_keeps_no_block() {
    let space = space_of(home_of(32), 32);
    let purge = |slots| {
        for start in alloc_many(&space, PAGES, slots) {
            retire(&space, start);
        }
        retire(&space, alloc(&space, &request(&space, PAGE_SIZE)));
        space.purge(None, false);
    };
    purge(4 * SLOTS);
    space.return_all();
    for _ in 0..20 {
        purge(1);
    }
    assert_eq!(space.blocks().empty, 2);
    let live = space.blocks().live;
    for purges in [60, 70] {
        // Those of single pages are in use.
        assert_eq!(space.blocks().live, live);
        for _ in 0..purges {
            purge(0);
        }
    }
    assert_eq!((space.blocks().live, space.blocks().empty), (live - 3, 0));
    free_everything(&space);
}
