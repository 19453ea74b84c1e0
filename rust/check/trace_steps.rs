// SPDX-License-Identifier: GPL-2.0

//! The steps of a random trace: each asks the allocator and the model for the same, and compares the answers.

use crate::{
    base::{
        fit::Member,
        range::{
            is_aligned,
            Span,
            PAGE_SIZE, //
        }, //
    },
    check::{
        fixtures::FlushLog,
        model::{
            Model,
            Random,
            State, //
        }, //
    },
    policy::{
        census::Census,
        space::{
            Request,
            Space, //
        }, //
    },
    state::{
        area::NeverMapped,
        band::COARSE_PAGES, //
    },
    sys::mm::Gfp, //
};

/// The first disagreement of a trace, at which it stopped.
pub(crate) struct Difference {
    /// Number of the step.
    pub(crate) step: usize,
    /// What differed.
    pub(crate) what: &'static str,
    /// Addresses and sizes, depending on `what`.
    pub(crate) detail: [usize; 3],
}

impl kernel::fmt::Display for Difference {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "step {}: {}: {:x?}", self.step, self.what, self.detail)
    }
}

/// The largest alignment in a trace, as a power of two of bytes.
const MAX_ALIGN_SHIFT: usize = 20;

/// The kinds of blocks in a trace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kinds {
    None,
    Fine,
    All,
}

/// The random numbers of one step, in the order of use; missing ones are 0.
pub(crate) type StepNumbers = [u16; 10];

/// The source of random numbers.
pub(super) enum Source<'a> {
    Random(Random),
    /// Given numbers, so that a failing trace can be shrunk step by step.
    Given {
        steps: &'a [StepNumbers],
        /// The current step.
        at: usize,
        /// How many of its numbers were used.
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

    /// Returns a number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        match self {
            Source::Random(random) => random.below(bound),
            Source::Given { steps, at, used } => {
                let number = steps.get(*at).and_then(|step| step.get(*used));
                let number = usize::from(number.copied().unwrap_or(0));
                *used += 1;
                // `bound * number >> 16`, without overflow of the product.
                (bound >> 16) * number + (((bound & 0xffff) * number) >> 16)
            }
        }
    }
}

/// A trace: a space and its model, which get the same requests.
pub(super) struct Trace<'a> {
    pub(super) space: &'a Space<FlushLog>,
    pub(super) log: &'a FlushLog,
    pub(super) model: Model,
    pub(super) random: Source<'a>,
    pub(super) home: Span,
    pub(super) kinds: Kinds,
    pub(super) step: usize,
}

pub(super) type Outcome<T = ()> = core::result::Result<T, Difference>;

impl Trace<'_> {
    fn fail<T>(&self, what: &'static str, detail: [usize; 3]) -> Outcome<T> {
        Err(Difference {
            step: self.step,
            what,
            detail,
        })
    }

    /// Returns a random range of the model in `state`.
    fn any(&mut self, state: State) -> Option<Span> {
        let count = self.model.count(state);
        if count == 0 {
            return None;
        }
        let nth = self.random.below(count);
        let mut ranges = self.model.ranges().iter().filter(|range| range.1 == state);
        ranges.nth(nth).map(|range| range.0)
    }

    /// Returns the window of a request: in three of four cases all of home, otherwise a part of it.
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
            // Large sizes fill blocks.
            (1, Kinds::Fine) => 1 + self.random.below(128),
            (1, Kinds::All) => 1 + self.random.below(1200),
            (1, Kinds::None) => 5,
            _ => 1 + self.random.below(8),
        };
        // One request in 16 is exactly as large as the window.
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
            size,
            align,
            ..Request::any_page(window)
        });
        let expected = self.model.lowest_fit(window, size, align);
        let Ok(area) = result else {
            return match expected {
                // The model also counts free units of blocks, which cannot serve every request.
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
            return self.fail("wrong size, window or alignment", detail);
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
            // Cached ranges may push the base down: any free base is right.
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
            self.space.release(area, NeverMapped::in_test());
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
        let flushes = self.log.take_all();
        for (span, state) in self.model.ranges() {
            if *state == State::Lazy && !flushes.covers(*span) {
                return self.fail(
                    "not flushed before it is free",
                    [span.first(), span.size(), 0],
                );
            }
        }
        let (expected, _) = self.model.purge();
        if purged != expected || flushes.areas != expected {
            return self.fail("number of areas purged", [purged, expected, flushes.areas]);
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
        // An area reserves between its own pages and that many rounded up to whole units, at least two.
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

    pub(super) fn run(&mut self, steps: usize) -> Outcome {
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

        // Free everything: all of home must be one gap again.
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
