// SPDX-License-Identifier: GPL-2.0

//! A lowest-fit model, as the rb-trees are one, and what it has in common with a space: both serve the same load.

use crate::{prelude::*, runs::FreeRuns};

/// An allocator that serves a load: a space, or the model.
pub(crate) trait Allocator {
    /// Allocates an area of `size` bytes, if there is room.
    fn alloc(&mut self, size: usize) -> Option<Span>;
    /// Frees an area. Returns about how many pages are lazy.
    fn retire(&mut self, span: Span) -> usize;
    /// Makes what is lazy free, and also cached ranges and empty blocks if `drain`.
    fn purge(&mut self, drain: bool);
}

/// The model: each area gets the lowest address at which it fits, and what is freed can be used after a purge.
pub(crate) struct LowestFit {
    home: Span,
    runs: FreeRuns,
    lazy: Vec<Span>,
    lazy_pages: usize,
}

impl LowestFit {
    /// Creates a model without areas.
    pub(crate) fn new(home: Span) -> Self {
        Self {
            home,
            runs: FreeRuns::new(home),
            lazy: Vec::new(),
            lazy_pages: 0,
        }
    }
}

impl Allocator for LowestFit {
    fn alloc(&mut self, size: usize) -> Option<Span> {
        let span = self.runs.lowest(self.home, size)?;
        self.runs.take(span);
        Some(span)
    }

    fn retire(&mut self, span: Span) -> usize {
        self.lazy.push(span);
        self.lazy_pages += span.size() / PAGE_SIZE;
        self.lazy_pages
    }

    fn purge(&mut self, _: bool) {
        self.lazy_pages = 0;
        self.lazy.drain(..).for_each(|span| self.runs.give(span));
    }
}

impl Allocator for Space<FlushLog> {
    fn alloc(&mut self, size: usize) -> Option<Span> {
        let area = Space::alloc_bare(self, request(self, size)).ok()?;
        assert_eq!(area.span().size(), size);
        Some(area.span())
    }

    fn retire(&mut self, span: Span) -> usize {
        retire(self, span.first())
    }

    fn purge(&mut self, drain: bool) {
        Space::purge(self, None, drain);
    }
}
