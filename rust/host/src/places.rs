// SPDX-License-Identifier: GPL-2.0

//! Where new blocks go if the directory has no place for a part at the lowest gap, blocks that fill a part, and how many
//! blocks there are beside large areas.

use crate::prelude::*;

const GIB: usize = 1 << 30;

/// Parts of 1 GiB whose numbers differ by a multiple of 512 have one place.
#[test]
fn a_block_goes_above_a_part_whose_place_is_taken() {
    for (gib, blocks) in [(600, 2), (513, 1)] {
        let space = space_of(span_of(GIB - SIZE, gib * GIB), 64);
        let first = alloc(&space, &request(&space, PAGE_SIZE));
        assert_eq!(first, GIB);
        // All up to the part with the same place.
        let rest = Span::from_bounds(first + SIZE, first + 512 * GIB).expect("not empty");
        reserve(&space, rest);
        // Another class, so another block.
        let second = alloc(&space, &request(&space, 8 * PAGE_SIZE));
        assert_eq!(space.blocks().live, blocks);
        let wanted = match blocks {
            // No block: the lowest gap of the tree.
            1 => space.home().first(),
            _ => first + 513 * GIB,
        };
        assert_eq!(second, wanted);
        assert_eq!(
            space.find(second).map(|area| area.span().first()),
            Some(second)
        );
        free_everything(&space);
    }
}

/// Its addresses are found in the part itself, and those of small blocks that replace it in the entries.
#[test]
fn blocks_of_whole_parts_and_small_ones_replace_each_other() {
    let space = space_of(span_of(2 * GIB - SIZE, 3 * GIB), 5 * (GIB / SIZE));
    let largest = Class::all().last().expect("a class");
    assert_eq!(largest.block_size(), GIB);
    let sizes = [largest.slot_pages(), 1, largest.slot_pages() - 1, 128];
    for pages in sizes {
        let starts = alloc_many(&space, pages, 12);
        assert_eq!(starts[0], 2 * GIB);
        assert_eq!(space.blocks().live, 1);
        let size = pages * PAGE_SIZE;
        let area = |addr: usize| space.find(addr).map(|area| area.span().first());
        for &start in &starts {
            assert_eq!([area(start), area(start + size - 1)], [Some(start); 2]);
            assert_ne!(area(start + size), Some(start));
        }
        for start in starts.iter().step_by(2) {
            retire(&space, *start);
        }
        assert_eq!(space.validate().expect("sound").unlinked, 6);
        assert_eq!(space.purge(None, false), 6);
        let again = alloc_many(&space, pages, 6);
        assert!(again.iter().eq(starts.iter().step_by(2)));
        // No area is left behind.
        free_everything(&space);
        assert!((0..GIB)
            .step_by(SIZE)
            .all(|offset| area(2 * GIB + offset).is_none()));
    }
}

/// Blocks take at most a quarter of what large areas leave, but as many as in a small space in any case.
#[test]
fn large_areas_leave_fewer_blocks_until_they_are_freed() {
    const BLOCKS: usize = 400;
    const PAGES: usize = 32;
    cpu::be_on(0, 4);
    let space = World::new(home_of(BLOCKS)).space().expect("memory");
    for (large, most) in [
        (0, BLOCKS / 4),
        (192, 52),
        (300, 25),
        (380, 12),
        (0, BLOCKS / 4),
    ] {
        if large > 0 {
            alloc(&space, &request(&space, large * SIZE));
        }
        // What there is no block for goes to the tree, as long as there is room.
        let starts = alloc_many(&space, PAGES, (most + 2) * (SIZE / PAGE_SIZE / PAGES));
        assert_eq!(space.blocks().live, most, "beside {large} blocks");
        for start in starts {
            retire(&space, start);
        }
        free_everything(&space);
    }
}
