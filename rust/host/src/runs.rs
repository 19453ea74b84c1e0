// SPDX-License-Identifier: GPL-2.0

//! The free runs of an address space, for spaces with a million areas: finds the lowest run of a size without
//! a walk over all runs.

use crate::base::range::{Span, PAGE_SIZE};
use std::collections::{BTreeMap, BTreeSet};

/// Runs of up to this many pages have a class for each size, longer ones four for each power of two.
const EXACT: usize = 64;

// CAST: A number of bits fits in a `usize`.
const CLASSES: usize = EXACT + 4 * (usize::BITS - (EXACT * PAGE_SIZE).ilog2()) as usize;

/// Returns the class of runs whose last address is `extent` above the first one.
fn class_of(extent: usize) -> usize {
    let pages = extent / PAGE_SIZE;
    if pages <= EXACT {
        return pages;
    }
    let log = pages.ilog2();
    // CAST: A number of bits fits in a `usize`.
    EXACT + 4 * (log - EXACT.ilog2()) as usize + (pages >> (log - 2) & 3)
}

/// The free runs by address and by size.
pub(crate) struct FreeRuns {
    /// Maps the first address of a run to its last one.
    by_addr: BTreeMap<usize, usize>,
    /// For each class of sizes, the first addresses.
    by_size: Vec<BTreeSet<usize>>,
    /// For each class, the lowest of these, or `usize::MAX`.
    lowest: Vec<usize>,
}

impl FreeRuns {
    /// Creates a set of one run.
    pub(crate) fn new(all: Span) -> Self {
        let mut runs = Self {
            by_addr: BTreeMap::new(),
            by_size: vec![BTreeSet::new(); CLASSES],
            lowest: vec![usize::MAX; CLASSES],
        };
        runs.insert(all);
        runs
    }

    fn insert(&mut self, run: Span) {
        let class = class_of(run.last() - run.first());
        self.by_addr.insert(run.first(), run.last());
        self.by_size[class].insert(run.first());
        self.lowest[class] = self.lowest[class].min(run.first());
    }

    fn remove(&mut self, run: Span) {
        let class = class_of(run.last() - run.first());
        self.by_addr.remove(&run.first());
        self.by_size[class].remove(&run.first());
        if self.lowest[class] == run.first() {
            self.lowest[class] = self.by_size[class].first().copied().unwrap_or(usize::MAX);
        }
    }

    fn run_at(&self, first: usize) -> Option<Span> {
        Span::new(first, *self.by_addr.get(&first)?)
    }

    /// Returns the run that contains `addr`.
    pub(crate) fn around(&self, addr: usize) -> Option<Span> {
        let (&first, &last) = self.by_addr.range(..=addr).next_back()?;
        Span::new(first, last).filter(|run| run.contains(addr))
    }

    /// Returns the lowest free addresses in `window` that have `bytes` bytes.
    pub(crate) fn lowest(&self, window: Span, bytes: usize) -> Option<Span> {
        let clipped = self.around(window.first()).and_then(|run| run.clip(window));
        if let Some(run) = clipped.filter(|run| run.has_room(bytes)) {
            return Span::with_size(run.first(), bytes);
        }
        // Runs of its own class may be too small.
        let own = class_of(bytes - 1);
        let mut best = self.by_size[own]
            .range(window.first()..)
            .copied()
            .find(|&first| self.run_at(first).is_some_and(|run| run.has_room(bytes)))
            .unwrap_or(usize::MAX);
        for class in own + 1..CLASSES {
            if self.lowest[class] >= best {
                continue;
            }
            let found = match self.lowest[class] < window.first() {
                true => self.by_size[class].range(window.first()..).next().copied(),
                false => Some(self.lowest[class]),
            };
            best = best.min(found.unwrap_or(usize::MAX));
        }
        let run = self.run_at(best)?.clip(window)?;
        // Runs above have even less room below the end of the window.
        run.has_room(bytes)
            .then(|| Span::with_size(run.first(), bytes))?
    }

    /// Returns the highest free addresses in `window` that have `bytes` bytes.
    pub(crate) fn highest(&self, window: Span, bytes: usize) -> Option<Span> {
        let below = self.by_addr.range(..=window.last()).rev();
        let run = below
            .filter_map(|(&first, &last)| Span::new(first, last)?.clip(window))
            .find(|run| run.has_room(bytes))?;
        Span::new(run.last() - (bytes - 1), run.last())
    }

    /// Takes `span`, which is free, out of its run.
    pub(crate) fn take(&mut self, span: Span) {
        let run = self.around(span.first()).expect("a free run");
        assert!(run.covers(span));
        self.remove(run);
        if let Some(below) = Span::from_bounds(run.first(), span.first()) {
            self.insert(below);
        }
        let above = span.next_addr();
        if let Some(above) = above.and_then(|first| Span::new(first, run.last())) {
            self.insert(above);
        }
    }

    /// Makes `span` free, which is not.
    pub(crate) fn give(&mut self, span: Span) {
        let below = span
            .first()
            .checked_sub(1)
            .and_then(|addr| self.around(addr));
        let above = span
            .last()
            .checked_add(1)
            .and_then(|addr| self.around(addr));
        let mut run = span;
        for next in [below, above].into_iter().flatten() {
            self.remove(next);
            run = run.join(next);
        }
        self.insert(run);
    }
}
