// SPDX-License-Identifier: GPL-2.0

//! Areas at a common base: which sets blocks serve, and what a request for one does without room.

use crate::{
    base::{
        fit::Member,
        prelude::*, //
    },
    check::fixtures::{
        publish,
        FlushLog,
        World, //
    },
    policy::space::Space,
    spaces::{
        alloc,
        free_everything,
        home_of,
        request,
        retire, //
    },
    state::class::SIZE,
    sys::mm::Gfp,
};

/// Reserves a page at each of these bytes above a common base in `window`.
fn alloc_set(space: &Space<FlushLog>, window: Span, offsets: &[usize]) -> Result {
    let members = offsets.iter().map(|&offset| Member {
        offset,
        size: PAGE_SIZE,
    });
    space.alloc_congruent(window, members, PAGE_SIZE, Gfp::KERNEL, publish)
}

/// A block has more than one place for a set, and each member has a slot of its own. No block is made for others.
#[test]
fn sets_that_no_block_has_places_for_come_from_the_tree() {
    // All classes.
    let home = Span::with_size(1 << 40, 1 << 37).expect("not empty");
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
        assert!(alloc_set(&space, home, offsets).is_ok());
        assert_eq!(space.blocks().live, blocks, "{offsets:x?}");
        assert_eq!(space.validate().expect("sound").busy, offsets.len());
        free_everything(&space);
    }
}

/// A set with another window than that of the space gets the range of an empty block.
#[test]
fn a_set_without_room_drains() {
    let space = World::new(home_of(1)).blocks(1).space().expect("memory");
    retire(&space, alloc(&space, &request(&space, PAGE_SIZE)));
    space.purge(None, false);
    assert_eq!(space.blocks().live, 1);
    let window = Span::with_size(32 * SIZE, SIZE).expect("not empty");
    let set = [0, 2 * PAGE_SIZE];
    assert!(alloc_set(&space, window, &set).is_ok());
    assert_eq!(space.blocks().live, 0);
    free_everything(&space);
}
