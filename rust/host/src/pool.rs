// SPDX-License-Identifier: GPL-2.0

//! Tests of the pool of blocks alone: its counts, and how many empty blocks a purge keeps.

use crate::{
    base::{
        bits::UNITS,
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    check::{
        fixtures::FlushLog,
        random::Random, //
    },
    policy::{
        blocks::Blocks,
        blocks_check::BlockCensus,
        percpu::{
            Cpu,
            Cpus, //
        }, //
    },
    state::{
        area::{
            Area,
            Attributes,
            NeverMapped,
            Unlinked, //
        },
        band::{
            Small,
            COARSE_PAGES,
            COARSE_SIZE,
            MAX_UNITS,
            SIZE, //
        },
        block::Block,
        flush::Plan,
        pins::Pins, //
    },
    sys::grace::{
        Guard,
        Unpublished, //
    }, //
};
use kernel::prelude::*;
use std::panic::{
    catch_unwind,
    AssertUnwindSafe, //
};

/// Fine blocks that fit: enough for coarse blocks, and for more than one part of the directory.
const BLOCKS: usize = 2 * 64 * (COARSE_SIZE / SIZE);

/// Areas of one page that fit in a fine block; each reserves two units.
const AREAS: usize = SIZE / PAGE_SIZE / 2;

/// A pool, and what its operations need.
pub(super) struct Pool {
    pub(super) blocks: Blocks,
    pub(super) cpus: Cpus,
    pins: Pins,
}

impl Pool {
    /// Creates a pool whose blocks are at most as large as `limit` fine ones.
    pub(super) fn new(limit: usize) -> Self {
        let home = Span::with_size(COARSE_SIZE, BLOCKS * SIZE).expect("not empty");
        Self {
            blocks: Blocks::new(home, Some(limit)).expect("memory"),
            cpus: Cpus::new().expect("memory"),
            pins: Pins::new().expect("memory"),
        }
    }

    pub(super) fn small(&self, pages: usize) -> Small {
        let small = self.blocks.small(pages * PAGE_SIZE, 1);
        small.expect("small")
    }

    pub(super) fn here(&self) -> &Cpu {
        self.cpus.here()
    }

    /// Returns the first address of block `index`.
    pub(super) fn start_of(&self, index: usize) -> usize {
        self.blocks.window().expect("a range").first() + index * SIZE
    }

    /// Creates block `index` as the current block of a CPU of `cpus`, with an area of `pages` pages at its start.
    pub(super) fn add(&self, cpus: &Cpus, index: usize, pages: usize) {
        let small = self.small(pages);
        let start = self.start_of(index);
        assert!(self.blocks.reserve(small.block_size(), 0));
        self.blocks.prepare(start, GFP_KERNEL).expect("memory");
        let mut block = Block::new(small.band(), false, GFP_KERNEL).expect("memory");
        block.place(start);
        let block = Unpublished::new(block, GFP_KERNEL).expect("memory");
        let area = self.blocks.adopt(cpus, block, small, &Attributes::NONE);
        assert!(matches!(area, Ok(Some(_))));
    }

    /// Creates blocks `indices` in the pool, each with room for only one area of one page, at its end.
    pub(super) fn add_almost_full(&self, indices: core::ops::Range<usize>) {
        for index in indices {
            self.add(&self.cpus, index, 1);
            for _ in 1..AREAS {
                assert!(self.alloc(1));
            }
            let last = self.start_of(index + 1) - 2 * PAGE_SIZE;
            self.blocks
                .release(&self.cpus, self.unlink(last), NeverMapped::in_test());
        }
        self.blocks.return_current(&self.cpus);
    }

    /// Allocates from the current block.
    pub(super) fn alloc(&self, pages: usize) -> bool {
        let area = self.blocks.alloc(
            &self.cpus,
            self.here(),
            self.small(pages),
            &Attributes::NONE,
        );
        area.is_some()
    }

    /// Allocates from another block of the pool.
    pub(super) fn refill(&self, pages: usize) -> bool {
        let area = self
            .blocks
            .refill(&self.cpus, self.small(pages), &Attributes::NONE);
        area.is_some()
    }

    pub(super) fn unlink(&self, addr: usize) -> Area<Unlinked> {
        let unlinked = self.blocks.unlink(addr, &Guard::new());
        let Ok(Some(area)) = unlinked else {
            panic!("no area at {addr:#x}");
        };
        self.pins.wait_for_readers(area)
    }

    /// Retires the area at `addr`. Returns the approximate number of lazy pages.
    fn retire(&self, addr: usize) -> usize {
        self.blocks.retire(self.here(), self.unlink(addr))
    }

    /// Flushes a plan, and frees the pages that blocks have taken for it.
    fn flush_and_free(&self, plan: Plan) {
        let mut flushed = plan.flush(&FlushLog::new().expect("memory"));
        if let Some(pages) = flushed.take_pages() {
            self.blocks.free(&self.cpus, pages);
        }
    }

    pub(super) fn has_busy(&self, index: usize) -> bool {
        let block = Span::with_size(self.start_of(index), SIZE).expect("not empty");
        self.blocks.next_busy(block, block.first()).is_some()
    }

    /// Puts all current blocks into the pool, and frees all areas in blocks `indices`.
    pub(super) fn empty_all(&self, indices: core::ops::Range<usize>) {
        self.blocks.return_current(&self.cpus);
        for index in indices {
            while self.has_busy(index) {
                let block = Span::with_size(self.start_of(index), SIZE).expect("not empty");
                let (_, seen) = self.blocks.next_busy(block, 0).expect("busy");
                self.blocks.release(
                    &self.cpus,
                    self.unlink(seen.span().first()),
                    NeverMapped::in_test(),
                );
            }
        }
    }

    /// Returns the empty blocks that a purge removes, in the order of removal.
    pub(super) fn take_empty(&self, all: bool) -> Vec<usize> {
        let taken = core::iter::from_fn(|| {
            let removed = self.blocks.take_empty(&self.cpus, all)?;
            Some((removed.span().expect("a range").first() - self.start_of(0)) / SIZE)
        });
        taken.collect()
    }

    pub(super) fn census(&self) -> (usize, usize, usize) {
        let BlockCensus {
            live,
            partial,
            empty,
        } = self.blocks.census();
        assert_eq!(self.blocks.empty(), empty);
        (live, partial, empty)
    }

    /// Returns whether `validate()` finds no error. On the build host an error is a panic.
    pub(super) fn is_sound(&self, cpus: &Cpus, quiet: bool) -> bool {
        let validate = || self.blocks.validate(cpus, quiet).is_ok();
        catch_unwind(AssertUnwindSafe(validate)).unwrap_or(false)
    }
}

/// All blocks have at most `limit` times the size of a fine one. Coarse blocks have at most half of that, or
/// are only one.
#[test]
fn the_size_of_all_blocks_is_limited() {
    for limit in [1, 40, 64, 65, 150, 500] {
        let pool = Pool::new(limit);
        let mut random = Random::new(limit as u64);
        let mut there: Vec<usize> = Vec::new();
        for step in 0..2_000 {
            if random.below(5) < if step % 400 < 200 { 1 } else { 4 } && !there.is_empty() {
                let bytes = there.swap_remove(random.below(there.len()));
                pool.blocks.unreserve(bytes);
            } else {
                let bytes = [SIZE, COARSE_SIZE][random.below(2)];
                let sum: usize = there.iter().sum();
                let coarse = there.iter().filter(|&&other| other == COARSE_SIZE).count();
                let coarse_has_room =
                    bytes == SIZE || coarse == 0 || (coarse + 1) * COARSE_SIZE <= limit * SIZE / 2;
                let has_room = sum + bytes <= limit * SIZE && coarse_has_room;
                assert_eq!(pool.blocks.reserve(bytes, 0), has_room);
                if has_room {
                    there.push(bytes);
                }
            }
            assert_eq!(pool.census(), (there.len(), 0, 0));
        }
    }
}

/// Blocks take at most a quarter of what large areas leave, but as many as in a small space in any case.
#[test]
fn large_areas_leave_fewer_blocks() {
    let home = Span::with_size(COARSE_SIZE, BLOCKS * SIZE).expect("not empty");
    for (left, most) in [(BLOCKS / 2, BLOCKS / 8), (200, 50), (100, 48), (0, 48)] {
        let blocks = Blocks::new(home, None).expect("memory");
        // Also with the bytes of the blocks themselves.
        let reserved = |count: usize| (BLOCKS - left + count) * SIZE;
        let count = (0..BLOCKS).find(|&count| !blocks.reserve(SIZE, reserved(count)));
        assert_eq!(count, Some(most));
    }
}

#[test]
fn the_pool_counts_blocks_that_are_no_cpus_current_block() {
    for pages in [1, 2, 9, MAX_UNITS, COARSE_PAGES * 4] {
        let pool = Pool::new(100);
        pool.add(&pool.cpus, 0, pages);
        assert_eq!(pool.census(), (1, 0, 0));
        pool.blocks.return_current(&pool.cpus);
        assert_eq!(pool.census(), (1, 1, 0));
        assert!(pool.refill(pages));
        assert_eq!(pool.census(), (1, 0, 0));
        while pool.alloc(pages) {}
        pool.blocks.return_current(&pool.cpus);
        assert_eq!(pool.census(), (1, 0, 0));
        assert!(!pool.refill(pages));
        pool.blocks.release(
            &pool.cpus,
            pool.unlink(pool.start_of(0)),
            NeverMapped::in_test(),
        );
        assert_eq!(pool.census(), (1, 1, 0));
        pool.empty_all(0..1);
        assert_eq!(pool.census(), (1, 1, 1));
        assert!(pool.refill(pages));
        assert_eq!(pool.census(), (1, 0, 0));
        pool.empty_all(0..1);
        // A removed block can be restored.
        let removed = pool
            .blocks
            .take_empty(&pool.cpus, true)
            .expect("an empty block");
        assert_eq!(pool.census(), (0, 0, 0));
        pool.blocks.restore(&pool.cpus, removed);
        assert_eq!(pool.census(), (1, 1, 1));
        assert!(pool.is_sound(&pool.cpus, true));
        assert_eq!(pool.take_empty(true), [0]);
        assert!(pool.is_sound(&pool.cpus, true));
    }
}

/// A task has found the current block of a CPU, moves to another one, and allocates when the block is empty and in the
/// pool. The block is not removed, and the other empty ones still are.
#[test]
fn a_block_that_is_empty_no_more_does_not_hide_others() {
    let pool = Pool::new(100);
    for index in 0..3 {
        pool.add(&pool.cpus, index, 1);
    }
    let current = &pool.here().current;
    let late: Vec<_> = current.iter().map(|block| block.get()).collect();
    pool.empty_all(0..3);
    assert_eq!(pool.census(), (3, 3, 3));
    let set_current = |blocks: &[Option<_>]| {
        for (current, &block) in current.iter().zip(blocks) {
            current.set(block);
        }
    };
    let none = vec![None; late.len()];
    set_current(&late);
    assert!(pool.alloc(1));
    set_current(&none);
    assert_eq!(pool.take_empty(true), [1, 0]);
    assert_eq!(pool.census(), (1, 1, 0));
    assert!(pool.is_sound(&pool.cpus, true));
    pool.empty_all(2..3);
}

/// A purge keeps, per band, as many empty blocks as were taken since the last one, plus a quarter, plus two,
/// but at least half of those kept before. It removes the highest first. A purge that is not representative
/// changes nothing.
#[test]
fn a_purge_keeps_the_empty_blocks_that_were_needed() {
    const TAKEN: usize = 12;
    let pool = Pool::new(100);
    for index in 0..TAKEN {
        pool.add(&pool.cpus, index, 5);
    }
    pool.empty_all(0..TAKEN);
    assert_eq!(pool.census(), (TAKEN, TAKEN, TAKEN));
    pool.blocks.end_purge(true);
    assert_eq!(pool.take_empty(false), []);
    for keep in [(12 + 3 + 2) / 2, 4, 2, 2] {
        pool.blocks.end_purge(false);
        assert_eq!(pool.take_empty(false), []);
        let before = pool.census().0;
        pool.blocks.end_purge(true);
        let highest: Vec<usize> = (keep..before).rev().collect();
        assert_eq!(pool.take_empty(false), highest);
        assert_eq!(pool.census(), (keep, keep, keep));
    }
    assert_eq!(pool.take_empty(true), [1, 0]);
    assert_eq!(pool.census(), (0, 0, 0));
    assert!(pool.is_sound(&pool.cpus, true));
}

/// A CPU counts up to 128 lazy pages in its own counter before it adds them to the common one, and returns the
/// common one only then. `lazy_pages()` adds up the blocks and is exact.
#[test]
fn lazy_pages_are_added_to_the_common_count_in_batches() {
    // The host has pages of 4 KiB and 4 CPUs.
    let batch = 128;
    let all = batch + 50;
    let pool = Pool::new(100);
    pool.add(&pool.cpus, 0, 1);
    while pool.alloc(1) {}
    let mut known = 0;
    let retire = |count: usize| {
        let addr = pool.start_of(0) + 2 * count * PAGE_SIZE;
        pool.retire(addr)
    };
    for count in 0..all {
        let is_told = (count + 1) % batch == 0;
        if is_told {
            known += batch;
        }
        assert_eq!(retire(count), if is_told { known } else { 0 });
        assert_eq!(pool.blocks.lazy_pages(), 2 * (count + 1));
    }
    let mut plan = Plan::new();
    let is_representative = pool.blocks.snapshot(&pool.cpus, &mut plan);
    assert_eq!(plan.areas(), all);
    assert_eq!(is_representative, 2 * all >= SIZE / PAGE_SIZE);
    assert_eq!(pool.blocks.lazy_pages(), 2 * all);
    assert_eq!(retire(all), 0);
    assert_eq!(pool.blocks.lazy_pages(), 2 * all + 2);
    pool.flush_and_free(plan);
    assert_eq!(pool.blocks.lazy_pages(), 2);
    pool.empty_all(0..1);
}

/// A purge that frees the 512 units of a block says how many blocks are needed, one of an area less does not.
#[test]
fn a_purge_of_the_units_of_a_block_is_representative() {
    for areas in [AREAS - 1, AREAS] {
        let pool = Pool::new(100);
        // The first area.
        pool.add(&pool.cpus, 0, 1);
        for _ in 1..areas {
            assert!(pool.alloc(1));
        }
        for area in 0..areas {
            pool.retire(pool.start_of(0) + 2 * area * PAGE_SIZE);
        }
        let mut plan = Plan::new();
        let is_representative = pool.blocks.snapshot(&pool.cpus, &mut plan);
        assert_eq!(is_representative, areas == AREAS);
        pool.flush_and_free(plan);
        pool.empty_all(0..1);
    }
}

/// A purge looks at each block with areas that were retired since, and at unused ones until a small purge has found them so.
#[test]
fn a_small_purge_is_the_last_that_looks_at_an_unused_block() {
    // Index of the first block of the second part of the directory.
    let second = UNITS;
    for areas in [AREAS - 1, AREAS] {
        let pool = Pool::new(100);
        pool.add(&pool.cpus, 0, 1);
        pool.add(&pool.cpus, second, 1);
        let purge = |index: usize, areas: usize| {
            for area in 0..areas {
                pool.retire(pool.start_of(index) + 2 * area * PAGE_SIZE);
            }
            let mut plan = Plan::new();
            pool.blocks.snapshot(&pool.cpus, &mut plan);
            let pages = plan.flush(&FlushLog::new().expect("memory")).take_pages();
            let pages = pages.expect("an area was retired");
            let slots = pages.slots();
            pool.blocks.free(&pool.cpus, pages);
            for _ in 0..AREAS {
                pool.alloc(1);
            }
            slots
        };
        // The block that it fills is the current one, which is the second.
        assert_eq!(purge(0, 1), 0..1);
        assert_eq!(purge(second, areas), 0..2);
        let is_small = areas < AREAS;
        assert_eq!(purge(second, 1), usize::from(is_small)..2);
        pool.empty_all(0..1);
        pool.empty_all(second..second + 1);
    }
}

/// The counts of CPUs may go back: a task that was preempted stores an old one.
#[test]
fn the_number_of_purged_areas_is_at_most_that_of_their_units() {
    let pool = Pool::new(100);
    pool.add(&pool.cpus, 0, 1);
    for purge in 0..3 {
        assert!(pool.alloc(1));
        pool.retire(pool.start_of(0) + 2 * purge * PAGE_SIZE);
        if purge == 1 {
            pool.here().counters.retire_block.add(usize::MAX - 7);
        }
        let mut plan = Plan::new();
        pool.blocks.snapshot(&pool.cpus, &mut plan);
        assert!((1..=2).contains(&plan.areas()), "{} areas", plan.areas());
        pool.flush_and_free(plan);
        assert!(pool.alloc(1));
    }
    pool.empty_all(0..1);
}

#[test]
fn a_pool_with_a_wrong_count_is_refused() {
    // Returns whether `validate()` finds no error after `what`. If not `quiet`, a block may be between
    // reservation and insertion.
    let is_sound = |quiet: bool, what: &dyn Fn(&Pool, &Cpus)| {
        let pool = Pool::new(100);
        let others = Cpus::new().expect("memory");
        pool.add(&pool.cpus, 0, 1);
        assert!(pool.blocks.validate(&pool.cpus, quiet).is_ok());
        what(&pool, &others);
        let is_sound = pool.is_sound(&pool.cpus, quiet);
        // A panic has poisoned the lock.
        core::mem::forget(pool);
        is_sound
    };
    // One block more is reserved than there are: right only while another CPU may be about to insert it.
    let one_more = |pool: &Pool, _: &Cpus| assert!(pool.blocks.reserve(SIZE, 0));
    assert!(is_sound(false, &one_more));
    assert!(!is_sound(true, &one_more));
    // The number of blocks is right, but not their size.
    let larger = |pool: &Pool, _: &Cpus| {
        pool.blocks.unreserve(SIZE);
        assert!(pool.blocks.reserve(COARSE_SIZE, 0));
    };
    assert!(!is_sound(true, &larger));
    // A block is marked held, but no CPU has it as its current block.
    let held = |pool: &Pool, others: &Cpus| pool.add(others, 1, 1);
    assert!(!is_sound(true, &held));
    assert!(!is_sound(false, &held));
    // A block is the current block of a CPU, but not marked held.
    let current = |pool: &Pool, others: &Cpus| {
        pool.here().current.iter().for_each(|current| {
            if current.get().is_some() {
                let other = others.here().current.iter().next().expect("a band");
                other.set(current.get());
            }
        });
        pool.blocks.return_current(others);
    };
    assert!(!is_sound(true, &current));
}
