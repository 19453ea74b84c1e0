// SPDX-License-Identifier: GPL-2.0

//! Random traces: the allocator and the record of all areas must agree after each step. KUnit and proptest run them,
//! in the kernel on the maple tree, and on the build host on a stand-in of it.
//!
//! The checker compares each answer with its record; the steps compare what needs a space
//! that nobody else uses: whether there is room, what a purge flushes, and all numbers.

use crate::{
    check::{
        checked::CheckedSpace,
        checker::Checker,
        fixtures::{
            publish,
            FlushLog,
            World, //
        },
        random::Random, //
    },
    policy::{
        prelude::*,
        validate::Census, //
    }, //
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

/// The space of a trace. Nothing is mapped, so any addresses will do. With 4 KiB pages it has room for nine
/// blocks, none of them at its start.
const HOME: (usize, usize) = (15 << 20, (15 << 20) + (20 << 20));

/// The most blocks in [`HOME`].
const FEW: usize = 31;

/// The space of a trace with large blocks. 32-bit machines have too few addresses for it.
const LARGE_HOME: (usize, usize) = match SIZE.checked_mul(66 << 5) {
    Some(size) => (HOME.0, HOME.0 + size),
    None => HOME,
};

/// The space of a trace without blocks.
const SMALL_HOME: (usize, usize) = (16 << 20, (16 << 20) + (8 << 20));

/// Bytes of the window beside home: such a one may be asked for again and again.
const BESIDE: usize = 16 << 20;

/// The largest alignment in a trace, as a power of two of bytes.
const MAX_ALIGN_SHIFT: usize = 20;

/// The kinds of blocks in a trace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    None,
    Small,
    All,
}

/// The random numbers of one step, in the order of use; missing ones are 0.
pub(crate) type StepNumbers = [u16; 10];

/// The source of random numbers.
pub(crate) enum Source<'a> {
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

/// A trace: a space, and the checker that records what is in it.
struct Trace<'a> {
    checked: &'a CheckedSpace<FlushLog>,
    checker: &'a Checker,
    random: Source<'a>,
    home: Span,
    /// A window beside home.
    beside: Span,
    kinds: Kinds,
    step: usize,
}

pub(crate) type Outcome<T = ()> = core::result::Result<T, Difference>;

