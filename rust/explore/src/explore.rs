// SPDX-License-Identifier: GPL-2.0

//! A few threads do a few things, under a scheduler that chooses at each access to an atomic and at each
//! lock who goes on: thousands of schedules of each, that threads of the host would hardly meet. Every
//! time the CPU number is asked for, the thread is on another CPU.
//!
//! Shuttle is sequentially consistent: which barriers are needed is for the litmus tests (docs/litmus).
//! `VMAP_RUST_SCHEDULES` says how many schedules of each kind, 300 by default.

use crate::{
    area::Attributes,
    block,
    mm::{
        Gfp,
        Tlb, //
    },
    range::{
        Span,
        PAGE_SIZE, //
    },
    space::{
        Request,
        Space, //
    },
};
use shuttle::{
    rand::Rng,
    sync::Mutex,
    thread, //
};
use std::sync::Arc;

/// Where the space starts; no block starts there.
const START: usize = 31 * block::SIZE + PAGE_SIZE;
/// Pages in a space that has room for two blocks.
const SMALL: usize = 3 * block::SIZE / PAGE_SIZE - 1;
/// Pages in a space that has room for coarse blocks as well.
const LARGE: usize = 66 * block::COARSE_SIZE / PAGE_SIZE;

/// What is known of an area.
struct Known {
    span: Span,
    /// Unmapped, and not flushed since.
    stale: bool,
    /// How many read it who have pinned it.
    readers: usize,
}

/// All areas there are, and the TLB. The lock is no place where others may run: it is the test's.
struct Areas(std::sync::Mutex<Vec<Known>>);

impl Areas {
    fn with<T>(&self, what: impl FnOnce(&mut Vec<Known>) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(|err| err.into_inner()))
    }

    /// Does something with what is known of the area at `start`, if anything is.
    fn at<T>(&self, start: usize, what: impl FnOnce(&mut Known) -> T) -> Option<T> {
        self.with(|all| {
            all.iter_mut()
                .find(|known| known.span.first() == start)
                .map(what)
        })
    }
}

impl Tlb for Arc<Areas> {
    fn flush(&self, span: Span, _: usize) {
        self.with(|all| all.retain(|known| !(known.stale && span.covers(known.span))));
    }
    fn has_shadow(&self) -> bool {
        false
    }
    fn release_shadow(&self, _: Span) {}
    fn flush_shadow(&self, _: Span) {}
}

/// What the threads share.
struct Shared {
    space: Space<Arc<Areas>>,
    areas: Arc<Areas>,
    /// `vmap_purge_lock`.
    purging: Mutex<()>,
}

impl Shared {
    /// A space with blocks as large as so many fine ones.
    fn new(pages: usize, blocks: usize) -> Arc<Self> {
        let window = Span::with_size(START, pages * PAGE_SIZE).expect("not empty");
        let areas = Arc::new(Areas(std::sync::Mutex::new(Vec::new())));
        let space = Space::with_blocks(window, areas.clone(), Some(blocks)).expect("memory");
        Arc::new(Self {
            space,
            areas,
            purging: Mutex::new(()),
        })
    }

    fn alloc(&self, pages: usize) -> Option<Span> {
        let request = Request {
            window: self.space.home(),
            size: pages * PAGE_SIZE,
            align: 1,
            attributes: Attributes::NONE,
            gfp: Gfp::KERNEL,
            node: -1,
        };
        let area = self.space.alloc(&request).ok()?;
        let start = self
            .space
            .start_of_busy(area)
            .expect("busy areas are found");
        let span = Span::with_size(start, request.size).expect("not empty");
        let last = self.space.find(span.last());
        assert_eq!(last, Some(area), "{span:x?} is not found at its end");
        self.areas.with(|all| {
            for known in all.iter() {
                let apart = known.span.last() < span.first() || span.last() < known.span.first();
                let why = if known.stale { "not flushed" } else { "busy" };
                assert!(apart, "{span:x?} is {why}: {:x?}", known.span);
            }
            all.push(Known {
                span,
                stale: false,
                readers: 0,
            });
        });
        Some(span)
    }

    /// Takes an area out of use, and gives it back; never mapped if `release`.
    fn free(&self, span: Span, release: bool) {
        let area = self.space.unlink(span.last()).expect("mine to unlink");
        let known = self.areas.at(span.first(), |known| {
            assert_eq!(known.readers, 0, "{span:x?} is read");
            known.stale = true;
        });
        known.expect("it was made known");
        if release {
            self.areas
                .with(|all| all.retain(|known| known.span.first() != span.first()));
            self.space.release(area);
        } else {
            self.space.retire(area);
        }
    }

    fn purge(&self, drain: bool) {
        let _purging = self.purging.lock().expect("nobody panics with it");
        self.space.purge(None, drain);
    }

    /// Pins what is at `addr` or above, and looks at it.
    fn read(&self, addr: usize, try_only: bool) {
        let got = match try_only {
            true => self.space.try_get(addr),
            false => self.space.get(addr),
        };
        let Some((area, pin)) = got else {
            return;
        };
        let start = self.space.start_of_pinned(area, &pin);
        // Its owner may not have said yet that it has it.
        let known = self.areas.at(start, |known| known.readers += 1);
        // Somewhere in here the owner may want it.
        self.space.find(addr);
        assert_eq!(self.space.start_of_pinned(area, &pin), start);
        if known.is_some() {
            self.areas.at(start, |known| known.readers -= 1);
        }
        drop(pin);
    }

