// SPDX-License-Identifier: GPL-2.0

//! What a test gives a space: bounds, a TLB that records what is flushed, a checker, and allocations that fail. Also
//! its requests.

use crate::{
    check::{
        checked::{
            CheckedSpace,
            CheckedTlb, //
        },
        checker::Checker, //
    },
    policy::prelude::*,
    state::watched::{
        Done,
        Unmapped,
        Watch,
        Watched, //
    },
    sys::mm::Quiet, //
};

/// What a test makes its space of.
#[derive(Clone, Copy)]
pub(crate) struct World {
    pub(crate) home: Span,
    /// The most that all blocks have, in blocks of the smallest size; [`None`] for the default.
    pub(crate) limit: Option<usize>,
    /// Whether there is KASAN shadow.
    pub(crate) has_shadow: bool,
    /// Whether the placement of small areas is randomised.
    pub(crate) is_randomized: bool,
}

impl World {
    /// A space for `home`, with KASAN shadow and the blocks that it has by default.
    pub(crate) fn new(home: Span) -> Self {
        Self {
            home,
            limit: None,
            has_shadow: true,
            is_randomized: false,
        }
    }

    /// Limits the total size of blocks, in blocks of the smallest size.
    pub(crate) fn blocks(self, limit: usize) -> Self {
        let limit = Some(limit);
        Self { limit, ..self }
    }

    /// Makes the space, with the placement of production. `ENOMEM` without memory.
    pub(crate) fn space(self) -> Result<Space<FlushLog>> {
        Space::new(self.home, self.log()?, self.options())
    }

    fn options(self) -> Options {
        Options {
            limit: self.limit,
            is_randomized: self.is_randomized,
        }
    }

    fn log(self) -> Result<FlushLog> {
        let mut log = FlushLog::new()?;
        log.tlb.has_shadow = self.has_shadow;
        Ok(log)
    }

    /// Makes the space, all answers of which are compared. `ENOMEM` without memory.
    pub(crate) fn checked(self) -> Result<CheckedSpace<FlushLog>> {
        let tlb = CheckedTlb {
            tlb: self.log()?,
            watch: Some(Checker::new(true, GFP_KERNEL)?),
        };
        CheckedSpace::new(self.home, tlb, self.options())
    }
}

/// Which allocations of a call fail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failing {
    /// Only this one; the first has number 1.
    Only(u32),
    /// This one and all later ones. Only on the build host, see [`mm::fail_from`].
    From(u32),
}

impl Failing {
    /// Calls `what`. Returns its result, and whether an allocation failed.
    pub(crate) fn run<T>(self, what: impl FnOnce() -> T) -> (T, bool) {
        match self {
            Self::Only(nth) => {
                mm::fail_nth(nth);
                let result = what();
                (result, mm::fail_nth(0) == 0 && mm::CAN_FAIL)
            }
            Self::From(nth) => {
                mm::fail_from(nth);
                let result = what();
                (result, mm::fail_from(0))
            }
        }
    }
}

/// Maximum number of flushed ranges that are recorded; [`crate::state::flush`] produces fewer.
const MAX_RANGES: usize = 16;

/// Maximum number of operations whose order is recorded.
const MAX_DONE: usize = 32;

/// An operation on the TLB or on the KASAN shadow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Flush(Span),
    TakeTables(Span),
    FlushTables,
    Release(Span),
    FlushShadow(Span),
}

/// What was done since the last [`FlushLog::take`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Flushes {
    ranges: [Option<Span>; MAX_RANGES],
    pub(super) len: usize,
    pub(super) areas: usize,
    /// The first operations.
    pub(crate) done: [Option<Step>; MAX_DONE],
    done_len: usize,
}

impl Flushes {
    /// Returns whether one flushed range covers `span`.
    pub(super) fn covers(&self, span: Span) -> bool {
        let mut ranges = self.ranges.iter().flatten();
        ranges.any(|range| range.covers(span))
    }

    fn record(&mut self, done: Step) {
        if let Some(slot) = self.done.get_mut(self.done_len) {
            *slot = Some(done);
            self.done_len = self.done_len.saturating_add(1);
        }
    }
}

/// Records what is done to a TLB.
pub(crate) struct Log(Quiet<Flushes>);

/// The TLB of a test, which maps nothing: what is done is only recorded.
pub(crate) type FlushLog = Watched<Unmapped, Log>;

impl FlushLog {
    /// Creates an empty log of a machine with KASAN shadow.
    pub(crate) fn new() -> Result<Self> {
        let flushes = Quiet::new(
            Flushes::default(),
            c"vmap_rust flush log",
            static_lock_class!(),
        )?;
        Ok(Self {
            tlb: Unmapped { has_shadow: true },
            watch: Log(flushes),
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

    /// Returns all that was done since the last call.
    pub(crate) fn take_all(&self) -> Flushes {
        core::mem::take(&mut *self.watch.0.lock())
    }
}

impl Watch for Log {
    fn flush(&self, span: Span, areas: usize, flush: impl FnOnce() -> Done) -> Done {
        let mut flushes = self.0.lock();
        let len = flushes.len;
        if let Some(range) = flushes.ranges.get_mut(len) {
            *range = Some(span);
        }
        flushes.len = len.saturating_add(1);
        flushes.areas = flushes.areas.saturating_add(areas);
        flushes.record(Step::Flush(span));
        drop(flushes);
        flush()
    }

    fn take_tables(&self, span: Span) {
        self.0.lock().record(Step::TakeTables(span));
    }

    fn flush_tables(&self) {
        self.0.lock().record(Step::FlushTables);
    }

    fn release_shadow(&self, span: Span) {
        self.0.lock().record(Step::Release(span));
    }

    fn flush_shadow(&self, span: Span) {
        self.0.lock().record(Step::FlushShadow(span));
    }
}

impl Request {
    /// Returns a request for one page anywhere in `window`, which may sleep.
    pub(crate) fn any_page(window: Span) -> Self {
        Self::bytes(window, PAGE_SIZE)
    }

    /// Returns a request for `size` bytes anywhere in `window`, which may sleep.
    pub(crate) fn bytes(window: Span, size: usize) -> Self {
        Self {
            window,
            size,
            align: 1,
            fast_path_failed: false,
            gfp: Gfp::KERNEL,
            node: -1,
        }
    }
}

impl<T: Tlb> Space<T> {
    /// Serves a request without attributes.
    pub(crate) fn alloc_bare(&self, req: Request) -> Result<Busy> {
        self.alloc(&req, Attributes::NONE)
    }
}

impl<T: Tlb> CheckedSpace<T> {
    /// Serves a request without attributes.
    pub(crate) fn alloc_bare(&self, req: Request) -> Result<Busy> {
        self.alloc(&req, Attributes::NONE)
    }
}

/// Makes an area of a set busy, without attributes.
pub(crate) fn publish(_: usize, area: Area<Reserved>) -> Option<Busy> {
    area.busy(Attributes::NONE)
}
