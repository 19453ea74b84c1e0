// SPDX-License-Identifier: GPL-2.0

//! Compares a block of each class with a plain list of its areas, which takes too long in an emulated kernel.

use crate::{
    base::prelude::*,
    check::{
        fixtures::FlushLog,
        random::Random, //
    },
    spaces::{
        class_of,
        is_refused, //
    },
    state::{
        area::{
            Area,
            Attributes,
            Unlinked, //
        },
        block::Block,
        block_number::BlockNumber,
        class::{
            Class,
            SIZE, //
        },
        dir::Directory,
        flush::Plan,
        pins::Pins, //
    },
    sys::grace::{
        at_once,
        Guard,
        Unpublished, //
    }, //
};

/// Where a block of any class can be.
pub(super) const START: usize = 1 << 32;

/// Creates a directory that has a part for a block at [`START`].
pub(super) fn directory() -> Directory {
    let home = Span::with_size(START / 2, 2 * START).expect("not empty");
    let dir = Directory::new(home).expect("memory");
    dir.prepare(START, GFP_KERNEL).expect("memory");
    dir
}

/// Creates a block at `start`.
pub(super) fn new_block(class: Class, start: usize, is_randomized: bool) -> Unpublished<Block> {
    let mut block = Block::new(class, is_randomized, GFP_KERNEL).expect("memory");
    block.place_at(start);
    Unpublished::new(block, GFP_KERNEL).expect("memory")
}

/// Inserts a new block at [`START`], which opens it.
pub(super) fn insert(dir: &Directory, class: Class) -> BlockNumber {
    let block = new_block(class, START, false);
    let number = dir.insert(block.into());
    number.unwrap_or_else(|_| panic!("the place is free"))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Busy,
    Leaving,
    Lazy,
    Taken,
}

struct Known {
    slot: usize,
    span: Span,
    state: State,
    /// If it is leaving.
    token: Option<Area<Unlinked>>,
}

/// A block, and a list of its areas in any order.
struct Pair<'a> {
    dir: &'a Directory,
    plan: Option<Plan<'a>>,
    number: BlockNumber,
    class: Class,
    areas: Vec<Known>,
    pins: Pins,
    random: Random,
}

impl<'a> Pair<'a> {
    fn new(dir: &'a Directory, class: Class) -> Self {
        Self {
            dir,
            plan: None,
            number: insert(dir, class),
            class,
            areas: Vec::new(),
            pins: Pins::new().expect("memory"),
            // CAST: A small number.
            random: Random::new(class.number() as u64),
        }
    }

    fn with<T>(&self, what: impl FnOnce(&Block) -> T) -> T {
        let rcu = Guard::new();
        what(self.dir.block(self.number, &rcu).expect("it is there"))
    }

    fn slot_size(&self) -> usize {
        self.class.slot_pages() * PAGE_SIZE
    }

    /// Returns the addresses of `count` slots from `first` on.
    fn slots(&self, first: usize, count: usize) -> Span {
        let start = START + first * self.slot_size();
        Span::with_size(start, count * self.slot_size()).expect("not empty")
    }

    /// Returns the slots of areas in `state`, in ascending order.
    fn in_state(&self, state: State) -> Vec<usize> {
        let areas = self.areas.iter().filter(|area| area.state == state);
        let mut slots: Vec<usize> = areas.map(|area| area.slot).collect();
        slots.sort();
        slots
    }

    /// Returns the index of an area in `state`.
    fn any(&mut self, state: State) -> Option<usize> {
        let areas = (0..self.areas.len()).filter(|&index| self.areas[index].state == state);
        let indices: Vec<usize> = areas.collect();
        (!indices.is_empty()).then(|| indices[self.random.below(indices.len())])
    }

    /// Allocates in the lowest free slot, if there is one.
    fn alloc(&mut self) {
        let most = self.class.slot_pages();
        let pages = match self.random.below(3) {
            0 => most,
            1 => 1,
            _ => 1 + self.random.below(most),
        };
        let mut slots = 0..self.class.slots();
        let free = slots.find(|&slot| self.areas.iter().all(|area| area.slot != slot));
        let alloc = |size| self.with(|block| block.alloc(size, Attributes::NONE).ok());
        let area = alloc(pages * PAGE_SIZE);
        let wanted = free.map(|slot| {
            let start = self.slots(slot, 1).first();
            Span::with_size(start, pages * PAGE_SIZE).expect("not empty")
        });
        assert_eq!(area.map(|area| area.span()), wanted);
        // Not a size for the class. A slot that was claimed is free again, see `compare()`.
        for size in [0, self.slot_size() + 1, 2 * self.slot_size()] {
            assert!(alloc(size).is_none());
        }
        if let Some((slot, span)) = free.zip(wanted) {
            self.areas.push(Known {
                slot,
                span,
                state: State::Busy,
                token: None,
            });
        }
    }

