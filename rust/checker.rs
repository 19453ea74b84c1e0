// SPDX-License-Identifier: GPL-2.0

//! An independent record of all areas, which every answer of a running allocator is compared with:
//! `vmap_rust.check=1`, with `CONFIG_VMAP_RUST_DEBUG`.
//!
//! It shares nothing with the allocator but the requests and the answers: rb-trees of ranges under one
//! lock, without blocks, caches or bitmaps. What it finds wrong it reports ([`mm::refuse`]), and the
//! system goes on with the answer of the allocator.
//!
//! # What is compared
//!
//! - A new area does not overlap one that is in use, nor one that was freed and not flushed since.
//! - What is found, pinned or taken out of use is what the record has at that address, and nothing is found
//!   where the record has nothing.
//! - What is freed was taken out of use before, once, with the same bounds.
//! - A purge has flushed all that was freed before it began.
//!
//! An answer that was given while areas changed can be right although the record has another one by now.
//! It is counted as unsettled, and not compared.

use crate::{
    lock::Locked,
    mm,
    range::{
        Span,
        PAGE_SIZE, //
    },
    stats::line, //
};
use core::fmt;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    static_lock_class,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    }, //
};

/// How many ranges are taken out of the record under one hold of its lock.
const BATCH: usize = 64;

/// What tells areas apart, besides their addresses: the address of the object, never looked into.
pub(crate) type Identity = usize;

/// What became of an area that the record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Busy,
    Unlinked,
    /// Freed, and not flushed since: when the allocator was given it, and when it was done with that.
    Lazy {
        given: usize,
        taken: Option<usize>,
    },
}

/// What the record has of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Number of the first page: the address would be a reference to the memory of the area for kmemleak.
    first_page: usize,
    identity: Identity,
    state: State,
}

/// Areas by their last address, so that the first one from an address on is the one that contains it.
struct Record {
    areas: RBTree<usize, Entry>,
    /// Number of flushes and purges that have begun.
    now: usize,
    /// Areas for which there was no memory here.
    untracked: usize,
}

/// The record, and how often it was compared.
pub(crate) struct Checker {
    record: Locked<Record>,
    /// Changes of areas that have begun, and that have ended.
    begun: Atomic<usize>,
    ended: Atomic<usize>,
    compared: Atomic<usize>,
    unsettled: Atomic<usize>,
    wrong: Atomic<usize>,
    /// Is what is wrong reported? It is only counted in tests.
    is_loud: bool,
}

/// A moment at which no area was changing, see [`Checker::settled`].
pub(crate) struct Moment(Option<usize>);

impl Moment {
    /// The same, if the only change since then was one of the caller that changed nothing.
    pub(crate) fn and_own_change(self) -> Self {
        Self(self.0.map(|begun| begun.wrapping_add(1)))
    }
}

impl Record {
    /// The area that contains `addr`, or the next one.
    fn from(&self, addr: usize) -> Option<(Span, Entry)> {
        let cursor = self.areas.cursor_lower_bound(&addr)?;
        let (&last, &entry) = cursor.current();
        let first = entry.first_page.checked_mul(PAGE_SIZE)?;
        Some((Span::new(first, last)?, entry))
    }

    /// The busy area that contains `addr`.
    fn busy_at(&self, addr: usize) -> Option<(Span, Identity)> {
        let (span, entry) = self.from(addr)?;
        (span.contains(addr) && entry.state == State::Busy).then_some((span, entry.identity))
    }

    /// The lowest busy area that ends above `addr`.
    fn busy_from(&self, addr: usize) -> Option<(Span, Identity)> {
        let mut addr = addr;
        loop {
            let (span, entry) = self.from(addr)?;
            if entry.state == State::Busy {
                return Some((span, entry.identity));
            }
            addr = span.last().checked_add(1)?;
        }
    }

