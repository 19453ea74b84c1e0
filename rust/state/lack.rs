// SPDX-License-Identifier: GPL-2.0

//! What requests have not found in the blocks of a band.

use crate::state::band::{
    Small,
    MAX_UNITS, //
};

/// What a search did not find: neither any run of `run` units, nor one of `units` units that begins at a multiple of
/// `1 << align`.
#[derive(Clone, Copy)]
pub(crate) struct Lack {
    run: usize,
    units: usize,
    align: u32,
}

/// Bits for a number of units, up to `2 * MAX_UNITS - 1`, and for an alignment, up to that of `MAX_UNITS` units.
const UNIT_BITS: u32 = MAX_UNITS.ilog2() + 1;
const ALIGN_BITS: u32 = 3;

impl Lack {
    /// Bits of [`Lack::as_bits`].
    pub(crate) const BITS: u32 = 2 * UNIT_BITS + ALIGN_BITS;

    /// What a search that no request has begun lacks: nothing is too small.
    pub(crate) const ALL: Self = Self {
        run: 0,
        units: 0,
        align: 0,
    };

    /// No request lacks it.
    pub(crate) const NOTHING: Self = Self {
        run: mask(UNIT_BITS),
        units: mask(UNIT_BITS),
        // CAST: A few bits.
        align: mask(ALIGN_BITS) as u32,
    };

    /// What a block has not if there is no room for `small` in it.
    pub(crate) fn of(small: Small) -> Self {
        Self {
            run: small.run(),
            units: small.units,
            align: small.align,
        }
    }

    /// Returns whether there is no room for `small`.
    pub(crate) fn is_of(self, small: Small) -> bool {
        small.units >= self.run || small.units >= self.units && small.align >= self.align
    }

    /// What each block lacks if some lack `self` and the others `other`.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            run: self.run.max(other.run),
            units: self.units.max(other.units),
            align: self.align.max(other.align),
        }
    }

    /// What is lacking if both `self` and `other` are. Of two alignments it may keep only that of `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        let covers = self.units <= other.units && self.align <= other.align;
        Self {
            run: self.run.min(other.run),
            ..if covers { self } else { other }
        }
    }

    /// Returns it as the low bits of a word.
    pub(crate) fn as_bits(self) -> usize {
        // CAST: A few bits.
        let aligned = self.units.wrapping_shl(ALIGN_BITS) | self.align as usize;
        self.run.wrapping_shl(UNIT_BITS + ALIGN_BITS) | aligned
    }

    /// The inverse of [`Lack::as_bits`]; higher bits are ignored.
    pub(crate) fn from_bits(bits: usize) -> Self {
        Self {
            run: bits.wrapping_shr(UNIT_BITS + ALIGN_BITS) & mask(UNIT_BITS),
            units: bits.wrapping_shr(ALIGN_BITS) & mask(UNIT_BITS),
            // CAST: A few bits.
            align: (bits & mask(ALIGN_BITS)) as u32,
        }
    }
}

/// Returns a number with the lowest `bits` bits set.
const fn mask(bits: u32) -> usize {
    1_usize.wrapping_shl(bits) - 1
}
