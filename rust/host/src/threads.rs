// SPDX-License-Identifier: GPL-2.0

//! Tests with threads that allocate, free, look up and purge concurrently.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::{
        fixtures::FlushLog,
        model::Random, //
    },
    policy::{
        census::Census,
        space::{
            Request,
            Space, //
        }, //
    },
    state::{
        area::{
            AreaPtr,
            NeverMapped, //
        },
        block, //
    },
    sys::mm, //
};
use std::sync::{
    atomic::{
        AtomicBool,
        Ordering, //
    },
    Mutex, //
};

const THREADS: u64 = 4;

/// A space that threads share, and the owners of its pages.
struct Load {
    space: Space<FlushLog>,
    /// Largest size, in pages.
    most_pages: usize,
    /// For each page of the space, whether it is part of a busy area.
    owned: Vec<AtomicBool>,
    /// Stands for `vmap_purge_lock`.
    purging: Mutex<()>,
}

impl Load {
    /// Creates a space of `pages` pages at `start`, in which blocks are at most as large as `blocks` fine
    /// ones. Areas have at most `most_pages` pages.
    fn new(start: usize, pages: usize, blocks: usize, most_pages: usize) -> Self {
        let window = Span::with_size(start, pages * PAGE_SIZE).expect("not empty");
        let log = FlushLog::new().expect("memory");
        Self {
            space: Space::with_blocks(window, log, Some(blocks)).expect("memory"),
            most_pages,
            owned: (0..pages).map(|_| AtomicBool::new(false)).collect(),
            purging: Mutex::new(()),
        }
    }

    fn request(&self, size: usize, align: usize) -> Request {
        Request {
            size,
            align,
            ..Request::any_page(self.space.home())
        }
    }

    /// Returns the flags of the pages of `span`.
    fn pages(&self, span: Span) -> &[AtomicBool] {
        let first = (span.first() - self.space.home().first()) / PAGE_SIZE;
        &self.owned[first..first + span.size() / PAGE_SIZE]
    }

    fn purge(&self, drain: bool) -> usize {
        let _purging = self.purging.lock().expect("no panic in a purge");
        self.space.purge(None, drain)
    }

    /// Runs `steps` random steps in each of [`THREADS`] threads, and checks that no area is left.
    fn run(&self, seed: u64, steps: usize) {
        self.run_threads(THREADS, seed, steps);
    }

    /// Runs `steps` random steps in each of `threads` threads, and checks that no area is left.
    fn run_threads(&self, threads: u64, seed: u64, steps: usize) {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let seed = seed.wrapping_add(thread);
                scope.spawn(move || Worker::new(self, seed).run(steps));
            }
        });
        self.purge(true);
        let census = self.space.validate().expect("invariants hold");
        assert_eq!(census, Census::default());
        assert_eq!(self.space.lazy_pages(), 0);
        assert!(self.owned.iter().all(|page| !page.load(Ordering::Relaxed)));
    }
}

/// One of the threads.
struct Worker<'a> {
    load: &'a Load,
    seed: u64,
    random: Random,
    mine: Vec<(Span, AreaPtr)>,
    /// Maximum number of areas, which changes every 128 steps.
    most: usize,
}

