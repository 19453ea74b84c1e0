// SPDX-License-Identifier: GPL-2.0

//! What a test gives a space: a TLB that records what is flushed, and a request.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    policy::space::Request,
    state::area::Attributes,
    sys::{
        lock::Locked,
        mm::{
            Gfp,
            Tlb, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    static_lock_class, //
};

/// Maximum number of flushed ranges that are recorded; [`crate::state::flush`] produces fewer.
const MAX_RANGES: usize = 16;

/// The flushed ranges since the last [`FlushLog::take`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Flushes {
    ranges: [Option<Span>; MAX_RANGES],
    len: usize,
    pub(super) areas: usize,
}

impl Flushes {
    /// Returns whether one flushed range covers `span`.
    pub(super) fn covers(&self, span: Span) -> bool {
        let mut ranges = self.ranges.iter().flatten();
        ranges.any(|range| range.covers(span))
    }
}

/// A TLB that only records its flushes.
pub(crate) struct FlushLog {
    flushes: Locked<Flushes>,
    is_randomized: bool,
}

impl FlushLog {
    /// Creates an empty log.
    pub(crate) fn new() -> Result<Self> {
        let flushes = Locked::new(
            Flushes::default(),
            c"vmap_rust flush log",
            static_lock_class!(),
        )?;
        Ok(Self {
            flushes,
            is_randomized: false,
        })
    }

    /// Creates an empty log for a space with randomised placement.
    pub(super) fn randomized() -> Result<Self> {
        Ok(Self {
            is_randomized: true,
            ..Self::new()?
        })
    }

    /// Returns the smallest span that covers all ranges flushed since the last call, and the number of areas.
    pub(crate) fn take(&self) -> Option<(Span, usize)> {
        let flushes = self.take_all();
        let ranges = flushes.ranges.into_iter().flatten();
        Some((ranges.reduce(Span::join)?, flushes.areas))
    }

    /// Returns the number of flushes since the last call.
    pub(crate) fn flushes(&self) -> usize {
        self.take_all().len
    }

    /// Returns all ranges flushed since the last call.
    pub(super) fn take_all(&self) -> Flushes {
        core::mem::take(&mut *self.flushes.lock())
    }
}

impl Tlb for FlushLog {
    fn has_shadow(&self) -> bool {
        true
    }

    fn is_test(&self) -> bool {
        true
    }

    fn flush(&self, span: Span, areas: usize) {
        let mut flushes = self.flushes.lock();
        let len = flushes.len;
        if let Some(range) = flushes.ranges.get_mut(len) {
            *range = Some(span);
        }
        flushes.len = len.saturating_add(1);
        flushes.areas = flushes.areas.saturating_add(areas);
    }

    fn is_randomized(&self) -> bool {
        self.is_randomized
    }

    fn release_shadow(&self, _: Span) {}

    fn flush_shadow(&self, _: Span) {}
}

impl Request {
    /// Returns a request for one page anywhere in `window`, which may sleep.
    pub(crate) fn any_page(window: Span) -> Self {
        Self {
            window,
            size: PAGE_SIZE,
            align: 1,
            attributes: Attributes::NONE,
            gfp: Gfp::KERNEL,
            node: -1,
        }
    }
}
