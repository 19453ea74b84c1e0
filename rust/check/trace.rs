// SPDX-License-Identifier: GPL-2.0

//! Random traces: the allocator and the record of all areas must agree after each step.
//!
//! Traces run in the kernel on the maple tree, and on the build host on a stand-in of it.

use crate::{
    base::range::Span,
    check::{
        fixtures::World,
        random::Random,
        trace_steps::{
            Kinds,
            Outcome,
            Source,
            StepNumbers,
            Trace, //
        }, //
    },
    state::class::SIZE, //
};
use kernel::prelude::*;

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

/// Runs a trace of `steps` steps with numbers from `seed` in a space of its own. Sleepable context.
///
/// `blocks` limits the total size of blocks, in blocks of the smallest size. With more than [`FEW`], the space is large.
pub(crate) fn run(seed: u64, steps: usize, blocks: usize) -> Result<Outcome> {
    let source = Source::Random(Random::new(seed));
    run_from(source, steps, blocks, |world| world)
}

/// Runs a trace as [`run`] does, with randomised placement.
pub(crate) fn run_randomized(seed: u64, steps: usize, blocks: usize) -> Result<Outcome> {
    let source = Source::Random(Random::new(seed));
    run_from(source, steps, blocks, World::randomized)
}

/// Runs a trace as [`run`] does, with one step for each entry of `steps`, which gives its numbers.
pub(crate) fn replay(steps: &[StepNumbers], blocks: usize) -> Result<Outcome> {
    let source = Source::Given {
        steps,
        at: 0,
        used: 0,
    };
    run_from(source, steps.len(), blocks, |world| world)
}

fn run_from(
    source: Source<'_>,
    steps: usize,
    blocks: usize,
    change: impl FnOnce(World) -> World,
) -> Result<Outcome> {
    let ((start, end), kinds) = match blocks {
        0 => (SMALL_HOME, Kinds::None),
        1..=FEW => (HOME, Kinds::Small),
        _ => (LARGE_HOME, Kinds::All),
    };
    let home = Span::from_bounds(start, end).ok_or(EINVAL)?;
    let checked = change(World::new(home).blocks(blocks)).checked()?;
    let mut trace = Trace {
        checked: &checked,
        checker: checked.checker().ok_or(EINVAL)?,
        random: source,
        home,
        kinds,
        step: 0,
    };
    let outcome = trace.run(steps);
    if outcome.is_err() {
        // Free the remaining areas, so that the first difference is the only report.
        let space = checked.space();
        while let Some((area, pin)) = space.get(0) {
            drop(pin);
            match space.unlink(area.span().first()) {
                Some(area) => drop(space.retire(area)),
                None => break,
            }
        }
        space.purge(None, true);
    }
    Ok(outcome)
}
