// SPDX-License-Identifier: GPL-2.0

//! How full a space gets before the first request fails, compared with a lowest-fit search in one tree, and how
//! many searches small areas need.

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
    policy::{
        space::Space, //
        validate::Census,
    },
    runs::FreeRuns,
    spaces::{
        request,
        without_shadow, //
    },
    state::{
        area::Busy,
        class::SIZE, //
    },
    sys::mm, //
};
use kernel::hooks::SEARCHES;

const GIB: usize = 1 << 30;
const MIB: usize = 1 << 20;

/// Percentages and pages of areas, those of `mixed` in bench/burst.c, with a guard page.
const SIZES: [(usize, usize); 7] = [(82, 5), (6, 2), (3, 4), (5, 17), (2, 65), (1, 97), (1, 369)];

/// A live area: its size, and where it is in the space and in the model. [`None`] once that is full.
struct Live {
    size: usize,
    area: Option<Busy>,
    model: Option<Span>,
}

/// A space, and a lowest-fit model that gets the same requests.
struct Pair {
    space: Space<FlushLog>,
    cpus: usize,
    random: Random,
    runs: FreeRuns,
    /// Ranges of the model that become free with the next purge.
    lazy: Vec<Span>,
    live: Vec<Live>,
    /// Areas that stay.
    fixed: Vec<Live>,
    /// Bytes of all live areas.
    bytes: usize,
    /// The bytes when the first request failed, in the space and in the model.
    full: Option<usize>,
    model_full: Option<usize>,
    /// Numbers of small requests, of small areas freed, and of those that were in a block.
    small: usize,
    small_freed: usize,
    in_blocks: usize,
}

impl Pair {
    fn new(home: Span, cpus: usize, seed: u64) -> Self {
        cpu::be_on(0, cpus);
        Self {
            space: without_shadow(home).space().expect("memory"),
            cpus,
            random: Random::new(seed),
            runs: FreeRuns::new(home),
            lazy: Vec::new(),
            live: Vec::new(),
            fixed: Vec::new(),
            bytes: 0,
            full: None,
            model_full: None,
            small: 0,
            small_freed: 0,
            in_blocks: 0,
        }
    }

    /// `lazy_max_pages()` in mm/vmalloc.c.
    fn max_lazy_pages(&self) -> usize {
        // CAST: A number of bits fits in a `usize`.
        (usize::BITS - self.cpus.leading_zeros()) as usize * (32 * MIB / PAGE_SIZE)
    }

    /// Purges both, the space with cached ranges and empty blocks if `drain`.
    fn purge(&mut self, drain: bool) {
        self.space.purge(None, drain);
        for span in self.lazy.drain(..) {
            self.runs.give(span);
        }
    }

    /// Returns whether blocks serve requests of `size` bytes.
    fn is_small(&self, size: usize) -> bool {
        self.space.serves(size)
    }

    /// Allocates an area of `size` bytes in both, unless they are full. As in `alloc_vmap_area()`, a request
    /// without room purges and tries once more.
    fn alloc(&mut self, size: usize) {
        let home = self.space.home();
        self.small += usize::from(self.is_small(size));
        let mut area = None;
        if self.full.is_none() {
            area = self.space.alloc(request(&self.space, size)).ok();
            if area.is_none() {
                self.purge(true);
                area = self.space.alloc(request(&self.space, size)).ok();
            }
            if area.is_none() {
                self.full = Some(self.bytes);
            }
        }
        let mut model = None;
        if self.model_full.is_none() {
            model = self.runs.lowest(home, size);
            if model.is_none() {
                self.purge(true);
                model = self.runs.lowest(home, size);
            }
            match model {
                Some(span) => self.runs.take(span),
                None => self.model_full = Some(self.bytes),
            }
        }
        if area.is_some() || model.is_some() {
            self.bytes += size;
            self.live.push(Live { size, area, model });
        }
    }