    /// The area at exactly `span`.
    fn exactly(&mut self, span: Span, identity: Identity) -> Option<&mut Entry> {
        let entry = self.areas.get_mut(&span.last())?;
        let first_page = span.in_pages().first();
        (entry.first_page == first_page && entry.identity == identity).then_some(entry)
    }
}

impl Checker {
    /// An empty record, which reports what is wrong if `is_loud`. `ENOMEM` without memory.
    pub(crate) fn new(is_loud: bool) -> Result<Self> {
        let record = Record {
            areas: RBTree::new(),
            now: 0,
            untracked: 0,
        };
        Ok(Self {
            record: Locked::new(record, c"vmap_rust checker", static_lock_class!())?,
            begun: Atomic::new(0),
            ended: Atomic::new(0),
            compared: Atomic::new(0),
            unsettled: Atomic::new(0),
            wrong: Atomic::new(0),
            is_loud,
        })
    }

    /// Does `what`, which changes areas: nothing is settled meanwhile.
    pub(crate) fn change<R>(&self, what: impl FnOnce() -> R) -> R {
        // Full: who sees what `what` has changed sees that it has begun.
        self.begun.fetch_add(1, Full);
        let result = what();
        // Full: who sees that it has ended sees what it has changed.
        self.ended.fetch_add(1, Full);
        result
    }

    /// Notes whether areas are changing now.
    pub(crate) fn moment(&self) -> Moment {
        let ended = self.ended.fetch_add(0, Full);
        let begun = self.begun.fetch_add(0, Full);
        Moment((begun == ended).then_some(begun))
    }

    /// Was nothing changing since `moment`?
    fn settled(&self, moment: &Moment) -> bool {
        moment.0 == Some(self.begun.fetch_add(0, Full))
    }

    /// Counts a comparison whose result is `right`. Returns whether to report it.
    fn is_bad(&self, right: bool) -> bool {
        // Relaxed: numbers for people.
        self.compared.fetch_add(1, Relaxed);
        if !right {
            self.wrong.fetch_add(1, Relaxed);
        }
        !right && self.is_loud
    }

    /// Enters a new area, which is what was asked for or not. Any context in which memory can be asked for
    /// without waiting.
    pub(crate) fn gained(&self, span: Span, identity: Identity, is_asked_for: bool) {
        let entry = Entry {
            first_page: span.in_pages().first(),
            identity,
            state: State::Busy,
        };
        let node = RBTreeNode::new(span.last(), entry, GFP_NOWAIT | __GFP_NOWARN);
        let mut record = self.record.lock();
        let next = record.from(span.first());
        let replaced = match node {
            Ok(node) => record.areas.insert(node),
            Err(_) => {
                record.untracked = record.untracked.wrapping_add(1);
                None
            }
        };
        drop(record);
        drop(replaced);
        let overlap = next.filter(|(other, _)| other.first() <= span.last());
        if self.is_bad(is_asked_for && overlap.is_none()) {
            mm::refuse!("checker: new {span:x?}, asked for: {is_asked_for}, overlaps {overlap:x?}");
        }
    }

    /// Compares what was found at `addr` if nothing changed since `moment`. Any context.
    pub(crate) fn found(&self, moment: &Moment, addr: usize, found: Option<Identity>) {
        self.compare(moment, addr, found, Record::busy_at);
    }

    /// The same for the lowest busy area that ends above `addr`.
    pub(crate) fn found_next(&self, moment: &Moment, addr: usize, found: Option<Identity>) {
        self.compare(moment, addr, found, Record::busy_from);
    }

    fn compare(
        &self,
        moment: &Moment,
        addr: usize,
        found: Option<Identity>,
        lookup: fn(&Record, usize) -> Option<(Span, Identity)>,
    ) {
        // An interrupt can come while its CPU has the lock.
        let Some(record) = self.record.try_lock() else {
            self.unsettled.fetch_add(1, Relaxed);
            return;
        };
        let expected = lookup(&record, addr);
        let all_known = record.untracked == 0;
        drop(record);
        let right = expected.map(|(_, identity)| identity) == found;
        if !self.settled(moment) || (!right && !all_known) {
            self.unsettled.fetch_add(1, Relaxed);
            return;
        }
        if self.is_bad(right) {
            mm::refuse!("checker: {found:x?} found at {addr:#x}, the record has {expected:x?}");
        }
    }

