// SPDX-License-Identifier: GPL-2.0

//! Where new blocks go if the directory has no place for a part at the lowest gap, and how many there are beside large areas;
//! and where these go.

use crate::{prelude::*, state::class::MOST_PAGES};

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

/// A purge looks at no part of the directory without a dirty block, and costs as much as in a new space.
#[test]
fn a_purge_looks_only_at_dirty_parts() {
    const PARTS: usize = 20;
    cpu::be_on(0, 4);
    let space = space_of(span_of(GIB - SIZE, 100 * GIB), 4 * PARTS * GIB / SIZE);
    let purge = || steps(|| space.purge(None, false));
    let new = purge();
    let starts = alloc_many(&space, MOST_PAGES, 12 * PARTS);
    assert_eq!(space.blocks().live, PARTS);
    assert_eq!(purge(), new);
    retire(&space, starts[0]);
    assert!(purge() > new);
    assert_eq!(purge(), new);
    for &start in &starts[1..] {
        retire(&space, start);
    }
    assert!(purge() >= new + PARTS);
    assert_eq!(purge(), new);
    free_everything(&space);
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

/// An area of 1 GiB or more in no window is at a multiple of that if it can be, and else where it fits, as with a window.
#[test]
fn large_areas_fill_parts_of_the_page_map() {
    const START: usize = 1 << 42;
    for (bytes, place) in [(3 * GIB, GIB), (GIB + 2 * SIZE, SIZE)] {
        let space = space_of(span_of(START + SIZE, bytes), 4);
        let one = request(&space, GIB);
        let start = alloc(&space, &one);
        assert_eq!(start, START + place);
        retire(&space, start);
        free_everything(&space);
    }
    let space = space_of(span_of(1 << 40, 1 << 43), 4);
    let mut one = request(&space, GIB);
    one.window = span_of(START + SIZE, 3 * GIB);
    assert_eq!(alloc(&space, &one), START + SIZE);
    free_everything(&space);
}

/// Lookups find the last area noted in a place without the tree, also one that is used again, and others in the tree.
#[test]
fn areas_of_parts_with_one_place_are_noted_when_they_are_used() {
    const START: usize = 1 << 42;
    let space = space_of(span_of(START, 1 << 41), 4);
    let used = |near: bool| {
        let start = if near { START } else { START + 512 * GIB };
        let mut one = request(&space, 3 * GIB);
        one.window = span_of(start, 8 * GIB);
        alloc(&space, &one)
    };
    let found = |start: usize| {
        for addr in [start, start + GIB + PAGE_SIZE, start + 3 * GIB - 1] {
            let area = space.find(addr).expect("busy").span();
            assert_eq!(area, span_of(start, 3 * GIB));
        }
        space.is_mapped(start + 2 * GIB)
    };
    for _ in 0..2 {
        release(&space, used(true));
    }
    assert_eq!(space.kept(), 1);
    let far = used(false);
    assert!(found(far));
    // The kept one.
    let near = used(true);
    assert_eq!((space.kept(), near), (0, START));
    assert!(found(near) && !found(far));
    retire(&space, near);
    assert!(!found(far));
    space.purge(None, true);
    assert!(!found(far) && space.find(near).is_none());
    retire(&space, far);
    free_everything(&space);
    let far = used(false);
    assert!(found(far));
    retire(&space, far);
    free_everything(&space);
}
