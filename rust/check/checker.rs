// SPDX-License-Identifier: GPL-2.0

//! The checker: an independent record of all areas, with which the answers of the running allocator are
//! compared (`vmap_rust.check=1`, with `CONFIG_VMAP_RUST_DEBUG`).
//!
//! It shares only the requests and the answers with the allocator: it is an rb-tree of ranges under one
//! lock, without blocks, caches or bitmaps. It reports wrong answers ([`mm::refuse`]), and the system
//! continues with the answer of the allocator.
//!
//! # What is compared
//!
//! - A new area overlaps no busy area, and none that was freed and not yet TLB-flushed.
//! - A lookup, a pin or an unlink returns the area that the record has at that address, or none if the
//!   record has none.
//! - A freed area was unlinked before, once, with the same bounds.
//! - A purge has flushed all areas that were freed before it began.
//!
//! While another CPU changes areas, the allocator and the record may differ for a moment. An answer given
//! meanwhile is counted as unsettled, and not compared. A refusal is not compared either: whether there is
//! room depends on blocks and caches, of which the record knows nothing.

use crate::{
    base::{
        range::{
            Span,
            PAGE_SIZE, //
        },
        stats::line, //
    },
    sys::{
        lock::Locked,
        mm, //
    }, //
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

/// Number of ranges that are removed from the record each time its lock is taken.
const BATCH: usize = 64;

/// The address of an area object, which identifies the area. The checker never accesses the object.
pub(crate) type Identity = usize;

/// The state of an area in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Busy,
    Unlinked,
    /// Freed and not yet flushed: the times at which its retire began and ended.
    Lazy {
        began: usize,
        ended: Option<usize>,
    },
}

/// An area in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Number of the first page: the address would be a reference to the memory of the area for kmemleak.
    first_page: usize,
    identity: Identity,
    state: State,
}

/// All areas.
struct Record {
    /// Keyed by the last address: a lower bound search for an address finds the area that contains it.
    areas: RBTree<usize, Entry>,
    /// The time: number of flushes and purges that have begun.
    now: usize,
    /// Number of areas without an entry because there was no memory for it.
    untracked: usize,
}

/// The record, and the counts of its comparisons.
pub(crate) struct Checker {
    record: Locked<Record>,
    /// Changes of areas that have begun, and that have ended.
    begun: Atomic<usize>,
    ended: Atomic<usize>,
    pub(super) compared: Atomic<usize>,
    pub(super) unsettled: Atomic<usize>,
    pub(super) wrong: Atomic<usize>,
    /// Whether wrong answers are reported. Tests only count them.
    is_loud: bool,
}

/// The number of changes that had begun when no change was in progress; [`None`] if one was.
pub(crate) struct Moment(Option<usize>);

impl Moment {
    /// Accepts one later change: the caller's own, which changed nothing.
    pub(crate) fn and_own_change(self) -> Self {
        Self(self.0.map(|begun| begun.wrapping_add(1)))
    }
}

impl Record {
    /// Returns the area that contains `addr`, or the next one above it.
    fn at_or_above(&self, addr: usize) -> Option<(Span, Entry)> {
        let cursor = self.areas.cursor_lower_bound(&addr)?;
        let (&last, &entry) = cursor.current();
        let first = entry.first_page.checked_mul(PAGE_SIZE)?;
        Some((Span::new(first, last)?, entry))
    }

    /// Returns the busy area that contains `addr`.
    fn busy_at(&self, addr: usize) -> Option<(Span, Identity)> {
        let (span, entry) = self.at_or_above(addr)?;
        (span.contains(addr) && entry.state == State::Busy).then_some((span, entry.identity))
    }

    /// Returns the lowest busy area that ends above `addr`.
    fn busy_at_or_above(&self, addr: usize) -> Option<(Span, Identity)> {
        let mut addr = addr;
        loop {
            let (span, entry) = self.at_or_above(addr)?;
            if entry.state == State::Busy {
                return Some((span, entry.identity));
            }
            addr = span.last().checked_add(1)?;
        }
    }

