// SPDX-License-Identifier: GPL-2.0

//! Compares one block with a plain list of its areas at every unit, which takes too long in an emulated
//! kernel.

use crate::{
    base::{
        bits::{
            Bit,
            Run,
            BITS,
            UNITS, //
        },
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    bitmaps::lowest,
    check::{
        fixtures::FlushLog,
        random::Random, //
    },
    state::{
        area::{
            Attributes,
            NeverMapped, //
        },
        band::{
            Band,
            Small,
            COARSE_PAGES,
            COARSE_SIZE,
            MAX_UNITS,
            SIZE,
            STEPS,
            TABLE_PAGES, //
        },
        block::Block,
        flush::Plan,
        pins::Pins, //
    }, //
};
use kernel::prelude::*;
use std::{
    ops::Deref,
    panic::{
        catch_unwind,
        AssertUnwindSafe, //
    }, //
};

const START: usize = 7 * COARSE_SIZE;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Busy,
    /// Freed and not yet taken by a purge.
    Lazy,
    /// Taken by a purge and not yet flushed.
    Taken,
}

struct Known {
    span: Span,
    state: State,
}

struct Pair {
    block: Block,
    /// Of the purge that has begun and not ended.
    plan: Plan,
    band: Band,
    areas: Vec<Known>,
    pins: Pins,
}

/// Returns the size in bytes of a unit of a block of `band`.
fn unit(band: Band) -> usize {
    if band.number() < STEPS {
        SIZE / UNITS
    } else {
        COARSE_SIZE / UNITS
    }
}

/// Returns the units of the smallest area of `band`.
fn grain(band: Band) -> usize {
    match band {
        Band::Aligned => TABLE_PAGES / COARSE_PAGES,
        _ => 2 << (band.number() % STEPS),
    }
}

/// Returns an alignment in bytes of areas of `band`.
fn align(band: Band) -> usize {
    match band {
        Band::Aligned => TABLE_PAGES * PAGE_SIZE,
        _ => 1,
    }
}

/// Iterates over requests: all sizes for fine blocks, every seventh for coarse ones, and those with the
/// alignment of [`Band::Aligned`].
fn requests() -> impl Iterator<Item = Small> {
    let coarse = (MAX_UNITS + 1..=MAX_UNITS * COARSE_PAGES).step_by(7);
    let sizes = (1..=MAX_UNITS).chain(coarse.clone());
    let plain = sizes.filter_map(|pages| Small::new(pages * PAGE_SIZE, 1, true));
    plain
        .chain(coarse.filter_map(|pages| Small::new(pages * PAGE_SIZE, align(Band::Aligned), true)))
}

impl Pair {
    fn new(band: Band) -> Self {
        let mut block = Block::new(band, false, GFP_KERNEL).expect("memory");
        block.place(START);
        assert!(!block.is_empty() && !block.is_useful());
        block.open();
        Self {
            block,
            plan: Plan::new(),
            band,
            areas: Vec::new(),
            pins: Pins::new().expect("memory"),
        }
    }

    fn units_of(&self, area: &Known) -> core::ops::Range<usize> {
        let first = (area.span.first() - START) / unit(self.band);
        first..first + area.span.size().div_ceil(unit(self.band)).max(2)
    }

    /// Returns the number of areas in `state`.
    fn count(&self, state: State) -> usize {
        let areas = self.areas.iter();
        areas.filter(|area| area.state == state).count()
    }

    /// Returns a flag for each unit that is part of no area.
    fn free_units(&self) -> Vec<bool> {
        let taken = self.units_in(&[State::Busy, State::Lazy, State::Taken]);
        taken.iter().map(|&taken| !taken).collect()
    }

    /// Returns a flag for each unit of areas in `states`.
    fn units_in(&self, states: &[State]) -> Vec<bool> {
        let mut units = vec![false; UNITS];
        for area in self
            .areas
            .iter()
            .filter(|area| states.contains(&area.state))
        {
            let range = self.units_of(area);
            assert!(units[range.clone()].iter().all(|&taken| !taken));
            units[range].fill(true);
        }
        units
    }

    /// Returns the letter of the state of each unit, as in the list of all ranges.
    fn letters(&self) -> [char; UNITS] {
        let mut units = ['.'; UNITS];
        for area in &self.areas {
            let range = self.units_of(area);
            let (first, others) = match area.state {
                State::Busy => ('B', 'b'),
                State::Lazy => ('l', 'l'),
                State::Taken => ('f', 'f'),
            };
            units[range.clone()].fill(others);
            units[range.start] = first;
        }
        units
    }

