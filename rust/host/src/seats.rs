// SPDX-License-Identifier: GPL-2.0

//! Seats and the directory: no block is in two seats, and none in a seat is removed.

use crate::{
    one_block::{directory, free_at, insert, new_block, remove, START},
    prelude::*,
    state::{block::Block, dir::Seat},
    sys::grace::Guard,
};

#[test]
fn a_block_that_is_seated_or_removed_is_refused() {
    let dir = directory();
    let number = insert(&dir, Class::SMALLEST);
    let [seat, other] = [Seat::new(), Seat::new()];
    let rcu = Guard::new();
    let block = dir.block(number, &rcu).expect("it is there");
    let is_in = |seat: &Seat| seat.get(&rcu).map(Block::start) == Some(START);
    assert!(!is_in(&seat) && seat.replace(Some(block), &rcu).is_none());
    assert!(is_in(&seat));
    for seat in [&seat, &other] {
        assert!(is_refused(|| seat.replace(Some(block), &rcu)));
    }
    // It stays where it is, and the seat that it was refused for is empty.
    assert!(is_in(&seat) && !is_in(&other));
    assert!(dir.remove(number).is_none());
    // Another block may take the seat.
    let next = new_block(Class::SMALLEST, START + (2 << 20), false);
    let next = dir.insert(next).ok().expect("the place is free");
    let next = dir.block(next, &rcu).expect("it is there");
    let before = seat.replace(Some(next), &rcu);
    assert_eq!(before.map(Block::start), Some(START));
    let removed = dir.remove(number).expect("it has left the seat");
    assert!(is_refused(|| other.replace(Some(&*removed), &rcu)));
    let number = dir.insert(removed).ok().expect("the place is free");
    assert!(other.replace(dir.block(number, &rcu), &rcu).is_none());
    // A seat that is dropped lets the block go.
    assert!(dir.remove(number).is_none());
    drop(other);
    assert!(remove(&dir, number));
    drop(seat);
    // A block that was never inserted.
    let new = new_block(Class::SMALLEST, START, false);
    assert!(is_refused(|| Seat::new().replace(Some(&*new), &rcu)));
    core::mem::forget(new);
}

/// It has lost no slot, and can have a seat again.
#[test]
fn a_block_that_cannot_be_removed_stays_as_it_was() {
    let dir = directory();
    let number = insert(&dir, Class::SMALLEST);
    let rcu = Guard::new();
    let block = dir.block(number, &rcu).expect("it is there");
    let area = block
        .claim(1)
        .and_then(|slot| slot.occupy(Attributes::NONE))
        .expect("room");
    assert!(dir.remove(number).is_none());
    assert_eq!(block.free_slots(), Class::SMALLEST.slots() - 1);
    let seat = Seat::new();
    assert!(seat.replace(Some(block), &rcu).is_none());
    free_at(&dir, area.span().first());
    assert!(dir.remove(number).is_none() && seat.replace(None, &rcu).is_some());
    assert!(remove(&dir, number));
}

/// It leaks instead: a seat never points to a block that was freed.
#[test]
fn a_seated_block_outlives_its_directory() {
    let dir = directory();
    let number = insert(&dir, Class::SMALLEST);
    let seat = Seat::new();
    let rcu = Guard::new();
    assert!(seat.replace(dir.block(number, &rcu), &rcu).is_none());
    drop(rcu);
    drop(dir);
    let rcu = Guard::new();
    let block = seat.get(&rcu).expect("it is still there");
    assert_eq!(block.free_slots(), Class::SMALLEST.slots());
    assert_eq!(block.start(), START);
}
