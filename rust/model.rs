// SPDX-License-Identifier: GPL-2.0

//! A plain model of a space, to compare the allocator with: a sorted list, walked from the start.
//!
//! It knows nothing of trees, tags or caches, only which ranges are reserved and which of them are
//! busy. What the allocator does has to be one of the things that the model allows.

use crate::range::{
    align_up,
    Span,
    PAGE_SIZE, //
};
use kernel::prelude::*;

/// What the model knows of a reserved range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In use.
    Busy,
    /// Freed, but not purged.
    Lazy,
}

/// The reserved ranges, sorted by address.
pub(crate) struct Model(KVec<(Span, State)>);

impl Model {
    /// A space where all is free.
    pub(crate) const fn new() -> Self {
        Self(KVec::new())
    }

    /// The reserved ranges.
    pub(crate) fn ranges(&self) -> &[(Span, State)] {
        &self.0
    }

    /// Number of ranges in `state`.
    pub(crate) fn count(&self, state: State) -> usize {
        self.0.iter().filter(|range| range.1 == state).count()
    }

    /// What is at `addr`.
    pub(crate) fn at(&self, addr: usize) -> Option<(Span, State)> {
        self.0
            .iter()
            .copied()
            .find(|(span, _)| span.first() <= addr && addr <= span.last())
    }

    /// Reserves `span`. False if some of it is reserved.
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

    /// Makes the busy range that starts at `start` lazy, or free at once.
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

    /// Makes all lazy ranges free. Returns how many, and what covers them.
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

    /// The lowest place for `size` bytes aligned to `align` in `window`.
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

    /// The highest base at which all of `members` (offset, size) are free in `window`.
    pub(crate) fn highest_base(
        &self,
        window: Span,
        members: &[(usize, usize)],
        align: usize,
    ) -> Option<usize> {
        let mut base = crate::range::align_down(window.last(), align);
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

/// A small generator of numbers that look random: xorshift64*. The same seed, the same numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Starts with `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // CAST: The low half will do where a word has 32 bits; there is no division of 64 bits then.
        self.next() as usize % bound
    }
}
