// SPDX-License-Identifier: GPL-2.0

//! Tests of the pool of blocks alone: its counts, the choice of the next block, and how many empty blocks a
//! purge keeps.

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
        model::Random, //
    },
    cpu,
    policy::{
        blocks::{
            BlockCensus,
            Blocks,
            Room,
            IDLE_EPOCHS, //
        },
        percpu::{
            Cpu,
            Cpus, //
        }, //
    },
    state::{
        area::{
            Area,
            Attributes,
            Unlinked, //
        },
        block::{
            Block,
            Small,
            COARSE_PAGES,
            COARSE_SIZE,
            MAX_UNITS,
            SIZE, //
        },
        flush::Plan,
        pins::Pins, //
    },
    sys::{
        grace::{
            GraceBox,
            Guard, //
        },
        mm, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};
use std::panic::{
    catch_unwind,
    AssertUnwindSafe, //
};

/// Fine blocks that fit: enough for coarse blocks, and for more than one part of the directory.
const BLOCKS: usize = 2 * 64 * (COARSE_SIZE / SIZE);

/// Areas of one page that fit in a fine block; each reserves two units.
const AREAS: usize = SIZE / PAGE_SIZE / 2;

struct Pool {
    blocks: Blocks,
    cpus: Cpus,
    pins: Pins,
}

impl Pool {
    /// Creates a pool whose blocks are at most as large as `limit` fine ones.
    fn new(limit: usize) -> Self {
        let home = Span::with_size(COARSE_SIZE, BLOCKS * SIZE).expect("not empty");
        Self {
            blocks: Blocks::new(home, Some(limit)).expect("memory"),
            cpus: Cpus::new().expect("memory"),
            pins: Pins::new().expect("memory"),
        }
    }

    fn small(&self, pages: usize) -> Small {
        let small = self.blocks.small(pages * PAGE_SIZE, 1);
        small.expect("small")
    }

    fn here(&self) -> &Cpu {
        self.cpus.here()
    }

    /// Returns the first address of block `index`.
    fn start_of(&self, index: usize) -> usize {
        self.blocks.window().expect("a range").first() + index * SIZE
    }

    /// Creates block `index` as the current block of a CPU of `cpus`, with an area of `pages` pages at its start.
    fn add(&self, cpus: &Cpus, index: usize, pages: usize) {
        let small = self.small(pages);
        let start = self.start_of(index);
        assert!(self.blocks.reserve(small.block_size(), 0));
        self.blocks.prepare(start, GFP_KERNEL).expect("memory");
        let mut block = Block::new(small.band(), false, GFP_KERNEL).expect("memory");
        block.place(start);
        let block = GraceBox::new(block, GFP_KERNEL).expect("memory");
        let area = self.blocks.adopt(cpus, block, small, &Attributes::NONE);
        assert!(matches!(area, Ok(Some(_))));
    }

    /// Creates blocks `indices` in the pool, each with room for only one area of one page, at its end.
    fn add_almost_full(&self, indices: core::ops::Range<usize>) {
        for index in indices {
            self.add(&self.cpus, index, 1);
            for _ in 1..AREAS {
                assert!(self.alloc(1));
            }
            let last = self.start_of(index + 1) - 2 * PAGE_SIZE;
            self.blocks.release(&self.cpus, self.unlink(last));
        }
        self.blocks.return_current(&self.cpus);
    }

    /// Allocates from the current block.
    fn alloc(&self, pages: usize) -> bool {
        let area = self.blocks.alloc(
            &self.cpus,
            self.here(),
            self.small(pages),
            &Attributes::NONE,
        );
        area.is_some()
    }

    /// Allocates from another block of the pool.
    fn refill(&self, pages: usize) -> bool {
        let area = self
            .blocks
            .refill(&self.cpus, self.small(pages), &Attributes::NONE);
        area.is_some()
    }

