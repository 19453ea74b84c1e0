// SPDX-License-Identifier: GPL-2.0

//! The states of the slots of a block, for the list of all ranges and for checks. A module of `state`. Takes no lock, and
//! changes nothing.

use super::prelude::*;

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Free,
    Busy,
    /// Its area is out of use, but not lazy yet: C unmaps it. Or it was leaked, by a bug.
    Unlinked,
    /// Waits for a purge.
    Lazy,
    /// Taken by a purge, which frees it after it has flushed the TLBs.
    Flushing,
    /// Claimed or freed during the look, or in a batch.
    Changing,
}

impl Slot {
    /// Returns the letter of the state in the list.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Free => '.',
            Self::Busy => 'B',
            Self::Unlinked => 'u',
            Self::Lazy => 'l',
            Self::Flushing => 'f',
            Self::Changing => '?',
        }
    }
}

impl Block {
    /// Returns the state of slot `slot`, and the addresses of its area if it has one.
    pub(super) fn slot(&self, slot: Bit) -> (Slot, Option<Span>) {
        // Against the order in which a slot changes its state, and the object first: what it says is newest.
        if let Some(area) = self.objects.look(slot) {
            return (Slot::Busy, Some(area.span()));
        }
        let (span, is_unlinked) = match self.objects.not_busy(slot) {
            Some((span, is_unlinked)) => (Some(span), is_unlinked),
            None => (None, false),
        };
        let state = if is_unlinked {
            Slot::Unlinked
        } else if self.flushing.has(slot) {
            Slot::Flushing
        } else if self.lazy.has(slot) {
            Slot::Lazy
        } else if self.free.has(slot) {
            return (Slot::Free, None);
        } else {
            return (Slot::Changing, None);
        };
        (
            state,
            span.filter(|span| self.slot_at(span.first()) == slot),
        )
    }

    /// Returns whether the block is in a seat.
    pub(crate) fn is_current(&self) -> bool {
        // Relaxed: for checks only.
        self.status.load(Relaxed) == SEATED
    }

    /// Returns how many slots are free.
    pub(crate) fn free_slots(&self) -> usize {
        map::weight(&self.free.words())
    }

    /// Returns the states of all slots.
    pub(crate) fn states(&self) -> impl Iterator<Item = Slot> + '_ {
        let slots = (0..self.slot_count).map(Bit::in_row);
        slots.map(|slot| self.slot(slot).0)
    }
}

/// The counts of one block.
#[derive(Default)]
pub(crate) struct Contents {
    /// Busy areas.
    pub(crate) busy: usize,
    /// Areas that are neither busy nor free.
    pub(crate) unlinked: usize,
    /// Pages that wait for a purge to take them.
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
        for slot in (0..self.slot_count).map(Bit::in_row) {
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
