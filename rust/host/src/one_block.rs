// SPDX-License-Identifier: GPL-2.0

//! A block of each class by itself: what becomes of its slots, and which misuses of it are refused.

use crate::{
    check::fixtures::Step,
    prelude::*,
    state::{
        area::VmFields,
        block::{Block, BlockNumber, Claimed},
        dir::Directory,
        flush::Plan,
        index::{Index, Placed, Run},
        pins::UnlinkedArea,
    },
    sys::grace::Guard,
};
use kernel::{
    bindings::{self, LIVE_VMS},
    sync::{
        rcu::{at_once, elsewhere},
        BARRIERS,
    },
};
use std::sync::atomic::Ordering;

/// Where a block of any class can be.
pub(super) const START: usize = 1 << 32;

/// Creates a directory that has a part for a block at [`START`].
pub(super) fn directory() -> Directory {
    let home = span_of(START / 2, 2 * START);
    let dir = Directory::new(home).expect("memory");
    dir.prepare(START, GFP_KERNEL).expect("memory");
    dir
}

/// Creates a block at `start`.
pub(super) fn new_block(class: Class, start: usize, is_randomized: bool) -> Placed {
    let span = span_of(start, class.block_size());
    let index = Index::new(span, c"index", static_lock_class!()).expect("memory");
    let mut index = index.lock();
    assert!(index.gap_around(start).is_some());
    let block = Block::new(class, is_randomized, GFP_KERNEL).expect("memory");
    index.reserve_block(block, start).ok().expect("a gap")
}

/// Inserts a new block at [`START`], which opens it.
pub(super) fn insert(dir: &Directory, class: Class) -> BlockNumber {
    let block = new_block(class, START, false);
    dir.insert(block).ok().expect("there is a part")
}

/// Removes block `number`, and keeps its range for ever. Returns whether it could be removed.
pub(super) fn remove(dir: &Directory, number: BlockNumber) -> bool {
    dir.remove(number).map(std::mem::forget).is_some()
}

/// Slots that a purge has taken are not free, and they are listed, until it ends. An area has only a size of its class.
#[test]
fn slots_of_each_class_wait_for_the_end_of_a_purge() {
    for class in Class::all() {
        let dir = directory();
        let number = insert(&dir, class);
        let rcu = Guard::new();
        let block = dir.block(number, &rcu).expect("it is there");
        let size = class.slot_pages() * PAGE_SIZE;
        let free = block.free_slots();
        for wrong in [0, size + 1, 2 * size] {
            assert!(block.claim(wrong).is_none());
        }
        // A claim that is not used gives its slot back.
        assert!(block.claim(size).map(drop).is_some());
        assert_eq!((block.free_slots(), free), (free, class.slots()));
        let spans = [(); 3].map(|()| {
            let area = block
                .claim(size)
                .and_then(|slot| slot.occupy(Attributes::NONE));
            area.expect("room").span()
        });
        // The first slots, and what is listed as lazy from the first two on.
        let state = || {
            let letters: String = block.states().take(4).map(|slot| slot.letter()).collect();
            (
                letters,
                [START, START + 1].map(|addr| block.next_lazy(addr)),
            )
        };
        let (none, both) = ([None; 2], [Some(spans[0]), Some(spans[1])]);
        assert_eq!(state(), ("BBB.".into(), none));
        let leaving = [0, 1].map(|index| unlink(&dir, spans[index].last()));
        assert_eq!(state(), ("uuB.".into(), none));
        for area in leaving {
            retire(area);
        }
        elsewhere(|| dir.note_batches());
        assert_eq!(state(), ("llB.".into(), both));
        let log = FlushLog::new().expect("memory");
        let mut plan = Plan::new(&dir, &log);
        elsewhere(|| plan.take_slots());
        assert_eq!(state(), ("ffB.".into(), both));
        assert_eq!(plan.areas(), (2, 0));
        assert_eq!(plan.slot_pages(), 2 * class.slot_pages());
        let mut flushed = plan.flush();
        let cover = spans[0].join(spans[1]);
        assert_eq!(log.take(), Some((cover, 2)));
        elsewhere(|| flushed.release_shadow());
        let done = log.take_all().done.into_iter().flatten();
        let released = done.filter_map(|step| match step {
            Step::Release(span) => Some(span),
            _ => None,
        });
        assert_eq!(released.reduce(Span::join), Some(cover));
        elsewhere(|| {
            flushed.free_slots(|freed, count| assert_eq!((freed.start(), count), (START, 2)));
        });
        assert_eq!(state(), ("..B.".into(), none));
        assert!(dir.remove(number).is_none());
        free_at(&dir, spans[2].first());
        // A block that was removed can be inserted again.
        let removed = dir.remove(number).expect("all slots are free");
        assert!(removed.is_full() && dir.block_at(START, &rcu).is_none());
        assert_eq!(dir.insert(removed).ok(), Some(number));
        assert!(dir.block_at(START + class.block_size() - 1, &rcu).is_some());
    }
}

