// SPDX-License-Identifier: GPL-2.0

//! A simple model of a space, with which tests compare the allocator: a sorted list of reserved ranges.
//!
//! It has no trees, blocks or caches, only the reserved ranges and their states. Each answer of the
//! allocator must be one that the model allows.

use crate::base::range::{
    align_up,
    Span,
    PAGE_SIZE, //
};
use kernel::prelude::*;

/// The state of a reserved range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In use.
    Busy,
    /// Freed and not yet purged.
    Lazy,
}

/// The reserved ranges, sorted by address.
pub(crate) struct Model(KVec<(Span, State)>);

impl Model {
    /// Creates an empty space.
    pub(crate) const fn new() -> Self {
        Self(KVec::new())
    }

    /// Returns the reserved ranges, sorted by address.
    pub(crate) fn ranges(&self) -> &[(Span, State)] {
        &self.0
    }

    /// Returns the number of ranges in `state`.
    pub(crate) fn count(&self, state: State) -> usize {
        self.0.iter().filter(|range| range.1 == state).count()
    }

    /// Returns the range that contains `addr`, and its state.
    pub(crate) fn at(&self, addr: usize) -> Option<(Span, State)> {
        self.0
            .iter()
            .copied()
            .find(|(span, _)| span.first() <= addr && addr <= span.last())
    }

    /// Reserves `span`. Returns false if some of it is reserved. `ENOMEM` without memory.
    pub(crate) fn reserve(&mut self, span: Span) -> Result<bool> {
        if self.0.iter().any(|(other, _)| other.clip(span).is_some()) {
            return Ok(false);
        }
        let index = self
            .0
            .iter()
            .position(|(other, _)| other.first() > span.first())
            .unwrap_or(self.0.len());
        self.0.push((span, State::Busy), GFP_KERNEL)?;
        if let Some(tail) = self.0.get_mut(index..) {
            tail.rotate_right(1);
        }
        Ok(true)
    }

    /// Makes the busy range that starts at `start` lazy if `lazy`, otherwise free.
    pub(crate) fn free(&mut self, start: usize, lazy: bool) {
        if lazy {
            for (span, state) in self.0.iter_mut() {
                if span.first() == start {
                    *state = State::Lazy;
                }
            }
        } else {
            self.0.retain(|(span, _)| span.first() != start);
        }
    }

    /// Frees all lazy ranges. Returns their number and the smallest span that covers them.
    pub(crate) fn purge(&mut self) -> (usize, Option<Span>) {
        let mut cover: Option<Span> = None;
        let mut purged = 0;
        self.0.retain(|(span, state)| {
            if *state == State::Lazy {
                cover = Some(cover.map_or(*span, |other| other.join(*span)));
                purged += 1;
            }
            *state == State::Busy
        });
        (purged, cover)
    }

    /// Returns the lowest free span of `size` bytes aligned to `align` in `window`.
    pub(crate) fn lowest_fit(&self, window: Span, size: usize, align: usize) -> Option<Span> {
        let align = align.max(PAGE_SIZE);
        let mut from = window.first().max(PAGE_SIZE);
        for (taken, _) in self.0.iter() {
            let fit = Span::with_size(align_up(from, align)?, size)?;
            if fit.last() > window.last() {
                return None;
            }
            if fit.last() < taken.first() {
                return Some(fit);
            }
            if taken.last() >= from {
                from = taken.last().checked_add(1)?;
            }
        }
        let fit = Span::with_size(align_up(from, align)?, size)?;
        window.covers(fit).then_some(fit)
    }

    /// Returns the highest base at which all `members` (offset, size) are free in `window`.
    pub(crate) fn highest_base(
        &self,
        window: Span,
        members: &[(usize, usize)],
        align: usize,
    ) -> Option<usize> {
        let mut base = crate::base::range::align_down(window.last(), align);
        loop {
            let free = members.iter().all(|&(offset, size)| {
                base.checked_add(offset)
                    .and_then(|first| Span::with_size(first, size))
                    .is_some_and(|span| {
                        window.covers(span)
                            && !self.0.iter().any(|(taken, _)| taken.clip(span).is_some())
                    })
            });
            if free {
                return Some(base);
            }
            base = base
                .checked_sub(align)
                .filter(|&base| base >= window.first())?;
        }
    }
}

/// A small pseudo-random number generator: xorshift64*. The seed determines all numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator with `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        // A state of zero would remain zero.
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // CAST: A 32-bit word keeps the low half, which avoids a 64-bit division there.
        self.next() as usize % bound
    }
}