    /// Unlinks an area, or retires one that is unlinked.
    fn free(&mut self) {
        if let Some(index) = self.any(State::Busy) {
            let span = self.areas[index].span;
            let addr = span.first() + self.random.below(span.size());
            let token = self.with(|block| block.unlink(addr)).expect("busy");
            assert!(self.with(|block| block.unlink(addr)).is_none());
            let known = &mut self.areas[index];
            known.token = Some(self.pins.wait_for_readers(token));
            known.state = State::Leaving;
        }
        let Some(index) = self.any(State::Leaving) else {
            return;
        };
        let token = self.areas[index].token.take().expect("a token");
        assert_eq!(token.span(), Some(self.areas[index].span));
        let pages = self.areas[index].span.size() / PAGE_SIZE;
        assert_eq!(self.dir.retire(token), pages);
        self.areas[index].state = State::Lazy;
    }

    /// Ends the last purge, and begins a new one.
    fn take(&mut self) {
        self.flush();
        let mut plan = Plan::new(self.dir);
        plan.take_slots();
        let lazy = self.in_state(State::Lazy);
        let cover = lazy.first().zip(lazy.last());
        let cover = cover.map(|(first, last)| self.slots(*first, last + 1 - first));
        assert_eq!(plan.cover(), cover);
        assert_eq!(plan.is_empty(), lazy.is_empty());
        assert_eq!(plan.areas(), (lazy.len(), 0));
        assert_eq!(plan.slot_pages(), lazy.len() * self.class.slot_pages());
        for area in &mut self.areas {
            if area.state == State::Lazy {
                area.state = State::Taken;
            }
        }
        self.plan = Some(plan);
    }

    /// Ends the last purge.
    fn flush(&mut self) {
        let Some(plan) = self.plan.take() else {
            return;
        };
        let taken = self.in_state(State::Taken);
        let log = FlushLog::new().expect("memory");
        let cover = plan.cover();
        let mut flushed = plan.flush(&log);
        assert_eq!(log.take(), cover.map(|cover| (cover, taken.len())));
        assert_eq!(flushed.cover(), cover);
        assert!(flushed.take_list().is_empty());
        let in_runs = std::cell::RefCell::new(Vec::new());
        flushed.each_run(|run| {
            let slot = (run.first() - START) / self.slot_size();
            let count = run.size() / self.slot_size();
            assert_eq!(run, self.slots(slot, count));
            in_runs.borrow_mut().extend(slot..slot + count);
        });
        assert_eq!(in_runs.into_inner(), taken);
        let calls = std::cell::Cell::new(0);
        flushed.free_slots(|block, count| {
            assert_eq!((block.number(), count), (Some(self.number), taken.len()));
            calls.set(calls.get() + 1);
        });
        assert_eq!(calls.get(), usize::from(!taken.is_empty()));
        self.areas.retain(|area| area.state != State::Taken);
    }

    /// Compares all queries of the block with the list.
    fn compare(&mut self) {
        let slots = self.class.slots();
        let mut letters = vec!['.'; slots];
        for area in &self.areas {
            letters[area.slot] = match area.state {
                State::Busy => 'B',
                State::Leaving => 'u',
                State::Lazy => 'l',
                State::Taken => 'f',
            };
        }
        let waiting = self.in_state(State::Lazy).len() + self.in_state(State::Taken).len();
        let lazy_pages = waiting * self.class.slot_pages();
        let busy = self.in_state(State::Busy).len();
        let probes: Vec<usize> = (0..40)
            .map(|_| START - 1 + self.random.below(self.class.block_size()))
            .collect();
        self.with(|block| {
            assert!(block.states().map(|slot| slot.letter()).eq(letters));
            assert_eq!(block.free_slots(), slots - self.areas.len());
            assert_eq!(block.is_full(), self.areas.len() == slots);
            assert_eq!(block.lazy_pages(), lazy_pages);
            let contents = block.validate(true).expect("sound");
            let unlinked = self.areas.len() - busy;
            let counts = (contents.busy, contents.unlinked, contents.lazy_pages);
            assert_eq!(counts, (busy, unlinked, lazy_pages));
            for area in &self.areas {
                let wanted = (area.state == State::Busy).then_some(area.span);
                let (first, last) = (area.span.first(), area.span.last());
                for addr in [first, first.midpoint(last), last] {
                    assert_eq!(block.find(addr).map(|(_, seen)| seen.span()), wanted);
                }
                let behind = block.find(last + 1);
                assert!(behind.is_none_or(|(_, seen)| seen.span().first() == last + 1));
            }
            for addr in probes {
                let next = block.next_busy(addr).map(|(_, seen)| seen.span());
                assert_eq!(
                    next,
                    self.lowest(|area| area.state == State::Busy && area.span.last() >= addr)
                );
                let next = block.next_lazy(addr);
                assert_eq!(
                    next,
                    self.lowest(|area| {
                        let is_waiting = matches!(area.state, State::Lazy | State::Taken);
                        is_waiting && area.span.first() >= addr
                    })
                );
            }
        });
    }