    /// Frees the live area `nth`.
    fn free(&mut self, nth: usize) {
        let Live { size, area, model } = self.live.swap_remove(nth);
        self.bytes -= size;
        self.lazy.extend(model);
        if let Some(area) = area {
            let span = area.span();
            assert_eq!(span.size(), size);
            let area = self.space.unlink(span.first()).expect("busy");
            if self.is_small(size) {
                self.small_freed += 1;
                self.in_blocks += usize::from(area.is_in_block());
            }
            if self.space.retire(area) > self.max_lazy_pages() {
                self.purge(false);
            }
        }
    }

    /// Moves to a random CPU.
    fn migrate(&mut self) {
        cpu::be_on(self.random.below(self.cpus), self.cpus);
    }

    /// Allocates an area of a random size on a random CPU, or frees a random one with a chance of `frees` in
    /// 8.
    fn step(&mut self, frees: usize) {
        self.migrate();
        if self.random.below(8) < frees && !self.live.is_empty() {
            let nth = self.random.below(self.live.len());
            return self.free(nth);
        }
        let mut percent = self.random.below(100);
        let size = SIZES.iter().find(|(share, _)| {
            let found = percent < *share;
            percent = percent.wrapping_sub(*share);
            found
        });
        self.alloc(size.expect("they add up to 100").1 * PAGE_SIZE);
    }

    /// Allocates and frees until a request has failed in both. Returns the bytes in the space and in the model
    /// then.
    fn fill(&mut self) -> (usize, usize) {
        loop {
            if let (Some(full), Some(model)) = (self.full, self.model_full) {
                return (full, model);
            }
            self.step(2);
        }
    }

    /// Frees all areas.
    fn finish(mut self) {
        self.live.append(&mut self.fixed);
        while let Some(last) = self.live.len().checked_sub(1) {
            self.free(last);
        }
        self.purge(true);
        assert_eq!(self.space.validate().ok(), Some(Census::default()));
    }
}

/// Returns `bytes` bytes that do not start at a block.
fn home_of(bytes: usize) -> Span {
    Span::with_size(31 * SIZE + PAGE_SIZE, bytes).expect("not empty")
}

/// Fills a space of `bytes` bytes once with each of `seeds` seeds, after `prepare`. Prints the bytes that the
/// space holds compared with those that the model holds: all of them, and those that `prepare` has not
/// allocated.
fn fills(bytes: usize, cpus: usize, seeds: u64, prepare: impl Fn(&mut Pair)) {
    let first = mm::random_seed();
    let (mut shares, mut rests) = (Vec::new(), Vec::new());
    for seed in (0..seeds).map(|nth| first.wrapping_add(nth)) {
        let mut pair = Pair::new(home_of(bytes), cpus, seed);
        prepare(&mut pair);
        let fixed = pair.bytes;
        let (full, model) = pair.fill();
        let share = full as f64 / model as f64;
        let rest = (full - fixed) as f64 / (model - fixed) as f64;
        println!(
            "{} MiB, {cpus} CPUs, seed {seed:#x}: {} KiB of {} KiB, {share:.3}, {rest:.3}; {:?}",
            bytes / MIB,
            full >> 10,
            model >> 10,
            pair.space.blocks()
        );
        shares.push(share);
        rests.push(rest);
        pair.finish();
    }
    let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len() as f64;
    let least = |shares: &[f64]| shares.iter().copied().fold(f64::MAX, f64::min);
    println!(
        "{} MiB, {cpus} CPUs: mean {:.3}, least {:.3}; {:.3}, {:.3}",
        bytes / MIB,
        mean(&shares),
        least(&shares),
        mean(&rests),
        least(&rests)
    );
    // The size of the first request without room is random, so single runs vary.
    assert!(
        mean(&shares) >= 0.95 && least(&shares) >= 0.8,
        "seed {first:#x}"
    );
    assert!(mean(&rests) >= 0.9, "seed {first:#x}");
}

