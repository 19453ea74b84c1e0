// SPDX-License-Identifier: GPL-2.0

//! Which block a CPU takes when its current one is full, and whose if there is no room for a new one.

use crate::prelude::*;
use crate::state::area::VmFields;
use crate::sys::trace;
use kernel::hooks::{last_event, MEANWHILE};

/// Pages of a class whose blocks have 64 slots.
const PAGES: usize = 8;
const SLOTS: usize = 64;

/// With as many blocks, two CPUs need not share those of small classes.
const LIMIT: usize = 64;

/// Returns a request for a slot of [`PAGES`] pages.
fn slot(space: &Space<FlushLog>) -> Request {
    request(space, PAGES * PAGE_SIZE)
}

/// Creates a space with `BLOCKS` blocks for areas of `pages` pages and no room for more, which is full except one slot of
/// CPU 1's current block.
fn nearly_full<const BLOCKS: usize>(pages: usize) -> (Space<FlushLog>, [usize; BLOCKS]) {
    cpu::be_on(1, 2);
    let space = space_of(home_of(BLOCKS), LIMIT);
    let starts = [(); BLOCKS].map(|()| {
        let all = alloc_many(&space, pages, SIZE / PAGE_SIZE / pages);
        all.into_iter().min().expect("areas")
    });
    // What is below and above all blocks.
    let (home, first, end) = (space.home(), starts[0], starts[BLOCKS - 1] + SIZE);
    for (first, end) in [(home.first(), first), (end, home.end())] {
        reserve(&space, span_of(first, end - first));
    }
    release(&space, starts[BLOCKS - 1]);
    (space, starts)
}

/// If there is no room for a new block and none in the tree, all blocks serve.
#[test]
fn blocks_of_other_cpus_are_taken_only_without_other_room() {
    // There is room for another block.
    cpu::be_on(0, 2);
    let space = space_of(home_of(3), LIMIT);
    let first = alloc(&space, &slot(&space));
    cpu::be_on(1, 2);
    let other = alloc(&space, &slot(&space));
    assert_eq!((other, space.counters().steal), (first + SIZE, 0));
    free_everything(&space);
    // There is room in the tree, except no block.
    let space = space_of(home_of(1), LIMIT);
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
    cpu::be_on(0, 2);
    let stolen = last_event("vmap_rust_block", || {
        assert_eq!(alloc(&space, &slot(&space)), current);
    });
    // The tracepoint says what happened, and whose it was.
    let stolen = stolen.map(|event| (event[0], event[4]));
    assert_eq!(stolen, Some((trace::Event::Steal as usize, 1)));
    assert_eq!(space.counters().steal, 1);
    cpu::be_on(1, 2);
    release(&space, full);
    cpu::be_on(0, 2);
    assert_eq!(alloc(&space, &slot(&space)), full);
    assert_eq!(space.counters().steal, 2);
    assert_eq!(space.alloc_bare(slot(&space)).err(), Some(EBUSY));
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
        let area = space.alloc_bare(other);
        assert_eq!(
            area.is_ok(),
            is_served,
            "{pages} pages at {align} in {slot}"
        );
        if let Ok(area) = area {
            assert_eq!(area.span(), span_of(last, pages * PAGE_SIZE));
            assert_eq!(space.find(last).map(|area| area.span()), Some(area.span()));
        } else {
            // The block that does not serve it stays the current one.
            let hit = space.alloc_current(slot * PAGE_SIZE, 1, Attributes::NONE);
            assert!(hit.is_some(), "{pages} pages at {align} in {slot}");
        }
        assert_eq!(space.counters().steal, usize::from(is_served));
        free_everything(&space);
    }
}

/// Creates a space, and returns how many blocks `cpus` CPUs get that allocate an area of `pages` pages each.
fn blocks_of(limit: usize, cpus: usize, pages: usize) -> usize {
    cpu::be_on(0, cpus);
    let space = space_of(home_of(4000), limit);
    for cpu in 0..cpus {
        cpu::be_on(cpu, cpus);
        alloc(&space, &request(&space, pages * PAGE_SIZE));
    }
    let blocks = space.counters().block_new;
    assert_eq!(space.blocks().live, blocks);
    free_everything(&space);
    blocks
}