impl Trace<'_> {
    fn fail<T>(&self, what: &'static str, detail: [usize; 3]) -> Outcome<T> {
        Err(Difference {
            step: self.step,
            what,
            detail,
        })
    }

    /// Returns a random busy area.
    fn any_busy(&mut self) -> Option<Span> {
        match self.busy() {
            0 => None,
            count => {
                let nth = self.random.below(count);
                self.checker.with(|record| record.busy().nth(nth))
            }
        }
    }

    fn busy(&self) -> usize {
        self.checker.with(|record| record.busy().count())
    }

    /// Returns the areas that are freed and not yet flushed.
    fn all_lazy(&self) -> Result<KVec<Span>> {
        let mut all = KVec::with_capacity(self.lazy(), GFP_KERNEL)?;
        // There is room: under the lock of the record, memory may be short.
        self.checker.with(|record| {
            record
                .lazy()
                .try_for_each(|span| all.push(span, GFP_NOWAIT))
        })?;
        Ok(all)
    }

    fn lazy(&self) -> usize {
        self.checker.with(|record| record.lazy().count())
    }

    /// Returns the window of a request: in six of eight cases all of home, otherwise one beside it, or a part of home.
    fn window(&mut self) -> Span {
        match self.random.below(8) {
            0 => {}
            1 => return self.beside,
            _ => return self.home,
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
            (1, Kinds::Small) => 1 + self.random.below(128),
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
        let expected = self
            .checker
            .with(|record| record.lowest_fit(window, size, align));
        let kept = self.checked.space().kept();
        let result = self.checked.alloc_bare(Request {
            align,
            ..Request::bytes(window, size)
        });
        match (result, expected) {
            (Err(_), None) => Ok(()),
            // The record also counts free slots of blocks, which cannot serve every request.
            (Err(_), Some(_)) if self.has_blocks() => Ok(()),
            (Err(_), Some(span)) => self.fail("no room, but there is", [span.first(), size, align]),
            (Ok(_), None) => self.fail("room, but there is none", [0, size, align]),
            (Ok(area), Some(lowest)) => {
                let first = area.span().first();
                if !window.covers(area.span()) {
                    return self.fail("outside its window", [first, size, window.first()]);
                }
                if self.checked.space().start_of(area.area()) != Some(first) {
                    return self.fail("an area that is not in the index", [first, size, align]);
                }
                // A kept area may be anywhere, and those that are left are in the way.
                let is_lowest = self.kinds == Kinds::None && align == 1 && kept == 0;
                if is_lowest && first != lowest.first() {
                    return self.fail("not the lowest address", [first, lowest.first(), size]);
                }
                Ok(())
            }
        }
    }

    fn has_blocks(&self) -> bool {
        self.checked.space().blocks().live > 0
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
        let expected = self
            .checker
            .with(|record| record.highest_base(self.home, &members, align));
        let all = members.map(|(offset, size)| Member { offset, size });
        let result =
            self.checked
                .alloc_congruent(self.home, all.into_iter(), align, Gfp::KERNEL, publish);
        match (result, expected) {
            (Err(_), Some(base)) if !self.has_blocks() => {
                self.fail("no common base, but there is", [base, 0, 0])
            }
            (Ok(()), None) => self.fail("a common base, but there is none", [0; 3]),
            // Blocks may push the base down: any free base is right.
            _ => Ok(()),
        }
    }

    fn free(&mut self) -> Outcome {
        let Some(span) = self.any_busy() else {
            return Ok(());
        };
        let inner = span.first() + self.random.below(span.size());
        let detail = [span.first(), span.size(), inner];
        let Some(area) = self.checked.unlink(inner) else {
            return self.fail("cannot unlink a busy area", detail);
        };
        if area.span() != Some(span) {
            return self.fail("another area was unlinked", detail);
        }
        if self.checked.find(inner).is_some() {
            return self.fail("found after unlink", detail);
        }
        if self.checked.unlink(inner).is_some() {
            return self.fail("unlinked twice", detail);
        }
        self.checked.retire(area);
        Ok(())
    }

    fn find(&mut self) -> Outcome {
        let all = self.home.join(self.beside);
        let addr = all.first() + self.random.below(all.size());
        self.checked.find(addr);
        let bytes = self.random.below(self.home.size()) >> self.random.below(usize::BITS as usize);
        drop(self.checked.get(addr, addr.saturating_add(bytes)));
        let mut last: Option<Span> = None;
        loop {
            let end = last.map_or(0, Span::end);
            let is_behind = |span: &Span| span.first() >= end;
            let lazy = self.checker.with(|record| record.lazy().find(is_behind));
            if self.checked.space().next_lazy(last) != lazy {
                return self.fail("next lazy", [end, 0, 0]);
            }
            if lazy.is_none() {
                return Ok(());
            }
            last = lazy;
        }
    }

    fn purge(&mut self) -> Outcome {
        let drain = self.random.below(3) == 0;
        let Ok(lazy) = self.all_lazy() else {
            return self.fail("no memory for a list", [0; 3]);
        };
        let purged = self.checked.purge(None, drain);
        let flushes = self.checked.space().tlb().tlb.take_all();
        if let Some(span) = lazy.iter().find(|span| !flushes.covers(**span)) {
            return self.fail(
                "not flushed before it is free",
                [span.first(), span.size(), 0],
            );
        }
        if flushes.len != usize::from(!lazy.is_empty()) {
            return self.fail("number of flushes", [flushes.len, lazy.len(), 0]);
        }
        if purged != lazy.len() || flushes.areas != lazy.len() {
            return self.fail(
                "number of areas purged",
                [purged, lazy.len(), flushes.areas],
            );
        }
        Ok(())
    }

    /// Compares all numbers. The checker must have found nothing wrong.
    fn check(&self) -> Outcome<Census> {
        self.agree()?;
        let space = self.checked.space();
        let Ok(census) = space.validate() else {
            return self.fail("invariants", [0; 3]);
        };
        let (busy, lazy) = (self.busy(), self.lazy());
        if census.busy != busy || census.unlinked != lazy + space.kept() {
            return self.fail("number of areas", [census.busy, busy, census.unlinked]);
        }
        let add = |sum, span: Span| sum + span.size() / PAGE_SIZE;
        let least = self.checker.with(|record| record.lazy().fold(0, add));
        let found = space.lazy_pages();
        // Slots count as a whole.
        let exact = self.kinds == Kinds::None || least == 0;
        if found < least || exact && found != least {
            return self.fail("lazy pages", [found, least, 0]);
        }
        Ok(census)
    }

    fn agree(&self) -> Outcome {
        match self.checker.agrees() {
            true => Ok(()),
            false => self.fail("the checker, see the line before", [0; 3]),
        }
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
            self.agree()?;
            if step % 64 == 0 {
                self.check()?;
            }
        }

        // Free everything: all of home must be one gap again.
        while let Some(span) = self.any_busy() {
            match self.checked.unlink(span.first()) {
                Some(area) => self.checked.retire(area),
                None => return self.fail("cannot unlink a busy area", [span.first(), 0, 0]),
            };
        }
        self.check()?;
        self.checked.purge(None, true);
        let census = self.check()?;
        let kept = self.checked.space().kept();
        if census.blocks != 0 || kept != 0 {
            return self.fail("something is left", [census.blocks, kept, 0]);
        }
        Ok(())
    }
}

/// Runs a trace of `steps` steps in a space of its own. Sleepable context.
///
/// `blocks` limits the total size of blocks, in blocks of the smallest size. With more than [`FEW`], the space is large.
pub(crate) fn run(
    source: Source<'_>,
    steps: usize,
    blocks: usize,
    is_randomized: bool,
) -> Result<Outcome> {
    let ((start, end), kinds) = match blocks {
        0 => (SMALL_HOME, Kinds::None),
        1..=FEW => (HOME, Kinds::Small),
        _ => (LARGE_HOME, Kinds::All),
    };
    let home = Span::from_bounds(start, end).ok_or(EINVAL)?;
    let world = World {
        is_randomized,
        ..World::new(home).blocks(blocks)
    };
    let checked = world.checked()?;
    let mut trace = Trace {
        checked: &checked,
        checker: checked.checker().ok_or(EINVAL)?,
        random: source,
        home,
        beside: Span::with_size(home.end() + PAGE_SIZE, BESIDE).ok_or(EINVAL)?,
        kinds,
        step: 0,
    };
    let outcome = trace.run(steps);
    if outcome.is_err() {
        // Free the remaining areas, so that the first difference is the only report.
        let space = checked.space();
        while let Some(area) = space.get(0, usize::MAX).map(|pinned| pinned.area()) {
            match space.unlink(area.span().first()) {
                Some(area) => drop(space.retire(area)),
                None => break,
            }
        }
        space.purge(None, true);
    }
    Ok(outcome)
}

/// Runs a trace as [`run`] does, with one step for each entry of `steps`, which gives its numbers.
pub(crate) fn replay(steps: &[StepNumbers], blocks: usize) -> Result<Outcome> {
    let source = Source::Given {
        steps,
        at: 0,
        used: 0,
    };
    run(source, steps.len(), blocks, false)
}
