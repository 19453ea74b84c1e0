// SPDX-License-Identifier: GPL-2.0

//! How full a space gets before the first request fails, compared with a lowest-fit search in one tree, and how
//! many searches small areas need.

use crate::{
    model::{Allocator, LowestFit},
    prelude::*,
};
use kernel::hooks::SEARCHES;

const GIB: usize = 1 << 30;
const MIB: usize = 1 << 20;

/// Pages of areas with a guard page, those of `mixed` in bench/burst.c, and how many percent have this size or one before.
const SIZES: [(usize, usize); 7] = [
    (5, 82),
    (2, 88),
    (4, 91),
    (17, 96),
    (65, 98),
    (97, 99),
    (369, 100),
];

/// An allocator under a random load.
struct Load<A> {
    allocator: A,
    cpus: usize,
    random: Random,
    /// Areas that may be freed. Others stay.
    live: Vec<Span>,
    /// Bytes of all live areas.
    bytes: usize,
}

impl<A: Allocator> Load<A> {
    fn new(allocator: A, cpus: usize, seed: u64) -> Self {
        cpu::be_on(0, cpus);
        Self {
            allocator,
            cpus,
            random: Random::new(seed),
            live: Vec::new(),
            bytes: 0,
        }
    }

    /// `lazy_max_pages()` in mm/vmalloc.c.
    fn max_lazy_pages(&self) -> usize {
        // CAST: A number of bits fits in a `usize`.
        (usize::BITS - self.cpus.leading_zeros()) as usize * (32 * MIB / PAGE_SIZE)
    }

    /// Allocates an area of `size` bytes. As in `alloc_vmap_area()`, a request without room purges and tries once more.
    /// Returns whether there is room.
    fn alloc(&mut self, size: usize) -> bool {
        let area = self.allocator.alloc(size).or_else(|| {
            self.allocator.purge(true);
            self.allocator.alloc(size)
        });
        self.bytes += area.map_or(0, Span::size);
        self.live.extend(area);
        area.is_some()
    }

    /// Frees the live area `nth`.
    fn free(&mut self, nth: usize) {
        let span = self.live.swap_remove(nth);
        self.bytes -= span.size();
        if self.allocator.retire(span) > self.max_lazy_pages() {
            self.allocator.purge(false);
        }
    }

    /// Allocates an area of a random size on a random CPU, or frees a random one with a chance of `frees` in 8. Returns
    /// whether there is room.
    fn step(&mut self, frees: usize) -> bool {
        cpu::be_on(self.random.below(self.cpus), self.cpus);
        if self.random.below(8) < frees && !self.live.is_empty() {
            let nth = self.random.below(self.live.len());
            self.free(nth);
            return true;
        }
        let percent = self.random.below(100);
        let size = SIZES.iter().find(|(_, most)| percent < *most);
        self.alloc(size.expect("they add up to 100").0 * PAGE_SIZE)
    }

    /// Allocates large areas until there is no room, with gaps of random sizes between when 1/8 of `bytes` bytes was freed.
    /// What is left stays.
    fn fill_with_large_areas(&mut self, bytes: usize) {
        loop {
            let pages = 1 + self.random.below(4096);
            if !self.alloc((1024 + pages) * PAGE_SIZE) {
                break;
            }
        }
        while self.bytes > bytes / 8 * 7 {
            let nth = self.random.below(self.live.len());
            self.free(nth);
        }
        self.allocator.purge(true);
        self.live.clear();
    }
}

/// Returns `bytes` bytes that do not start at a block.
fn home_of(bytes: usize) -> Span {
    span_of(31 * SIZE + PAGE_SIZE, bytes)
}

/// Allocates and frees until a request fails, after areas of 7/8 of `fixed` bytes have taken their places. Returns the bytes
/// that are live then, and how many of these the load has added.
fn fill<A: Allocator>(allocator: A, cpus: usize, seed: u64, fixed: usize) -> (A, [usize; 2]) {
    let mut load = Load::new(allocator, cpus, seed);
    if fixed > 0 {
        load.fill_with_large_areas(fixed);
    }
    let before = load.bytes;
    while load.step(2) {}
    let full = load.bytes;
    (load.allocator, [full, full - before])
}

/// Fills a space of `bytes` bytes once with each of `seeds` seeds, see [`fill`]. Prints the bytes that the space holds
/// compared with those that the model holds: all of them, and those of the load. They must be at least `wanted`.
fn fills(bytes: usize, cpus: usize, seeds: u64, fixed: usize, wanted: [f64; 2]) {
    let first = mm::random_seed();
    let home = home_of(bytes);
    let mut shares = Vec::new();
    for seed in (0..seeds).map(|nth| first.wrapping_add(nth)) {
        let space = without_shadow(home).space().expect("memory");
        let (space, full) = fill(space, cpus, seed, fixed);
        free_everything(&space);
        let (_, model) = fill(LowestFit::new(home), cpus, seed, fixed);
        let share = [0, 1].map(|index| full[index] as f64 / model[index] as f64);
        println!("seed {seed:#x}: {full:?} bytes of {model:?}, {share:.3?}");
        shares.push(share);
    }
    let mean = [0, 1].map(|index| {
        let all = shares.iter().map(|share| share[index]);
        all.sum::<f64>() / shares.len() as f64
    });
    println!("{} MiB, {cpus} CPUs: mean {mean:.3?}", bytes / MIB);
    // The size of the first request without room is random, so single runs vary.
    let is_full = mean[0] >= wanted[0] && mean[1] >= wanted[1];
    let is_never_empty = shares.iter().all(|share| share[0] >= 0.85);
    assert!(is_full && is_never_empty, "seed {first:#x}");
}

