// SPDX-License-Identifier: GPL-2.0

//! Runs a few threads under thousands of schedules. A scheduler (shuttle) chooses the next thread at
//! accesses to atomics and at locks, and each query of the CPU number returns another CPU.
//!
//! Shuttle is sequentially consistent; the litmus tests (docs/litmus) cover barriers.
//! `VMAP_RUST_SCHEDULES` is the number of schedules of each kind, 300 by default.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    policy::space::{
        Request,
        Space, //
    },
    state::{
        area::NeverMapped,
        block, //
    },
    sys::mm::Tlb, //
};
use shuttle::{
    rand::Rng,
    sync::Mutex,
    thread, //
};
use std::sync::Arc;

/// Start of the space, not aligned to a block.
const START: usize = 31 * block::SIZE + PAGE_SIZE;
/// Pages in a space with room for two fine blocks.
const SMALL: usize = 3 * block::SIZE / PAGE_SIZE - 1;
/// Pages in a space with room for coarse blocks.
const LARGE: usize = 66 * block::COARSE_SIZE / PAGE_SIZE;

/// An area as the test knows it.
struct Known {
    span: Span,
    /// Unmapped and not flushed since.
    stale: bool,
    /// Number of readers that have it pinned.
    readers: usize,
}

/// All areas, and the TLB. The scheduler does not switch threads at this lock.
struct Areas(std::sync::Mutex<Vec<Known>>);

impl Areas {
    fn with<T>(&self, what: impl FnOnce(&mut Vec<Known>) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(|err| err.into_inner()))
    }

    /// Calls `what` with the area at `start`, if it is known.
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

/// The state that the threads share.
struct Shared {
    space: Space<Arc<Areas>>,
    areas: Arc<Areas>,
    /// Stands for `vmap_purge_lock`.
    purging: Mutex<()>,
    /// Whether there can be blocks.
    has_blocks: bool,
}

impl Shared {
    /// Creates a space of `pages` pages, in which blocks are at most as large as `blocks` fine ones.
    fn new(pages: usize, blocks: usize) -> Arc<Self> {
        let window = Span::with_size(START, pages * PAGE_SIZE).expect("not empty");
        let areas = Arc::new(Areas(std::sync::Mutex::new(Vec::new())));
        let space = Space::with_blocks(window, areas.clone(), Some(blocks)).expect("memory");
        Arc::new(Self {
            space,
            areas,
            purging: Mutex::new(()),
            has_blocks: blocks > 0,
        })
    }

    fn alloc(&self, pages: usize) -> Option<Span> {
        let request = Request {
            size: pages * PAGE_SIZE,
            ..Request::any_page(self.space.home())
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

    /// Unlinks an area, and retires it, or releases it as never mapped if `release`.
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
            self.space.release(area, NeverMapped::in_test());
        } else {
            self.space.retire(area);
        }
    }

    fn purge(&self, drain: bool) {
        let _purging = self.purging.lock().expect("nobody panics with it");
        self.space.purge(None, drain);
    }

    /// Pins the area at `addr` or above, and checks that it does not change.
    fn read(&self, addr: usize, try_only: bool) {
        let got = match try_only {
            true => self.space.try_get(addr),
            false => self.space.get(addr),
        };
        let Some((area, pin)) = got else {
            return;
        };
        let start = self.space.start_of_pinned(area, &pin);
        // The owner may not have recorded a new area yet.
        let known = self.areas.at(start, |known| known.readers += 1);
        // The owner may try to unlink the area during this call.
        self.space.find(addr);
        assert_eq!(self.space.start_of_pinned(area, &pin), start);
        if known.is_some() {
            self.areas.at(start, |known| known.readers -= 1);
        }
        drop(pin);
    }

    /// Checks after all threads that no area is left and that all were flushed.
    fn end(&self) {
        self.purge(false);
        assert_eq!(self.space.lazy_pages(), 0);
        let left = self.areas.with(|all| all.len());
        assert_eq!(left, 0, "areas were not flushed");
        self.space.validate().expect("invariants hold");
        self.purge(true);
        assert_eq!(self.space.validate().ok(), Some(Default::default()));
        assert_eq!(self.space.blocks(), Default::default());
        // There is room for blocks again, and no band has forgotten to ask for it.
        for pages in [1, 5, 9, 20, 32] {
            let before = self.space.counters().block_new;
            let span = self.alloc(pages).expect("there is room");
            let new = self.space.counters().block_new - before;
            assert_eq!(new, usize::from(self.has_blocks), "blocks of {pages} pages");
            self.free(span, true);
            self.purge(true);
        }
    }
}

/// Runs `threads` under many schedules, in a space of `pages` pages with blocks at most as large as `blocks`
/// fine ones.
fn explore(pages: usize, blocks: usize, threads: &'static [fn(&Shared)]) {
    explore_after(|_| (), pages, blocks, threads);
}

