// SPDX-License-Identifier: GPL-2.0

//! Tests with threads that allocate, free, look up and purge concurrently.

use crate::{
    load::{Load, Mine},
    prelude::*,
};

const THREADS: u64 = 4;

/// Start of the space: not that of a block.
const START: usize = 31 * SIZE + 5 * PAGE_SIZE;

/// Creates a space of `pages` pages at `start`, in which blocks are at most as large as `blocks` of the smallest ones.
fn load(start: usize, pages: usize, blocks: usize) -> Load {
    let window = span_of(start, pages * PAGE_SIZE);
    Load::new(World::new(window).blocks(blocks))
}

/// Runs `steps` random steps in each of `threads` threads, with areas of up to `most_pages` pages. Nothing is left.
fn run(load: &Load, most_pages: usize, threads: u64, seed: u64, steps: usize) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let seed = seed.wrapping_add(thread);
            scope.spawn(move || Worker::new(load, most_pages, seed).run(steps));
        }
    });
    load.end();
}

/// One of the threads.
struct Worker<'a> {
    load: &'a Load,
    /// Largest size, in pages.
    most_pages: usize,
    random: Random,
    mine: Vec<Mine>,
    /// Maximum number of areas, which changes every 128 steps.
    most: usize,
}

impl<'a> Worker<'a> {
    fn new(load: &'a Load, most_pages: usize, seed: u64) -> Self {
        Self {
            load,
            most_pages,
            random: Random::new(seed),
            mine: Vec::new(),
            most: 24,
        }
    }

    fn run(&mut self, steps: usize) {
        for step in 0..steps {
            if step % 128 == 0 {
                // Small maxima produce empty blocks.
                self.most = self.random.below(48) / (1 + self.random.below(8));
            }
            match self.random.below(8) {
                0..=3 if self.mine.len() < self.most => self.alloc(),
                0..=5 if !self.mine.is_empty() => self.free(),
                6 => self.look(),
                _ => self.clean(),
            }
        }
        while !self.mine.is_empty() {
            self.free();
        }
    }

    fn alloc(&mut self) {
        let random = &mut self.random;
        let home = self.load.space().home();
        let size = (1 + random.below(self.most_pages)) * PAGE_SIZE;
        let mut request = Request::bytes(home, size);
        request.align = PAGE_SIZE << random.below(4);
        if random.below(16) == 0 {
            // Blocks do not serve requests for a part of home.
            let middle = home.first() + home.size() / PAGE_SIZE / 2 * PAGE_SIZE;
            request.window = Span::from_bounds(middle, home.end()).expect("not empty");
        }
        self.mine.extend(self.load.alloc(&request));
    }

    fn free(&mut self) {
        let nth = self.random.below(self.mine.len());
        let mine = self.mine.swap_remove(nth);
        let inner = mine.span.first() + self.random.below(mine.span.size());
        for addr in [mine.span.first(), inner, mine.span.last()] {
            self.load.find(&mine, addr);
        }
        self.load.free(mine, inner, self.random.below(8) == 0);
    }

    /// Looks up areas of other threads.
    fn look(&mut self) {
        let home = self.load.space().home();
        let addr = home.first() + self.random.below(home.size());
        match self.random.below(4) {
            0 => self.load.look(addr),
            1 => self.load.read(addr, false),
            2 => self.load.read(addr, true),
            _ => {
                let mut last = None;
                while let Some(lazy) = self.load.space().next_lazy(last) {
                    let is_behind = |last: Span| last.end() <= lazy.first();
                    assert!(home.covers(lazy) && last.is_none_or(is_behind));
                    last = Some(lazy);
                }
            }
        }
    }

    fn clean(&mut self) {
        match self.random.below(8) {
            0 => drop(self.load.space().drain_for_reclaim(usize::MAX)),
            1 => drop(self.load.purge(true)),
            _ => drop(self.load.purge(false)),
        }
    }
}

/// In the tree, without blocks.
#[test]
fn no_page_has_two_owners() {
    run(&load(32 << 20, 512, 0), 6, THREADS, 1, 3000);
}

/// With blocks of many classes, and so few that they are freed and reserved again all the time.
#[test]
fn no_page_of_a_block_has_two_owners() {
    run_rounds(8, 17 * SIZE, 16, 40);
}

/// With blocks of up to 128 MiB, which all CPUs share.
#[test]
fn no_slot_of_a_large_block_has_two_owners() {
    run_rounds(4, 1500 * SIZE, 1000, 1200);
}

/// Threads on one CPU share its current blocks and its lists.
#[test]
fn no_page_has_two_owners_with_several_threads_on_a_cpu() {
    let load = load(START, 17 * SIZE / PAGE_SIZE - 5, 16);
    run(&load, 40, 4 * THREADS, printed_seed(), 1000);
}

/// Returns a random seed, and prints it for a failure.
fn printed_seed() -> u64 {
    let seed = mm::random_seed();
    println!("seed {seed:#x}");
    seed
}

/// Runs the load `rounds` times, each time with another seed, in a space of `bytes` bytes.
fn run_rounds(rounds: u64, bytes: usize, blocks: usize, most_pages: usize) {
    let seed = printed_seed();
    for round in 0..rounds {
        let load = load(START, bytes / PAGE_SIZE - 5, blocks);
        let seed = seed.wrapping_add(round * THREADS);
        run(&load, most_pages, THREADS, seed, 3000);
    }
}

/// A page that is retired during a purge is taken by this purge or by the next one. The check comes before
/// any later retire in the same blocks, which would make a purge find forgotten pages.
#[test]
fn no_lazy_page_is_forgotten() {
    const ROUNDS: u64 = 400;
    const AREAS: usize = 24;
    let pages = 17 * SIZE / PAGE_SIZE - 5;
    let load = load(START, pages, 16);
    let retire_some = |seed| {
        let mut random = Random::new(seed);
        // Sizes of several classes, so that there are several blocks.
        let all = [(); AREAS].map(|()| {
            let size = (2 << random.below(5)) * PAGE_SIZE;
            let request = Request::bytes(load.space().home(), size);
            load.alloc(&request).expect("room")
        });
        for mine in all {
            load.free(mine, mine.span.first(), false);
        }
    };
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            let threads = [1, 2, 3].map(|thread| {
                let retire_some = &retire_some;
                scope.spawn(move || retire_some(round * THREADS + thread))
            });
            while threads.iter().any(|thread| !thread.is_finished()) {
                load.purge(false);
            }
        });
        load.purge(false);
        assert_eq!(load.space().lazy_pages(), 0, "round {round}");
        let census = load.space().validate().expect("invariants hold");
        assert_eq!((census.busy, census.unlinked, census.lazy_pages), (0, 0, 0));
    }
    load.end();
}
