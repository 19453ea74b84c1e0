// SPDX-License-Identifier: GPL-2.0

//! What is in a block, for checks and for lists of all areas.
//!
//! The bitmaps of a block show which units are in use, and its area objects show the areas. Here both are
//! compared, and the areas are found that are neither busy nor free. Nothing here changes the block, and no
//! request needs it.

use crate::{
    base::{
        bits::{
            self,
            Words,
            UNITS, //
        },
        map::Map,
        range::Span, //
    },
    state::block::Block,
    sys::mm, //
};
use kernel::prelude::*;

/// Attempts of [`Block::validate`] to read a block that others change.
const MAX_LOOKS: usize = 100;

/// The counts of one block.
#[derive(Default)]
pub(crate) struct Contents {
    /// Busy areas.
    pub(crate) busy: usize,
    /// Areas that are neither busy nor free.
    pub(crate) unlinked: usize,
    /// Pages that wait for a TLB flush.
    pub(crate) lazy_pages: usize,
}

impl Block {
    /// Returns the lowest area that ends above `addr` and is neither busy nor free.
    pub(crate) fn next_lazy(&self, addr: usize) -> Option<Span> {
        let waiting = self.waiting();
        let mut end = self.start();
        // Begin with the first object: `end` must be known.
        for object in 0..self.objects.len() {
            if let Some(span) = self.not_busy(object, &waiting, end) {
                if span.last() >= addr {
                    return Some(span);
                }
                end = self.end_of(span);
            }
        }
        None
    }

    /// Returns the end of the units of an area.
    fn end_of(&self, span: Span) -> usize {
        let units = self.units_for(span.size());
        span.first()
            .wrapping_add(units.wrapping_shl(self.unit_shift))
    }

    /// Returns the units that wait for a TLB flush.
    fn waiting(&self) -> Words {
        bits::or(&self.lazy.words(), &self.flushing.words())
    }

    /// Returns the area of an object if it is neither busy nor free. `waiting` are the units that wait for
    /// a flush; `end` is the end of the units of the last such area before it.
    ///
    /// Objects keep their bounds after their units became free, and the first unit may then wait for a flush
    /// as a part of another area. That one starts before it, or it would have this object: so `end` tells.
    fn not_busy(&self, object: usize, waiting: &Words, end: usize) -> Option<Span> {
        let (span, is_unlinked) = self.objects.not_busy(object)?;
        let unit = self.unit_of(span.first())?;
        let inside = self.span().is_some_and(|block| block.covers(span));
        let is_lazy = bits::has(waiting, unit) && span.first() >= end;
        (inside && self.object_of(unit) == object && (is_unlinked || is_lazy)).then_some(span)
    }

    /// Returns the bitmaps, each read at once, against the order in which a unit changes its state.
    pub(super) fn all_words(&self) -> [Words; 3] {
        [&self.flushing, &self.lazy, &self.free].map(Map::words)
    }

    /// Checks the invariants and counts the areas. `quiet` says that nobody else changes the block.
    ///
    /// While others change it, an area may be counted twice or not at all, and a block that changes during
    /// every look is not judged. `EINVAL` if an invariant is broken.
    pub(crate) fn validate(&self, quiet: bool) -> Result<Contents> {
        for _ in 0..MAX_LOOKS {
            let words = self.all_words();
            let (mut contents, sane) = self.check(&words, quiet);
            let [flushing, lazy, ..] = &words;
            let lazy = bits::weight(lazy).wrapping_add(bits::weight(flushing));
            contents.lazy_pages = self.pages_in(lazy);
            if sane {
                return Ok(contents);
            }
            if words == self.all_words() {
                mm::refuse!("block at {:#x}: {:x?}", self.start(), words);
                return Err(EINVAL);
            }
        }
        Ok(Contents::default())
    }

    fn check(&self, words: &[Words; 3], quiet: bool) -> (Contents, bool) {
        let [flushing, lazy, free] = words;
        let mut contents = Contents::default();
        let waiting = bits::or(lazy, flushing);
        let are_apart = |a: &Words, b: &Words| bits::weight(&bits::and(a, b)) == 0;
        let mut sane = are_apart(lazy, flushing) && are_apart(&waiting, free);
        let mut covered = 0_usize;
        let mut end = self.start();
        for object in 0..self.objects.len() {
            let span = match self.objects.look(object) {
                Some((_, seen)) => {
                    contents.busy = contents.busy.wrapping_add(1);
                    // Only if quiet: the area may have become busy after the words were read.
                    if quiet {
                        let unit = self.unit_of(seen.span().first());
                        sane &= unit.is_some_and(|unit| {
                            self.object_of(unit) == object
                                && !bits::has(free, unit)
                                && !bits::has(&waiting, unit)
                        });
                    }
                    seen.span()
                }
                None => {
                    let Some(span) = self.not_busy(object, &waiting, end) else {
                        continue;
                    };
                    contents.unlinked = contents.unlinked.wrapping_add(1);
                    span
                }
            };
            if quiet {
                sane &= span.first() >= end;
            }
            end = self.end_of(span);
            covered = covered.wrapping_add(self.units_for(span.size()));
        }
        if quiet {
            let size = end.wrapping_sub(self.start());
            sane &= size <= self.size();
            sane &= covered.wrapping_add(bits::weight(free)) == UNITS;
        }
        (contents, sane)
    }
}
