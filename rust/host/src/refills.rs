// SPDX-License-Identifier: GPL-2.0

//! Which block a CPU takes when its current one is full, and whose if there is no room for a new one.

use crate::{
    base::prelude::*,
    check::fixtures::{
        Failing,
        FlushLog,
        World, //
    },
    cpu,
    policy::space::{
        Request,
        Space, //
    },
    spaces::{
        alloc,
        free_everything,
        home_of,
        request,
        without_shadow, //
    },
    state::{
        area::Attributes,
        class::{
            Class,
            SIZE, //
        }, //
    },
    sys::{
        mm::Gfp,
        trace, //
    }, //
};

/// Pages of a class whose blocks have 64 slots.
const PAGES: usize = 8;
const SLOTS: usize = 64;

/// With as many blocks, two CPUs need not share those of small classes.
const LIMIT: usize = 64;

/// Returns a request for a slot of [`PAGES`] pages.
fn slot(space: &Space<FlushLog>) -> Request {
    request(space, PAGES * PAGE_SIZE)
}

fn release(space: &Space<FlushLog>, start: usize) {
    let area = space.unlink(start).expect("busy");
    space.retire(area);
    space.purge(None, false);
}

/// First blocks that it had itself, the one that got room last first; then those of nobody; then empty ones; then new ones.
#[test]
fn a_cpu_takes_its_own_blocks_then_orphans_then_empty_ones() {
    const OWNED: usize = 16;
    cpu::be_on(0, 2);
    let space = without_shadow(home_of(40))
        .blocks(LIMIT)
        .space()
        .expect("memory");
    let fill = |blocks: usize| -> Vec<usize> {
        let all = (0..blocks * SLOTS).map(|_| alloc(&space, &slot(&space)));
        all.step_by(SLOTS).collect()
    };
    let starts = fill(OWNED + 3);
    // The last one is full, too, and still current. One slot each gets free, and all of one block.
    for &start in &starts[..OWNED + 1] {
        release(&space, start);
    }
    for index in 0..SLOTS {
        release(&space, starts[OWNED + 1] + index * PAGES * PAGE_SIZE);
    }
    let counts = space.blocks();
    let numbers = (counts.live, counts.partial, counts.empty);
    assert_eq!(numbers, (OWNED + 3, OWNED + 2, 1));
    let next = || alloc(&space, &slot(&space)) / SIZE * SIZE;
    // Another CPU gets the orphan, and then, as it is full, the empty one.
    cpu::be_on(1, 2);
    assert_eq!([next(), next()], [starts[OWNED], starts[OWNED + 1]]);
    assert_eq!(space.counters().block_new, starts.len());
    cpu::be_on(0, 2);
    let owned: Vec<usize> = starts[..OWNED].iter().rev().copied().collect();
    assert!((0..OWNED).map(|_| next()).eq(owned));
    assert!(!starts.contains(&next()));
    assert_eq!(space.counters().block_new, starts.len() + 1);
    free_everything(&space);
}

/// Creates a space with `BLOCKS` blocks for areas of `pages` pages and no room for more, which is full except one slot of
/// CPU 0's current block.
fn nearly_full<const BLOCKS: usize>(pages: usize) -> (Space<FlushLog>, [usize; BLOCKS]) {
    cpu::be_on(0, 2);
    let space = without_shadow(home_of(BLOCKS))
        .blocks(LIMIT)
        .space()
        .expect("memory");
    let starts = [(); BLOCKS].map(|()| {
        let slots = 0..SIZE / PAGE_SIZE / pages;
        let all = slots.map(|_| alloc(&space, &request(&space, pages * PAGE_SIZE)));
        all.min().expect("areas")
    });
    // What is below and above all blocks.
    let (home, first, end) = (space.home(), starts[0], starts[BLOCKS - 1] + SIZE);
    for (first, end) in [(home.first(), first), (end, home.end())] {
        let mut other = request(&space, end - first);
        other.window = Span::from_bounds(first, end).expect("not empty");
        alloc(&space, &other);
    }
    release(&space, starts[BLOCKS - 1]);
    (space, starts)
}

