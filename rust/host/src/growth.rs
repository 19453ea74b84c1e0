// SPDX-License-Identifier: GPL-2.0

//! Large areas of sizes that seldom come again must not make a space grow: neither the blocks that it keeps, nor the
//! page tables that its areas have needed. A lowest-fit model, as the rb-trees are one, gets the same requests.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::{
        fixtures::FlushLog,
        random::Random, //
    },
    cpu,
    policy::space::Space,
    runs::FreeRuns,
    spaces::{
        alloc,
        free_everything,
        request,
        retire,
        without_shadow, //
    },
    state::class::Class,
};
use std::collections::HashSet;

/// Bytes that one table of PTEs maps.
const TABLE: usize = 2 << 20;

/// Tables of PTEs that the space may need beyond those of the model, for each power of two of the number of CPUs: as
/// many as 128 MiB have.
const MORE: usize = 64;

/// A space and the model, and the tables that the areas of each have needed: no table is ever freed.
struct Sides {
    space: Space<FlushLog>,
    model: FreeRuns,
    /// Ranges of the model that become free with the next purge.
    lazy: Vec<Span>,
    tables: [HashSet<usize>; 2],
    /// The pages of a slot of each class that was used.
    used: HashSet<usize>,
}

impl Sides {
    fn new(cpus: usize) -> Self {
        cpu::be_on(0, cpus);
        let home = Span::with_size(1 << 40, 1 << 46).expect("not empty");
        Self {
            space: without_shadow(home).space().expect("memory"),
            model: FreeRuns::new(home),
            lazy: Vec::new(),
            tables: Default::default(),
            used: HashSet::new(),
        }
    }

    /// Reserves and maps an area of `pages` pages and a guard page. Returns its place on both sides.
    fn map(&mut self, pages: usize) -> [Span; 2] {
        let size = (pages + 1) * PAGE_SIZE;
        let slot = { Class::all() }
            .map(Class::slot_pages)
            .find(|&slot| slot > pages);
        self.used.extend(slot);
        let start = alloc(&self.space, &request(&self.space, size));
        let model = self.model.lowest(self.space.home(), size).expect("room");
        self.model.take(model);
        let spans = [Span::with_size(start, size).expect("not empty"), model];
        for (tables, span) in self.tables.iter_mut().zip(spans) {
            tables.extend(span.first() / TABLE..=(span.last() - PAGE_SIZE) / TABLE);
        }
        spans
    }

    fn unmap(&mut self, [area, model]: [Span; 2]) {
        retire(&self.space, area.first());
        self.lazy.push(model);
    }

    /// Returns the bytes of a current block and of an empty one, which a purge keeps, of each class that was used.
    fn most_reserved(&self) -> usize {
        { Class::all() }
            .filter(|class| self.used.contains(&class.slot_pages()))
            .map(|class| 2 * class.block_size())
            .sum()
    }

    fn purge(&mut self) {
        self.space.purge(None, false);
        for span in self.lazy.drain(..) {
            self.model.give(span);
        }
    }
}

/// One purge of 40 large areas, then `rounds` times an area of 4 to 32 MiB, 30 pairs of a page, and a purge, as
/// vm_unmap_aliases() makes it. All is free at the end.
fn grow(rounds: usize, cpus: usize) {
    let mut sides = Sides::new(cpus);
    let mut random = Random::new(cpus as u64);
    let areas = [(); 40].map(|()| sides.map(1100 + random.below(3900)));
    areas.into_iter().for_each(|area| sides.unmap(area));
    sides.purge();
    for _ in 0..rounds {
        let large = sides.map(1025 + random.below(7000));
        for _ in 0..30 {
            let small = sides.map(1);
            sides.unmap(small);
        }
        sides.unmap(large);
        sides.purge();
    }
    let [space, model] = [0, 1].map(|side| sides.tables[side].len());
    println!("{rounds} rounds, {cpus} CPUs: {space} tables of PTEs, {model} with lowest fit");
    let (reserved, most) = (sides.space.blocks().bytes, sides.most_reserved());
    println!(
        "{} MiB of blocks are reserved, at most {} MiB",
        reserved >> 20,
        most >> 20
    );
    assert!(reserved <= most);
    assert!(space <= model + MORE * (cpus.ilog2() as usize + 1));
    free_everything(&sides.space);
}

#[test]
fn large_areas_of_many_sizes_leave_few_blocks() {
    for cpus in [1, 8] {
        grow(4000, cpus);
    }
}

#[test]
fn ten_times_as_many_rounds_need_no_more_page_tables() {
    grow(40_000, 1);
}