    fn lowest(&self, is_wanted: impl Fn(&Known) -> bool) -> Option<Span> {
        let areas = self.areas.iter().filter(|area| is_wanted(area));
        areas.map(|area| area.span).min_by_key(|span| span.first())
    }
}

#[test]
fn a_block_agrees_with_a_list_of_its_areas() {
    for class in Class::all() {
        let dir = directory();
        let mut pair = Pair::new(&dir, class);
        let steps = class.slots() + 200;
        for step in 0..steps {
            // The block gets full; after that, areas come and go.
            match pair.random.below(if step < steps / 2 { 20 } else { 10 }) {
                0..=3 => pair.free(),
                4 => pair.take(),
                5 => pair.flush(),
                _ => pair.alloc(),
            }
            if !pair.areas.is_empty() {
                assert!(dir.remove(pair.number).is_none());
            }
            if step % 50 == 0 {
                pair.compare();
            }
        }
        while pair.areas.iter().any(|area| area.state != State::Taken) {
            pair.free();
            if pair.any(State::Lazy).is_some() {
                pair.take();
            }
        }
        pair.flush();
        pair.compare();
        // A block that was removed can be inserted again.
        for _ in 0..2 {
            let removed = dir.remove(pair.number).expect("all slots are free");
            assert!(removed.is_full());
            let rcu = Guard::new();
            assert!(dir.block_at(START, &rcu).is_none());
            assert_eq!(dir.insert(removed).ok(), Some(pair.number));
            assert!(dir.block_at(START + class.block_size() - 1, &rcu).is_some());
        }
        pair.alloc();
        pair.compare();
        pair.free();
    }
}

/// With randomised placement, about one in 512 first areas is at the start of the block. All slots are used.
#[test]
fn randomized_areas_are_rarely_at_the_lowest_address() {
    let class = Class::SMALLEST;
    let first_place = |is_randomized: bool| {
        let dir = directory();
        let block = new_block(class, START, is_randomized).into();
        assert!(dir.insert(block).is_ok());
        let rcu = Guard::new();
        let block = dir.block_at(START, &rcu).expect("it is there");
        let all = (0..class.slots()).map(|_| {
            let area = block.alloc(PAGE_SIZE, Attributes::NONE).ok();
            area.expect("room").span().first()
        });
        let all: Vec<usize> = all.collect();
        assert!(block.alloc(PAGE_SIZE, Attributes::NONE).is_err());
        assert_eq!(all.is_sorted(), !is_randomized);
        for &start in &all {
            free_at(&dir, start);
        }
        all[0] == START
    };
    assert!((0..40).all(|_| first_place(false)));
    assert!((0..40).filter(|_| first_place(true)).count() < 10);
}

/// Retires an area, and makes its slot free.
pub(super) fn retire_and_purge(dir: &Directory, area: Area<Unlinked>) {
    dir.retire(area);
    let mut plan = Plan::new(dir);
    plan.take_slots();
    let log = FlushLog::new().expect("memory");
    plan.flush(&log).free_slots(|_, _| ());
}

/// Unlinks the busy area at `addr`.
fn unlink(dir: &Directory, addr: usize) -> Area<Unlinked> {
    let rcu = Guard::new();
    let block = dir.block_at(addr, &rcu).expect("a block");
    let pins = Pins::new().expect("memory");
    pins.wait_for_readers(block.unlink(addr).expect("busy"))
}

fn free_at(dir: &Directory, addr: usize) {
    retire_and_purge(dir, unlink(dir, addr));
}

