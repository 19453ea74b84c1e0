// SPDX-License-Identifier: GPL-2.0

//! Where a new block goes if the directory has no place for a part at the lowest gap, and how many there are beside large areas.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::fixtures::World,
    spaces::{
        alloc,
        free_everything,
        home_of,
        request,
        retire, //
    },
    state::band::{
        COARSE_SIZE,
        SIZE, //
    }, //
};

const GIB: usize = 1 << 30;

/// Parts of 1 GiB whose numbers differ by a multiple of 512 have one slot.
#[test]
fn a_block_goes_above_a_part_whose_slot_is_taken() {
    for (gib, blocks) in [(600, 2), (513, 1)] {
        let home = Span::with_size(COARSE_SIZE, gib * GIB).expect("not empty");
        let space = World::new(home).blocks(64).space().expect("memory");
        let first = alloc(&space, &request(&space, PAGE_SIZE));
        // Blocks begin at a multiple of the size of a coarse one.
        assert_eq!(first, 2 * COARSE_SIZE);
        // All up to the part with the same slot.
        let rest = Span::from_bounds(first + SIZE, first + 512 * GIB).expect("not empty");
        let mut large = request(&space, rest.size());
        large.window = rest;
        assert_eq!(alloc(&space, &large), rest.first());
        // Another band, so another block.
        let second = alloc(&space, &request(&space, 8 * PAGE_SIZE));
        assert_eq!(space.blocks().live, blocks);
        if blocks == 2 {
            assert_eq!(second, first + 513 * GIB);
        }
        free_everything(&space);
    }
}

/// Blocks take at most a quarter of what large areas leave. Areas elsewhere take nothing of it.
#[test]
fn large_areas_leave_fewer_blocks_until_they_are_freed() {
    const BLOCKS: usize = 400;
    const PAGES: usize = 32;
    let space = World::new(home_of(BLOCKS)).space().expect("memory");
    let home = space.home();
    let mut elsewhere = request(&space, home.size());
    elsewhere.window = Span::with_size(home.end(), home.size()).expect("not empty");
    space.alloc(&elsewhere).expect("room");
    for (large, most) in [(0, BLOCKS / 4), (192, 52), (300, 48), (0, BLOCKS / 4)] {
        if large > 0 {
            space.alloc(&request(&space, large * SIZE)).expect("room");
        }
        // What there is no block for goes to the tree.
        let small = request(&space, PAGES * PAGE_SIZE);
        let areas = 0..(most + 2) * (SIZE / small.size);
        let starts: Vec<_> = areas.map(|_| alloc(&space, &small)).collect();
        assert_eq!(space.blocks().live, most, "beside {large} blocks");
        for start in starts {
            retire(&space, start);
        }
        free_everything(&space);
    }
}
