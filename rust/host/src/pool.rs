// SPDX-License-Identifier: GPL-2.0

//! The pool of blocks by itself: what it counts, which block is taken next, and how many empty ones stay.

use crate::{
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
    blocks::{
        BlockCensus,
        Blocks, //
    },
    flush::Plan,
    grace::{
        GraceBox,
        Guard, //
    },
    mm,
    model::Random,
    percpu::{
        Cpu,
        Cpus, //
    },
    pins::Pins,
    range::{
        Span,
        PAGE_SIZE, //
    },
    trace::FlushLog,
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};
use std::panic::{
    catch_unwind,
    AssertUnwindSafe, //
};

/// Room for coarse blocks, and for more blocks than one part of the directory has.
const BLOCKS: usize = 2 * 64 * (COARSE_SIZE / SIZE);

/// Units of a block in areas of one page.
const AREAS: usize = SIZE / PAGE_SIZE / 2;

struct Pool {
    blocks: Blocks,
    cpus: Cpus,
    pins: Pins,
}

impl Pool {
    /// At most as many blocks as `limit` fine ones.
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
        self.cpus.iter().next().expect("a CPU")
    }

    /// Where block `index` is.
    fn start_of(&self, index: usize) -> usize {
        self.blocks.window().expect("a range").first() + index * SIZE
    }

    /// Makes block `index` the current one of a CPU, with an area of `pages` pages at its start.
    fn add(&self, cpu: &Cpu, index: usize, pages: usize) {
        let small = self.small(pages);
        let start = self.start_of(index);
        assert!(self.blocks.reserve(small.block_size()));
        self.blocks.prepare(start, GFP_KERNEL).expect("memory");
        let mut block = Block::new(small.band(), false, GFP_KERNEL).expect("memory");
        block.place(start);
        let block = GraceBox::new(block, GFP_KERNEL).expect("memory");
        let area = self.blocks.adopt(cpu, block, small, &Attributes::NONE);
        assert!(matches!(area, Ok(Some(_))));
    }

    /// Blocks `indices`, each full but for the area of a page at its end, in the pool.
    fn add_almost_full(&self, indices: core::ops::Range<usize>) {
        for index in indices {
            self.add(self.here(), index, 1);
            for _ in 1..AREAS {
                assert!(self.alloc(1));
            }
            let last = self.start_of(index + 1) - 2 * PAGE_SIZE;
            self.blocks.release(self.unlink(last));
        }
        self.blocks.put_current(&self.cpus);
    }

    /// Allocates from the current block.
    fn alloc(&self, pages: usize) -> bool {
        let area = self
            .blocks
            .alloc(self.here(), self.small(pages), &Attributes::NONE);
        area.is_some()
    }

    /// Allocates from another block of the pool.
    fn refill(&self, pages: usize) -> bool {
        let area = self
            .blocks
            .refill(self.here(), self.small(pages), &Attributes::NONE);
        area.is_some()
    }

    fn unlink(&self, addr: usize) -> Area<Unlinked> {
        let unlinked = self.blocks.unlink(addr, &Guard::new());
        let Ok(Some(area)) = unlinked else {
            panic!("no area at {addr:#x}");
        };
        self.pins.wait_for_readers(area)
    }

    /// Frees the area at `addr`. About how many pages are lazy then.
    fn retire(&self, addr: usize) -> usize {
        self.blocks.retire(self.here(), self.unlink(addr))
    }

    fn has_busy(&self, index: usize) -> bool {
        let block = Span::with_size(self.start_of(index), SIZE).expect("not empty");
        self.blocks.next_busy(block, block.first()).is_some()
    }

    /// Frees what is in blocks `indices` and lets no CPU have a current one.
    fn empty_all(&self, indices: core::ops::Range<usize>) {
        self.blocks.put_current(&self.cpus);
        for index in indices {
            while self.has_busy(index) {
                let block = Span::with_size(self.start_of(index), SIZE).expect("not empty");
                let (_, seen) = self.blocks.next_busy(block, 0).expect("busy");
                self.blocks.release(self.unlink(seen.span().first()));
            }
        }
    }

    /// What a purge takes out, from the first on.
    fn take_empty(&self, all: bool) -> Vec<usize> {
        let taken = core::iter::from_fn(|| {
            let removed = self.blocks.take_empty(all)?;
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

    /// Here a refusal is a panic.
    fn is_sound(&self, cpus: &Cpus, quiet: bool) -> bool {
        let validate = || self.blocks.validate(cpus, quiet).is_ok();
        catch_unwind(AssertUnwindSafe(validate)).unwrap_or(false)
    }
}

/// Fine and coarse blocks have so many bytes in all, coarse ones half of these, or one block.
#[test]
fn what_is_reserved_is_limited() {
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
                assert_eq!(pool.blocks.reserve(bytes), has_room);
                if has_room {
                    there.push(bytes);
                }
            }
            assert_eq!(pool.census(), (there.len(), 0, 0));
        }
    }
}