#[test]
fn a_space_of_64_gib_with_64_cpus_gets_full() {
    fills(64 * GIB, 64, 1, |_| ());
}

#[test]
fn a_space_of_240_mib_with_8_cpus_gets_full() {
    fills(240 * MIB, 8, 64, |_| ());
}

#[test]
fn a_space_of_128_mib_with_4_cpus_gets_full() {
    fills(128 * MIB, 4, 64, |_| ());
}

/// Large areas take 7/8 of the space, with gaps of random sizes between.
#[test]
fn a_nearly_full_space_gets_full() {
    fills(4 * GIB, 8, 8, |pair| {
        while pair.full.is_none() && pair.model_full.is_none() {
            let pages = 1 + pair.random.below(4096);
            pair.alloc(1024 * PAGE_SIZE + pages * PAGE_SIZE);
        }
        (pair.full, pair.model_full) = (None, None);
        while pair.bytes > 4 * GIB / 8 * 7 {
            let nth = pair.random.below(pair.live.len());
            pair.free(nth);
        }
        pair.purge(true);
        pair.fixed = std::mem::take(&mut pair.live);
    });
}

/// Allocates and frees at random with about `live` areas. Returns how many of 1,000 small areas were in blocks,
/// and how many searches of the tree 1,000 requests for small areas needed.
fn churns(pair: &mut Pair, live: usize, steps: usize) -> (usize, usize) {
    // Only the space.
    pair.model_full = Some(0);
    while pair.live.len() < live {
        pair.step(2);
    }
    (pair.small, pair.small_freed, pair.in_blocks) = (0, 0, 0);
    let searches = || SEARCHES.get();
    let (mut others, before) = (0, searches());
    for _ in 0..steps {
        let (small, at_start) = (pair.small, searches());
        pair.step(4);
        if pair.small == small {
            others += searches() - at_start;
        }
    }
    let searches = searches() - before - others;
    println!(
        "{} MiB, {} CPUs: {} of {} small areas in blocks; {} searches for {}",
        pair.space.home().size() / MIB,
        pair.cpus,
        pair.in_blocks,
        pair.small_freed,
        searches,
        pair.small
    );
    assert!(pair.full.is_none());
    (
        pair.in_blocks * 1000 / pair.small_freed,
        searches * 1000 / pair.small,
    )
}

/// Three areas of 192 GiB, as for the devices of a large machine, take all the lowest addresses.
#[test]
fn large_areas_at_the_start_keep_no_small_area_from_blocks() {
    let seed = mm::random_seed();
    println!("seed {seed:#x}");
    let mut pair = Pair::new(home_of(2048 * GIB), 64, seed);
    for _ in 0..3 {
        pair.alloc(192 * GIB);
    }
    pair.fixed = std::mem::take(&mut pair.live);
    let (in_blocks, searches) = churns(&mut pair, 50_000, 400_000);
    assert!(in_blocks > 990 && searches < 10, "{in_blocks}, {searches}");
    pair.finish();
}

/// A tenth of the space is in use. In small spaces, lazy pages, of which there may be more than half of the
/// space before a purge, take all blocks, and the other requests search the tree: ranges of sizes that blocks serve are
/// not cached.
#[test]
fn small_areas_need_few_searches() {
    let seed = mm::random_seed();
    println!("seed {seed:#x}");
    for (bytes, cpus, most) in [(64 * GIB, 64, 10), (240 * MIB, 8, 150), (128 * MIB, 4, 300)] {
        let mut pair = Pair::new(home_of(bytes), cpus, seed);
        // 12 pages on average.
        let (in_blocks, searches) = churns(&mut pair, bytes / 10 / (12 * PAGE_SIZE), 200_000);
        assert!(searches < most, "{searches}");
        assert!(in_blocks > 990 || bytes < GIB, "{in_blocks}");
        pair.finish();
    }
}
