// SPDX-License-Identifier: GPL-2.0

//! Runs a few threads under thousands of schedules. A scheduler (shuttle) chooses the next thread at
//! accesses to atomics and at locks, and each query of the CPU number returns another CPU.
//!
//! Shuttle is sequentially consistent; the litmus tests (docs/litmus) cover barriers.
//! `VMAP_RUST_SCHEDULES` is the number of schedules of each kind, 300 by default.

use crate::{
    base::range::{Member, Span, PAGE_SIZE},
    check::fixtures::{publish, World},
    load::{Load, Mine},
    policy::Request,
    state::class::{SIZE, TABLE_PAGES},
    sys::mm::{self, Gfp},
};
use shuttle::{
    rand::Rng,
    scheduler::{PctScheduler, RandomScheduler},
    thread, Config, Runner,
};
use std::{ops::Deref, sync::Arc};

/// Where blocks begin in all spaces.
const BLOCKS: usize = 512 * SIZE;
/// With this limit, in blocks of the smallest size, each CPU has current blocks of its own.
const OWN: usize = 4096;

/// A space: it has `below` pages below [`BLOCKS`], room for `pages` pages of blocks, and a page more.
#[derive(Clone, Copy)]
struct Room {
    below: usize,
    pages: usize,
    /// The limit of all blocks, in blocks of the smallest size.
    limit: usize,
}

const fn room(below: usize, pages: usize, limit: usize) -> Room {
    Room {
        below,
        pages,
        limit,
    }
}

/// Room for two of the smallest blocks, and as much that is not theirs.
const SMALL: Room = room(TABLE_PAGES - 1, 2 * TABLE_PAGES, OWN);
/// The same, but both CPUs share each.
const SHARED_SMALL: Room = room(TABLE_PAGES - 1, 2 * TABLE_PAGES, 2);
/// Both CPUs share the only block.
const SHARED: Room = room(TABLE_PAGES - 1, 2 * TABLE_PAGES, 1);
/// Only the tree serves requests.
const TREE: Room = room(TABLE_PAGES - 1, 2 * TABLE_PAGES, 0);
/// Room for one block, and hardly more.
const TIGHT: Room = room(64, TABLE_PAGES, OWN);
/// Room for one block of 64 MiB, or for small ones instead.
const LARGE: Room = room(TABLE_PAGES - 1, 32 * TABLE_PAGES, OWN);
/// Room for one block that fills a part of the directory, or for small ones instead.
const WHOLE: Room = room(TABLE_PAGES - 1, 512 * TABLE_PAGES, OWN);

/// The space that the threads share.
struct Shared {
    load: Load,
    room: Room,
    /// Areas of the first step that are left. No scheduler switches threads at this lock.
    held: std::sync::Mutex<Vec<Mine>>,
}

impl Deref for Shared {
    type Target = Load;

    fn deref(&self) -> &Load {
        &self.load
    }
}