/// Blocks without enough room are looked at eight at a time, and each time the next ones; once one has
/// room, the lowest come first again.
#[test]
fn a_search_for_room_goes_on_where_it_was() {
    const ALMOST_FULL: usize = 20;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    pool.add(pool.here(), 700, 1);
    pool.blocks.put_current(&pool.cpus);
    assert_eq!(pool.census(), (ALMOST_FULL + 1, ALMOST_FULL + 1, 0));
    // Of the same band, but larger than the room in each.
    assert!(!pool.alloc(3));
    assert!(!pool.refill(3));
    assert!(!pool.refill(3));
    assert!(pool.refill(3));
    assert_eq!(pool.census(), (ALMOST_FULL + 1, ALMOST_FULL, 0));
    pool.blocks.put_current(&pool.cpus);
    pool.blocks.release(pool.unlink(pool.start_of(0)));
    // The area there is the lowest one of the lowest block.
    assert!(pool.refill(1));
    assert!(pool.has_busy(0));
    let block = Span::with_size(pool.start_of(0), SIZE).expect("not empty");
    let (_, seen) = pool.blocks.next_busy(block, 0).expect("busy");
    assert_eq!(seen.span().first(), pool.start_of(0));
    pool.empty_all(0..701);
}

/// When there can be no new block, all are looked at.
#[test]
fn who_steals_looks_at_all_blocks() {
    const ALMOST_FULL: usize = 20;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    let other = pool.cpus.iter().nth(1).expect("two CPUs");
    pool.add(other, ALMOST_FULL, 1);
    let small = pool.small(3);
    let stolen = pool.blocks.steal(&pool.cpus, small, &Attributes::NONE);
    assert!(stolen.is_some());
    assert_eq!(pool.census(), (ALMOST_FULL + 1, ALMOST_FULL, 0));
    pool.empty_all(0..ALMOST_FULL + 1);
}

/// A block is in the pool when no CPU has it; it has room for its band or not, and is empty or not.
#[test]
fn the_pool_knows_what_room_there_is() {
    for pages in [1, 2, 9, MAX_UNITS, COARSE_PAGES * 4] {
        let pool = Pool::new(100);
        pool.add(pool.here(), 0, pages);
        assert_eq!(pool.census(), (1, 0, 0));
        pool.blocks.put_current(&pool.cpus);
        assert_eq!(pool.census(), (1, 1, 0));
        assert!(pool.refill(pages));
        assert_eq!(pool.census(), (1, 0, 0));
        while pool.alloc(pages) {}
        pool.blocks.put_current(&pool.cpus);
        assert_eq!(pool.census(), (1, 0, 0));
        assert!(!pool.refill(pages));
        pool.blocks.release(pool.unlink(pool.start_of(0)));
        assert_eq!(pool.census(), (1, 1, 0));
        pool.empty_all(0..1);
        assert_eq!(pool.census(), (1, 1, 1));
        assert!(pool.refill(pages));
        assert_eq!(pool.census(), (1, 0, 0));
        pool.empty_all(0..1);
        // What is taken out can come back, and is there as before.
        let removed = pool.blocks.take_empty(true).expect("an empty block");
        assert_eq!(pool.census(), (0, 0, 0));
        pool.blocks.restore(removed);
        assert_eq!(pool.census(), (1, 1, 1));
        assert!(pool.is_sound(&pool.cpus, true));
        assert_eq!(pool.take_empty(true), [0]);
        assert!(pool.is_sound(&pool.cpus, true));
    }
}