    fn unlink(&self, addr: usize) -> Area<Unlinked> {
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

    fn has_busy(&self, index: usize) -> bool {
        let block = Span::with_size(self.start_of(index), SIZE).expect("not empty");
        self.blocks.next_busy(block, block.first()).is_some()
    }

    /// Puts all current blocks into the pool, and frees all areas in blocks `indices`.
    fn empty_all(&self, indices: core::ops::Range<usize>) {
        self.blocks.return_current(&self.cpus);
        for index in indices {
            while self.has_busy(index) {
                let block = Span::with_size(self.start_of(index), SIZE).expect("not empty");
                let (_, seen) = self.blocks.next_busy(block, 0).expect("busy");
                self.blocks
                    .release(&self.cpus, self.unlink(seen.span().first()));
            }
        }
    }

    /// Returns the empty blocks that a purge removes, in the order of removal.
    fn take_empty(&self, all: bool) -> Vec<usize> {
        let taken = core::iter::from_fn(|| {
            let removed = self.blocks.take_empty(&self.cpus, all)?;
            Some((removed.span().expect("a range").first() - self.start_of(0)) / SIZE)
        });
        taken.collect()
    }

    fn census(&self) -> (usize, usize, usize) {
        let BlockCensus {
            live,
            partial,
            empty,
        } = self.blocks.census();
        assert_eq!(self.blocks.empty(), empty);
        (live, partial, empty)
    }

    /// Returns whether `validate()` finds no error. On the build host an error is a panic.
    fn is_sound(&self, cpus: &Cpus, quiet: bool) -> bool {
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

/// A refill searches at most eight blocks, and the next refill continues behind them. After a success, the
/// lowest block comes first again. What was searched for in vain is remembered until there is new room.
#[test]
fn a_refill_continues_where_the_last_one_stopped() {
    const ALMOST_FULL: usize = 20;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    pool.add(&pool.cpus, 700, 1);
    pool.blocks.return_current(&pool.cpus);
    assert_eq!(pool.census(), (ALMOST_FULL + 1, ALMOST_FULL + 1, 0));
    // An area of the same band, but larger than the room in each block.
    assert!(!pool.alloc(3));
    for _ in 0..3 {
        assert!(!pool.refill(3));
    }
    assert!(pool.refill(3));
    assert_eq!(pool.census(), (ALMOST_FULL + 1, ALMOST_FULL, 0));
    pool.blocks.return_current(&pool.cpus);
    pool.blocks
        .release(&pool.cpus, pool.unlink(pool.start_of(0)));
    // The freed area is the lowest of the lowest block, so it is used first.
    assert!(pool.refill(1));
    assert!(pool.has_busy(0));
    let block = Span::with_size(pool.start_of(0), SIZE).expect("not empty");
    let (_, seen) = pool.blocks.next_busy(block, 0).expect("busy");
    assert_eq!(seen.span().first(), pool.start_of(0));
    pool.empty_all(0..701);
}

/// A block in which a refill found no room is searched again for less, and for as much only
/// once there is new room in it.
#[test]
fn a_lack_of_room_is_forgotten_when_there_is_room() {
    let pool = Pool::new(100);
    pool.add_almost_full(0..1);
    assert!(!pool.refill(3));
    assert!(!pool.refill(3));
    // Two pages less: with the last one, there is room for three.
    let before_last = pool.start_of(1) - 4 * PAGE_SIZE;
    pool.blocks.release(&pool.cpus, pool.unlink(before_last));
    assert!(pool.refill(3));
    pool.blocks.return_current(&pool.cpus);
    assert!(!pool.refill(3));
    pool.empty_all(0..1);
    assert!(pool.refill(3));
    pool.empty_all(0..1);
}

#[test]
fn a_steal_tries_all_blocks() {
    const ALMOST_FULL: usize = 20;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    let other = pool
        .cpus
        .iter()
        .find(|cpu| !core::ptr::eq(*cpu, pool.here()));
    let other = other.expect("two CPUs");
    pool.add(&pool.cpus, ALMOST_FULL, 1);
    // The current block of another CPU.
    for (here, there) in pool.here().current.iter().zip(other.current.iter()) {
        there.store(here.xchg(0, Relaxed), Relaxed);
    }
    let small = pool.small(3);
    let stolen = pool.blocks.steal(&pool.cpus, small, &Attributes::NONE);
    assert!(stolen.is_some());
    assert_eq!(pool.census(), (ALMOST_FULL + 1, ALMOST_FULL, 0));
    pool.empty_all(0..ALMOST_FULL + 1);
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
        pool.blocks
            .release(&pool.cpus, pool.unlink(pool.start_of(0)));
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
    let snapshot = pool.blocks.snapshot(&pool.cpus, &mut plan);
    assert_eq!(plan.areas(), all);
    assert_eq!(snapshot.is_representative(), 2 * all >= SIZE / PAGE_SIZE);
    assert_eq!(pool.blocks.lazy_pages(), 2 * all);
    assert_eq!(retire(all), 0);
    assert_eq!(pool.blocks.lazy_pages(), 2 * all + 2);
    let flush = plan.run(&FlushLog::new().expect("memory"));
    pool.blocks.free(&pool.cpus, snapshot, &flush);
    assert_eq!(pool.blocks.lazy_pages(), 2);
    pool.empty_all(0..1);
}

/// Calls `what` on another CPU.
fn on_another_cpu(what: impl Fn() + Sync) {
    let here = mm::cpu_hint();
    let try_once = || {
        let is_elsewhere = mm::cpu_hint() != here;
        if is_elsewhere {
            what();
        }
        is_elsewhere
    };
    // Each new thread is on the next CPU.
    std::thread::scope(|scope| while !scope.spawn(try_once).join().expect("no panic") {});
}

/// Also if a refill before has passed over all of them, because their owner used them lately.
#[test]
fn blocks_of_other_cpus_are_taken_if_there_is_no_other_room() {
    // As many as a refill tries.
    const ALMOST_FULL: usize = 8;
    let pool = Pool::new(100);
    on_another_cpu(|| pool.add_almost_full(0..ALMOST_FULL));
    assert!(!pool.refill(1));
    let small = pool.small(1);
    let taken = pool
        .blocks
        .take_anyones(&pool.cpus, small, &Attributes::NONE, None);
    assert!(taken.is_some());
    assert_eq!(pool.census(), (ALMOST_FULL, ALMOST_FULL - 1, 0));
    pool.empty_all(0..ALMOST_FULL);
}

/// A CPU takes its own former blocks, lowest first, and not one that another CPU has taken since, or that was
/// freed.
#[test]
fn a_cpu_takes_its_former_blocks_again() {
    const ALMOST_FULL: usize = 6;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    let take = || {
        let small = pool.small(1);
        let taken = pool
            .blocks
            .take_anyones(&pool.cpus, small, &Attributes::NONE, None);
        assert!(taken.is_some());
    };
    // Block 0 becomes the current block of another CPU, and block 1 another block.
    on_another_cpu(take);
    let first = pool.start_of(1);
    for unit in (0..UNITS - 2).step_by(2) {
        pool.blocks
            .release(&pool.cpus, pool.unlink(first + unit * PAGE_SIZE));
    }
    assert_eq!(pool.take_empty(true), [1]);
    pool.add(&pool.cpus, 1, 9);
    assert!(pool.refill(1));
    assert!(pool
        .here()
        .current
        .iter()
        .any(|current| current.load(Relaxed) == 2 + 1));
    assert!(pool.is_sound(&pool.cpus, true));
    pool.empty_all(0..ALMOST_FULL);
}

/// Searches all blocks of a band in vain, for lack of room for a new one.
fn search_in_vain(pool: &Pool, small: Small, room: Room) {
    let found = pool
        .blocks
        .take_anyones(&pool.cpus, small, &Attributes::NONE, Some(room));
    assert!(found.is_none());
}

/// A search that found no room is not repeated before there may be room for it.
#[test]
fn a_search_without_room_is_remembered_for_its_band() {
    let pool = Pool::new(1);
    let [small, other] = [1, 9].map(|pages| pool.small(pages));
    let may_have_room = |small| pool.blocks.may_have_room(small).is_some();
    let search = |small| {
        let room = pool
            .blocks
            .may_have_room(small)
            .expect("not remembered yet");
        search_in_vain(&pool, small, room);
    };
    search(small);
    assert!(!may_have_room(small) && may_have_room(other));
    // What made room after the request began is not forgotten.
    let before = pool
        .blocks
        .may_have_room(other)
        .expect("not remembered yet");
    pool.blocks.note_room();
    search_in_vain(&pool, other, before);
    assert!(may_have_room(small) && may_have_room(other));

    // A block that was reserved and not made, while another request was refused.
    assert!(pool.blocks.reserve(SIZE, 0) && !pool.blocks.reserve(SIZE, 0));
    search(small);
    pool.blocks.unreserve(SIZE);
    assert!(may_have_room(small));
    // The request that undoes its own reservation may note that there is no room.
    assert!(pool.blocks.reserve(SIZE, 0));
    search(small);
    pool.blocks.unreserve(SIZE);
    assert!(!may_have_room(small));

    // A block with room, an empty block, and one that is freed.
    pool.blocks.note_room();
    pool.add(&pool.cpus, 0, 1);
    search(small);
    pool.blocks.return_current(&pool.cpus);
    assert!(may_have_room(small));
    search(other);
    pool.empty_all(0..1);
    assert!(may_have_room(other));
    search(other);
    assert_eq!(pool.take_empty(true), [0]);
    assert!(may_have_room(other));
}

/// A search over many blocks goes on in several requests. Room that was made behind it is not hidden.
#[test]
fn room_behind_a_search_is_found_later() {
    const ALMOST_FULL: usize = 10;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    // An area of the same band, but larger than the room in each block.
    let small = pool.small(3);
    let room = || pool.blocks.may_have_room(small).expect("not remembered");
    search_in_vain(&pool, small, room());
    let start = pool.start_of(0);
    for addr in [start, start + 2 * PAGE_SIZE] {
        pool.blocks.release(&pool.cpus, pool.unlink(addr));
    }
    search_in_vain(&pool, small, room());
    let found = pool
        .blocks
        .take_anyones(&pool.cpus, small, &Attributes::NONE, Some(room()));
    assert!(found.is_some());
    // Without new room, the end of the search is remembered.
    search_in_vain(&pool, small, room());
    assert!(pool.blocks.may_have_room(small).is_none());
    pool.empty_all(0..ALMOST_FULL);
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
        let snapshot = pool.blocks.snapshot(&pool.cpus, &mut plan);
        assert!((1..=2).contains(&plan.areas()), "{} areas", plan.areas());
        let flush = plan.run(&FlushLog::new().expect("memory"));
        pool.blocks.free(&pool.cpus, snapshot, &flush);
        assert!(pool.alloc(1));
    }
    pool.empty_all(0..1);
}

/// CPUs take idle blocks of their NUMA node, and those of another only for lack of room for a new one.
#[test]
fn idle_blocks_stay_on_their_node() {
    const CPUS: usize = 4;
    mm::set_cpus_per_node(CPUS / 2);
    cpu::be_on(1, CPUS);
    let pool = Pool::new(100);
    pool.add(&pool.cpus, 0, 1);
    pool.blocks.return_current(&pool.cpus);
    // Not yet idle: not even for the other CPU of the node.
    cpu::be_on(0, CPUS);
    assert!(!pool.refill(1));
    for _ in 0..=IDLE_EPOCHS {
        pool.blocks.end_purge(true);
    }
    for other in [2, 3] {
        cpu::be_on(other, CPUS);
        assert!(!pool.refill(1), "CPU {other} took a block of another node");
    }
    cpu::be_on(0, CPUS);
    assert!(pool.refill(1));
    pool.blocks.return_current(&pool.cpus);
    cpu::be_on(3, CPUS);
    let (small, none) = (pool.small(1), &Attributes::NONE);
    assert!(!pool.refill(1));
    let area = pool.blocks.take_anyones(&pool.cpus, small, none, None);
    assert!(area.is_some());
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
            // Relaxed: there is only one thread.
            if current.load(Relaxed) != 0 {
                let other = others.here().current.first().expect("a band");
                other.store(current.load(Relaxed), Relaxed);
            }
        });
        pool.blocks.return_current(others);
    };
    assert!(!is_sound(true, &current));
}
