// SPDX-License-Identifier: GPL-2.0

//! The sizes of blocks, and the bands: which sizes of areas are served from the same blocks.
//!
//! A unit of a *fine* block is one page, a unit of a *coarse* block is [`COARSE_PAGES`] pages. The band of a
//! request follows from its number of units, except for large areas with a large alignment, whose blocks hold
//! nothing else.

use crate::base::{
    bits::UNITS,
    range::PAGE_SIZE, //
};

/// Bytes in a fine block.
pub(crate) const SIZE: usize = UNITS * PAGE_SIZE;

/// Pages in a unit of a coarse block.
pub(crate) const COARSE_PAGES: usize = 1 << COARSE_SHIFT;
const COARSE_SHIFT: u32 = 5;

/// Bytes in a coarse block.
pub(crate) const COARSE_SIZE: usize = SIZE << COARSE_SHIFT;

/// Blocks serve areas of up to this many units and this alignment. A block holds so few larger areas that a
/// cached range is cheaper (docs/measurements.md).
pub(crate) const MAX_UNITS: usize = UNITS / 16;

/// Bands of fine blocks, and of coarse ones: areas of 2 or 3 units, 4 to 7, 8 to 15, 16 to 31, and 32.
pub(crate) const STEPS: usize = 5;

/// The band of coarse blocks for areas that page tables can map with entries above the PTEs, which are
/// those of at least [`TABLE_PAGES`] pages and this alignment. They hold nothing else: a table of PTEs that
/// another area needs would be freed to make place for such an entry, and made again, in turns.
pub(crate) const ALIGNED: usize = 2 * STEPS;

/// All bands: first those of fine blocks, then those of coarse ones.
pub(crate) const BANDS: usize = ALIGNED + 1;

/// Pages that a table of PTEs maps, which fills a page.
pub(crate) const TABLE_PAGES: usize = PAGE_SIZE / size_of::<usize>();

/// A request that blocks can serve, in units.
#[derive(Clone, Copy)]
pub(crate) struct Small {
    /// Bytes, guard page included.
    pub(super) size: usize,
    /// Units to reserve.
    pub(super) units: usize,
    /// The first unit is a multiple of `1 << align`.
    pub(super) align: u32,
    band: usize,
    /// Number of lower bands whose blocks can serve the request, too.
    step: usize,
}

impl Small {
    /// Describes a request for `size` bytes at a multiple of `align` bytes. Returns [`None`] if blocks do not
    /// serve it. `coarse` says whether the space has coarse blocks.
    #[inline(always)]
    pub(crate) fn new(size: usize, align: usize, coarse: bool) -> Option<Self> {
        let (pages, align_pages) = (size / PAGE_SIZE, align / PAGE_SIZE);
        if pages == 0 {
            return None;
        }
        if pages <= MAX_UNITS && align_pages <= MAX_UNITS {
            return Some(Self::with_units(size, pages, align_pages, 0));
        }
        let (units, align_units) = (pages.div_ceil(COARSE_PAGES), align_pages / COARSE_PAGES);
        if !coarse || units > MAX_UNITS || align_units > MAX_UNITS {
            return None;
        }
        let mut small = Self::with_units(size, units, align_units, STEPS);
        if pages >= TABLE_PAGES && align_pages >= TABLE_PAGES {
            (small.band, small.step) = (ALIGNED, 0);
        }
        Some(small)
    }

    /// Describes a request for `units` units at a multiple of `align_units`; `first` is the first band of the
    /// kind of block, fine or coarse.
    fn with_units(size: usize, units: usize, align_units: usize, first: usize) -> Self {
        // At least two, so that each area has an object of its own.
        let units = units.max(2);
        // CAST: A number of bits fits in a `usize`.
        let step = (units.ilog2() as usize).saturating_sub(1);
        Self {
            size,
            units,
            align: align_units.max(1).trailing_zeros(),
            band: first.wrapping_add(step),
            step,
        }
    }

    /// Returns the band of the request, below [`BANDS`].
    pub(crate) fn band(self) -> usize {
        self.band
    }

    /// Returns whether the request is for a coarse block.
    #[inline(always)]
    pub(crate) fn is_coarse(self) -> bool {
        self.band >= STEPS
    }

    /// Returns all bands whose blocks can serve the request.
    pub(crate) fn bands(self) -> core::ops::RangeInclusive<usize> {
        self.band.wrapping_sub(self.step)..=self.band
    }

    /// Returns whether blocks of `band` can serve the request.
    pub(super) fn fits(self, band: usize) -> bool {
        // A cheaper `self.bands().contains(&band)`.
        self.band.wrapping_sub(band) <= self.step
    }

    /// Returns the size in bytes of a block of its band.
    pub(crate) fn block_size(self) -> usize {
        size_of_band(self.band)
    }
}

/// Returns the units of the smallest area of `band`, as a power of two.
pub(super) fn grain_shift_of(band: usize) -> u32 {
    if band == ALIGNED {
        (TABLE_PAGES / COARSE_PAGES).ilog2()
    } else {
        // CAST: A small number.
        (band % STEPS) as u32 + 1
    }
}

/// Returns the units of the largest area of `band`.
pub(super) fn most_units(band: usize) -> usize {
    if band == ALIGNED {
        MAX_UNITS
    } else {
        (2_usize.wrapping_shl(grain_shift_of(band)) - 1).min(MAX_UNITS)
    }
}

/// Returns the size in bytes of a block of `band`.
pub(super) fn size_of_band(band: usize) -> usize {
    if band < STEPS {
        SIZE
    } else {
        COARSE_SIZE
    }
}