/// A purge leaves as many empty blocks of a band as were taken since the last one, a quarter more, and
/// two, or half of what it left then; the highest go first. One that is not telling leaves as many as before.
#[test]
fn so_many_empty_blocks_stay() {
    const TAKEN: usize = 12;
    let pool = Pool::new(100);
    for index in 0..TAKEN {
        pool.add(pool.here(), index, 5);
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

/// A CPU counts 64 lazy pages for itself, fewer if there are so many CPUs that 8 MiB would not be counted,
/// before it adds them to the count of all. Block by block each unit is counted.
#[test]
fn lazy_pages_are_counted_in_batches() {
    let batch = ((8 << 20) / PAGE_SIZE / mm::cpu_count()).min(64);
    assert!(batch > 1);
    let pool = Pool::new(100);
    pool.add(pool.here(), 0, 1);
    while pool.alloc(1) {}
    let mut known = 0;
    let retire = |count: usize| {
        let addr = pool.start_of(0) + 2 * count * PAGE_SIZE;
        pool.retire(addr)
    };
    for count in 0..2 * batch {
        if (count + 1) % batch == 0 {
            known += batch;
        }
        assert_eq!(retire(count), known);
        assert_eq!(pool.blocks.lazy_pages(), 2 * (count + 1));
    }
    let mut plan = Plan::new();
    let snapshot = pool.blocks.snapshot(&mut plan);
    assert_eq!(plan.areas(), 2 * batch);
    assert_eq!(snapshot.is_telling(), 4 * batch >= SIZE / PAGE_SIZE);
    assert_eq!(pool.blocks.lazy_pages(), 4 * batch);
    assert_eq!(retire(2 * batch), 0);
    assert_eq!(pool.blocks.lazy_pages(), 4 * batch + 2);
    let flush = plan.run(&FlushLog::new().expect("memory"));
    pool.blocks.free(snapshot, &flush);
    assert_eq!(pool.blocks.lazy_pages(), 2);
    pool.empty_all(0..1);
}

/// Each number that the pool has is compared with what is there.
#[test]
fn a_pool_that_counts_wrong_is_refused() {
    // Whether `validate()` finds nothing after `what` was done, while others may take blocks in or not.
    let is_sound = |quiet: bool, what: &dyn Fn(&Pool, &Cpus)| {
        let pool = Pool::new(100);
        let others = Cpus::new().expect("memory");
        pool.add(pool.here(), 0, 1);
        assert!(pool.blocks.validate(&pool.cpus, quiet).is_ok());
        what(&pool, &others);
        let is_sound = pool.is_sound(&pool.cpus, quiet);
        // After a panic the lock is of no use.
        core::mem::forget(pool);
        is_sound
    };
    // A block more in the counts than there are; somebody may be about to take it in.
    let one_more = |pool: &Pool, _: &Cpus| assert!(pool.blocks.reserve(SIZE));
    assert!(is_sound(false, &one_more));
    assert!(!is_sound(true, &one_more));
    // As many, but of another size.
    let larger = |pool: &Pool, _: &Cpus| {
        pool.blocks.unreserve(SIZE);
        assert!(pool.blocks.reserve(COARSE_SIZE));
    };
    assert!(!is_sound(true, &larger));
    // Held, and the current one of none of these CPUs.
    let held = |pool: &Pool, others: &Cpus| pool.add(others.here(), 1, 1);
    assert!(!is_sound(true, &held));
    assert!(!is_sound(false, &held));
    // The current one of a CPU, and not held.
    let current = |pool: &Pool, others: &Cpus| {
        pool.here().current.iter().for_each(|current| {
            // Relaxed: there is one thread.
            if current.load(Relaxed) != 0 {
                let other = others.here().current.first().expect("a band");
                other.store(current.load(Relaxed), Relaxed);
            }
        });
        pool.blocks.put_current(others);
    };
    assert!(!is_sound(true, &current));
}