/// If there is no room for a new block and none in the tree, all blocks serve.
#[test]
fn blocks_of_other_cpus_are_taken_only_without_other_room() {
    // There is room for another block.
    cpu::be_on(0, 2);
    let space = World::new(home_of(3))
        .blocks(LIMIT)
        .space()
        .expect("memory");
    let first = alloc(&space, &slot(&space));
    cpu::be_on(1, 2);
    let other = alloc(&space, &slot(&space));
    assert_eq!((other, space.counters().steal), (first + SIZE, 0));
    assert_eq!(trace::last_owner(), Some(CpuNumber::new(1)));
    free_everything(&space);
    // There is room in the tree, except no block.
    let space = World::new(home_of(1))
        .blocks(LIMIT)
        .space()
        .expect("memory");
    alloc(&space, &slot(&space));
    cpu::be_on(0, 2);
    alloc(&space, &slot(&space));
    assert_eq!(
        (space.counters().alloc_tree, space.counters().steal),
        (1, 0)
    );
    free_everything(&space);
    // One slot is left, in the current block of another CPU; and then one in the pool, which is another CPU's.
    let (space, [full, current]) = nearly_full(PAGES);
    cpu::be_on(1, 2);
    assert_eq!(alloc(&space, &slot(&space)), current);
    // The tracepoint says whose it was.
    assert_eq!(trace::last_owner(), Some(CpuNumber::new(0)));
    assert_eq!(space.counters().steal, 1);
    cpu::be_on(0, 2);
    release(&space, full);
    cpu::be_on(1, 2);
    assert_eq!(alloc(&space, &slot(&space)), full);
    assert_eq!(space.counters().steal, 2);
    assert_eq!(space.alloc(slot(&space)).err(), Some(EBUSY));
    assert_eq!(space.counters().no_room, 1);
    free_everything(&space);
}

/// A smaller area may take a slot of a larger class, and an aligned one only one that has its alignment.
#[test]
fn slots_of_larger_classes_serve_without_other_room() {
    for (slot, pages, align, is_served) in [
        (8, 1, 1, true),
        (8, 3, 4, true),
        (8, 1, 16, false),
        (8, 9, 1, false),
        (7, 5, 1, true),
        (7, 5, 2, false),
    ] {
        let (space, [.., last]) = nearly_full::<2>(slot);
        let mut other = request(&space, pages * PAGE_SIZE);
        other.align = align * PAGE_SIZE;
        let area = space.alloc(other);
        assert_eq!(
            area.is_ok(),
            is_served,
            "{pages} pages at {align} in {slot}"
        );
        if let Ok(area) = area {
            assert_eq!(
                area.span(),
                Span::with_size(last, pages * PAGE_SIZE).expect("not empty")
            );
            assert_eq!(space.find(last).map(|area| area.span()), Some(area.span()));
        }
        assert_eq!(space.counters().steal, usize::from(is_served));
        free_everything(&space);
    }
}

/// Nor does one that can never fit, or has a window of its own.
#[test]
fn a_request_without_memory_leaves_the_current_blocks_of_all_cpus() {
    cpu::be_on(0, 2);
    let space = World::new(home_of(4))
        .blocks(LIMIT)
        .space()
        .expect("memory");
    let home = space.home();
    alloc(&space, &slot(&space));
    cpu::be_on(1, 2);
    alloc(&space, &slot(&space));
    let nowait = |pages: usize| Request {
        gfp: Gfp::NOWAIT,
        ..request(&space, pages * PAGE_SIZE)
    };
    let (result, _) = Failing::From(1).run(|| space.alloc(nowait(9)));
    assert_eq!(result.err(), Some(ENOMEM));
    let too_large = nowait(home.size() / PAGE_SIZE + 1);
    assert_eq!(space.alloc(too_large).err(), Some(EBUSY));
    let mut elsewhere = nowait(2);
    elsewhere.window = Span::with_size(home.end(), PAGE_SIZE).expect("not empty");
    assert_eq!(space.alloc(elsewhere).err(), Some(EBUSY));
    let counters = space.counters();
    assert_eq!((counters.no_memory, counters.no_room), (1, 2));
    assert_eq!((space.blocks().live, space.blocks().partial), (2, 0));
    free_everything(&space);
}

