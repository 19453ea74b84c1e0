// SPDX-License-Identifier: GPL-2.0

//! Large areas of sizes that seldom come again must not make a space grow: neither the blocks that it keeps, nor the
//! page tables that its areas have needed. A lowest-fit model, as the rb-trees are one, gets the same requests.

use crate::{
    model::{Allocator, LowestFit},
    prelude::*,
};
use std::collections::{HashMap, HashSet};

/// Bytes that one table of PTEs maps.
const TABLE: usize = 2 << 20;

/// Tables of PTEs that the space may need beyond those of the model, for each power of two of the number of CPUs: as
/// many as 128 MiB have.
const MORE: usize = 64;

/// An allocator and the tables that its areas have needed: no table is ever freed.
struct Side<A> {
    allocator: A,
    tables: HashSet<usize>,
    /// Bytes of a current block and an empty one, which a purge keeps, for each slot that serves such areas.
    blocks: HashMap<usize, usize>,
}

impl<A: Allocator> Side<A> {
    /// Reserves and maps an area of `pages` pages and a guard page.
    fn map(&mut self, pages: usize) -> Span {
        let span = self.allocator.alloc((pages + 1) * PAGE_SIZE).expect("room");
        let tables = span.first() / TABLE..=(span.last() - PAGE_SIZE) / TABLE;
        self.tables.extend(tables);
        let class = class_of(pages + 1);
        self.blocks
            .insert(class.slot_pages(), 2 * class.block_size());
        span
    }

    /// One purge of 40 large areas, then `rounds` times an area of 4 to 32 MiB, 30 pairs of a page, and a purge, as
    /// vm_unmap_aliases() makes it. All is free at the end.
    fn grow(allocator: A, rounds: usize, seed: u64) -> Self {
        let mut side = Self {
            allocator,
            tables: HashSet::new(),
            blocks: HashMap::new(),
        };
        let mut random = Random::new(seed);
        let areas = [(); 40].map(|()| side.map(1100 + random.below(3900)));
        for area in areas {
            side.allocator.retire(area);
        }
        side.allocator.purge(false);
        for _ in 0..rounds {
            let large = side.map(1025 + random.below(7000));
            for _ in 0..30 {
                let small = side.map(1);
                side.allocator.retire(small);
            }
            side.allocator.retire(large);
            side.allocator.purge(false);
        }
        side
    }
}

/// The load on a space for `cpus` CPUs needs few tables more than on the model, and leaves few blocks.
fn compare(rounds: usize, cpus: usize) {
    cpu::be_on(0, cpus);
    // CAST: A small number.
    let seed = cpus as u64;
    let home = span_of(1 << 40, 1 << 46);
    let model = Side::grow(LowestFit::new(home), rounds, seed).tables.len();
    let space = without_shadow(home).space().expect("memory");
    let side = Side::grow(space, rounds, seed);
    let (space, tables) = (side.allocator, side.tables.len());
    println!("{rounds} rounds, {cpus} CPUs: {tables} tables of PTEs, {model} with lowest fit");
    let most: usize = side.blocks.values().sum();
    let reserved = space.blocks().bytes;
    println!(
        "{} MiB of blocks are reserved, at most {} MiB",
        reserved >> 20,
        most >> 20
    );
    assert!(reserved <= most);
    assert!(tables <= model + MORE * (cpus.ilog2() as usize + 1));
    free_everything(&space);
}

#[test]
fn large_areas_of_many_sizes_leave_few_blocks_and_page_tables() {
    for (rounds, cpus) in [(4000, 1), (4000, 8), (40_000, 1)] {
        compare(rounds, cpus);
    }
}
