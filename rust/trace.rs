// SPDX-License-Identifier: GPL-2.0

//! Random traces: the allocator and the model get the same requests, and have to agree.
//!
//! Runs in the kernel, over the maple tree, and on the host, over a stand-in of it.

use crate::{
    area::Attributes,
    block::{
        COARSE_PAGES,
        COARSE_SIZE, //
    },
    fit::Member,
    lock::Locked,
    mm::{
        Gfp,
        Tlb, //
    },
    model::{
        Model,
        Random,
        State, //
    },
    range::{
        is_aligned,
        Span,
        PAGE_SIZE, //
    },
    space::{
        Census,
        Request,
        Space, //
    },
};
use kernel::{
    prelude::*,
    static_lock_class, //
};

/// How many flushed ranges are noted; [`crate::flush`] makes fewer.
const MAX_NOTED: usize = 16;

/// What was flushed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Noted {
    ranges: [Option<Span>; MAX_NOTED],
    len: usize,
    areas: usize,
}

impl Noted {
    /// Was all of `span` flushed at once?
    fn covers(&self, span: Span) -> bool {
        let mut ranges = self.ranges.iter().flatten();
        ranges.any(|range| range.covers(span))
    }
}

/// A TLB that only notes what it was asked to flush.
pub(crate) struct FlushLog {
    noted: Locked<Noted>,
    is_randomized: bool,
}

impl FlushLog {
    /// Nothing was flushed yet.
    pub(crate) fn new() -> Result<Self> {
        let noted = Locked::new(
            Noted::default(),
            c"vmap_rust flush log",
            static_lock_class!(),
        )?;
        Ok(Self {
            noted,
            is_randomized: false,
        })
    }

    /// The same for areas that are randomized by chance.
    fn randomized() -> Result<Self> {
        Ok(Self {
            is_randomized: true,
            ..Self::new()?
        })
    }

    /// What was flushed since the last call: what covers it, and the number of areas.
    pub(crate) fn take(&self) -> Option<(Span, usize)> {
        let noted = self.note();
        let ranges = noted.ranges.into_iter().flatten();
        Some((ranges.reduce(Span::join)?, noted.areas))
    }

    /// Returns the number of flushes since the last call.
    pub(crate) fn flushes(&self) -> usize {
        self.note().len
    }

    /// The same, range by range.
    fn note(&self) -> Noted {
        core::mem::take(&mut *self.noted.lock())
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
        let mut noted = self.noted.lock();
        let len = noted.len;
        if let Some(range) = noted.ranges.get_mut(len) {
            *range = Some(span);
        }
        noted.len = len.saturating_add(1);
        noted.areas = noted.areas.saturating_add(areas);
    }

    fn is_randomized(&self) -> bool {
        self.is_randomized
    }

    fn release_shadow(&self, _: Span) {}

    fn flush_shadow(&self, _: Span) {}
}

/// Why a trace stopped.
pub(crate) struct Difference {
    /// Which step it was.
    pub(crate) step: usize,
    /// What was wrong.
    pub(crate) what: &'static str,
    /// Addresses that tell more.
    pub(crate) detail: [usize; 3],
}

impl kernel::fmt::Display for Difference {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "step {}: {}: {:x?}", self.step, self.what, self.detail)
    }
}

/// Where traces take place: no address that the kernel maps, since nothing is mapped. Room for nine
/// blocks of 4 KiB pages, and none of them at the start.
const HOME: (usize, usize) = (15 << 20, (15 << 20) + (20 << 20));

/// The same with room for coarse blocks as well: as many as there have to be before there is one. The
/// address space of 32-bit machines is too small for that.
const LARGE_HOME: (usize, usize) = match COARSE_SIZE.checked_mul(66) {
    Some(size) => (HOME.0, HOME.0 + size),
    None => HOME,
};

/// A smaller home, without blocks.
const SMALL_HOME: (usize, usize) = (16 << 20, (16 << 20) + (8 << 20));

/// The largest alignment in a trace, in bytes.
const MAX_ALIGN_SHIFT: usize = 20;

/// Which kinds of blocks there are in a trace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    None,
    Fine,
    All,
}

/// All that is left to chance in one step, in the order in which it is asked for; what is missing is 0.
pub(crate) type Chances = [u16; 10];