    /// After all threads: nothing is left, and nothing was forgotten.
    fn end(&self) {
        self.purge(false);
        assert_eq!(self.space.lazy_pages(), 0);
        let left = self.areas.with(|all| all.len());
        assert_eq!(left, 0, "areas were not flushed");
        self.space.validate().expect("invariants hold");
        self.purge(true);
        assert_eq!(self.space.validate().ok(), Some(Default::default()));
        assert_eq!(self.space.blocks(), Default::default());
    }
}

/// Runs `threads` on a space of that size, with blocks as large as so many fine ones, under many schedules.
fn explore(pages: usize, blocks: usize, threads: &'static [fn(&Shared)]) {
    let schedules = std::env::var("VMAP_RUST_SCHEDULES").map_or(300, |number| {
        number.parse().expect("VMAP_RUST_SCHEDULES is a number")
    });
    kernel::sync::schedule_with(crate::cpu::schedule);
    let run = move || {
        let shared = Shared::new(pages, blocks);
        let running: Vec<_> = threads
            .iter()
            .map(|&what| {
                let shared = shared.clone();
                thread::spawn(move || what(&shared))
            })
            .collect();
        for thread in running {
            thread.join().expect("no thread panics");
        }
        shared.end();
    };
    shuttle::check_random(run, schedules);
    // Three places where the order of threads matters, chosen at random.
    shuttle::check_pct(run, schedules, 3);
}

/// Areas of a few sizes, one after the other and two at a time.
fn churn(shared: &Shared) {
    churn_of(shared, [1, 2, 5, 32]);
}

/// The same for fine and coarse blocks, several of the fine ones.
fn churn_all(shared: &Shared) {
    churn_of(shared, [1, 9, 20, 600]);
}

fn churn_of(shared: &Shared, sizes: [usize; 4]) {
    let mut held = None;
    for _ in 0..3 {
        let pages = sizes[shuttle::rand::thread_rng().gen_range(0..4)];
        if let Some(span) = held.take() {
            shared.free(span, pages == 5);
        }
        held = shared.alloc(pages);
    }
    if let Some(span) = held {
        shared.free(span, false);
    }
}

/// Areas that fill a block: with others, there is not room for all.
fn fill(shared: &Shared) {
    let spans: Vec<_> = (0..9).filter_map(|_| shared.alloc(32)).collect();
    for span in spans {
        shared.free(span, false);
    }
}

/// Areas of three fine blocks, all of which become empty.
fn three_blocks(shared: &Shared) {
    let spans = [1, 9, 20].map(|pages| shared.alloc(pages));
    for (index, span) in spans.into_iter().flatten().enumerate() {
        shared.free(span, index > 0);
    }
}

/// Two areas of a coarse block, each with addresses in two entries of the directory.
fn large(shared: &Shared) {
    for _ in 0..2 {
        if let Some(span) = shared.alloc(600) {
            shared.free(span, false);
        }
    }
}

/// Large areas where blocks of others just were.
fn take_their_place(shared: &Shared) {
    for _ in 0..2 {
        shared.space.drain_for_reclaim();
        if let Some(span) = shared.alloc(600) {
            shared.free(span, false);
        }
        shared.purge(false);
    }
}

fn purge(shared: &Shared) {
    for _ in 0..2 {
        shared.purge(false);
    }
}

fn drain(shared: &Shared) {
    shared.purge(true);
    shared.space.drain_for_reclaim();
}

fn read(shared: &Shared) {
    let mut addr = 0;
    for _ in 0..2 {
        shared.read(addr, false);
        shared.read(block::SIZE * 32, true);
        addr = 32 * block::SIZE;
    }
}

/// No page has two owners, none is reused before its flush, none is forgotten.
#[test]
fn retire_and_purge() {
    explore(SMALL, 2, &[churn, churn, purge]);
}

/// Blocks are taken, filled, taken over by others, given back and taken again.
#[test]
fn refill_and_drain() {
    explore(SMALL, 1, &[fill, fill, drain]);
}

/// An empty block is about to be given back while somebody still allocates from it.
#[test]
fn drain_of_what_others_use() {
    explore(SMALL, 2, &[churn, churn, drain, purge]);
}

/// What is pinned stays, and is not found half made or half gone.
#[test]
fn pin_and_unlink() {
    explore(SMALL, 2, &[churn, churn, read]);
}

/// The same without blocks.
#[test]
fn pin_and_unlink_in_the_tree() {
    explore(SMALL, 0, &[churn, churn, read, purge]);
}

/// Coarse blocks come where fine ones were, while others still have the numbers of those.
#[test]
fn one_kind_after_the_other() {
    explore(LARGE, 64, &[churn_all, churn_all, drain, purge]);
    explore(LARGE, 64, &[three_blocks, take_their_place]);
}

/// A coarse block comes where one just was whose number somebody still has.
#[test]
fn one_coarse_block_after_the_other() {
    explore(LARGE, 64, &[large, take_their_place]);
}
