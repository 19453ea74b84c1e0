// SPDX-License-Identifier: GPL-2.0

//! Stand-in of the tracepoints: nobody traces, and tests ask for the last event of this thread.

use crate::{
    base::{
        cpu::CpuNumber,
        range::Span, //
    },
    sys::mm::Gfp, //
};
use kernel::error::Error;
use std::cell::Cell;

std::thread_local! {
    static LAST_OWNER: Cell<Option<CpuNumber>> = const { Cell::new(None) };
    static LAST_CAUSE: Cell<Option<Cause>> = const { Cell::new(None) };
    static LAST_PURGE: Cell<Option<Purge>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
pub(crate) enum Event {
    Open,
    Close,
    Refill,
    Steal,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cause {
    Request,
    Limit,
    Purge,
    Trim,
    Reclaim,
}

pub(crate) fn block(_: Event, _: usize, _: usize, _: usize, owner: CpuNumber) {
    LAST_OWNER.set(Some(owner));
}

/// Returns the owner in the last event of a block on this thread.
pub(crate) fn last_owner() -> Option<CpuNumber> {
    LAST_OWNER.get()
}

/// A purge, until its end without its pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Purge {
    pub(crate) cover: Option<Span>,
    pub(crate) areas: usize,
    pub(crate) ranges: usize,
    pub(crate) pages: usize,
}

impl Purge {
    pub(crate) fn begin(cover: Option<Span>, areas: usize, ranges: usize) -> Self {
        Self {
            cover,
            areas,
            ranges,
            pages: 0,
        }
    }

    pub(crate) fn end(self, pages: usize) {
        LAST_PURGE.set(Some(Self { pages, ..self }));
    }
}

/// Returns the last purge of this thread.
pub(crate) fn last_purge() -> Option<Purge> {
    LAST_PURGE.get()
}

pub(crate) fn drain(cause: Cause, _: usize) {
    LAST_CAUSE.set(Some(cause));
}

/// Returns the cause of the last drain of this thread, also if it has found nothing.
pub(crate) fn last_cause() -> Option<Cause> {
    LAST_CAUSE.get()
}

/// Forgets the last drain and the last purge.
pub(crate) fn forget() {
    LAST_CAUSE.set(None);
    LAST_PURGE.set(None);
}

pub(crate) fn refuse(_: usize, _: usize, _: Span, _: Gfp, _: Error) {}
