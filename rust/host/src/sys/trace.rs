// SPDX-License-Identifier: GPL-2.0

//! Stand-in of the tracepoints: nobody traces, and tests ask for the last owner of a block, and for the last cause of a drain.

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

pub(crate) struct Purge;

impl Purge {
    pub(crate) fn begin(_: Option<Span>, _: usize, _: usize) -> Self {
        Self
    }

    pub(crate) fn end(self, _: usize) {}
}

pub(crate) fn drain(cause: Cause, _: usize, _: usize) {
    LAST_CAUSE.set(Some(cause));
}

/// Returns the cause in the last event of a drain on this thread.
pub(crate) fn last_cause() -> Option<Cause> {
    LAST_CAUSE.get()
}

/// Forgets the last event of a drain.
pub(crate) fn forget() {
    LAST_CAUSE.set(None);
}

pub(crate) fn refuse(_: usize, _: usize, _: Span, _: Gfp, _: Error) {}