/// With randomised placement, about one in 512 first areas is at the start of the block. All slots are used.
#[test]
fn randomized_areas_are_rarely_at_the_lowest_address() {
    let class = Class::SMALLEST;
    let first_place = |is_randomized: bool| {
        let dir = directory();
        let block = new_block(class, START, is_randomized);
        assert!(dir.insert(block).is_ok());
        let rcu = Guard::new();
        let block = dir.block_at(START, &rcu).expect("it is there");
        let all = (0..class.slots()).map(|_| {
            let area = block
                .claim(PAGE_SIZE)
                .and_then(|slot| slot.occupy(Attributes::NONE));
            area.expect("room").span().first()
        });
        let all: Vec<usize> = all.collect();
        assert!(block.claim(PAGE_SIZE).is_none());
        assert_eq!(all.is_sorted(), !is_randomized);
        for &start in &all {
            free_at(&dir, start);
        }
        all[0] == START
    };
    assert!((0..40).all(|_| first_place(false)));
    assert!((0..40).filter(|_| first_place(true)).count() < 10);
}

/// Unlinks the busy area at `addr`.
fn unlink(dir: &Directory, addr: usize) -> UnlinkedArea<'_> {
    let rcu = Guard::new();
    let block = dir.find(addr, &rcu).expect("a block");
    block.unlink(addr).expect("busy")
}

/// Makes an unlinked area of a block lazy.
fn retire(area: UnlinkedArea<'_>) {
    assert!(area.retire().is_ok());
}

/// Makes an area of `dir` lazy in `other`, which is wrong: that breaks a rule of both.
fn retire_elsewhere(area: UnlinkedArea<'_>, other: &Directory) {
    // SAFETY: Nobody uses the area, and its object lives. Its slot has the same number in `other`, of which only this test
    // has the block.
    let area = unsafe { UnlinkedArea::from_c(area.into_ptr(), other) };
    retire(area.expect("unlinked"));
}

/// Frees the busy area at `addr`, and makes its slot free.
pub(super) fn free_at(dir: &Directory, addr: usize) {
    retire(unlink(dir, addr));
    purge(dir);
}

/// Makes lazy slots free.
fn purge(dir: &Directory) {
    let log = FlushLog::new().expect("memory");
    elsewhere(|| {
        let mut plan = Plan::new(dir, &log);
        plan.take_slots();
        plan.flush().free_slots(|_, _| ());
    });
}

/// Allocates the lowest free slot of the block at [`START`].
fn alloc(dir: &Directory) -> usize {
    let block = Guard::new();
    let block = dir.block_at(START, &block).expect("a block");
    let area = block
        .claim(PAGE_SIZE)
        .and_then(|slot| slot.occupy(Attributes::NONE));
    area.expect("room").span().first()
}