/// Allocates the lowest free slot of the block at [`START`].
fn alloc(dir: &Directory) -> usize {
    let block = Guard::new();
    let block = dir.block_at(START, &block).expect("a block");
    let area = block.alloc(PAGE_SIZE, Attributes::NONE).ok();
    area.expect("room").span().first()
}

/// The owner of the token of an area can use it after its block was dropped.
#[test]
fn a_block_with_an_area_in_it_is_not_freed() {
    let dir = directory();
    insert(&dir, class_of(2));
    let area = unlink(&dir, alloc(&dir));
    assert!(is_refused(|| at_once(|| drop(dir))));
    assert_eq!(area.span(), Span::with_size(START, PAGE_SIZE));
    core::mem::forget(area);
}

/// Creates two directories with a block at one address, so that areas of one can be passed to the other.
fn two_directories() -> [Directory; 2] {
    [(), ()].map(|()| {
        let dir = directory();
        insert(&dir, Class::SMALLEST);
        dir
    })
}

/// Slots that a purge has taken and loses are reported, whether it has flushed them or not.
#[test]
fn slots_that_a_purge_drops_are_refused() {
    let dir = directory();
    insert(&dir, Class::SMALLEST);
    let log = FlushLog::new().expect("memory");
    let taken = || {
        dir.retire(unlink(&dir, alloc(&dir)));
        let mut plan = Plan::new(&dir);
        plan.take_slots();
        assert!(!plan.is_empty());
        plan
    };
    let plan = taken();
    // There is one purge at a time.
    assert!(is_refused(taken));
    let mut flushed = plan.flush(&log);
    flushed.free_slots(|_, _| ());
    drop(flushed);
    drop(Plan::new(&dir).flush(&log));
    assert!(is_refused(|| drop(taken().flush(&log))));
    let dir = directory();
    insert(&dir, Class::SMALLEST);
    dir.retire(unlink(&dir, alloc(&dir)));
    let mut plan = Plan::new(&dir);
    plan.take_slots();
    assert!(is_refused(|| drop(plan)));
}

/// Breaks one rule at a time, and each time the block is refused.
#[test]
fn a_block_with_a_slot_in_two_states_is_refused() {
    let is_sound = |dir: &Directory, quiet: bool| {
        let rcu = Guard::new();
        let block = dir.block_at(START, &rcu).expect("a block");
        !is_refused(|| assert!(block.validate(quiet).is_ok()))
    };
    // Slots that are free and lazy, and then free and taken by a purge. The other block has one that is in no state.
    let [dir, other] = two_directories();
    assert!(is_sound(&dir, true) && is_sound(&other, true));
    dir.retire(unlink(&other, alloc(&other)));
    assert!(!is_sound(&dir, true) && !is_sound(&other, true));
    assert!(is_sound(&dir, false) && is_sound(&other, false));
    let mut plan = Plan::new(&dir);
    plan.take_slots();
    assert!(!is_sound(&dir, true));
    let mut flushed = plan.flush(&FlushLog::new().expect("memory"));
    flushed.free_slots(|_, _| ());
    // A slot that is busy and lazy.
    let [dir, other] = two_directories();
    let start = alloc(&dir);
    assert!(is_sound(&dir, true));
    dir.retire(unlink(&other, alloc(&other)));
    assert!(!is_sound(&dir, true));
    free_at(&dir, start);
}

/// An entry that is taken is not given to another block, and a directory without a part for a block has none.
#[test]
fn a_block_is_inserted_only_at_a_free_entry() {
    let dir = directory();
    let number = insert(&dir, Class::SMALLEST);
    let twice = dir.insert(new_block(Class::SMALLEST, START, false).into());
    assert!(twice.is_err());
    let far = START + (2 << 30);
    assert!(!dir.is_prepared(far));
    let block = new_block(Class::SMALLEST, far, false).into();
    let block = dir.insert(block).err().expect("there is no part");
    dir.prepare(far, GFP_KERNEL).expect("memory");
    assert!(dir.insert(block).is_ok());
    let rcu = Guard::new();
    for (addr, start) in [(START, START), (far, far), (far + SIZE - 1, far)] {
        let block = dir.block_at(addr, &rcu);
        assert_eq!(block.map(Block::start), Some(start));
    }
    assert!(dir.block_at(far + SIZE, &rcu).is_none());
    assert!(dir.remove(number).is_some() && dir.remove(number).is_none());
}
