// SPDX-License-Identifier: GPL-2.0

//! The maple tree of the kernel tree compared with its stand-in, with which most host tests run.

use crate::{
    base::fit::Gaps,
    prelude::*,
    sys::{grace, maple, stand_in},
};
use kernel::{
    static_lock_class,
    types::{ForeignOwnable, ForeignOwnableRcu},
};
use std::{cell::Cell, rc::Rc};

/// Pages of the part in which entries are.
const PAGES: usize = 4096;
/// The first of them.
const FIRST: usize = 16;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark(usize);

impl Mark {
    fn raw(self) -> *mut c_void {
        core::ptr::without_provenance_mut(self.0 << 3 | 0b101)
    }

    fn of(raw: *mut c_void) -> Self {
        Self(raw.addr() >> 3)
    }
}

// SAFETY: `raw()` is not null, and `of()` undoes it.
unsafe impl ForeignOwnable for Mark {
    const FOREIGN_ALIGN: usize = 1;
    type Borrowed<'a> = Self;
    type BorrowedMut<'a> = Self;

    fn into_foreign(self) -> *mut c_void {
        self.raw()
    }

    unsafe fn from_foreign(raw: *mut c_void) -> Self {
        Self::of(raw)
    }

    unsafe fn borrow<'a>(raw: *mut c_void) -> Self::Borrowed<'a> {
        Self::of(raw)
    }

    unsafe fn borrow_mut<'a>(raw: *mut c_void) -> Self::BorrowedMut<'a> {
        Self::of(raw)
    }
}

// SAFETY: What is borrowed is a copy.
unsafe impl ForeignOwnableRcu for Mark {
    type RcuBorrowed<'a> = Self;

    unsafe fn rcu_borrow<'a>(raw: *mut c_void) -> Self::RcuBorrowed<'a> {
        Self::of(raw)
    }
}
impl maple::Entry for Mark {}
impl stand_in::Entry for Mark {}

type Tree = maple::Tree<Mark>;
type StandIn = stand_in::Tree<Mark>;

fn new_tree() -> Pin<KBox<Tree>> {
    let tree = Tree::new(c"trees", static_lock_class!());
    KBox::pin_init(tree, GFP_KERNEL).expect("memory")
}

/// Returns page `number` of the address space.
fn page(number: usize) -> Span {
    span_of(number * PAGE_SIZE, PAGE_SIZE)
}

/// Both trees, with the same entries.
struct Pair {
    tree: Rc<Pin<KBox<Tree>>>,
    stand_in: StandIn,
    live: Vec<(Span, Mark)>,
    random: Random,
    /// Stores for which the tree had no memory.
    failed: usize,
    /// Stores that made fewer allocations than the one that was to fail.
    stored: usize,
}

impl Pair {
    fn new(seed: u64) -> Self {
        Self {
            tree: Rc::new(new_tree()),
            stand_in: StandIn::new(c"trees", static_lock_class!()).expect("memory"),
            live: Vec::new(),
            random: Random::new(seed),
            failed: 0,
            stored: 0,
        }
    }

    /// Returns a number of at most `most` pages, small ones more often.
    fn pages(&mut self, most: usize) -> usize {
        let below = 1 << self.random.below(most.ilog2() as usize + 1);
        1 + self.random.below(below)
    }

    /// Returns a part of `span` of at most `pages` pages.
    fn part(&mut self, span: Span, pages: usize) -> Span {
        let all = span.size() / PAGE_SIZE;
        let first = self.random.below(all);
        let count = pages.min(all - first);
        span_of(span.first() + first * PAGE_SIZE, count * PAGE_SIZE)
    }

    fn home() -> Span {
        span_of(FIRST * PAGE_SIZE, PAGES * PAGE_SIZE)
    }

    /// Searches both trees for a gap, and returns the part of it in the home.
    fn gap(&mut self) -> Option<Span> {
        let pages = self.pages(PAGES);
        let window = self.part(Self::home(), pages);
        let bytes = self.pages(64) * PAGE_SIZE;
        let way = self.random.below(3);
        let search = |tree: &mut dyn Gaps| match way {
            0 => tree.lowest_gap(window, bytes),
            1 => tree.highest_gap(window, bytes),
            _ => tree.gap_around(window.last()),
        };
        let found = search(&mut self.tree.lock());
        let expected = search(&mut self.stand_in.lock());
        assert_eq!(found, expected, "{bytes} bytes in {window:?}");
        found?.clip(Self::home())
    }

    /// Lets an allocation of `store` fail, which stores in the tree. Returns whether it had no memory; with other errors it
    /// panics.
    fn fails(&mut self, store: impl FnOnce() -> Result<(), maple::StoreError>) -> bool {
        // CAST: A small number.
        let nth = 1 + self.random.below(6) as u32;
        let (stored, has_failed) = Failing::Only(nth).run(store);
        assert!(matches!(stored, Ok(()) | Err(maple::StoreError::NoMemory)));
        assert_eq!(stored.is_err(), has_failed);
        self.failed += usize::from(has_failed);
        self.stored += usize::from(!has_failed);
        has_failed
    }

