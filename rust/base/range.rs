// SPDX-License-Identifier: GPL-2.0

//! Spans of addresses, and address arithmetic without overflow.

/// The page size in bytes.
pub(crate) const PAGE_SIZE: usize = kernel::page::PAGE_SIZE;

/// A span of addresses, never empty.
///
/// Both ends are inclusive, as in the maple tree, so that a span can contain the last address of the
/// address space.
///
/// # Invariants
///
/// `first <= last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    first: usize,
    last: usize,
}

impl Span {
    /// Returns the span from `first` to `last`, both included; [`None`] if it would be empty.
    pub(crate) const fn new(first: usize, last: usize) -> Option<Self> {
        if first <= last {
            // INVARIANT: Just checked.
            Some(Self { first, last })
        } else {
            None
        }
    }

    /// Returns the span from `start` to before `end`; [`None`] if it would be empty.
    pub(crate) const fn from_bounds(start: usize, end: usize) -> Option<Self> {
        match end.checked_sub(1) {
            Some(last) => Self::new(start, last),
            None => None,
        }
    }

    /// Returns the span of `bytes` addresses from `first` on; [`None`] if it would be empty or exceed the
    /// address space.
    pub(crate) const fn with_size(first: usize, bytes: usize) -> Option<Self> {
        match bytes.checked_sub(1) {
            Some(more) => match first.checked_add(more) {
                Some(last) => Self::new(first, last),
                None => None,
            },
            None => None,
        }
    }

    pub(crate) const fn first(self) -> usize {
        self.first
    }

    /// Returns the highest address, which belongs to the span.
    pub(crate) const fn last(self) -> usize {
        self.last
    }

    /// Returns the first address after the span; 0 if the span ends at the end of the address space.
    pub(crate) const fn end(self) -> usize {
        self.last.wrapping_add(1)
    }

    /// Returns the size in bytes; `usize::MAX` for the whole address space, which is one byte larger.
    pub(crate) const fn size(self) -> usize {
        // By the type invariant, this does not wrap.
        self.last.wrapping_sub(self.first).saturating_add(1)
    }

    pub(crate) const fn has_room(self, bytes: usize) -> bool {
        self.size() >= bytes
    }

    pub(crate) const fn contains(self, addr: usize) -> bool {
        self.first <= addr && addr <= self.last
    }

    pub(crate) const fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Returns the part of the span that is also in `other`.
    pub(crate) fn clip(self, other: Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }

    /// Returns the span of page numbers that a span of bytes covers.
    pub(crate) const fn in_pages(self) -> Self {
        // INVARIANT: Dividing keeps the order.
        Self {
            first: self.first / PAGE_SIZE,
            last: self.last / PAGE_SIZE,
        }
    }

    /// Returns the bytes of a span of page numbers.
    pub(crate) fn from_pages(pages: Self) -> Option<Self> {
        let first = pages.first.checked_mul(PAGE_SIZE)?;
        let last = pages.last.checked_mul(PAGE_SIZE)?;
        Self::new(first, last | PAGE_SIZE.wrapping_sub(1))
    }

    /// Returns the smallest span that covers both.
    pub(crate) fn join(self, other: Self) -> Self {
        // INVARIANT: By the invariants of both, the lower `first` is not above the higher `last`.
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// Rounds `addr` up to a multiple of `align`, a power of two; [`None`] on overflow.
pub(crate) const fn align_up(addr: usize, align: usize) -> Option<usize> {
    let mask = align.wrapping_sub(1);
    match addr.checked_add(mask) {
        Some(sum) => Some(sum & !mask),
        None => None,
    }
}

/// Rounds `addr` down to a multiple of `align`, a power of two.
pub(crate) const fn align_down(addr: usize, align: usize) -> usize {
    addr & !align.wrapping_sub(1)
}

/// Returns whether `addr` is a multiple of `align`, a power of two.
pub(crate) const fn is_aligned(addr: usize, align: usize) -> bool {
    align_down(addr, align) == addr
}
