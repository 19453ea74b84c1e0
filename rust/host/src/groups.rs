// SPDX-License-Identifier: GPL-2.0

//! How many CPUs share current blocks, so that few blocks do for many CPUs.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::fixtures::World,
    cpu,
    spaces::{
        free_everything,
        home_of,
        request, //
    },
    state::band::{
        BANDS,
        COARSE_PAGES,
        COARSE_SIZE,
        SIZE,
        STEPS, //
    }, //
};

/// Returns how many blocks of at most `limit` fine ones in `home` `cpus` CPUs get if each allocates an area of `pages` pages.
fn blocks_of(home: Span, limit: usize, cpus: usize, pages: usize) -> usize {
    cpu::be_on(0, cpus);
    let space = World::new(home).blocks(limit).space().expect("memory");
    for cpu in 0..cpus {
        cpu::be_on(cpu, cpus);
        space
            .alloc(&request(&space, pages * PAGE_SIZE))
            .expect("room");
    }
    let blocks = space.counters().block_new;
    assert_eq!(space.blocks().live, blocks);
    free_everything(&space);
    blocks
}

/// The current blocks of all groups, one for each band, are at most half of all blocks.
#[test]
fn cpus_share_blocks_in_groups_of_a_power_of_two_if_there_are_few() {
    let home = home_of(200);
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
        let limit = groups * 2 * STEPS;
        let most = limit + 2 * STEPS - 1;
        for limit in [limit.max(1), most] {
            let found = blocks_of(home, limit, cpus, 1);
            assert_eq!(found, blocks, "{cpus} CPUs, {limit} blocks");
        }
    }
}

/// Half of the bytes is for each kind.
#[test]
fn cpus_share_fine_and_coarse_blocks_in_groups_of_their_own() {
    const CPUS: usize = 8;
    let home = Span::with_size(COARSE_SIZE, 512 * COARSE_SIZE).expect("not empty");
    let most = 2 * (BANDS - STEPS) * CPUS;
    for (coarse, blocks) in [(most, CPUS), (most - 1, CPUS / 2), (most / 2, CPUS / 2)] {
        let limit = 2 * coarse * (COARSE_SIZE / SIZE);
        assert_eq!(blocks_of(home, limit, CPUS, 2 * COARSE_PAGES), blocks);
        // Fine blocks are smaller, so they do for all.
        assert_eq!(blocks_of(home, limit, CPUS, 1), CPUS);
    }
    let most = 2 * STEPS * CPUS;
    for (fine, blocks) in [(most, CPUS), (most - 1, CPUS / 2)] {
        assert_eq!(blocks_of(home, 2 * fine, CPUS, 1), blocks);
    }
}