/// Where chance comes from.
enum Source<'a> {
    Random(Random),
    /// So that a trace can be made smaller step by step.
    Given {
        steps: &'a [Chances],
        /// The step, and how many of its numbers were asked for.
        at: usize,
        used: usize,
    },
}

impl Source<'_> {
    fn begin_step(&mut self, step: usize) {
        if let Source::Given { at, used, .. } = self {
            *at = step;
            *used = 0;
        }
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        match self {
            Source::Random(random) => random.below(bound),
            Source::Given { steps, at, used } => {
                let number = steps.get(*at).and_then(|step| step.get(*used));
                let number = usize::from(number.copied().unwrap_or(0));
                *used += 1;
                // That part of the bound, without a product that is too large.
                (bound >> 16) * number + (((bound & 0xffff) * number) >> 16)
            }
        }
    }
}

struct Trace<'a> {
    space: &'a Space<FlushLog>,
    log: &'a FlushLog,
    model: Model,
    random: Source<'a>,
    home: Span,
    kinds: Kinds,
    step: usize,
}

type Outcome<T = ()> = core::result::Result<T, Difference>;

impl Trace<'_> {
    fn fail<T>(&self, what: &'static str, detail: [usize; 3]) -> Outcome<T> {
        Err(Difference {
            step: self.step,
            what,
            detail,
        })
    }

    /// One of the ranges the model knows in `state`.
    fn any(&mut self, state: State) -> Option<Span> {
        let count = self.model.count(state);
        if count == 0 {
            return None;
        }
        let nth = self.random.below(count);
        let mut ranges = self.model.ranges().iter().filter(|range| range.1 == state);
        ranges.nth(nth).map(|range| range.0)
    }

    /// The window of a request: home mostly, or some part of it.
    fn window(&mut self) -> Span {
        if self.random.below(4) != 0 {
            return self.home;
        }
        let pages = self.home.size() / PAGE_SIZE;
        let first = self.random.below(pages);
        let more = self.random.below(pages - first);
        let start = self.home.first() + first * PAGE_SIZE;
        Span::from_bounds(start, start + (more + 1) * PAGE_SIZE).unwrap_or(self.home)
    }

    fn alloc(&mut self) -> Outcome {
        let window = self.window();
        let pages = match (self.random.below(8), self.kinds) {
            (0, _) => 1 + self.random.below(300),
            // Fills blocks.
            (1, Kinds::Fine) => 1 + self.random.below(128),
            (1, Kinds::All) => 1 + self.random.below(1200),
            (1, Kinds::None) => 5,
            _ => 1 + self.random.below(8),
        };
        // Now and then exactly as large as the window.
        let size = if self.random.below(16) == 0 {
            window.size()
        } else {
            pages * PAGE_SIZE
        };
        let align = match self.random.below(3) {
            0 => 1 << self.random.below(MAX_ALIGN_SHIFT + 1),
            _ => 1,
        };
        let result = self.space.alloc(&Request {
            window,
            size,
            align,
            attributes: Attributes::NONE,
            gfp: Gfp::KERNEL,
            node: -1,
        });
        let expected = self.model.lowest_fit(window, size, align);
        let Ok(area) = result else {
            return match expected {
                // What is free in a block is not room for all.
                Some(_) if self.space.blocks().live > 0 => Ok(()),
                Some(span) => self.fail("no room, but there is", [span.first(), size, align]),
                None => Ok(()),
            };
        };

        let found = self.space.table_entry(area);
        let Some(span) = found else {
            return self.fail("an area that is not in the index", [0, size, align]);
        };
        let detail = [span.first(), span.size(), align];
        if span.size() != size || !window.covers(span) || !is_aligned(span.first(), align) {
            return self.fail("not what was asked for", detail);
        }
        if expected.is_none() {
            return self.fail("room, but there is none", detail);
        }
        match self.model.reserve(span) {
            Ok(true) => Ok(()),
            Ok(false) => self.fail("a range that is reserved", detail),
            Err(_) => self.fail("no memory for the model", detail),
        }
    }

    fn alloc_congruent(&mut self) -> Outcome {
        let align = PAGE_SIZE << self.random.below(4);
        let sizes = [1, 2, 3].map(|most| align * (1 + self.random.below(most)));
        let gap = align * self.random.below(20);
        let members = [
            (0, sizes[0]),
            (sizes[0] + gap, sizes[1]),
            (sizes[0] + gap + sizes[1], sizes[2]),
        ];
        let mut areas = [None; 3];
        let result = self.space.alloc_congruent(
            self.home,
            members
                .iter()
                .map(|&(offset, size)| Member { offset, size }),
            align,
            Gfp::KERNEL,
            |index, area| areas[index % 3] = Some(area),
        );
        let expected = self.model.highest_base(self.home, &members, align);
        match (result, expected) {
            (Err(_), None) => return Ok(()),
            (Err(_), Some(_)) if self.space.blocks().live > 0 => return Ok(()),
            (Err(_), Some(base)) => return self.fail("no common base, but there is", [base, 0, 0]),
            (Ok(()), None) => return self.fail("a common base, but there is none", [0; 3]),
            // Cached ranges may push the base down: any base that is free will do.
            (Ok(()), Some(_)) => {}
        }
        let mut base = None;
        for (area, (offset, size)) in areas.iter().zip(members) {
            let Some(span) = area.and_then(|area| self.space.table_entry(area)) else {
                return self.fail("a member that is not in the index", [offset, size, 0]);
            };
            let detail = [span.first(), span.size(), offset];
            let this = span.first().wrapping_sub(offset);
            if span.size() != size || *base.get_or_insert(this) != this || !self.home.covers(span) {
                return self.fail("a member that is not at the base", detail);
            }
            if !self.model.reserve(span).unwrap_or(false) {
                return self.fail("a member that is reserved", detail);
            }
        }
        Ok(())
    }

    fn free(&mut self) -> Outcome {
        let Some(span) = self.any(State::Busy) else {
            return Ok(());
        };
        let inner = span.first() + self.random.below(span.size());
        let detail = [span.first(), span.size(), inner];
        let Some(area) = self.space.unlink(inner) else {
            return self.fail("cannot unlink a busy area", detail);
        };
        if area.span() != Some(span) {
            return self.fail("another area was unlinked", detail);
        }
        if self.space.find(inner).is_some() {
            return self.fail("found after unlink", detail);
        }
        if self.space.unlink(inner).is_some() {
            return self.fail("unlinked twice", detail);
        }
        let lazy = self.random.below(8) != 0;
        if lazy {
            self.space.retire(area);
        } else {
            self.space.release(area);
        }
        self.model.free(span.first(), lazy);
        Ok(())
    }

    fn find(&mut self) -> Outcome {
        let addr = self.home.first() + self.random.below(self.home.size());
        let busy = self
            .model
            .at(addr)
            .filter(|&(_, state)| state == State::Busy);
        let found = self
            .space
            .find(addr)
            .map(|area| self.space.table_entry(area));
        if found != busy.map(|(span, _)| Some(span)) {
            return self.fail("find", [addr, 0, 0]);
        }

        let next = self
            .model
            .ranges()
            .iter()
            .find(|(span, state)| *state == State::Busy && span.last() >= addr);
        let got = self.space.get(addr);
        let got = got.map(|(area, _pin)| self.space.table_entry(area));
        if got != next.map(|&(span, _)| Some(span)) {
            return self.fail("get", [addr, 0, 0]);
        }

        let lazy = self
            .model
            .ranges()
            .iter()
            .find(|(span, state)| *state == State::Lazy && span.last() >= addr);
        if self.space.next_lazy(addr) != lazy.map(|&(span, _)| span) {
            return self.fail("next lazy", [addr, 0, 0]);
        }
        Ok(())
    }

    fn purge(&mut self) -> Outcome {
        let drain = self.random.below(3) == 0;
        let purged = self.space.purge(None, drain);
        let noted = self.log.note();
        for (span, state) in self.model.ranges() {
            if *state == State::Lazy && !noted.covers(*span) {
                return self.fail(
                    "not flushed before it is free",
                    [span.first(), span.size(), 0],
                );
            }
        }
        let (expected, _) = self.model.purge();
        if purged != expected || noted.areas != expected {
            return self.fail("number of areas purged", [purged, expected, noted.areas]);
        }
        if drain && self.space.cached() != 0 {
            return self.fail("cached after drain", [self.space.cached(), 0, 0]);
        }
        Ok(())
    }

    fn check(&self) -> Outcome<Census> {
        let Ok(census) = self.space.validate() else {
            return self.fail("invariants", [0; 3]);
        };
        let busy = self.model.count(State::Busy);
        let lazy = self.model.count(State::Lazy);
        if census.busy != busy || census.unlinked != lazy {
            return self.fail("number of areas", [census.busy, busy, census.unlinked]);
        }
        let pages = self
            .model
            .ranges()
            .iter()
            .filter(|range| range.1 == State::Lazy);
        let pages = pages.map(|range| range.0.size() / PAGE_SIZE);
        // What an area takes at least and at most: two units of a block.
        let (least, most) = pages.fold((0, 0), |(least, most), pages| {
            let reserved = match self.kinds {
                Kinds::None => pages,
                Kinds::Fine => pages.max(2),
                Kinds::All => pages.next_multiple_of(COARSE_PAGES).max(2 * COARSE_PAGES),
            };
            (least + pages, most + reserved)
        });
        if !(least..=most).contains(&self.space.lazy_pages()) {
            return self.fail("lazy pages", [self.space.lazy_pages(), least, most]);
        }
        Ok(census)
    }

    fn run(&mut self, steps: usize) -> Outcome {
        for step in 0..steps {
            self.step = step;
            self.random.begin_step(step);
            match self.random.below(32) {
                0..=12 => self.alloc()?,
                13 => self.alloc_congruent()?,
                14..=23 => self.free()?,
                24..=29 => self.find()?,
                _ => self.purge()?,
            }
            if step % 64 == 0 {
                self.check()?;
            }
        }

        // The end of every trace: nothing is left, and all of home is one gap again.
        while let Some(span) = self.any(State::Busy) {
            if let Some(area) = self.space.unlink(span.first()) {
                self.space.retire(area);
            }
            self.model.free(span.first(), true);
        }
        self.check()?;
        self.space.purge(None, true);
        self.model.purge();
        let census = self.check()?;
        if census.cached != 0 || census.blocks != 0 {
            return self.fail("something is left", [census.cached, census.blocks, 0]);
        }
        Ok(())
    }
}