/// Creates a space, and returns how many blocks `cpus` CPUs get that allocate an area of `pages` pages each.
fn blocks_of(limit: usize, cpus: usize, pages: usize) -> usize {
    cpu::be_on(0, cpus);
    let space = World::new(home_of(4000))
        .blocks(limit)
        .space()
        .expect("memory");
    for cpu in 0..cpus {
        cpu::be_on(cpu, cpus);
        alloc(&space, &request(&space, pages * PAGE_SIZE));
    }
    let blocks = space.counters().block_new;
    assert_eq!(space.blocks().live, blocks);
    free_everything(&space);
    blocks
}

/// The current blocks of all groups, one for each class of the smallest blocks, are at most half of all blocks.
#[test]
fn cpus_share_blocks_in_groups_of_a_power_of_two_if_there_are_few() {
    let classes = Class::all()
        .filter(|class| class.block_size() == SIZE)
        .count();
    for (cpus, groups, blocks) in [
        (1, 0, 1),
        (8, 0, 1),
        (8, 1, 1),
        (8, 2, 2),
        (8, 3, 2),
        (8, 4, 4),
        (8, 7, 4),
        (8, 8, 8),
        (6, 2, 2),
        (6, 3, 3),
        (6, 5, 3),
        (6, 6, 6),
    ] {
        // The most for this number of groups, and at least one block for none.
        let limit = groups * 2 * classes;
        for limit in [limit.max(1), limit + 2 * classes - 1] {
            let found = blocks_of(limit, cpus, 1);
            assert_eq!(found, blocks, "{cpus} CPUs, {limit} blocks");
        }
    }
}

/// With larger areas, 8 CPUs do.
#[test]
fn groups_of_cpus_share_the_blocks_of_larger_classes() {
    for (cpus, pages, limit, blocks) in [
        (20, 10, 4000, 20),
        (20, 11, 4000, 3),
        (20, 200, 4000, 3),
        (7, 11, 4000, 1),
        // As few as of small classes.
        (40, 10, 100, 3),
        (40, 11, 100, 3),
    ] {
        assert_eq!(
            blocks_of(limit, cpus, pages),
            blocks,
            "{cpus} CPUs, {pages} pages"
        );
    }
}

/// The direct call serves what the current block can: with alignments that are powers of two.
#[test]
fn the_direct_call_serves_from_the_current_block() {
    let space = without_shadow(home_of(4))
        .blocks(4)
        .space()
        .expect("memory");
    let hit = |align| space.alloc_hit(PAGE_SIZE, align, Attributes::NONE).is_ok();
    assert!(!hit(1), "there is no block yet");
    alloc(&space, &request(&space, PAGE_SIZE));
    for align in [1, 2, PAGE_SIZE] {
        assert!(hit(align), "alignment {align}");
    }
    assert!(!hit(3) && !hit(PAGE_SIZE + 1));
    free_everything(&space);
}

/// Returns whether a request for `pages` pages allocates more than its object and its entry: memory for a block.
fn looks_for_a_block(space: &Space<FlushLog>, pages: usize) -> bool {
    Failing::Only(3)
        .run(|| space.alloc(request(space, pages * PAGE_SIZE)).is_ok())
        .1
}

/// Where no block has room, the next request of that size does not look for a place again, before a range of the tree
/// became free. One for smaller blocks does.
#[test]
fn a_search_in_vain_is_not_made_again() {
    // The class of 40 pages has blocks of twice the size.
    let large = 40;
    let space = without_shadow(home_of(128)).space().expect("memory");
    // One page in each two places leaves only places of the smallest blocks.
    let first = space.home().first().next_multiple_of(2 * SIZE);
    for start in (first..space.home().last()).step_by(2 * SIZE) {
        let mut one = request(&space, PAGE_SIZE);
        one.window = Span::with_size(start, PAGE_SIZE).expect("not empty");
        alloc(&space, &one);
    }
    assert!(looks_for_a_block(&space, large));
    alloc(&space, &request(&space, large * PAGE_SIZE));
    assert!(!looks_for_a_block(&space, large));
    assert_eq!(space.blocks().live, 0);
    alloc(&space, &request(&space, PAGE_SIZE));
    assert_eq!(space.blocks().live, 1);
    // The first place has the block.
    release(&space, first + 2 * SIZE);
    alloc(&space, &request(&space, large * PAGE_SIZE));
    assert_eq!(space.blocks().live, 2);
    free_everything(&space);
}