    /// Returns the entry of the area `identity` if its bounds are exactly `span`.
    fn entry_mut(&mut self, span: Span, identity: Identity) -> Option<&mut Entry> {
        let entry = self.areas.get_mut(&span.last())?;
        let first_page = span.in_pages().first();
        (entry.first_page == first_page && entry.identity == identity).then_some(entry)
    }
}

impl Checker {
    /// Creates an empty record, which reports wrong answers if `is_loud`. `ENOMEM` without memory.
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

    /// Runs `what`, which changes areas. Answers given meanwhile are unsettled.
    pub(crate) fn change<R>(&self, what: impl FnOnce() -> R) -> R {
        // Full: a CPU that sees a change of `what` sees that it has begun.
        self.begun.fetch_add(1, Full);
        let result = what();
        // Full: a CPU that sees the end of `what` sees all its changes.
        self.ended.fetch_add(1, Full);
        result
    }

    /// Records whether areas are changing now, before a lookup.
    pub(crate) fn moment(&self) -> Moment {
        let ended = self.ended.fetch_add(0, Full);
        let begun = self.begun.fetch_add(0, Full);
        Moment((begun == ended).then_some(begun))
    }

    /// Returns whether no area has changed since `moment`.
    fn settled(&self, moment: &Moment) -> bool {
        moment.0 == Some(self.begun.fetch_add(0, Full))
    }

    /// Counts a comparison with the result `right`. Returns whether to report it.
    fn must_report(&self, right: bool) -> bool {
        // Relaxed: statistics order nothing.
        self.compared.fetch_add(1, Relaxed);
        if !right {
            self.wrong.fetch_add(1, Relaxed);
        }
        !right && self.is_loud
    }

    /// Adds a new area; `fits_request` says whether it has the requested size and place. Any context that may
    /// allocate without waiting.
    pub(crate) fn allocated(&self, span: Span, identity: Identity, fits_request: bool) {
        let entry = Entry {
            first_page: span.in_pages().first(),
            identity,
            state: State::Busy,
        };
        let node = RBTreeNode::new(span.last(), entry, GFP_NOWAIT | __GFP_NOWARN);
        let mut record = self.record.lock();
        let next = record.at_or_above(span.first());
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
        if self.must_report(fits_request && overlap.is_none()) {
            mm::refuse!(
                "checker: new {span:x?}, as requested: {fits_request}, overlaps {overlap:x?}"
            );
        }
    }

    /// Compares the result of a lookup at `addr`, if nothing has changed since `moment`. Any context.
    pub(crate) fn found(&self, moment: &Moment, addr: usize, found: Option<Identity>) {
        self.compare(moment, addr, found, Record::busy_at);
    }

    /// Compares the result of a lookup of the lowest busy area that ends above `addr`, if nothing has changed
    /// since `moment`. Any context.
    pub(crate) fn found_next(&self, moment: &Moment, addr: usize, found: Option<Identity>) {
        self.compare(moment, addr, found, Record::busy_at_or_above);
    }

    fn compare(
        &self,
        moment: &Moment,
        addr: usize,
        found: Option<Identity>,
        lookup: fn(&Record, usize) -> Option<(Span, Identity)>,
    ) {
        // This may be an interrupt on the CPU that holds the lock, so do not spin.
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
        if self.must_report(right) {
            mm::refuse!("checker: {found:x?} found at {addr:#x}, the record has {expected:x?}");
        }
    }