/// The owner of the token of an area can use it after its block was dropped.
#[test]
fn a_block_with_an_area_in_it_is_not_freed() {
    let dir = directory();
    insert(&dir, class_of(2));
    // As C has it.
    let area = unlink(&dir, alloc(&dir)).into_ptr();
    assert!(is_refused(|| at_once(|| drop(dir))));
    // SAFETY: Objects of which one is in use are never freed.
    let bounds = unsafe { area.seen() }.span();
    assert_eq!(bounds, Span::with_size(START, PAGE_SIZE));
}

/// A `vm_struct` stays with its slot for the next area that is not larger, with new fields, or is freed with the next user of the
/// slot, or with the block, unless C takes it out.
#[test]
fn a_vm_struct_stays_with_its_slot() {
    let live = || LIVE_VMS.load(Ordering::Relaxed);
    let new = VmFields {
        flags: 2,
        caller: ptr::dangling(),
        requested_size: 3,
    };
    let dir = directory();
    let number = insert(&dir, class_of(2));
    let claim = |pages: usize, take: &dyn Fn(Claimed<'_>) -> Option<Busy>| {
        let rcu = Guard::new();
        let block = dir.block(number, &rcu).expect("a block");
        let area = take(block.claim(pages * PAGE_SIZE).expect("room"))?;
        assert_eq!(area.span().first(), START);
        Some(area)
    };
    // SAFETY: The only area with it has it.
    let fresh = |vm| claim(1, &|slot| slot.occupy(unsafe { Attributes::new(0, vm) }));
    let reuse = |pages| claim(pages, &|slot| slot.reuse(new)).is_some();
    for _ in 0..2 {
        let vm = bindings::vm_struct::new();
        // There is none yet, or the last user of the slot has taken it.
        assert!(!reuse(1));
        assert!(fresh(vm).is_some() && live() == 1);
        // SAFETY: The area is live, and nobody else uses its fields. The same holds below.
        unsafe { (*vm).nr_pages = 5 };
        free_at(&dir, START);
        // It is that of a smaller area: the slot is free again.
        assert!(!reuse(2) && reuse(1));
        // SAFETY: As above.
        let seen = unsafe { ((*vm).addr.addr(), (*vm).size, (*vm).nr_pages, (*vm).flags) };
        assert_eq!(seen, (START, PAGE_SIZE, 0, new.flags));
        // SAFETY: As above.
        let seen = unsafe { ((*vm).caller, (*vm).requested_size) };
        assert_eq!(seen, (new.caller, new.requested_size));
        free_at(&dir, START);
        assert_eq!(live(), 1);
        assert_eq!(alloc(&dir), START);
        assert_eq!(live(), 0);
        free_at(&dir, START);
    }
    let vm = bindings::vm_struct::new();
    assert!(fresh(vm).is_some());
    let area = unlink(&dir, START);
    // SAFETY: The area is unlinked, and only this test uses it. Nobody uses its `vm_struct` after this.
    unsafe {
        (*area.ptr().as_raw()).__bindgen_anon_1.vm = ptr::null_mut();
        bindings::kfree(vm.cast());
    }
    retire(area);
    purge(&dir);
    assert!(!reuse(1) && fresh(bindings::vm_struct::new()).is_some());
    free_at(&dir, START);
    assert_eq!(live(), 1);
    at_once(|| drop(dir));
    assert_eq!(live(), 0);
    // A lone area has no slot.
    let space = space_of(home_of(1), 0);
    // SAFETY: Only the area has it.
    let attributes = unsafe { Attributes::new(0, bindings::vm_struct::new()) };
    let area = space.alloc(&request(&space, PAGE_SIZE), attributes);
    let area = space.unlink(area.expect("room").span().first());
    assert_eq!(live(), 1);
    space.retire(area.expect("busy"));
    assert_eq!(live(), 0);
    free_everything(&space);
}

/// Creates two directories with a block at one address, so that areas of one can be passed to the other.
fn two_directories() -> [Directory; 2] {
    [(), ()].map(|()| {
        let dir = directory();
        insert(&dir, Class::SMALLEST);
        dir
    })
}