    /// Allocates for a request, which may fail only if no run is long enough.
    fn alloc(&mut self, small: Small, bytes: usize) {
        let free = self.free_units();
        let len = bytes.div_ceil(unit(self.band)).max(2);
        let align = (align(self.band) / unit(self.band)).max(1).ilog2();
        let anywhere = lowest(&free, len, align, |_| true);
        let in_word = lowest(&free, len, align, |first| first % BITS + len <= BITS);
        let area = self.block.alloc(small, &Attributes::NONE);
        assert_eq!(area.is_some(), anywhere.is_some());
        if area.is_none() {
            return;
        }
        let known = |span: Span| self.areas.iter().any(|area| area.span == span);
        let spans = (0..UNITS).filter_map(|index| self.block.find(START + index * unit(self.band)));
        let new = spans
            .map(|(_, seen)| seen.span())
            .find(|&span| !known(span));
        let span = new.expect("the new area is found");
        assert_eq!(span.size(), bytes);
        // The lowest run within one word comes first, then the lowest run of all.
        let first = (span.first() - START) / unit(self.band);
        assert_eq!(Some(first), in_word.or(anywhere));
        self.areas.push(Known {
            span,
            state: State::Busy,
        });
    }

    /// Retires busy area `index` if `was_mapped`, otherwise releases it.
    fn free(&mut self, index: usize, was_mapped: bool) {
        let span = self.areas[index].span;
        let leaving = self.block.unlink(span.last()).expect("busy");
        assert!(self.block.unlink(span.first()).is_none());
        let area = self.pins.wait_for_readers(leaving);
        if was_mapped {
            self.block.retire(area, span);
            self.areas[index].state = State::Lazy;
        } else {
            self.block.release(area, NeverMapped::in_test());
            self.areas.remove(index);
        }
    }

    /// Ends the last purge, and begins a new one.
    fn snapshot(&mut self) {
        if self.areas.iter().any(|area| area.state == State::Taken) {
            self.flushed();
        }
        let lazy = self.units_in(&[State::Lazy]);
        let first = lazy.iter().position(|&lazy| lazy);
        let last = lazy.iter().rposition(|&lazy| lazy);
        let cover = self.block.snapshot(&mut self.plan);
        assert_eq!(cover.is_some(), first.is_some());
        if let (Some(cover), Some(first), Some(last)) = (cover, first, last) {
            let taken = Run::new(Bit::in_row(first), last + 1 - first).expect("a run");
            assert_eq!(cover, self.block.run(taken).expect("a range"));
        }
        assert_eq!(self.plan.units(), lazy.iter().filter(|&&lazy| lazy).count());
        for area in self
            .areas
            .iter_mut()
            .filter(|area| area.state == State::Lazy)
        {
            area.state = State::Taken;
        }
    }

    fn flushed(&mut self) {
        flush_and_free(&self.block, &mut self.plan);
        self.areas.retain(|area| area.state != State::Taken);
    }

    /// Compares all queries of the block with the list, twice in each unit.
    fn compare(&self) {
        let waiting = self.units_in(&[State::Lazy, State::Taken]);
        let grain = grain(self.band);
        let is_useful = lowest(&self.free_units(), grain, 0, |_| true).is_some();
        assert_eq!(self.block.is_empty(), self.areas.is_empty());
        assert_eq!(self.block.is_useful(), is_useful);
        let lazy_pages = waiting.iter().filter(|&&lazy| lazy).count() * unit(self.band) / PAGE_SIZE;
        assert_eq!(self.block.lazy_pages(), lazy_pages);
        let contents = self.block.validate(true).expect("sound");
        let busy = self.count(State::Busy);
        assert_eq!(contents.busy, busy);
        assert_eq!(contents.unlinked, self.areas.len() - busy);
        assert_eq!(contents.lazy_pages, lazy_pages);
        assert_eq!(self.block.units().map(|unit| unit.letter()), self.letters());
        let end = self.block.span().expect("a range").end();
        for addr in (START..end).step_by(unit(self.band) / 2) {
            let containing = self.areas.iter().find(|area| area.span.contains(addr));
            let containing = containing.filter(|area| area.state == State::Busy);
            let found = self.block.find(addr).map(|(_, seen)| seen.span());
            assert_eq!(found, containing.map(|area| area.span));
            let next = self.block.next_busy(addr).map(|(_, seen)| seen.span());
            assert_eq!(next, self.above(true, addr));
        }
        let mut last: Option<Span> = None;
        loop {
            let lazy = self.block.next_lazy(last);
            assert_eq!(lazy, self.above(false, last.map_or(0, Span::end)));
            last = match lazy {
                Some(_) => lazy,
                None => break,
            };
        }
    }