    /// Stores an entry in a gap. If there is no memory, the tree is unchanged, and a second attempt stores it.
    fn insert(&mut self) {
        let Some(gap) = self.gap() else { return };
        let pages = self.pages(64);
        // One in four fills the gap.
        let span = match self.random.below(4) {
            0 => gap,
            _ => self.part(gap, pages),
        };
        let mark = Mark(self.random.below(1 << 40));
        let tree = Rc::clone(&self.tree);
        let mut guard = tree.lock();
        assert_eq!(guard.insert(span, mark), Err(maple::StoreError::Mismatch));
        assert!(guard.gap_around(span.first()).is_some());
        if self.random.below(8) == 0 {
            guard.spare_reserves();
        }
        if self.fails(|| guard.insert(span, mark)) {
            let retries = guard.nomem(Gfp::NOWAIT);
            if self.random.below(2) == 0 {
                // Without the nodes that the tree was given.
                drop(guard);
                self.compare();
                guard = tree.lock();
            }
            assert!(guard.gap_around(span.first()).is_some());
            assert_eq!(guard.insert(span, mark), Ok(()), "after {retries}");
        }
        drop(guard);
        let mut guard = self.stand_in.lock();
        assert!(guard.gap_around(span.first()).is_some());
        assert_eq!(guard.insert(span, mark), Ok(()));
        self.live.push((span, mark));
    }

    /// Erases an entry. If there is no memory, the tree is unchanged.
    fn erase(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let nth = self.random.below(self.live.len());
        let (span, mark) = self.live[nth];
        let tree = Rc::clone(&self.tree);
        let mut guard = tree.lock();
        let other = Mark(mark.0 + 1);
        assert_eq!(guard.erase(span, other), Err(maple::StoreError::Mismatch));
        if self.random.below(8) == 0 {
            guard.spare_reserves();
        }
        if self.fails(|| guard.erase(span, mark)) {
            drop(guard);
            return self.compare();
        }
        drop(guard);
        self.live.swap_remove(nth);
        assert_eq!(self.stand_in.lock().erase(span, mark), Ok(()));
    }

    /// Compares all ways to find entries, at a random address.
    fn look(&mut self) {
        let addr = self.random.below((FIRST + PAGES + FIRST) * PAGE_SIZE);
        let (mut tree, mut stand_in) = (self.tree.lock(), self.stand_in.lock());
        assert_eq!(tree.entry_at(addr), stand_in.entry_at(addr));
        assert_eq!(tree.entry_from(addr), stand_in.entry_from(addr));
        drop((tree, stand_in));
        let rcu = grace::Guard::new();
        assert_eq!(self.tree.load(addr, &rcu), self.stand_in.load(addr, &rcu));
        let wanted = |span, mark: Mark| (mark.0 % 4 == 0).then_some((span, mark));
        assert_eq!(
            self.tree.next(addr, wanted),
            self.stand_in.next(addr, wanted)
        );
    }

    /// Compares all entries.
    fn compare(&self) {
        let (mut tree, mut stand_in) = (self.tree.lock(), self.stand_in.lock());
        let mut addr = 0;
        loop {
            let found = tree.entry_from(addr);
            assert_eq!(found, stand_in.entry_from(addr));
            let Some((span, _)) = found else { return };
            addr = span.end();
        }
    }
}

/// Fills and empties both trees by turns, so that nodes split and merge at several heights.
#[test]
fn the_stand_in_answers_like_the_maple_tree() {
    let seed = mm::random_seed();
    println!("seed {seed:#x}");
    let mut pair = Pair::new(seed);
    let mut most = 0;
    for round in 0..16 {
        for _ in 0..4000 {
            match pair.random.below(8) {
                0..5 if round % 2 == 0 => pair.insert(),
                0..5 => pair.erase(),
                5 => pair.insert(),
                6 => pair.erase(),
                _ => pair.look(),
            }
        }
        most = most.max(pair.live.len());
        pair.compare();
    }
    println!(
        "{most} entries, {} stores without memory, {} with",
        pair.failed, pair.stored
    );
    // More than two levels of nodes; stores take memory, but not always three times.
    assert!(most > 200 && pair.failed > 1000 && pair.stored > 1000);
}

/// All entries are erased between two steps of a reader. Without the first patch of the series maple, the reader ends the
/// process.
#[test]
fn a_reader_ends_when_the_tree_gets_empty() {
    for entries in [1, 2, 40] {
        let tree = new_tree();
        for index in 1..=entries {
            let mut guard = tree.lock();
            assert_eq!(guard.lowest_gap(page(index), PAGE_SIZE), Some(page(index)));
            guard.insert(page(index), Mark(index)).expect("memory");
        }
        let seen = Cell::new(0);
        let found = tree.next(0, |_, _| {
            seen.set(seen.get() + 1);
            for index in 1..=entries {
                tree.lock().erase(page(index), Mark(index)).expect("memory");
            }
            None::<()>
        });
        assert_eq!((found, seen.get()), (None, 1));
        assert_eq!(tree.lock().entry_from(0), None);
    }
}
