// SPDX-License-Identifier: GPL-2.0

//! The checker: compares the answers of the allocator with a [`Record`] of all areas, in tests and in a running
//! kernel (`vmap_rust.check=1`, with `CONFIG_VMAP_RUST_DEBUG`).
//!
//! The record is under one lock. The checker reports wrong answers ([`mm::refuse`]), and the system continues with
//! the answer of the allocator.
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
    check::record::{
        Entry,
        Identity,
        Record,
        State, //
    },
    policy::prelude::*,
    sys::mm::Quiet, //
};
use core::fmt;

/// Reports a wrong answer with its values, and once with a backtrace.
macro_rules! refuse {
    ($($arg:tt)*) => {{
        kernel::pr_err!("{}\n", core::format_args!($($arg)*));
        mm::refuse("the checker disagrees", &[], &[]);
    }};
}

/// Number of ranges that are removed from the record each time its lock is taken.
const BATCH: usize = 64;

/// The record, and the counts of its comparisons.
pub(crate) struct Checker {
    record: Quiet<Record>,
    /// Changes of areas that have begun, and that have ended.
    begun: Atomic<usize>,
    ended: Atomic<usize>,
    pub(super) compared: Atomic<usize>,
    pub(super) unsettled: Atomic<usize>,
    pub(super) wrong: Atomic<usize>,
    /// Whether wrong answers are reported. Tests of the checker only count them.
    is_loud: bool,
    /// The allocation flags for the record.
    flags: Flags,
}

/// The number of changes that had begun when no change was in progress; [`None`] if one was.
pub(crate) struct Moment(Option<usize>);

impl Moment {
    /// Accepts one later change: the caller's own, which changed nothing.
    pub(crate) fn and_own_change(self) -> Self {
        Self(self.0.map(|begun| begun.wrapping_add(1)))
    }
}

