// SPDX-License-Identifier: GPL-2.0

//! What is in a block, for checks.
//!
//! The bitmaps of a block show which units are in use, and its area objects show the areas. Here both are
//! compared. Nothing here changes the block, and no request needs it.

use crate::{
    base::{
        bits::{
            self,
            Words,
            UNITS, //
        },
        map::Map, //
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
                    let is_waiting = |unit| bits::has(&waiting, unit);
                    let Some(span) = self.not_busy(object, is_waiting, end) else {
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
