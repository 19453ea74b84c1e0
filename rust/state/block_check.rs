// SPDX-License-Identifier: GPL-2.0

//! Checks the slots of a block, for tests and debugging.

use super::prelude::*;

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
    /// Checks the invariants and counts the areas. `quiet` says that nobody else changes the block: otherwise an area may
    /// be counted twice or not at all, and only the bitmaps are judged. `EINVAL` if an invariant is broken.
    pub(crate) fn validate(&self, quiet: bool) -> Result<Contents> {
        let mut contents = Contents {
            lazy_pages: self.lazy_pages(),
            ..Contents::default()
        };
        for slot in (0..self.class().slots()).map(Bit::in_row) {
            let (state, span) = self.slot(slot);
            let bits = [&self.free, &self.lazy, &self.flushing].map(|map| map.has(slot));
            let count = bits.into_iter().map(usize::from).sum::<usize>();
            let wanted = match state {
                Slot::Free | Slot::Lazy | Slot::Flushing => 1,
                Slot::Busy | Slot::Unlinked => 0,
                Slot::Changing => usize::MAX,
            };
            let inside = span.is_none_or(|span| self.slot_at(span.last()) == slot);
            if quiet && (count != wanted || !inside) {
                // CAST: A state is a small number.
                let numbers = [slot.number(), state as usize, count];
                mm::refuse("a slot is not in one state", &[self.start()], &numbers);
                return Err(EINVAL);
            }
            match state {
                Slot::Busy => contents.busy = contents.busy.wrapping_add(1),
                Slot::Unlinked | Slot::Lazy | Slot::Flushing => {
                    contents.unlinked = contents.unlinked.wrapping_add(1)
                }
                Slot::Free | Slot::Changing => {}
            }
        }
        Ok(contents)
    }
}