impl Checker {
    /// Creates an empty record, and reports wrong answers if `is_loud`. The flags are those for the memory of the
    /// record: in any context if they do not wait. `ENOMEM` without memory.
    pub(crate) fn new(is_loud: bool, flags: Flags) -> Result<Self> {
        Ok(Self {
            record: Quiet::new(Record::new(), c"vmap_rust checker", static_lock_class!())?,
            begun: Atomic::new(0),
            ended: Atomic::new(0),
            compared: Atomic::new(0),
            unsettled: Atomic::new(0),
            wrong: Atomic::new(0),
            is_loud,
            flags: flags | __GFP_NOWARN,
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

    /// Adds a new area; `fits_request` says whether it has the requested size and place. In any context that may
    /// allocate with the flags of the record.
    pub(crate) fn allocated(&self, span: Span, identity: Identity, fits_request: bool) {
        let node = Record::node(span, identity, self.flags);
        let mut record = self.record.lock();
        let overlap = record.overlapping(span);
        let replaced = record.add(node);
        drop(record);
        drop(replaced);
        if self.must_report(fits_request && overlap.is_none()) {
            refuse!("checker: new {span:x?}, as requested: {fits_request}, overlaps {overlap:x?}");
        }
    }

    /// Reports an area that cannot be found, or of which the requester got none if `identity` is 0.
    pub(crate) fn lost(&self, identity: Identity) {
        if self.must_report(false) {
            refuse!("checker: area {identity:x} is not found");
        }
    }

    /// Compares the result of a lookup at `addr`, if nothing has changed since `moment`. Any context.
    pub(crate) fn found(&self, moment: &Moment, addr: usize, found: Option<Identity>) {
        self.compare(moment, addr, found, Record::busy_at);
    }

    /// Compares the result of a lookup of the lowest busy area that ends above `addr` and begins at or below `last`, if
    /// nothing has changed since `moment`. Any context.
    pub(crate) fn found_next(
        &self,
        moment: &Moment,
        addr: usize,
        last: usize,
        found: Option<Identity>,
    ) {
        self.compare(moment, addr, found, |record, addr| {
            let next = record.busy_at_or_above(addr);
            next.filter(|(span, _)| addr.max(span.first()) <= last)
        });
    }

    fn compare(
        &self,
        moment: &Moment,
        addr: usize,
        found: Option<Identity>,
        lookup: impl FnOnce(&Record, usize) -> Option<(Span, Identity)>,
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
            refuse!("checker: {found:x?} found at {addr:#x}, the record has {expected:x?}");
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
        let changed = self.record.lock().change(span, identity, from, to);
        drop(changed.removed);
        if self.must_report(changed.is_right) {
            let known = changed.known;
            refuse!("checker: {span:x?} {identity:x} from {from:x?}, the record has {known:x?}");
        }
    }

    /// Records that an area with these bounds was unlinked by the address `addr`, which must be in it. Called within
    /// [`Checker::change`].
    pub(crate) fn unlinked_at(&self, addr: usize, span: Option<Span>, identity: Identity) {
        let Some(span) = span else {
            return self.lost(identity);
        };
        self.unlinked(span, identity);
        if !span.contains(addr) && self.must_report(false) {
            refuse!("checker: {span:x?} {identity:x} was unlinked by {addr:#x}");
        }
    }

    /// Records that an area was unlinked. Called within [`Checker::change`].
    pub(crate) fn unlinked(&self, span: Span, identity: Identity) {
        self.change_state(span, identity, State::Busy, |_| Some(State::Unlinked));
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
        self.record.lock().end_retire(span, identity, began);
    }

    /// Removes the areas within `span` whose state `is_flushed` accepts. Returns the last of them.
    fn remove(&self, span: Span, is_flushed: impl Fn(State) -> bool) -> Option<(Span, Entry)> {
        let mut last_removed = None;
        let mut next = Some(span.first());
        while let Some(mut addr) = next.take() {
            // Removed nodes are dropped after the lock is released.
            let mut removed = [const { None }; BATCH];
            // A change: without SMP, an interrupt could take the lock in the middle of a removal.
            self.change(|| {
                let mut record = self.record.lock();
                for slot in &mut removed {
                    let Some((area, entry)) = record.at_or_above(addr) else {
                        break;
                    };
                    if area.first() > span.last() {
                        break;
                    }
                    if span.covers(area) && is_flushed(entry.state) {
                        *slot = record.remove(area);
                        last_removed = Some((area, entry));
                    }
                    next = area.next_addr();
                    match next {
                        Some(behind) => addr = behind,
                        None => break,
                    }
                }
            });
        }
        last_removed
    }

    /// Runs `flush`, which flushes the TLB for `span`, and removes the flushed areas. Sleepable context.
    pub(crate) fn flush<R>(&self, span: Span, flush: impl FnOnce() -> R) -> R {
        let now = self.record.lock().advance();
        let result = flush();
        // Areas that were freed during the flush may have been in use after it began: they are not flushed.
        self.remove(
            span,
            |state| matches!(state, State::Lazy { began, .. } if began < now),
        );
        result
    }

    /// Runs `purge`, which flushes and frees all areas that were retired before it began, and reports those
    /// that are left. Sleepable context.
    pub(crate) fn purge<R>(&self, purge: impl FnOnce() -> R) -> R {
        let now = self.record.lock().advance();
        let result = purge();
        let left = Span::new(0, usize::MAX).and_then(|all| {
            self.remove(
                all,
                |state| matches!(state, State::Lazy { ended: Some(ended), .. } if ended < now),
            )
        });
        if self.must_report(left.is_none()) {
            refuse!("checker: {left:x?} is left after a purge");
        }
        result
    }

    /// Calls `what` with the record, under its lock.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn with<T>(&self, what: impl FnOnce(&Record) -> T) -> T {
        what(&self.record.lock())
    }

    /// Returns whether no comparison was wrong, and the record has all areas.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn agrees(&self) -> bool {
        // Relaxed: a statistic orders nothing.
        self.wrong.load(Relaxed) == 0 && self.record.lock().untracked == 0
    }

    /// Writes a line for each count: of the answers compared, of those given while areas changed and so not compared, of the
    /// wrong ones, and of the areas not recorded for lack of memory.
    pub(crate) fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let untracked = self.record.lock().untracked;
        for (name, count) in [
            ("compared", &self.compared),
            ("unsettled", &self.unsettled),
            ("wrong", &self.wrong),
        ] {
            // Relaxed: a statistic orders nothing.
            writeln!(out, "{name} {}", count.load(Relaxed))?;
        }
        writeln!(out, "untracked {untracked}")
    }
}