/// The current blocks of all groups, one for each class of the smallest blocks, are at most half of all blocks: if there
/// are few, CPUs share them in groups of a power of two. Those of larger classes groups of 8 share in any case.
#[test]
fn groups_of_cpus_share_blocks() {
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
    for (cpus, pages, limit, blocks) in [
        (20, 32, 4000, 20),
        (20, 33, 4000, 3),
        (20, 200, 4000, 3),
        (7, 33, 4000, 1),
        // As few as of small classes.
        (40, 10, 100, 3),
        (40, 32, 100, 3),
        (40, 33, 100, 3),
    ] {
        let found = blocks_of(limit, cpus, pages);
        assert_eq!(found, blocks, "{cpus} CPUs, {pages} pages");
    }
}

/// The direct call serves what the current block can: with alignments that are powers of two.
#[test]
fn the_direct_call_serves_from_the_current_block() {
    let space = space_of(home_of(4), 4);
    let hit = |align| {
        space
            .alloc_current(PAGE_SIZE, align, Attributes::NONE)
            .is_some()
    };
    assert!(!hit(1), "there is no block yet");
    alloc(&space, &request(&space, PAGE_SIZE));
    for align in [1, 2, PAGE_SIZE] {
        assert!(hit(align), "alignment {align}");
    }
    assert!(!hit(3) && !hit(PAGE_SIZE + 1));
    free_everything(&space);
}

/// A slot whose area had a `vm_struct` serves the direct call for areas with one, and only such a slot.
#[test]
fn the_direct_call_uses_a_vm_struct_again() {
    let space = space_of(home_of(4), 4);
    // SAFETY: The only area with it has it.
    let attributes = unsafe { Attributes::new(0, bindings::vm_struct::new()) };
    let area = space.alloc(&request(&space, PAGE_SIZE), attributes);
    let span = area.expect("room").span();
    let again = || {
        let area = space.reuse_current(
            PAGE_SIZE,
            1,
            VmFields {
                flags: 2,
                caller: core::ptr::dangling(),
                requested_size: 3,
            },
        );
        area.map(|area| area.span())
    };
    assert_eq!(again(), None, "no area has left one");
    release(&space, span.first());
    assert_eq!(again(), Some(span));
    assert_eq!(again(), None, "the other slots have none");
    free_everything(&space);
}

