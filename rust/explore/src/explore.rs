// SPDX-License-Identifier: GPL-2.0

//! Runs a few threads under thousands of schedules. A scheduler (shuttle) chooses the next thread at
//! accesses to atomics and at locks, and each query of the CPU number returns another CPU.
//!
//! Shuttle is sequentially consistent; the litmus tests (docs/litmus) cover barriers.
//! `VMAP_RUST_SCHEDULES` is the number of schedules of each kind, 300 by default.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::fixtures::World,
    load::{
        Load,
        Mine, //
    },
    policy::space::Request,
    state::block, //
};
use shuttle::{
    rand::Rng,
    scheduler::{
        PctScheduler,
        RandomScheduler, //
    },
    thread,
    Config,
    Runner, //
};
use std::{
    ops::Deref,
    sync::Arc, //
};

/// Start of the space, not aligned to a block.
const START: usize = 31 * block::SIZE + PAGE_SIZE;
/// Pages in a space with room for two fine blocks.
const SMALL: usize = 3 * block::SIZE / PAGE_SIZE - 1;
/// Pages in a space with room for coarse blocks.
const LARGE: usize = 66 * block::COARSE_SIZE / PAGE_SIZE;

/// The space that the threads share.
struct Shared {
    load: Load,
    /// Whether there can be blocks.
    has_blocks: bool,
}

impl Deref for Shared {
    type Target = Load;

    fn deref(&self) -> &Load {
        &self.load
    }
}

impl Shared {
    /// Creates a space of `pages` pages, in which blocks are at most as large as `blocks` fine ones.
    fn new(pages: usize, blocks: usize) -> Arc<Self> {
        let window = Span::with_size(START, pages * PAGE_SIZE).expect("not empty");
        let world = World {
            has_shadow: false,
            ..World::new(window).blocks(blocks)
        };
        Arc::new(Self {
            load: Load::new(world),
            has_blocks: blocks > 0,
        })
    }

    fn alloc(&self, pages: usize) -> Option<Mine> {
        let home = self.space().home();
        self.load.alloc(&Request::bytes(home, pages * PAGE_SIZE))
    }

    /// Retires an area, or releases it as never mapped if `release`.
    fn free(&self, mine: Mine, release: bool) {
        self.load.free(mine, mine.span.last(), release);
    }

    /// Checks after all threads that nothing is left, and that there is room for blocks again: no band has forgotten to
    /// ask for it.
    fn end(&self) {
        self.load.end();
        for pages in [1, 5, 9, 20, 32] {
            let before = self.space().counters().block_new;
            let mine = self.alloc(pages).expect("there is room");
            let new = self.space().counters().block_new - before;
            assert_eq!(new, usize::from(self.has_blocks), "blocks of {pages} pages");
            self.free(mine, true);
            self.purge(true);
        }
    }
}

/// Runs `threads` under many schedules, in a space of `pages` pages with blocks at most as large as `blocks`
/// fine ones.
fn explore(pages: usize, blocks: usize, threads: &'static [fn(&Shared)]) {
    explore_after(|_| (), pages, blocks, threads);
}

/// As [`explore`], after `first` has run alone.
fn explore_after(first: fn(&Shared), pages: usize, blocks: usize, threads: &'static [fn(&Shared)]) {
    let schedules = std::env::var("VMAP_RUST_SCHEDULES").map_or(300, |number| {
        number.parse().expect("VMAP_RUST_SCHEDULES is a number")
    });
    kernel::sync::schedule_with(crate::cpu::schedule);
    let run = move || {
        let shared = Shared::new(pages, blocks);
        first(&shared);
        let running: Vec<_> = threads
            .iter()
            .map(|&what| {
                let shared = shared.clone();
                thread::spawn(move || what(&shared))
            })
            .collect();
        for thread in running {
            thread.join().expect("no thread panics");
        }
        shared.end();
    };
    let mut config = Config::new();
    // The default is too little for the checker in a build without optimization.
    config.stack_size = 1 << 17;
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(run);
    // PCT with depth 3 finds bugs that need three ordered points.
    Runner::new(PctScheduler::new(3, schedules), config).run(run);
}

/// Allocates and frees areas of several sizes.
fn churn(shared: &Shared) {
    churn_of(shared, [1, 2, 5, 32]);
}

/// Allocates and frees areas of several fine bands and of coarse blocks.
fn churn_all(shared: &Shared) {
    churn_of(shared, [1, 9, 20, 600]);
}

fn churn_of(shared: &Shared, sizes: [usize; 4]) {
    let mut held = None;
    for _ in 0..3 {
        let pages = sizes[shuttle::rand::thread_rng().gen_range(0..4)];
        if let Some(mine) = held.take() {
            shared.free(mine, pages == 5);
        }
        held = shared.alloc(pages);
    }
    if let Some(mine) = held {
        shared.free(mine, false);
    }
}

/// Allocates areas that fill a block: two such threads run out of room.
fn fill(shared: &Shared) {
    let all: Vec<_> = (0..9).filter_map(|_| shared.alloc(32)).collect();
    for mine in all {
        shared.free(mine, false);
    }
}

/// Fills a block with the largest areas of its kind, and frees all of them: a purge of them is representative,
/// and leaves the dirty bits.
fn fill_block(shared: &Shared) {
    let all: Vec<_> = (0..16).filter_map(|_| shared.alloc(32)).collect();
    for mine in all {
        shared.free(mine, false);
    }
}