    /// Notes that an area went from `from` to what `to` gives for the time, or out of the record. Part of a
    /// change.
    fn moved(
        &self,
        span: Span,
        identity: Identity,
        from: State,
        to: impl FnOnce(usize) -> Option<State>,
    ) {
        let mut record = self.record.lock();
        let known = record.areas.get(&span.last()).copied();
        let to = to(record.now);
        let mut removed = None;
        let entry = record
            .exactly(span, identity)
            .filter(|entry| entry.state == from);
        let right = match (entry, to) {
            (Some(entry), Some(to)) => {
                entry.state = to;
                true
            }
            (Some(_), None) => {
                removed = record.areas.remove_node(&span.last());
                true
            }
            // An area that has no entry since there was no memory for it.
            (None, _) => known.is_none() && record.untracked > 0,
        };
        if right && known.is_none() && from == State::Unlinked {
            record.untracked = record.untracked.saturating_sub(1);
        }
        drop(record);
        drop(removed);
        if self.is_bad(right) {
            mm::refuse!("checker: {span:x?} {identity:x} to {to:x?}, the record has {known:x?}");
        }
    }

    /// Notes that an area was taken out of use. Part of a change.
    pub(crate) fn unlinked(&self, span: Span, identity: Identity) {
        self.moved(span, identity, State::Busy, |_| Some(State::Unlinked));
    }

    /// Notes that an area that was never mapped is about to become free. Part of a change.
    pub(crate) fn releasing(&self, span: Span, identity: Identity) {
        self.moved(span, identity, State::Unlinked, |_| None);
    }

    /// Notes that an area is about to become lazy. Part of a change. Returns the time.
    pub(crate) fn retiring(&self, span: Span, identity: Identity) -> usize {
        let mut given = 0;
        self.moved(span, identity, State::Unlinked, |now| {
            given = now;
            Some(State::Lazy { given, taken: None })
        });
        given
    }

    /// Notes that it is, since `given`. Part of a change.
    pub(crate) fn retired(&self, span: Span, identity: Identity, given: usize) {
        let mut record = self.record.lock();
        let now = record.now;
        // It may have been flushed meanwhile, which took time, and even have been of use to others.
        let before = State::Lazy { given, taken: None };
        if let Some(entry) = record.exactly(span, identity) {
            if entry.state == before {
                let taken = Some(now);
                entry.state = State::Lazy { given, taken };
            }
        }
    }

    /// Begins a flush or a purge.
    fn begin(&self) -> usize {
        let mut record = self.record.lock();
        record.now = record.now.wrapping_add(1);
        record.now
    }

    /// Takes the areas in `span` of whose state `is_out` says so out of the record. Returns the last of them.
    fn take_out(&self, span: Span, is_out: impl Fn(State) -> bool) -> Option<(Span, Entry)> {
        let mut last_out = None;
        let mut next = Some(span.first());
        while let Some(mut addr) = next.take() {
            // Dropped without the lock.
            let mut out = [const { None }; BATCH];
            let mut record = self.record.lock();
            for slot in &mut out {
                let Some((area, entry)) = record.from(addr) else {
                    break;
                };
                if area.first() > span.last() {
                    break;
                }
                if span.covers(area) && is_out(entry.state) {
                    *slot = record.areas.remove_node(&area.last());
                    last_out = Some((area, entry));
                }
                next = area.last().checked_add(1);
                match next {
                    Some(behind) => addr = behind,
                    None => break,
                }
            }
            drop(record);
        }
        last_out
    }