/// Returns whether a request for `pages` pages allocates more than its object and its entry: memory for a block.
fn looks_for_a_block(space: &Space<FlushLog>, pages: usize) -> bool {
    Failing::Only(3)
        .run(|| space.alloc_bare(request(space, pages * PAGE_SIZE)).is_ok())
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
        reserve(&space, span_of(start, PAGE_SIZE));
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

/// One for large blocks that ends after one for small blocks changes nothing for these.
#[test]
fn a_search_for_a_large_block_does_not_hide_one_for_a_small_block() {
    let space = without_shadow(home_of(128)).space().expect("memory");
    let space = &*Box::leak(Box::new(space));
    // One page in each place leaves none.
    let first = space.home().first().next_multiple_of(SIZE);
    for start in (first..space.home().last()).step_by(SIZE) {
        reserve(space, span_of(start, PAGE_SIZE));
    }
    MEANWHILE.set(vec![Box::new(|| {
        alloc(space, &request(space, PAGE_SIZE));
    })]);
    alloc(space, &request(space, 40 * PAGE_SIZE));
    assert!(MEANWHILE.take().is_empty());
    assert!(!looks_for_a_block(space, 1) && !looks_for_a_block(space, 40));
    free_everything(space);
}

/// A CPU that has just found its current block full does not look for a slot there again.
#[test]
fn a_full_block_is_asked_once() {
    let [tried, untried] = [true, false].map(|fast_path_failed| {
        let space = space_of(home_of(8), LIMIT);
        alloc_many(&space, PAGES, SLOTS);
        let request = Request {
            fast_path_failed,
            ..slot(&space)
        };
        let count = steps(|| alloc(&space, &request));
        // It is not served without a block.
        assert_eq!(space.counters().alloc_tree, 0);
        free_everything(&space);
        count
    });
    // The seat, and whether areas are placed at random, are not all: each word is looked at.
    assert!(untried - tried > WORDS, "{untried} {tried}");
}

/// A CPU takes empty blocks that were its own before those of others.
#[test]
fn a_cpu_takes_its_own_empty_blocks() {
    const BLOCKS: usize = 4;
    cpu::be_on(0, 2);
    let space = space_of(home_of(64), LIMIT);
    let fill = |cpu| {
        cpu::be_on(cpu, 2);
        let mut all = alloc_many(&space, PAGES, BLOCKS * SLOTS);
        all.sort();
        all
    };
    let first = [fill(0), fill(1)];
    for start in first.iter().flatten() {
        retire(&space, *start);
    }
    space.purge(None, false);
    // The last ones are current blocks.
    assert_eq!(space.blocks().empty, 2 * (BLOCKS - 1));
    let [one, zero] = [fill(1), fill(0)];
    assert_eq!([zero, one], first);
    free_everything(&space);
}

/// If there can be no new block, the blocks of a CPU that sleeps serve others before the tree does.
#[test]
fn blocks_of_a_cpu_that_sleeps_serve_others() {
    const EACH: usize = LIMIT / 4;
    cpu::be_on(0, 2);
    let space = space_of(home_of(400), LIMIT);
    for pages in 1..=4 {
        let slots = class_of(pages).slots();
        let all = alloc_many(&space, pages, EACH * slots);
        // One area of each block is left.
        for (_, &start) in all.iter().enumerate().filter(|(nth, _)| nth % slots != 0) {
            retire(&space, start);
        }
    }
    space.purge(None, false);
    cpu::be_on(1, 2);
    for pages in 1..=4 {
        alloc_many(&space, pages, 250);
    }
    assert_eq!(space.counters().alloc_tree, 0);
    free_everything(&space);
}

/// A request without room that must not sleep looks at a few CPUs, however many there are. Others have their turn later.
#[test]
fn a_request_without_room_looks_at_a_few_cpus() {
    let full = |cpus: usize| {
        cpu::be_on(0, cpus);
        // CPU 0 has the last free slot.
        let space = space_of(home_of(2), 8192);
        let starts = alloc_many(&space, PAGES, 2 * SLOTS);
        let (home, end) = (space.home(), starts[0] + 2 * SIZE);
        reserve(&space, span_of(home.first(), starts[0] - home.first()));
        reserve(&space, span_of(end, home.end() - end));
        (space, starts)
    };
    let nowait = |space: &Space<FlushLog>| Request {
        gfp: Gfp::NOWAIT,
        ..slot(space)
    };
    let [few, many] = [64, 8192].map(|cpus| {
        let (space, _) = full(cpus);
        let count = steps(|| assert!(space.alloc_bare(nowait(&space)).is_err()));
        free_everything(&space);
        count
    });
    assert_eq!(few, many);
    let (space, starts) = full(512);
    // The current block of a CPU gets a free slot.
    release(&space, starts[2 * SLOTS - 1]);
    cpu::be_on(500, 512);
    let tries = (1..).find(|_| space.alloc_bare(nowait(&space)).is_ok());
    assert!(tries.is_some_and(|tries| tries <= 512 / 32), "{tries:?}");
    free_everything(&space);
}

/// A CPU has up to 16 partial blocks of a class for itself. Others may take the rest.
#[test]
fn a_cpu_leaves_partial_blocks_to_others() {
    const OWNED: usize = 16;
    const ORPHANS: usize = 3;
    cpu::be_on(0, 2);
    let space = space_of(home_of(64), LIMIT);
    let full = alloc_many(&space, PAGES, (OWNED + ORPHANS) * SLOTS + 1);
    // Full blocks are sound, too.
    assert_eq!(space.validate().expect("sound").busy, full.len());
    full.iter().step_by(SLOTS).for_each(|&start| {
        retire(&space, start);
    });
    space.purge(None, false);
    assert!(space.validate().is_ok());
    // It fills its current block, and then takes one of its own, not an orphan.
    alloc_many(&space, PAGES, SLOTS + 1);
    cpu::be_on(1, 2);
    for new in [0, 0, 0, 1] {
        let before = space.counters().block_new;
        alloc(&space, &slot(&space));
        assert_eq!(space.counters().block_new - before, new);
    }
    free_everything(&space);
}

/// A purge keeps as many empty blocks as were taken since the last one, but two in any case. The next one frees the others.
#[test]
fn a_purge_keeps_what_was_taken_since_the_last_one() {
    let space = space_of(home_of(8), LIMIT);
    // The second time, one of the three blocks is still the current one.
    for (slots, blocks) in [(1, 1), (3 * SLOTS, 3)] {
        for start in alloc_many(&space, PAGES, slots) {
            retire(&space, start);
        }
        if slots > 1 {
            space.return_all();
        }
        space.purge(None, false);
        assert_eq!(space.blocks().live, blocks);
    }
    retire(&space, alloc(&space, &request(&space, PAGE_SIZE)));
    space.purge(None, false);
    assert_eq!(space.blocks().empty, 2);
    free_everything(&space);
}