/// Runs a trace of `steps` steps with numbers from `seed`, on a space of its own. Sleepable context.
/// With `blocks`, small requests are served from blocks as large as that many fine ones; from coarse ones
/// as well if there is room for one.
pub(crate) fn run(seed: u64, steps: usize, blocks: usize) -> Result<Outcome> {
    let source = Source::Random(Random::new(seed));
    run_from(source, steps, blocks, FlushLog::new()?)
}

/// The same with areas randomized within their blocks.
pub(crate) fn run_randomized(seed: u64, steps: usize, blocks: usize) -> Result<Outcome> {
    let source = Source::Random(Random::new(seed));
    run_from(source, steps, blocks, FlushLog::randomized()?)
}

/// The same with given numbers, a step for each set of them.
pub(crate) fn replay(steps: &[Chances], blocks: usize) -> Result<Outcome> {
    let source = Source::Given {
        steps,
        at: 0,
        used: 0,
    };
    run_from(source, steps.len(), blocks, FlushLog::new()?)
}

fn run_from(source: Source<'_>, steps: usize, blocks: usize, log: FlushLog) -> Result<Outcome> {
    let ((start, end), kinds) = match blocks {
        0 => (SMALL_HOME, Kinds::None),
        1..COARSE_PAGES => (HOME, Kinds::Fine),
        _ => (LARGE_HOME, Kinds::All),
    };
    let home = Span::from_bounds(start, end).ok_or(EINVAL)?;
    let space = Space::with_blocks(home, log, Some(blocks))?;
    let mut trace = Trace {
        space: &space,
        log: space.tlb(),
        model: Model::new(),
        random: source,
        home,
        kinds,
        step: 0,
    };
    let outcome = trace.run(steps);
    if outcome.is_err() {
        // Give back what is left, so that only the first report is one.
        while let Some((area, pin)) = space.get(0) {
            drop(pin);
            match space
                .table_entry(area)
                .and_then(|span| space.unlink(span.first()))
            {
                Some(area) => space.release(area),
                None => break,
            }
        }
        space.purge(None, true);
    }
    Ok(outcome)
}
