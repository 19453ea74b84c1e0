// SPDX-License-Identifier: GPL-2.0

//! The state of each unit of a block, for the list of all ranges in debugfs. Reads only, takes no lock, and changes
//! nothing: while others use the block, each unit is shown in a state that it had during the look.

use crate::{
    base::bits::{
        self,
        Bit,
        UNITS, //
    },
    state::block::Block, //
};

/// The state of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Free,
    /// The first unit of a busy area.
    BusyFirst,
    /// A further unit of a busy area.
    Busy,
    /// Part of an area that is out of use, but not lazy yet: C unmaps it. Or of one that was leaked, by a bug.
    Leaving,
    /// Waits for a purge.
    Lazy,
    /// Taken by a purge that has not flushed the TLBs yet.
    Flushing,
    /// Neither free nor part of an area: claimed or given back during the look.
    Changing,
}

impl Unit {
    /// Returns the letter of the state in the list.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Free => '.',
            Self::BusyFirst => 'B',
            Self::Busy => 'b',
            Self::Leaving => 'u',
            Self::Lazy => 'l',
            Self::Flushing => 'f',
            Self::Changing => '?',
        }
    }
}

impl Block {
    /// Returns the states of all units. The caller keeps the block from being freed.
    pub(crate) fn units(&self) -> [Unit; UNITS] {
        // Against the order in which a unit changes its state, so that the last word that claims it is the newest.
        let [flushing, lazy, free] = self.all_words();
        let mut units = core::array::from_fn(|unit| match Bit::in_row(unit) {
            bit if bits::has(&free, bit) => Unit::Free,
            bit if bits::has(&lazy, bit) => Unit::Lazy,
            bit if bits::has(&flushing, bit) => Unit::Flushing,
            _ => Unit::Changing,
        });
        for object in 0..self.objects.len() {
            let (span, is_busy) = match self.objects.look(object) {
                Some((_, seen)) => (seen.span(), true),
                None => match self.objects.not_busy(object) {
                    Some((span, true)) => (span, false),
                    _ => continue,
                },
            };
            // The bounds of an area that is not busy may be those of two users.
            let Some(first) = self
                .unit_of(span.first())
                .filter(|&first| self.object_of(first) == object)
            else {
                continue;
            };
            let mut area = units
                .iter_mut()
                .skip(first.number())
                .take(self.units_for(span.size()));
            if is_busy {
                // What an object says is newer than the bitmaps.
                if let Some(unit) = area.next() {
                    *unit = Unit::BusyFirst;
                }
                area.for_each(|unit| *unit = Unit::Busy);
            } else {
                area.filter(|unit| **unit == Unit::Changing)
                    .for_each(|unit| *unit = Unit::Leaving);
            }
        }
        units
    }
}
