// SPDX-License-Identifier: GPL-2.0

//! Stand-in of the tracepoints: nobody traces.

use crate::{
    base::{
        cpu::CpuNumber,
        range::Span, //
    },
    sys::mm::Gfp, //
};
use kernel::error::Error;

#[derive(Clone, Copy)]
pub(crate) enum Event {
    Open,
    Close,
    Refill,
    Steal,
}

#[derive(Clone, Copy)]
pub(crate) enum Cause {
    Request,
    Limit,
    Purge,
    Trim,
    Reclaim,
}

pub(crate) fn block(_: Event, _: usize, _: usize, _: usize, _: CpuNumber) {}

pub(crate) struct Purge;

impl Purge {
    pub(crate) fn begin(_: Option<Span>, _: usize, _: usize) -> Self {
        Self
    }

    pub(crate) fn end(self, _: usize) {}
}

pub(crate) fn drain(_: Cause, _: usize, _: usize) {}

pub(crate) fn refuse(_: usize, _: usize, _: Span, _: Gfp, _: Error) {}
