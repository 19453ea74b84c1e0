// SPDX-License-Identifier: GPL-2.0

//! Areas at a common base: which sets blocks serve, and what a request for one does without room.

use crate::{prelude::*, state::class};

/// A block has more than one place for a set, and each member has a slot of its own. No block is made for others.
#[test]
fn sets_that_no_block_has_places_for_come_from_the_tree() {
    // All classes.
    let home = span_of(1 << 40, 1 << 37);
    let half = 512 << 20;
    let sets: [(&[usize], usize); 4] = [
        (&[0, half - PAGE_SIZE], 1),
        (&[0, half], 0),
        // All slots of blocks that are large enough have more than one page.
        (&[0, PAGE_SIZE, half - PAGE_SIZE], 0),
        // The first two are in the first two slots of one page.
        (&[0, PAGE_SIZE, SIZE / 2 - PAGE_SIZE], 1),
    ];
    for (offsets, blocks) in sets {
        let space = World::new(home).space().expect("memory");
        assert!(alloc_set(&space, home, offsets, 1).is_ok());
        assert_eq!(space.blocks().live, blocks, "{offsets:x?}");
        assert_eq!(space.validate().expect("sound").busy, offsets.len());
        free_everything(&space);
    }
}

/// Where the space does not end with a page, as on x86, a request for percpu memory has a window that does.
#[test]
fn a_window_that_has_all_blocks_gets_them() {
    let home = Span::from_bounds(31 * SIZE + PAGE_SIZE, 40 * SIZE - 1).expect("not empty");
    for (end, blocks) in [(39, 1), (38, 0)] {
        let space = space_of(home, 4);
        let window = Span::from_bounds(32 * SIZE, end * SIZE).expect("not empty");
        assert!(alloc_set(&space, window, &[0, 2 * PAGE_SIZE], 1).is_ok());
        assert_eq!(space.blocks().live, blocks, "end {end}");
        free_everything(&space);
    }
}

/// A set with another window than that of the space gets the range of an empty block.
#[test]
fn a_set_without_room_drains() {
    let space = space_of(home_of(1), 1);
    release(&space, alloc(&space, &request(&space, PAGE_SIZE)));
    assert_eq!(space.blocks().live, 1);
    // Not all of the block, or it would serve the set.
    let window = span_of(32 * SIZE, SIZE - PAGE_SIZE);
    let set = [0, 2 * PAGE_SIZE];
    assert!(alloc_set(&space, window, &set, 1).is_ok());
    assert_eq!(space.blocks().live, 0);
    free_everything(&space);
}

/// What is reserved and not yet busy is not lazy.
#[test]
fn a_set_is_not_listed_before_it_is_busy() {
    let home = span_of(64 << 20, 64 * PAGE_SIZE);
    let space = World::new(home).space().expect("memory");
    let members = [0, 3 * PAGE_SIZE].map(|offset| Member {
        offset,
        size: PAGE_SIZE,
    });
    let result = space.alloc_congruent(
        home,
        members.into_iter(),
        PAGE_SIZE,
        Gfp::KERNEL,
        |index, area| {
            assert_eq!(space.next_lazy(None), None);
            publish(index, area)
        },
    );
    assert!(result.is_ok());
    free_everything(&space);
}

/// Partial blocks come first, but if the set has no place in one, an empty block is taken before a new one is made.
#[test]
fn a_set_without_a_place_takes_an_empty_block() {
    // Two slots of the class of four pages, which has blocks with 128.
    let (pages, slots) = (4, 128);
    let space = space_of(home_of(8), 8);
    let all = alloc_many(&space, pages, 3 * slots);
    // Of the first and of the current one, every second slot is free, and all of the second one.
    for (index, &start) in all.iter().enumerate() {
        if index % 2 == 0 || (slots..2 * slots).contains(&index) {
            retire(&space, start);
        }
    }
    space.purge(None, false);
    assert_eq!((space.blocks().live, space.blocks().empty), (3, 1));
    assert!(alloc_set(&space, space.home(), &[0, pages * PAGE_SIZE], pages).is_ok());
    assert_eq!((space.blocks().live, space.blocks().empty), (3, 0));
    free_everything(&space);
}

/// A class whose blocks are too small for a set is not looked at.
#[test]
fn slots_of_smaller_blocks_are_below_the_least() {
    for large in Class::all() {
        let least = class::least_slot(large.block_size());
        for small in Class::all().filter(|small| small.block_size() < large.block_size()) {
            assert!(
                small.slot_pages() * PAGE_SIZE < least,
                "{small:?} {large:?}"
            );
        }
    }
}