    /// Returns the lowest area that ends above `addr` and is busy, or is not.
    fn above(&self, is_busy: bool, addr: usize) -> Option<Span> {
        let areas = self.areas.iter();
        let areas = areas.filter(|area| (area.state == State::Busy) == is_busy);
        let above = areas
            .map(|area| area.span)
            .filter(|span| span.last() >= addr);
        above.min_by_key(|span| span.first())
    }
}

/// An open block at [`START`]. Its areas are freed before it is dropped.
struct Open(Block);

impl Open {
    fn new(is_randomized: bool) -> Self {
        let mut block = Block::new(Band::Fine2, is_randomized, GFP_KERNEL).expect("memory");
        block.place(START);
        block.open();
        Self(block)
    }
}

impl Deref for Open {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let pins = Pins::new().expect("memory");
        // By address: tests damage the bitmaps, too.
        let end = self.span().expect("a range").end();
        let addrs = (START..end).step_by(self.unit_size());
        while let Some((_, seen)) = addrs.clone().find_map(|addr| self.find(addr)) {
            let leaving = self.unlink(seen.span().first()).expect("busy");
            pins.wait_for_readers(leaving).vacate();
        }
    }
}

/// The owner of the token of an area can use it after its block was dropped.
#[test]
fn a_block_with_an_area_in_it_is_not_freed() {
    let small = Small::new(2 * PAGE_SIZE, 1, true).expect("small");
    let span = Span::with_size(START, 2 * PAGE_SIZE).expect("not empty");
    let pins = Pins::new().expect("memory");
    let mut block = Block::new(Band::Fine2, false, GFP_KERNEL).expect("memory");
    block.place(START);
    block.open();
    block.alloc(small, &Attributes::NONE).expect("room");
    let leaving = block.unlink(START).expect("busy");
    // On the build host a refusal is a panic.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(block))).is_err());
    let area = pins.wait_for_readers(leaving);
    assert_eq!(area.span(), Some(span));
    area.vacate();
}

#[test]
fn a_block_serves_its_band_and_higher_ones_of_its_kind() {
    for band in Band::ALL {
        let block = Block::new(band, false, GFP_KERNEL).expect("memory");
        for small in requests() {
            assert_eq!(
                block.serves(small),
                small.bands().any(|other| other == band)
            );
        }
    }
}

/// With randomised placement, about one in 256 first areas is at the start of the block.
#[test]
fn randomized_areas_are_rarely_at_the_lowest_address() {
    let small = Small::new(PAGE_SIZE, 1, true).expect("small");
    let first_place = |is_randomized: bool| {
        let block = Open::new(is_randomized);
        block.alloc(small, &Attributes::NONE).expect("room");
        let (_, seen) = block.next_busy(START).expect("busy");
        seen.span().first() == START
    };
    assert!((0..40).all(|_| first_place(false)));
    assert!((0..40).filter(|_| first_place(true)).count() < 10);
}

#[test]
fn a_block_agrees_with_a_list_of_its_areas() {
    for band in Band::ALL {
        let mut random = Random::new(1 + band.number() as u64);
        let mut pair = Pair::new(band);
        let page_units = unit(band) / PAGE_SIZE;
        for step in 0..600 {
            let busy: Vec<usize> = (0..pair.areas.len())
                .filter(|&index| pair.areas[index].state == State::Busy)
                .collect();
            // The first 300 steps fill the block; after them, areas come and go.
            match random.below(if step < 300 { 20 } else { 10 }) {
                0 | 1 if !busy.is_empty() => pair.free(busy[random.below(busy.len())], true),
                2 if !busy.is_empty() => pair.free(busy[random.below(busy.len())], false),
                3 if random.below(4) == 0 => pair.snapshot(),
                4 if random.below(4) == 0 => pair.flushed(),
                _ => {
                    let units = grain(band) + random.below(grain(band));
                    let pages = units.min(MAX_UNITS) * page_units - random.below(page_units);
                    let bytes = pages * PAGE_SIZE;
                    if let Some(small) = Small::new(bytes, align(band), true) {
                        if pair.block.serves(small) {
                            pair.alloc(small, bytes);
                        }
                    }
                }
            }
            if step % 20 == 0 {
                pair.compare();
            }
        }
        for index in (0..pair.areas.len()).rev() {
            if pair.areas[index].state == State::Busy {
                pair.free(index, index % 2 == 0);
            }
        }
        assert!(!pair.block.close());
        for _ in 0..2 {
            pair.snapshot();
            pair.flushed();
        }
        pair.compare();
        assert!(pair.block.is_empty() && pair.block.close());
    }
}