/// As [`explore`], after `first` has run alone.
fn explore_after(first: fn(&Shared), pages: usize, blocks: usize, threads: &'static [fn(&Shared)]) {
    let schedules = std::env::var("VMAP_RUST_SCHEDULES").map_or(300, |number| {
        number.parse().expect("VMAP_RUST_SCHEDULES is a number")
    });
    kernel::sync::schedule_with(crate::cpu::schedule);
    let run = move || {
        let shared = Shared::new(pages, blocks);
        first(&shared);
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
    // PCT with depth 3 finds bugs that need three ordered points.
    shuttle::check_pct(run, schedules, 3);
}

/// Allocates and frees areas of several sizes.
fn churn(shared: &Shared) {
    churn_of(shared, [1, 2, 5, 32]);
}

/// Allocates and frees areas of several fine bands and of coarse blocks.
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

/// Allocates areas that fill a block: two such threads run out of room.
fn fill(shared: &Shared) {
    let spans: Vec<_> = (0..9).filter_map(|_| shared.alloc(32)).collect();
    for span in spans {
        shared.free(span, false);
    }
}

/// Fills a block with the largest areas of its kind, and frees all of them: a purge of them is representative,
/// and leaves the dirty bits.
fn fill_block(shared: &Shared) {
    let spans: Vec<_> = (0..16).filter_map(|_| shared.alloc(32)).collect();
    for span in spans {
        shared.free(span, false);
    }
}

/// Makes two blocks current, one empty and one with room, and lets them become idle.
fn age_two_blocks(shared: &Shared) {
    let span = shared.alloc(1).expect("there is room");
    for _ in 0..10 {
        fill_block(shared);
        shared.purge(false);
    }
    shared.free(span, false);
    assert_eq!(shared.space.blocks().live, 2);
}

/// Allocates small areas, as from a block that was current for long.
fn small(shared: &Shared) {
    for _ in 0..3 {
        if let Some(span) = shared.alloc(1) {
            shared.free(span, false);
        }
    }
}

/// Leaves an empty block as the current one of a CPU.
fn one_empty_block(shared: &Shared) {
    let span = shared.alloc(1).expect("there is room");
    shared.free(span, true);
}

/// Allocates areas that empty their block again at once.
fn release(shared: &Shared) {
    for _ in 0..3 {
        if let Some(span) = shared.alloc(1) {
            shared.free(span, true);
        }
    }
}

/// Removes empty blocks.
fn reclaim(shared: &Shared) {
    for _ in 0..3 {
        shared.space.drain_for_reclaim(usize::MAX);
    }
}

/// Asks for a block of another band, for which there is no room before idle blocks are taken back.
fn other_band(shared: &Shared) {
    for pages in [9, 20] {
        if let Some(span) = shared.alloc(pages) {
            shared.free(span, false);
        }
    }
}

/// Allocates an area that leaves no room for a block, and frees it.
fn in_the_way(shared: &Shared) {
    let span = shared.alloc(2 * block::SIZE / PAGE_SIZE);
    if let Some(span) = span {
        shared.free(span, false);
        shared.purge(true);
    }
}

/// Allocates areas in three fine blocks, and empties all of them.
fn three_blocks(shared: &Shared) {
    let spans = [1, 9, 20].map(|pages| shared.alloc(pages));
    for (index, span) in spans.into_iter().flatten().enumerate() {
        shared.free(span, index > 0);
    }
}

/// Allocates areas of a coarse block that span two entries of the directory.
fn large(shared: &Shared) {
    for _ in 0..2 {
        if let Some(span) = shared.alloc(600) {
            shared.free(span, false);
        }
    }
}

/// Drains empty blocks, and allocates large areas in their place.
fn replace_blocks(shared: &Shared) {
    for _ in 0..2 {
        shared.space.drain_for_reclaim(usize::MAX);
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
    shared.space.drain_for_reclaim(usize::MAX);
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

/// Blocks are filled, stolen from, drained and reserved again.
#[test]
fn refill_and_drain() {
    explore(SMALL, 1, &[fill, fill, drain]);
}

/// An empty block is drained while another CPU still allocates from it.
#[test]
fn drain_and_allocate() {
    explore(SMALL, 2, &[churn, churn, drain, purge]);
}

/// A pinned area does not change, and no reader finds an area half prepared or half unlinked.
#[test]
fn pin_and_unlink() {
    explore(SMALL, 2, &[churn, churn, read]);
}

/// A pinned area in the tree does not change.
#[test]
fn pin_and_unlink_in_the_tree() {
    explore(SMALL, 0, &[churn, churn, read, purge]);
}

/// Coarse blocks replace fine ones while other CPUs still have stale indices of these.
#[test]
fn coarse_blocks_replace_fine_ones() {
    explore(LARGE, 64, &[churn_all, churn_all, drain, purge]);
    explore(LARGE, 64, &[three_blocks, replace_blocks]);
}

/// A coarse block replaces another while a CPU still has the stale index of that.
#[test]
fn a_coarse_block_replaces_another() {
    explore(LARGE, 64, &[large, replace_blocks]);
}

/// A purge leaves the dirty bits of blocks, and the next one clears them.
#[test]
fn retire_and_large_purge() {
    explore(SMALL, 2, &[fill_block, churn, purge]);
}

/// Idle blocks are taken from a CPU that still allocates from them.
#[test]
fn idle_blocks_are_taken_while_they_are_used() {
    explore_after(age_two_blocks, SMALL, 2, &[small, other_band, purge]);
}

/// Empty blocks are removed while a CPU allocates from them.
#[test]
fn empty_blocks_are_removed_while_they_are_used() {
    explore_after(one_empty_block, SMALL, 2, &[release, reclaim]);
}

/// A block of a lower band is stolen from a CPU that still allocates from it.
#[test]
fn a_block_is_stolen_while_it_is_used() {
    explore(SMALL, 1, &[small, fill, other_band]);
}

/// A request finds no room for a block while the range that was in the way is given back.
#[test]
fn no_room_and_give_back() {
    explore(SMALL, 2, &[in_the_way, small, other_band]);
}