/// Makes two blocks current, one empty and one with room, and lets them become idle.
fn age_two_blocks(shared: &Shared) {
    let mine = shared.alloc(1).expect("there is room");
    for _ in 0..10 {
        fill_block(shared);
        shared.purge(false);
    }
    shared.free(mine, false);
    assert_eq!(shared.space().blocks().live, 2);
}

/// Allocates small areas, as from a block that was current for long.
fn small(shared: &Shared) {
    for _ in 0..3 {
        if let Some(mine) = shared.alloc(1) {
            shared.free(mine, false);
        }
    }
}

/// Leaves an empty block as the current one of a CPU.
fn one_empty_block(shared: &Shared) {
    let mine = shared.alloc(1).expect("there is room");
    shared.free(mine, true);
}

/// Allocates areas that empty their block again at once.
fn release(shared: &Shared) {
    for _ in 0..3 {
        if let Some(mine) = shared.alloc(1) {
            shared.free(mine, true);
        }
    }
}

/// Removes empty blocks.
fn reclaim(shared: &Shared) {
    for _ in 0..3 {
        shared.space().drain_for_reclaim(usize::MAX);
    }
}

/// Asks for a block of another band, for which there is no room before idle blocks are taken back.
fn other_band(shared: &Shared) {
    for pages in [9, 20] {
        if let Some(mine) = shared.alloc(pages) {
            shared.free(mine, false);
        }
    }
}

/// Allocates an area that leaves no room for a block, and frees it.
fn in_the_way(shared: &Shared) {
    if let Some(mine) = shared.alloc(2 * block::SIZE / PAGE_SIZE) {
        shared.free(mine, false);
        shared.purge(true);
    }
}

/// Allocates areas in three fine blocks, and empties all of them.
fn three_blocks(shared: &Shared) {
    let all = [1, 9, 20].map(|pages| shared.alloc(pages));
    for (index, mine) in all.into_iter().flatten().enumerate() {
        shared.free(mine, index > 0);
    }
}

/// Allocates areas of a coarse block that span two entries of the directory.
fn large(shared: &Shared) {
    for _ in 0..2 {
        if let Some(mine) = shared.alloc(600) {
            shared.free(mine, false);
        }
    }
}

/// Drains empty blocks, and allocates large areas in their place.
fn replace_blocks(shared: &Shared) {
    for _ in 0..2 {
        shared.space().drain_for_reclaim(usize::MAX);
        if let Some(mine) = shared.alloc(600) {
            shared.free(mine, false);
        }
        shared.purge(false);
    }
}

fn purge(shared: &Shared) {
    for _ in 0..2 {
        shared.purge(false);
    }
}

fn drain(shared: &Shared) {
    shared.purge(true);
    shared.space().drain_for_reclaim(usize::MAX);
}

fn read(shared: &Shared) {
    let mut addr = 0;
    for _ in 0..2 {
        shared.read(addr, false);
        shared.read(block::SIZE * 32, true);
        addr = 32 * block::SIZE;
    }
}

/// No page has two owners, none is reused before its flush, none is forgotten.
#[test]
fn retire_and_purge() {
    explore(SMALL, 2, &[churn, churn, purge]);
}

/// Blocks are filled, stolen from, drained and reserved again.
#[test]
fn refill_and_drain() {
    explore(SMALL, 1, &[fill, fill, drain]);
}

/// An empty block is drained while another CPU still allocates from it.
#[test]
fn drain_and_allocate() {
    explore(SMALL, 2, &[churn, churn, drain, purge]);
}

/// A pinned area does not change, and no reader finds an area half prepared or half unlinked.
#[test]
fn pin_and_unlink() {
    explore(SMALL, 2, &[churn, churn, read]);
}

/// A pinned area in the tree does not change.
#[test]
fn pin_and_unlink_in_the_tree() {
    explore(SMALL, 0, &[churn, churn, read, purge]);
}

/// Coarse blocks replace fine ones while other CPUs still have stale indices of these.
#[test]
fn coarse_blocks_replace_fine_ones() {
    explore(LARGE, 64, &[churn_all, churn_all, drain, purge]);
    explore(LARGE, 64, &[three_blocks, replace_blocks]);
}

/// A coarse block replaces another while a CPU still has the stale index of that.
#[test]
fn a_coarse_block_replaces_another() {
    explore(LARGE, 64, &[large, replace_blocks]);
}

/// A purge leaves the dirty bits of blocks, and the next one clears them.
#[test]
fn retire_and_large_purge() {
    explore(SMALL, 2, &[fill_block, churn, purge]);
}

/// Idle blocks are taken from a CPU that still allocates from them.
#[test]
fn idle_blocks_are_taken_while_they_are_used() {
    explore_after(age_two_blocks, SMALL, 2, &[small, other_band, purge]);
}

/// Empty blocks are removed while a CPU allocates from them.
#[test]
fn empty_blocks_are_removed_while_they_are_used() {
    explore_after(one_empty_block, SMALL, 2, &[release, reclaim]);
}

/// A block of a lower band is stolen from a CPU that still allocates from it.
#[test]
fn a_block_is_stolen_while_it_is_used() {
    explore(SMALL, 1, &[small, fill, other_band]);
}

/// A request finds no room for a block while the range that was in the way is given back.
#[test]
fn no_room_and_give_back() {
    explore(SMALL, 2, &[in_the_way, small, other_band]);
}