/// Flushes and frees what `block` has added to `plan`, and leaves an empty plan.
fn flush_and_free(block: &Block, plan: &mut Plan) {
    let plan = core::mem::replace(plan, Plan::new());
    let log = FlushLog::new().expect("memory");
    if let Some(pages) = plan.flush(&log).take_pages() {
        block.free_flushed(&pages);
        pages.freed();
    }
}

/// Creates two open blocks at one address, so that areas of one can be passed to the other.
fn two_blocks() -> [Open; 2] {
    [(), ()].map(|()| Open::new(false))
}

/// Retires the highest area of `other` to `block`, as if it were its own.
fn retire_foreign(block: &Block, other: &Block, pins: &Pins) {
    let small = Small::new(2 * PAGE_SIZE, 1, true).expect("small");
    other.alloc(small, &Attributes::NONE).expect("room");
    let mut addr = START;
    while let Some((_, seen)) = other.next_busy(addr) {
        addr = seen.span().end();
    }
    let leaving = other.unlink(addr - 1).expect("busy");
    let area = pins.wait_for_readers(leaving);
    let span = area.span().expect("bounds");
    block.retire(area, span);
}

/// Pages that a purge has taken and loses are reported, whether it has flushed them or not.
#[test]
fn pages_that_a_purge_drops_are_refused() {
    let pins = Pins::new().expect("memory");
    let log = FlushLog::new().expect("memory");
    let is_refused = |what: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(what)).is_err();
    let taken = || {
        let [block, other] = two_blocks();
        retire_foreign(&block, &other, &pins);
        let mut plan = Plan::new();
        block.snapshot(&mut plan).expect("lazy units");
        plan
    };
    assert!(is_refused(&mut || drop(taken())));
    assert!(is_refused(&mut || drop(taken().flush(&log))));
    assert!(is_refused(&mut || drop(taken().flush(&log).take_pages())));
    assert!(Plan::new().flush(&log).take_pages().is_none());
}

/// Breaks one rule at a time, and each time the block is refused.
#[test]
fn a_block_with_a_unit_in_two_states_is_refused() {
    let small = Small::new(2 * PAGE_SIZE, 1, true).expect("small");
    let pins = Pins::new().expect("memory");
    // On the build host a refusal is a panic.
    let is_sound = |block: &Block, quiet: bool| {
        let validate = || block.validate(quiet).is_ok();
        catch_unwind(AssertUnwindSafe(validate)).unwrap_or(false)
    };

    // Units that are free and part of an area.
    let [block, _] = two_blocks();
    block.alloc(small, &Attributes::NONE).expect("room");
    assert!(is_sound(&block, false) && is_sound(&block, true));
    block.open();
    assert!(!is_sound(&block, true));
    // Walks look at no area whose units are free.
    assert_eq!(block.next_busy(START), None);

    // Units that are free and lazy, and then free and taken by a purge.
    let [block, other] = two_blocks();
    retire_foreign(&block, &other, &pins);
    assert!(!is_sound(&block, false));
    let mut plan = Plan::new();
    block.snapshot(&mut plan).expect("lazy units");
    assert!(!is_sound(&block, false));
    flush_and_free(&block, &mut plan);

    // Units that are lazy and taken by a purge.
    let [block, other] = two_blocks();
    assert!(block.close());
    retire_foreign(&block, &other, &pins);
    block.snapshot(&mut plan).expect("lazy units");
    assert!(is_sound(&block, false));
    let [_, other] = two_blocks();
    retire_foreign(&block, &other, &pins);
    assert!(!is_sound(&block, false));
    flush_and_free(&block, &mut plan);

    // Objects that are right do not hide wrong units.
    let [block, other] = two_blocks();
    block.alloc(small, &Attributes::NONE).expect("room");
    other.alloc(small, &Attributes::NONE).expect("room");
    assert!(is_sound(&block, true));
    retire_foreign(&block, &other, &pins);
    assert!(!is_sound(&block, true));
}