impl<'a> Worker<'a> {
    fn new(load: &'a Load, seed: u64) -> Self {
        Self {
            load,
            seed,
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
                0..=3 if self.mine.len() < self.most => self.alloc(step),
                0..=5 if !self.mine.is_empty() => self.free(step),
                6 => self.look(),
                _ => self.clean(),
            }
        }
        while !self.mine.is_empty() {
            self.free(steps);
        }
    }

    fn alloc(&mut self, step: usize) {
        let random = &mut self.random;
        let size = (1 + random.below(self.load.most_pages)) * PAGE_SIZE;
        let mut request = self.load.request(size, PAGE_SIZE << random.below(4));
        if random.below(16) == 0 {
            // Blocks do not serve requests for a part of home.
            let home = self.load.space.home();
            let middle = home.first() + home.size() / PAGE_SIZE / 2 * PAGE_SIZE;
            request.window = Span::from_bounds(middle, home.end()).expect("not empty");
        }
        let Ok(area) = self.load.space.alloc(&request) else {
            return;
        };
        let start = self.load.space.start_of_busy(area);
        let start = start.expect("a busy area is found where it is");
        let span = Span::with_size(start, size).expect("not empty");
        assert!(request.window.covers(span) && start % request.align == 0);
        for page in self.load.pages(span) {
            let owned = page.swap(true, Ordering::Relaxed);
            assert!(
                !owned,
                "seed {}, step {step}: {span:x?} has two owners",
                self.seed
            );
        }
        self.mine.push((span, area));
    }

    fn free(&mut self, step: usize) {
        let nth = self.random.below(self.mine.len());
        let (span, area) = self.mine.swap_remove(nth);
        let inner = span.first() + self.random.below(span.size());
        for addr in [span.first(), inner, span.last()] {
            let found = self.load.space.find(addr);
            assert_eq!(found, Some(area), "seed {}, step {step}", self.seed);
        }
        for page in self.load.pages(span) {
            let owned = page.swap(false, Ordering::Relaxed);
            assert!(owned, "seed {}, step {step}", self.seed);
        }
        let unlinked = self.load.space.unlink(inner).expect("mine to unlink");
        assert_eq!(unlinked.span(), Some(span));
        assert!(self.load.space.find(inner) != Some(area));
        if self.random.below(8) == 0 {
            self.load.space.release(unlinked, NeverMapped::in_test());
        } else {
            self.load.space.retire(unlinked);
        }
    }

    /// Looks up areas of other threads.
    fn look(&mut self) {
        let space = &self.load.space;
        let addr = space.home().first() + self.random.below(space.home().size());
        match self.random.below(4) {
            0 => drop(space.find(addr)),
            1 => drop(space.get(addr)),
            2 => drop(space.try_get(addr)),
            _ => {
                if let Some(lazy) = space.next_lazy(addr) {
                    assert!(lazy.last() >= addr && space.home().covers(lazy));
                }
            }
        }
    }

    fn clean(&mut self) {
        match self.random.below(8) {
            0 => drop(self.load.space.drain_for_reclaim(usize::MAX)),
            1 => drop(self.load.purge(true)),
            _ => drop(self.load.purge(false)),
        }
    }
}

/// In the tree, without blocks.
#[test]
fn no_page_has_two_owners() {
    Load::new(32 << 20, 512, 0, 6).run(1, 3000);
}

/// With blocks of all bands, and so few that they are freed and reserved again all the time.
#[test]
fn no_page_of_a_block_has_two_owners() {
    run_rounds(8, 17 * block::SIZE, 16, 40);
}

/// With coarse blocks, each as large as 32 fine ones.
#[test]
fn no_unit_of_a_coarse_block_has_two_owners() {
    run_rounds(4, 66 * block::COARSE_SIZE, 200, 1200);
}

/// Threads on one CPU share its current blocks and its lists.
#[test]
fn no_page_has_two_owners_with_several_threads_on_a_cpu() {
    let start = 31 * block::SIZE + 5 * PAGE_SIZE;
    let load = Load::new(start, 17 * block::SIZE / PAGE_SIZE - 5, 16, 40);
    load.run_threads(4 * THREADS, mm::random_seed(), 1000);
}

/// Runs the load `rounds` times, each time with another seed, in a space of `bytes` bytes that does not start
/// at a block.
fn run_rounds(rounds: u64, bytes: usize, blocks: usize, most_pages: usize) {
    let seed = mm::random_seed();
    println!("seed {seed:#x}");
    for round in 0..rounds {
        let start = 31 * block::SIZE + 5 * PAGE_SIZE;
        let load = Load::new(start, bytes / PAGE_SIZE - 5, blocks, most_pages);
        load.run(seed.wrapping_add(round * THREADS), 3000);
    }
}

/// A page that is retired during a purge is taken by this purge or by the next one. The check comes before
/// any later retire in the same blocks, which would make a purge find forgotten pages.
#[test]
fn no_lazy_page_is_forgotten() {
    const ROUNDS: u64 = 400;
    const AREAS: usize = 24;
    let pages = 17 * block::SIZE / PAGE_SIZE - 5;
    let load = Load::new(31 * block::SIZE + 5 * PAGE_SIZE, pages, 16, 32);
    let retire_some = |seed| {
        let mut random = Random::new(seed);
        let mut starts = Vec::new();
        for _ in 0..AREAS {
            // Sizes of several bands, so that there are several blocks.
            let request = load.request((2 << random.below(5)) * PAGE_SIZE, PAGE_SIZE);
            let area = load.space.alloc(&request).expect("room");
            let start = load.space.start_of_busy(area);
            starts.push(start.expect("a busy area is found where it is"));
        }
        for start in starts {
            let area = load.space.unlink(start).expect("mine to unlink");
            load.space.retire(area);
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
        assert_eq!(load.space.lazy_pages(), 0, "round {round}");
        let census = load.space.validate().expect("invariants hold");
        assert_eq!((census.busy, census.unlinked, census.lazy_pages), (0, 0, 0));
    }
    load.purge(true);
    assert_eq!(load.space.validate().ok(), Some(Census::default()));
}
