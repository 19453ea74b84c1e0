// SPDX-License-Identifier: GPL-2.0

//! Tests with threads that allocate, free, look up, list and purge concurrently.

use crate::{
    load::{Load, Mine},
    prelude::*,
};

const THREADS: u64 = 4;

/// Creates a space of `pages` pages, which does not start at a block, in which blocks are at most as large as `blocks` of the
/// smallest ones.
fn load(pages: usize, blocks: usize) -> Load {
    let window = span_of(31 * SIZE + 5 * PAGE_SIZE, pages * PAGE_SIZE);
    Load::new(World::new(window).blocks(blocks))
}

/// Calls `load` for a space `rounds` times. Each time, each of `threads` threads makes random steps with areas of up to
/// `most_pages` pages, and nothing is left.
fn run(rounds: u64, load: impl Fn() -> Load, most_pages: usize, threads: u64) {
    let seed = mm::random_seed();
    println!("seed {seed:#x}");
    for round in 0..rounds {
        let load = load();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let mut worker = Worker {
                    load: &load,
                    most_pages,
                    random: Random::new(seed.wrapping_add(round * threads + thread)),
                    mine: Vec::new(),
                    most: 24,
                };
                scope.spawn(move || worker.run(3000 * THREADS / threads));
            }
        });
        load.end();
    }
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

impl Worker<'_> {
    fn run(&mut self, steps: u64) {
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
        match self.random.below(16) {
            0 => self.list(),
            1..=5 => self.load.look(addr),
            6..=8 => self.load.read(addr, false),
            9..=11 => self.load.read(addr, true),
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

    /// Reads the list of all ranges: its lines are whole, of known forms, and in the order of addresses.
    fn list(&self) {
        let mut text = Vec::new();
        let mut read = |part: &[u8]| {
            text.extend_from_slice(part);
            Ok(())
        };
        let (space, mut position) = (self.load.space(), 0);
        while space.read_list(&mut position, 4096, &mut read) != Ok(0) {}
        let text = String::from_utf8(text).expect("letters");
        let mut at = 0;
        for line in text.lines().skip(1) {
            let words = line.split(['-', ' ']).collect::<Vec<_>>();
            let [start, end] = [words[0], words[1]]
                .map(|word| usize::from_str_radix(&word[2..], 16).expect("an address"));
            assert!(at <= start && start < end, "{line}");
            at = end;
            match words[2..] {
                ["area", "changing" | "busy" | "leaving" | "lazy" | "flushed"]
                | ["block", "changing"] => (),
                ["block", "cpu", _, "current" | "pool", "slot", pages, slots] => {
                    let pages: usize = pages.parse().expect("a number");
                    assert_eq!((end - start) / PAGE_SIZE / pages, slots.len(), "{line}");
                    assert!(slots.chars().all(|slot| ".Bulf?".contains(slot)), "{line}");
                }
                _ => panic!("a line of unknown form: {line}"),
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
    run(1, || load(512, 0), 6, THREADS);
}

/// With blocks of many classes, and so few that they are freed and reserved again all the time.
#[test]
fn no_page_of_a_block_has_two_owners() {
    run(8, || load(17 * SIZE / PAGE_SIZE - 5, 16), 40, THREADS);
}

/// With blocks of up to 128 MiB, which all CPUs share.
#[test]
fn no_slot_of_a_large_block_has_two_owners() {
    run(4, || load(1500 * SIZE / PAGE_SIZE - 5, 1000), 1200, THREADS);
}

/// Threads on one CPU share its current blocks and its lists.
#[test]
fn no_page_has_two_owners_with_several_threads_on_a_cpu() {
    run(1, || load(17 * SIZE / PAGE_SIZE - 5, 16), 40, 4 * THREADS);
}

/// A page that is retired during a purge is taken by this purge or by the next one. The check comes before
/// any later retire in the same blocks, which would make a purge find forgotten pages.
#[test]
fn no_lazy_page_is_forgotten() {
    let load = &load(17 * SIZE / PAGE_SIZE - 5, 16);
    let retire_some = |seed| {
        let mut random = Random::new(seed);
        // Sizes of several classes, so that there are several blocks.
        let all = [(); 24].map(|()| {
            let size = (2 << random.below(5)) * PAGE_SIZE;
            let request = Request::bytes(load.space().home(), size);
            load.alloc(&request).expect("room")
        });
        for mine in all {
            load.free(mine, mine.span.first(), false);
        }
    };
    for round in 0..400 {
        std::thread::scope(|scope| {
            let threads =
                [1, 2, 3].map(|thread| scope.spawn(move || retire_some(round * THREADS + thread)));
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