    /// Does `flush`, which flushes the TLB for `span`. Sleepable context.
    pub(crate) fn flush(&self, span: Span, flush: impl FnOnce()) {
        let now = self.begin();
        flush();
        // What was freed while it ran may have been used by then.
        self.take_out(
            span,
            |state| matches!(state, State::Lazy { given, .. } if given < now),
        );
    }

    /// Does `purge`, which flushes and makes free all that was freed before it began. Sleepable context.
    pub(crate) fn purge<R>(&self, purge: impl FnOnce() -> R) -> R {
        let now = self.begin();
        let result = purge();
        let left = Span::new(0, usize::MAX).and_then(|all| {
            self.take_out(
                all,
                |state| matches!(state, State::Lazy { taken: Some(taken), .. } if taken < now),
            )
        });
        if self.is_bad(left.is_none()) {
            mm::refuse!("checker: {left:x?} is left of a purge");
        }
        result
    }

    /// Writes a line for each number.
    pub(crate) fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let untracked = self.record.lock().untracked;
        let lines = [
            ("compared", &self.compared, "answers compared"),
            (
                "unsettled",
                &self.unsettled,
                "given while others changed areas, not compared",
            ),
            ("wrong", &self.wrong, "of the compared ones, wrong"),
        ];
        for (name, number, meaning) in lines {
            // Relaxed: a number for people.
            line(out, name, number.load(Relaxed), meaning)?;
        }
        line(
            out,
            "untracked",
            untracked,
            "areas without memory to watch them",
        )
    }
}

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[kernel::prelude::kunit_tests(vmap_rust_checker)]
mod tests {
    use super::*;

    /// What tells the areas of these tests apart.
    const ONE: Identity = 0x1000;
    const OTHER: Identity = 0x2000;

    fn pages(first: usize, pages: usize) -> Result<Span> {
        Span::with_size(first * PAGE_SIZE, pages * PAGE_SIZE).ok_or(EINVAL)
    }

    /// Numbers so far: compared, unsettled, wrong.
    fn numbers(checker: &Checker) -> (usize, usize, usize) {
        (
            checker.compared.load(Relaxed),
            checker.unsettled.load(Relaxed),
            checker.wrong.load(Relaxed),
        )
    }

    /// A life of an area, as it should be, up to where it is lazy.
    fn live(checker: &Checker, span: Span, identity: Identity) {
        checker.gained(span, identity, true);
        checker.unlinked(span, identity);
        let given = checker.retiring(span, identity);
        checker.retired(span, identity, given);
    }

    #[test]
    fn what_is_right_is_not_reported() -> Result {
        let checker = Checker::new(false)?;
        let span = pages(1, 2)?;
        live(&checker, span, ONE);
        checker.purge(|| checker.flush(span, || ()));
        checker.gained(pages(2, 4)?, OTHER, true);
        checker.unlinked(pages(2, 4)?, OTHER);
        checker.releasing(pages(2, 4)?, OTHER);
        checker.gained(pages(1, 9)?, ONE, true);
        assert_eq!(numbers(&checker), (8, 0, 0));
        Ok(())
    }

    #[test]
    fn areas_that_overlap_are_wrong() -> Result {
        for (first, count) in [(4, 1), (3, 2), (5, 9), (1, 20)] {
            let checker = Checker::new(false)?;
            checker.gained(pages(4, 3)?, ONE, true);
            checker.gained(pages(first, count)?, OTHER, true);
            assert_eq!(numbers(&checker), (2, 0, 1));
        }
        Ok(())
    }

    #[test]
    fn an_area_that_was_not_asked_for_is_wrong() -> Result {
        let checker = Checker::new(false)?;
        checker.gained(pages(4, 3)?, ONE, true);
        checker.gained(pages(7, 3)?, OTHER, false);
        assert_eq!(numbers(&checker), (2, 0, 1));
        Ok(())
    }