impl Shared {
    fn new(room: Room) -> Arc<Self> {
        let start = BLOCKS - room.below * PAGE_SIZE;
        let window = Span::with_size(start, (room.below + room.pages + 1) * PAGE_SIZE);
        let world = World {
            has_shadow: false,
            ..World::new(window.expect("not empty")).blocks(room.limit)
        };
        Arc::new(Self {
            load: Load::new(world),
            room,
            held: std::sync::Mutex::default(),
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

    /// Allocates areas of these sizes, in pages, as far as there is room, and then frees all of them.
    fn together(&self, sizes: &[usize], release: bool) {
        let all: Vec<_> = sizes
            .iter()
            .filter_map(|&pages| self.alloc(pages))
            .collect();
        all.into_iter().for_each(|mine| self.free(mine, release));
    }

    /// Allocates areas of these sizes, each of which it frees before the next one.
    fn in_turn(&self, sizes: &[usize], release: bool) {
        for &pages in sizes {
            self.together(&[pages], release);
        }
    }

    /// Leaves areas of these sizes.
    fn hold(&self, sizes: &[usize]) {
        let all: Vec<_> = { sizes.iter() }
            .map(|&pages| self.alloc(pages).expect("there is room"))
            .collect();
        self.held.lock().expect("nobody panics with it").extend(all);
    }

    /// Drains empty blocks, and allocates areas of `pages` pages in their place.
    fn replace_blocks(&self, pages: usize) {
        for _ in 0..2 {
            self.space().drain_for_reclaim(usize::MAX);
            self.in_turn(&[pages], false);
            self.purge(false);
        }
    }

    fn take_held(&self) -> Option<Mine> {
        self.held.lock().expect("nobody panics with it").pop()
    }

    /// Checks after all threads that nothing is left, and that there is room for blocks again: no CPU has forgotten to
    /// say so.
    fn end(&self) {
        release_held(self);
        self.load.end();
        for pages in [1, 5, 9, 20, 32] {
            let before = self.space().counters().block_new;
            let mine = self.alloc(pages).expect("there is room");
            let new = self.space().counters().block_new - before;
            // More than one if the thread moves to another CPU.
            assert_eq!(
                new > 0,
                self.room.limit > 0,
                "{new} blocks of {pages} pages"
            );
            self.free(mine, true);
            self.purge(true);
        }
    }
}

/// Runs `threads` under many schedules, after `first` has run alone.
fn explore<const N: usize>(room: Room, first: fn(&Shared), threads: [fn(&Shared); N]) {
    let schedules = std::env::var("VMAP_RUST_SCHEDULES").map_or(300, |number| {
        number.parse().expect("VMAP_RUST_SCHEDULES is a number")
    });
    kernel::sync::schedule_with(crate::cpu::schedule);
    let run = move || {
        let shared = Shared::new(room);
        first(&shared);
        let running = threads.map(|what| {
            let shared = shared.clone();
            thread::spawn(move || what(&shared))
        });
        for thread in running {
            thread.join().expect("no thread panics");
        }
        mm::fail_nth(0);
        shared.end();
    };
    let mut config = Config::new();
    // The default is too little for the checker in a build without optimization.
    config.stack_size = 1 << 17;
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(run);
    // With this depth, PCT finds bugs that need three ordered points.
    Runner::new(PctScheduler::new(3, schedules), config).run(run);
}

/// Allocates and frees areas of several classes with small blocks; and of one with large blocks, if there is room.
fn churn(shared: &Shared) {
    let sizes = match shared.room.pages == LARGE.pages {
        true => [1, 9, 20, 600],
        false => [1, 2, 5, 32],
    };
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

/// Allocates half of the slots of a block: two such threads fill it.
fn fill_half(shared: &Shared) {
    shared.together(&[32; 9], false);
}

/// Fills the only block with a slot to spare, and leaves it so.
fn fill_but_one(shared: &Shared) {
    shared.together(&[32; 15], false);
    assert_eq!(shared.space().blocks().live, 1);
}

/// Takes two slots, the last ones of a block that is nearly full, and frees them.
fn two(shared: &Shared) {
    shared.together(&[32; 2], true);
}

/// Allocates areas of one page, and retires them.
fn small(shared: &Shared) {
    shared.in_turn(&[1; 3], false);
}

/// Allocates areas of one page, and frees them at once.
fn release_three(shared: &Shared) {
    shared.in_turn(&[1; 3], true);
}

/// Leaves an empty block as the current one of a CPU.
fn one_empty_block(shared: &Shared) {
    shared.hold(&[1]);
    release_held(shared);
}

/// Removes empty blocks.
fn reclaim(shared: &Shared) {
    for _ in 0..3 {
        shared.space().drain_for_reclaim(usize::MAX);
    }
}

/// Removes empty blocks without the memory to give their ranges back: they are put back.
fn reclaim_without_memory(shared: &Shared) {
    for _ in 0..3 {
        mm::fail_nth(1);
        shared.space().drain_for_reclaim(usize::MAX);
    }
}

/// Asks for blocks of other classes, for which there is no room as long as others have theirs.
fn other_classes(shared: &Shared) {
    shared.in_turn(&[9, 20], false);
}

/// Allocates an area that leaves no room for a block, and frees it.
fn in_the_way(shared: &Shared) {
    if let Some(mine) = shared.alloc(2 * TABLE_PAGES) {
        shared.free(mine, false);
        shared.purge(true);
    }
}

/// Leaves two free slots in the only block.
fn hold_all_but_two(shared: &Shared) {
    shared.hold(&[32; 14]);
    assert_eq!(shared.space().blocks().live, 1);
}

/// Releases all areas that are left.
fn release_held(shared: &Shared) {
    while let Some(mine) = shared.take_held() {
        shared.free(mine, true);
    }
}

/// Allocates sets of two areas at a common base, and releases them.
fn sets(shared: &Shared) {
    let space = shared.space();
    let members = [0, 1].map(|offset| Member {
        offset: 32 * offset * PAGE_SIZE,
        size: 32 * PAGE_SIZE,
    });
    for _ in 0..2 {
        let mut set = Vec::new();
        // The record of the checker knows nothing of these areas, and need not: they are never mapped.
        let _ = space.alloc_congruent(
            space.home(),
            members.into_iter(),
            PAGE_SIZE,
            Gfp::KERNEL,
            |index, area| {
                let busy = publish(index, area)?;
                set.push(busy.span());
                Some(busy)
            },
        );
        assert!(set.is_empty() || set.len() == 2 && set[0].end() == set[1].first());
        for span in set {
            let area = space.unlink(span.last()).expect("mine");
            assert_eq!(area.span(), Some(span));
            space.retire(area);
            shared.purge(false);
        }
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

/// Retires an area of one page.
fn retire(shared: &Shared) {
    shared.in_turn(&[1], false);
}

fn retire_then_purge(shared: &Shared) {
    retire(shared);
    shared.purge(false);
}

/// Looks up the address of the last area that is left. The checker compares only answers during which nothing changes.
fn look(shared: &Shared) {
    let space = shared.space();
    let addr = space.home().first() + PAGE_SIZE;
    if let Some(found) = space.find(addr) {
        assert_eq!(Some(found.span()), Span::with_size(addr, PAGE_SIZE));
    }
}

/// Frees the last area that is left, and gives its object to a larger one, which is elsewhere.
fn reuse_object(shared: &Shared) {
    shared.free(shared.take_held().expect("one is left"), false);
    shared.hold(&[2]);
    shared.purge(false);
    shared.hold(&[5]);
}

fn read(shared: &Shared) {
    let mut addr = 0;
    for _ in 0..2 {
        shared.read(addr, false);
        shared.read(BLOCKS, true);
        addr = BLOCKS;
    }
}

/// Makes a test of each row: the space, what runs alone first, and the threads.
macro_rules! explore {
    ($($(#[$doc:meta])* $name:ident: $room:ident, $first:expr, [$($thread:expr),*];)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            explore($room, $first, [$($thread),*]);
        }
    )*};
}

explore! {
    /// A slot becomes free and is claimed as soon as a purge sees it lazy.
    retire_purge_and_reuse: SHARED, retire, [retire, purge, small];
    /// A purge takes all lone areas that were retired before it.
    retire_and_purge_in_the_tree: TREE, retire, [retire, purge, retire_then_purge];
    /// A lookup gets the bounds of one user of an object, although the object gets another user meanwhile.
    find_and_reuse_of_an_object: TREE, |shared| shared.hold(&[1; 2]), [look, reuse_object];
    /// Blocks are filled, shared, drained and made again.
    refill_and_drain: SHARED, |_| (), [fill_half, fill_half, drain];
    /// A block gets full, and goes to the pool, while others free slots of it: it is not lost.
    a_full_block_gets_free_slots: SHARED_SMALL, fill_but_one, [two, two, purge];
    /// No page has two owners, none is reused before its flush, none is forgotten. An empty block is drained while another
    /// CPU still allocates from it.
    drain_and_allocate: SMALL, |_| (), [churn, churn, drain, purge];
    /// A pinned area does not change, and no reader finds an area half prepared or half unlinked.
    pin_and_unlink: SMALL, |_| (), [churn, churn, read];
    /// A pinned area in the tree does not change.
    pin_and_unlink_in_the_tree: TREE, |_| (), [churn, churn, read, purge];
    /// Large blocks replace small ones while other CPUs still use these.
    large_blocks_replace_small_ones: LARGE, |_| (), [churn, churn, drain, purge];
    /// A large block, which has several entries of the directory, replaces another while a CPU still uses that.
    a_large_block_replaces_another:
        LARGE, |_| (), [|shared| shared.in_turn(&[600; 2], false), |shared| shared.replace_blocks(600)];
    /// A block that fills a part of the directory and small ones in this part replace each other.
    a_block_of_a_whole_part_and_small_ones_replace_each_other:
        WHOLE, |_| (), [|shared| shared.replace_blocks(1), |shared| shared.replace_blocks(30 * TABLE_PAGES)];
    /// Empty blocks are removed while a CPU allocates from them.
    empty_blocks_are_removed_while_they_are_used: SMALL, one_empty_block, [release_three, reclaim];
    /// A block becomes dirty while a purge clears the bit of its part.
    a_block_becomes_dirty_while_a_purge_clears_its_part:
        SMALL, one_empty_block, [retire, purge];
    /// Blocks are removed and put back while a CPU allocates from them.
    blocks_are_put_back_while_they_are_used: SMALL, one_empty_block, [release_three, reclaim_without_memory];
    /// Without room, current blocks are taken from CPUs that still allocate from them, and requests get larger slots.
    blocks_are_taken_for_lack_of_room: TIGHT, |_| (), [small, fill_half, other_classes];
    /// A request finds no room for a block while the range that was in the way is given back.
    no_room_and_give_back: SMALL, |_| (), [in_the_way, small, other_classes];
    /// Sets of areas get slots of a block while others take some of these.
    sets_and_single_areas: SHARED, hold_all_but_two, [sets, two, release_held, reclaim];
}