#[test]
fn spaces_get_as_full_as_with_the_lowest_fit() {
    fills(64 * GIB, 64, 1, 0, [0.97; 2]);
    fills(240 * MIB, 8, 64, 0, [1.0; 2]);
    fills(128 * MIB, 4, 64, 0, [0.99; 2]);
    // Large areas take 7/8 of the space, with gaps of random sizes between.
    fills(4 * GIB, 8, 8, 4 * GIB, [0.97, 0.92]);
}

/// Allocates and frees at random with about `live` areas, after `fixed` that stay. Returns how many of 1,000 areas were in
/// blocks, and how many searches of the tree 1,000 requests for areas that blocks serve needed.
fn churns(home: Span, cpus: usize, fixed: &[usize], live: usize) -> (usize, usize) {
    let seed = mm::random_seed();
    let space = without_shadow(home).space().expect("memory");
    let mut load = Load::new(space, cpus, seed);
    for &size in fixed {
        assert!(load.alloc(size));
    }
    load.live.clear();
    while load.live.len() < live {
        assert!(load.step(2));
    }
    let (mut small, mut searches, mut freed) = (0, 0, 0);
    let in_tree = |load: &Load<Space<FlushLog>>| load.allocator.counters().retire_tree;
    let in_tree_before = in_tree(&load);
    for _ in 0..200_000 {
        let (count, before) = (load.live.len(), SEARCHES.get());
        assert!(load.step(4));
        if load.live.len() < count {
            freed += 1;
            continue;
        }
        let last = load.live.last().expect("it was just allocated");
        if load.allocator.serves(last.size()) {
            small += 1;
            searches += SEARCHES.get() - before;
        }
    }
    let in_blocks = freed - (in_tree(&load) - in_tree_before);
    println!(
        "{} MiB, {cpus} CPUs, seed {seed:#x}: {in_blocks} of {freed} areas in blocks; {searches} searches for {small}",
        home.size() / MIB
    );
    free_everything(&load.allocator);
    (in_blocks * 1000 / freed, searches * 1000 / small)
}

/// In large spaces a tenth is in use, also if areas for the devices of a large machine take the lowest addresses. In small
/// spaces, lazy pages, of which there may be more than half of the space before a purge, take all blocks, and the other
/// requests search the tree: ranges of sizes that blocks serve are not cached.
#[test]
fn small_areas_need_few_searches() {
    let devices = [192 * GIB; 3];
    for (bytes, cpus, fixed, most) in [
        (2048 * GIB, 64, &devices[..], 10),
        (64 * GIB, 64, &[], 10),
        (240 * MIB, 8, &[], 150),
        (128 * MIB, 4, &[], 300),
    ] {
        // 12 pages on average.
        let live = bytes.min(64 * GIB) / 10 / (12 * PAGE_SIZE);
        let (in_blocks, searches) = churns(home_of(bytes), cpus, fixed, live);
        assert!(searches < most, "{searches}");
        assert!(in_blocks > 990 || bytes < GIB, "{in_blocks}");
    }
}

/// A space in which the load has a window of its own, as modules have.
struct InWindow(Space<FlushLog>, Span);

impl Allocator for InWindow {
    fn alloc(&mut self, size: usize) -> Option<Span> {
        let area = self.0.alloc_bare(Request::bytes(self.1, size)).ok()?;
        assert!(self.1.covers(area.span()));
        Some(area.span())
    }

    fn retire(&mut self, span: Span) -> usize {
        Allocator::retire(&mut self.0, span)
    }

    fn purge(&mut self, drain: bool) {
        Allocator::purge(&mut self.0, drain);
    }
}

/// Allocates and frees areas of up to 4 MiB, every second one of a size that comes again and again, until one has no room.
/// Returns the bytes that are live then.
fn fill_with_modules(allocator: impl Allocator, seed: u64) -> usize {
    let mut load = Load::new(allocator, 4, seed);
    let sizes = [(); 24].map(|()| (1 + load.random.below(1024)) * PAGE_SIZE);
    loop {
        if load.random.below(16) < 7 && !load.live.is_empty() {
            let nth = load.random.below(load.live.len());
            load.free(nth);
            continue;
        }
        let size = match load.random.below(2) {
            0 => sizes[load.random.below(sizes.len())],
            _ => (1 + load.random.below(1024)) * PAGE_SIZE,
        };
        if !load.alloc(size) {
            return load.bytes;
        }
    }
}

#[test]
fn module_space_gets_as_full_as_with_the_lowest_fit() {
    const RUNS: u64 = 1024;
    let seed = mm::random_seed();
    let window = span_of(GIB, 128 * MIB);
    let (mut ours, mut model) = (0, 0);
    for seed in (0..RUNS).map(|nth| seed.wrapping_add(nth)) {
        let space = without_shadow(home_of(64 * MIB)).space().expect("memory");
        ours += fill_with_modules(InWindow(space, window), seed);
        model += fill_with_modules(LowestFit::new(window), seed);
    }
    let share = ours as f64 / model as f64;
    println!("seed {seed:#x}: {share:.3} of the lowest fit");
    assert!(share >= 0.99);
}