    /// Changes the state of an area from `from` to the state that `to` returns for the time now; [`None`]
    /// removes the area. Called within [`Checker::change`].
    fn change_state(
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
            .entry_mut(span, identity)
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
            // Right if the area may be one of those without an entry.
            (None, _) => known.is_none() && record.untracked > 0,
        };
        if right && known.is_none() && from == State::Unlinked {
            record.untracked = record.untracked.saturating_sub(1);
        }
        drop(record);
        drop(removed);
        if self.must_report(right) {
            mm::refuse!("checker: {span:x?} {identity:x} to {to:x?}, the record has {known:x?}");
        }
    }

    /// Records that an area was unlinked. Called within [`Checker::change`].
    pub(crate) fn unlinked(&self, span: Span, identity: Identity) {
        self.change_state(span, identity, State::Busy, |_| Some(State::Unlinked));
    }

    /// Records that an area that was never mapped is about to be freed. Called within [`Checker::change`].
    pub(crate) fn releasing(&self, span: Span, identity: Identity) {
        self.change_state(span, identity, State::Unlinked, |_| None);
    }

    /// Records that an area is about to become lazy. Returns the time, for [`Checker::retired`]. Called
    /// within [`Checker::change`].
    pub(crate) fn retiring(&self, span: Span, identity: Identity) -> usize {
        let mut began = 0;
        self.change_state(span, identity, State::Unlinked, |now| {
            began = now;
            Some(State::Lazy { began, ended: None })
        });
        began
    }

    /// Records that an area is lazy, whose retire `began` at that time. Called within [`Checker::change`].
    pub(crate) fn retired(&self, span: Span, identity: Identity, began: usize) {
        let mut record = self.record.lock();
        let now = record.now;
        // The range may have been flushed and reused meanwhile; then the entry has another state or time.
        let before = State::Lazy { began, ended: None };
        if let Some(entry) = record.entry_mut(span, identity) {
            if entry.state == before {
                let ended = Some(now);
                entry.state = State::Lazy { began, ended };
            }
        }
    }

    /// Advances the time for a flush or a purge, and returns it.
    fn advance(&self) -> usize {
        let mut record = self.record.lock();
        record.now = record.now.wrapping_add(1);
        record.now
    }

    /// Removes the areas within `span` whose state `is_flushed` accepts. Returns the last of them.
    fn remove(&self, span: Span, is_flushed: impl Fn(State) -> bool) -> Option<(Span, Entry)> {
        let mut last_removed = None;
        let mut next = Some(span.first());
        while let Some(mut addr) = next.take() {
            // Removed nodes are dropped after the lock is released.
            let mut removed = [const { None }; BATCH];
            let mut record = self.record.lock();
            for slot in &mut removed {
                let Some((area, entry)) = record.at_or_above(addr) else {
                    break;
                };
                if area.first() > span.last() {
                    break;
                }
                if span.covers(area) && is_flushed(entry.state) {
                    *slot = record.areas.remove_node(&area.last());
                    last_removed = Some((area, entry));
                }
                next = area.last().checked_add(1);
                match next {
                    Some(behind) => addr = behind,
                    None => break,
                }
            }
            drop(record);
        }
        last_removed
    }

    /// Runs `flush`, which flushes the TLB for `span`, and removes the flushed areas. Sleepable context.
    pub(crate) fn flush(&self, span: Span, flush: impl FnOnce()) {
        let now = self.advance();
        flush();
        // Areas that were freed during the flush may have been in use after it began: they are not flushed.
        self.remove(
            span,
            |state| matches!(state, State::Lazy { began, .. } if began < now),
        );
    }

    /// Runs `purge`, which flushes and frees all areas that were retired before it began, and reports those
    /// that are left. Sleepable context.
    pub(crate) fn purge<R>(&self, purge: impl FnOnce() -> R) -> R {
        let now = self.advance();
        let result = purge();
        let left = Span::new(0, usize::MAX).and_then(|all| {
            self.remove(
                all,
                |state| matches!(state, State::Lazy { ended: Some(ended), .. } if ended < now),
            )
        });
        if self.must_report(left.is_none()) {
            mm::refuse!("checker: {left:x?} is left after a purge");
        }
        result
    }

    /// Writes a line for each count.
    pub(crate) fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let untracked = self.record.lock().untracked;
        let lines = [
            ("compared", &self.compared, "answers compared"),
            (
                "unsettled",
                &self.unsettled,
                "answers given while areas changed, not compared",
            ),
            ("wrong", &self.wrong, "of the compared answers, wrong"),
        ];
        for (name, number, meaning) in lines {
            // Relaxed: a statistic orders nothing.
            line(out, name, number.load(Relaxed), meaning)?;
        }
        line(
            out,
            "untracked",
            untracked,
            "areas not recorded for lack of memory",
        )
    }
}
