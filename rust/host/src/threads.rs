// SPDX-License-Identifier: GPL-2.0

//! Threads that allocate, free, look up and purge at the same time.

use crate::{
    area::Attributes,
    mm::Gfp,
    model::Random,
    range::{
        Span,
        PAGE_SIZE, //
    },
    space::{
        Request,
        Space, //
    },
    trace::FlushLog,
};
use std::{
    collections::BTreeSet,
    sync::Mutex, //
};

const START: usize = 32 << 20;
const PAGES: usize = 512;
const THREADS: u64 = 4;
const STEPS: usize = 3000;

/// No page belongs to two areas at any time, and in the end none belongs to any.
#[test]
fn no_page_has_two_owners() {
    let window = Span::with_size(START, PAGES * PAGE_SIZE).expect("not empty");
    let log = FlushLog::new().expect("memory");
    let space = Space::new(window, log).expect("memory");
    let owned = Mutex::new(BTreeSet::new());

    std::thread::scope(|scope| {
        for seed in 1..=THREADS {
            let (space, owned) = (&space, &owned);
            scope.spawn(move || worker(space, owned, window, seed));
        }
    });

    space.purge(None, true);
    let census = space.validate().expect("invariants hold");
    assert_eq!((census.busy, census.unlinked, census.cached), (0, 0, 0));
    assert!(owned.lock().expect("no panic").is_empty());
}

fn worker(space: &Space<FlushLog>, owned: &Mutex<BTreeSet<usize>>, window: Span, seed: u64) {
    let mut random = Random::new(seed);
    let mut mine: Vec<Span> = Vec::new();
    for step in 0..STEPS {
        match random.below(8) {
            0..=3 if mine.len() < 24 => {
                let request = Request {
                    window,
                    size: (1 + random.below(6)) * PAGE_SIZE,
                    align: PAGE_SIZE << random.below(4),
                    attributes: Attributes::NONE,
                    gfp: Gfp::KERNEL,
                    node: -1,
                };
                let Ok(area) = space.alloc(&request) else {
                    continue;
                };
                let span = space
                    .table_entry(area)
                    .expect("a busy area is in the index");
                let mut owned = owned.lock().expect("no panic");
                for page in 0..span.size() / PAGE_SIZE {
                    let new = owned.insert(span.first() + page * PAGE_SIZE);
                    assert!(new, "seed {seed}, step {step}: {span:x?} has two owners");
                }
                mine.push(span);
            }
            4..=6 if !mine.is_empty() => {
                let span = mine.swap_remove(random.below(mine.len()));
                assert!(space.find(span.last()).is_some());
                let mut owned = owned.lock().expect("no panic");
                for page in 0..span.size() / PAGE_SIZE {
                    owned.remove(&(span.first() + page * PAGE_SIZE));
                }
                drop(owned);
                let area = space.unlink(span.first()).expect("mine to unlink");
                space.retire(area);
            }
            _ => {
                let addr = window.first() + random.below(window.size());
                if random.below(2) == 0 {
                    drop(space.get(addr));
                } else {
                    drop(space.try_get(addr));
                }
                if let Some(lazy) = space.next_lazy(addr) {
                    assert!(lazy.last() >= addr);
                }
                space.purge(None, random.below(4) == 0);
            }
        }
    }
    for span in mine {
        let mut owned = owned.lock().expect("no panic");
        for page in 0..span.size() / PAGE_SIZE {
            owned.remove(&(span.first() + page * PAGE_SIZE));
        }
        drop(owned);
        space.retire(space.unlink(span.first()).expect("mine to unlink"));
    }
}
