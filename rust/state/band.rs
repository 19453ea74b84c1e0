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

/// Number of bands.
pub(crate) const BANDS: usize = Band::ALL.len();

/// A band: the name has the kind of its blocks, and the units of the smallest area. First those of fine blocks, then
/// those of coarse ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Band {
    Fine2,
    Fine4,
    Fine8,
    Fine16,
    Fine32,
    Coarse2,
    Coarse4,
    Coarse8,
    Coarse16,
    Coarse32,
    /// The band of coarse blocks for areas that page tables can map with entries above the PTEs, which are
    /// those of at least [`TABLE_PAGES`] pages and this alignment. They hold nothing else: a table of PTEs that
    /// another area needs would be freed to make place for such an entry, and made again, in turns.
    Aligned,
}

impl Band {
    /// All bands.
    pub(crate) const ALL: [Self; 2 * STEPS + 1] = [
        Self::Fine2,
        Self::Fine4,
        Self::Fine8,
        Self::Fine16,
        Self::Fine32,
        Self::Coarse2,
        Self::Coarse4,
        Self::Coarse8,
        Self::Coarse16,
        Self::Coarse32,
        Self::Aligned,
    ];

    /// Returns band `number`, counted from 0; [`None`] if there are not as many.
    #[inline(always)]
    pub(crate) fn new(number: usize) -> Option<Self> {
        // This costs a comparison, while `ALL.get()` would also load from a table.
        Some(match number {
            0 => Self::Fine2,
            1 => Self::Fine4,
            2 => Self::Fine8,
            3 => Self::Fine16,
            4 => Self::Fine32,
            5 => Self::Coarse2,
            6 => Self::Coarse4,
            7 => Self::Coarse8,
            8 => Self::Coarse16,
            9 => Self::Coarse32,
            10 => Self::Aligned,
            _ => return None,
        })
    }

    /// Returns the number of the band, counted from 0 and below [`BANDS`].
    #[inline(always)]
    pub(crate) const fn number(self) -> usize {
        // CAST: The variants are numbered from 0.
        self as usize
    }

    /// Returns whether its blocks are coarse.
    #[inline(always)]
    pub(crate) const fn is_coarse(self) -> bool {
        self.number() >= STEPS
    }

    /// Returns the units of its smallest area, as a power of two.
    pub(super) const fn grain_shift(self) -> u32 {
        match self {
            Self::Aligned => (TABLE_PAGES / COARSE_PAGES).ilog2(),
            // CAST: A small number.
            _ => (self.number() % STEPS) as u32 + 1,
        }
    }

    /// Returns the units of its largest area.
    pub(super) fn most_units(self) -> usize {
        match self {
            Self::Aligned => MAX_UNITS,
            _ => (2_usize.wrapping_shl(self.grain_shift()) - 1).min(MAX_UNITS),
        }
    }

    /// Returns the size in bytes of its blocks.
    pub(crate) const fn block_size(self) -> usize {
        if self.is_coarse() {
            COARSE_SIZE
        } else {
            SIZE
        }
    }
}

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
    band: Band,
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
            return Self::with_units(size, pages, align_pages, Band::Fine2);
        }
        let (units, align_units) = (pages.div_ceil(COARSE_PAGES), align_pages / COARSE_PAGES);
        if !coarse || units > MAX_UNITS || align_units > MAX_UNITS {
            return None;
        }
        let mut small = Self::with_units(size, units, align_units, Band::Coarse2)?;
        if pages >= TABLE_PAGES && align_pages >= TABLE_PAGES {
            (small.band, small.step) = (Band::Aligned, 0);
        }
        Some(small)
    }

    /// Describes a request for `units` units at a multiple of `align_units`; `first` is the first band of the
    /// kind of block, fine or coarse.
    fn with_units(size: usize, units: usize, align_units: usize, first: Band) -> Option<Self> {
        // At least two, so that each area has an object of its own.
        let units = units.max(2);
        // CAST: A number of bits fits in a `usize`.
        let step = (units.ilog2() as usize).saturating_sub(1);
        Some(Self {
            size,
            units,
            align: align_units.max(1).trailing_zeros(),
            band: Band::new(first.number().wrapping_add(step))?,
            step,
        })
    }

    /// Returns the band of the request.
    pub(crate) fn band(self) -> Band {
        self.band
    }

    /// Returns whether the request is for a coarse block.
    #[inline(always)]
    pub(crate) fn is_coarse(self) -> bool {
        self.band.is_coarse()
    }

    /// Returns all bands whose blocks can serve the request, the lowest first.
    pub(crate) fn bands(self) -> impl DoubleEndedIterator<Item = Band> {
        let lower = self.band.number().wrapping_sub(self.step);
        let from_lowest = Band::ALL.into_iter().skip(lower);
        from_lowest.take(self.step.wrapping_add(1))
    }

    /// Returns whether blocks of `band` can serve the request.
    pub(super) fn fits(self, band: Band) -> bool {
        // A cheaper `self.bands().contains(&band)`. The difference wraps around for a higher band.
        self.band.number().wrapping_sub(band.number()) <= self.step
    }

    /// Returns the fewest units of which a run would have room for the request wherever it begins: an aligned one is in it.
    pub(super) fn run(self) -> usize {
        let align = 1_usize.wrapping_shl(self.align);
        self.units.wrapping_add(align.wrapping_sub(1))
    }

    /// Returns the size in bytes of a block of its band.
    pub(crate) fn block_size(self) -> usize {
        self.band.block_size()
    }
}