    #[test]
    fn reuse_before_a_flush_is_wrong() -> Result {
        let checker = Checker::new(false)?;
        live(&checker, pages(4, 3)?, ONE);
        // Of something else, and of a part.
        checker.flush(pages(1, 3)?, || ());
        checker.flush(pages(4, 2)?, || ());
        checker.gained(pages(6, 1)?, OTHER, true);
        assert_eq!(numbers(&checker), (4, 0, 1));
        Ok(())
    }

    #[test]
    fn what_is_freed_during_a_flush_is_not_flushed() -> Result {
        let checker = Checker::new(false)?;
        let span = pages(4, 3)?;
        checker.flush(span, || live(&checker, span, ONE));
        checker.gained(span, OTHER, true);
        assert_eq!(numbers(&checker), (4, 0, 1));
        Ok(())
    }

    #[test]
    fn a_purge_that_leaves_something_is_wrong() -> Result {
        let checker = Checker::new(false)?;
        let later = pages(8, 1)?;
        live(&checker, pages(4, 3)?, ONE);
        checker.purge(|| live(&checker, later, OTHER));
        assert_eq!(numbers(&checker), (7, 0, 1));
        Ok(())
    }

    #[test]
    fn an_area_that_is_just_being_freed_may_be_left_of_a_purge() -> Result {
        let checker = Checker::new(false)?;
        let span = pages(4, 3)?;
        checker.gained(span, ONE, true);
        checker.unlinked(span, ONE);
        let first = checker.retiring(span, ONE);
        // Flushed, in use, and being freed again, before the first one is told of.
        checker.flush(span, || ());
        checker.gained(span, ONE, true);
        checker.unlinked(span, ONE);
        let second = checker.retiring(span, ONE);
        checker.retired(span, ONE, first);
        checker.purge(|| ());
        assert_eq!(numbers(&checker), (7, 0, 0));
        checker.retired(span, ONE, second);
        checker.purge(|| ());
        assert_eq!(numbers(&checker), (8, 0, 1));
        Ok(())
    }

    #[test]
    fn freeing_twice_or_something_else_is_wrong() -> Result {
        let checker = Checker::new(false)?;
        let span = pages(4, 3)?;
        checker.gained(span, ONE, true);
        // Not unlinked, then unlinked as another area, with other bounds, and twice.
        checker.retiring(span, ONE);
        checker.unlinked(span, OTHER);
        checker.unlinked(pages(5, 2)?, ONE);
        checker.unlinked(span, ONE);
        checker.unlinked(span, ONE);
        assert_eq!(numbers(&checker), (6, 0, 4));
        checker.releasing(span, ONE);
        checker.releasing(span, ONE);
        assert_eq!(numbers(&checker), (8, 0, 5));
        Ok(())
    }

    #[test]
    fn other_answers_than_the_book_has_are_wrong() -> Result {
        let checker = Checker::new(false)?;
        let addr = pages(5, 1)?.first();
        checker.gained(pages(4, 3)?, ONE, true);
        for found in [Some(ONE), Some(OTHER), None] {
            checker.found(&checker.moment(), addr, found);
            checker.found_next(&checker.moment(), 0, found);
        }
        assert_eq!(numbers(&checker), (7, 0, 4));
        checker.unlinked(pages(4, 3)?, ONE);
        checker.found(&checker.moment(), addr, None);
        checker.found_next(&checker.moment(), 0, None);
        assert_eq!(numbers(&checker), (10, 0, 4));
        Ok(())
    }

    #[test]
    fn answers_during_a_change_are_not_compared() -> Result {
        let checker = Checker::new(false)?;
        checker.change(|| checker.found(&checker.moment(), 0, Some(ONE)));
        let moment = checker.moment();
        checker.change(|| ());
        checker.found(&moment, 0, Some(ONE));
        assert_eq!(numbers(&checker), (0, 2, 0));
        // Unless it is the change itself that asks.
        let moment = checker.moment();
        checker.change(|| ());
        checker.found(&moment.and_own_change(), 0, Some(ONE));
        assert_eq!(numbers(&checker), (1, 2, 1));
        Ok(())
    }
}