/// Slots that a purge has taken and does not free are lazy again, whether it has flushed them or not.
#[test]
fn slots_that_a_purge_drops_are_lazy_again() {
    let dir = directory();
    insert(&dir, Class::SMALLEST);
    let log = FlushLog::new().expect("memory");
    let taken = || {
        let mut plan = Plan::new(&dir, &log);
        plan.take_slots();
        plan
    };
    let starts = [(); 2].map(|()| alloc(&dir));
    retire(unlink(&dir, starts[0]));
    let plan = taken();
    assert_eq!(plan.areas(), (1, 0));
    retire(unlink(&dir, starts[1]));
    // There is one purge at a time.
    assert!(is_refused(taken));
    drop(plan);
    drop(taken().flush());
    let plan = taken();
    assert_eq!(plan.areas(), (2, 0));
    plan.flush().free_slots(|_, count| assert_eq!(count, 2));
    assert!(taken().is_empty());
    assert_eq!(alloc(&dir), starts[0]);
    free_at(&dir, starts[0]);
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
    retire_elsewhere(unlink(&other, alloc(&other)), &dir);
    dir.note_batches();
    assert!(!is_sound(&dir, true) && !is_sound(&other, true));
    assert!(is_sound(&dir, false) && is_sound(&other, false));
    let log = FlushLog::new().expect("memory");
    let mut plan = Plan::new(&dir, &log);
    plan.take_slots();
    assert!(!is_sound(&dir, true));
    plan.flush().free_slots(|_, _| ());
    // A slot that is busy and lazy.
    let [dir, other] = two_directories();
    let start = alloc(&dir);
    assert!(is_sound(&dir, true));
    retire_elsewhere(unlink(&other, alloc(&other)), &dir);
    dir.note_batches();
    assert!(!is_sound(&dir, true));
    free_at(&dir, start);
}

/// A large block has many entries, but not many full barriers.
#[test]
fn the_entries_of_a_block_share_a_barrier() {
    let barriers = |class: Class| {
        let (dir, before) = (directory(), BARRIERS.get());
        insert(&dir, class);
        BARRIERS.get() - before
    };
    let large = Class::all().find(|class| class.block_size() == 256 * SIZE);
    assert_eq!(large.map(barriers), Some(barriers(Class::SMALLEST)));
}

/// A directory without a part for a block has none. The block stays as it was, and is leaked if it is dropped.
#[test]
fn a_block_is_inserted_only_in_a_part() {
    let dir = directory();
    let number = insert(&dir, Class::SMALLEST);
    let far = START + (2 << 30);
    assert!(!dir.is_prepared(far));
    let Err(block) = dir.insert(new_block(Class::SMALLEST, far, false)) else {
        panic!("there is no part");
    };
    dir.prepare(far, GFP_KERNEL).expect("memory");
    assert!(dir.insert(block).is_ok());
    let rcu = Guard::new();
    for (addr, start) in [(START, START), (far, far), (far + SIZE - 1, far)] {
        let block = dir.block_at(addr, &rcu);
        assert_eq!(block.map(Block::start), Some(start));
    }
    assert!(dir.block_at(far + SIZE, &rcu).is_none());
    assert!(is_refused(|| dir.remove(number)));
    assert!(dir.remove(number).is_none());
}

/// Blocks are freed with one store only if they are side by side.
#[test]
fn a_run_of_blocks_has_no_gap() {
    let mut run = Run::new();
    let start_of = |number: usize| START + number * SIZE;
    let mut add = |number: usize| {
        let block = new_block(Class::SMALLEST, start_of(number), false);
        run.try_add(block).map_err(std::mem::forget).is_ok()
    };
    assert!(add(2) && !add(4) && add(3) && !add(0) && add(1));
    assert!(!add(2) && !add(1) && !add(5));
    assert!((4..17).all(&mut add) && !add(17) && !add(0));
    assert_eq!(run.span(), Span::from_bounds(start_of(1), start_of(17)));
    assert_eq!(run.into_blocks().map(std::mem::forget).count(), 16);
}
