// SPDX-License-Identifier: GPL-2.0

//! Spans of addresses, and arithmetic on them that cannot overflow.

/// The page size in bytes.
pub(crate) const PAGE_SIZE: usize = kernel::page::PAGE_SIZE;

/// A span of addresses that is not empty.
///
/// Both ends belong to it, as in the maple tree, so that the last address of the address space can
/// be in a span.
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
    /// The span from `first` to `last`, both included. [`None`] if it would be empty.
    pub(crate) const fn new(first: usize, last: usize) -> Option<Self> {
        if first <= last {
            // INVARIANT: Just checked.
            Some(Self { first, last })
        } else {
            None
        }
    }

    /// The span from `start` to `end`, the latter not included. [`None`] if it would be empty.
    pub(crate) const fn from_bounds(start: usize, end: usize) -> Option<Self> {
        match end.checked_sub(1) {
            Some(last) => Self::new(start, last),
            None => None,
        }
    }

    /// `bytes` addresses from `first` on. [`None`] if that is empty or leaves the address space.
    pub(crate) const fn with_size(first: usize, bytes: usize) -> Option<Self> {
        match bytes.checked_sub(1) {
            Some(more) => match first.checked_add(more) {
                Some(last) => Self::new(first, last),
                None => None,
            },
            None => None,
        }
    }

    /// The lowest address.
    pub(crate) const fn first(self) -> usize {
        self.first
    }

    /// The highest address, which belongs to the span.
    pub(crate) const fn last(self) -> usize {
        self.last
    }

    /// The first address behind the span; 0 if the span reaches the end of the address space.
    pub(crate) const fn end(self) -> usize {
        self.last.wrapping_add(1)
    }

    /// Size in bytes; `usize::MAX` for the whole address space, which has one more.
    pub(crate) const fn size(self) -> usize {
        // By the type invariant, this does not wrap.
        self.last.wrapping_sub(self.first).saturating_add(1)
    }

    /// Are there `bytes` addresses in the span?
    pub(crate) const fn has_room(self, bytes: usize) -> bool {
        self.size() >= bytes
    }

    /// Is `addr` in the span?
    pub(crate) const fn contains(self, addr: usize) -> bool {
        self.first <= addr && addr <= self.last
    }

    /// Is `other` a part of the span?
    pub(crate) const fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// The part of the span that is in `other` too.
    pub(crate) fn clip(self, other: Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }

    /// The pages that a span of bytes is in: a span of page numbers.
    pub(crate) const fn in_pages(self) -> Self {
        // INVARIANT: Dividing keeps the order.
        Self {
            first: self.first / PAGE_SIZE,
            last: self.last / PAGE_SIZE,
        }
    }

    /// The bytes of a span of page numbers.
    pub(crate) fn from_pages(pages: Self) -> Option<Self> {
        let first = pages.first.checked_mul(PAGE_SIZE)?;
        let last = pages.last.checked_mul(PAGE_SIZE)?;
        Self::new(first, last | PAGE_SIZE.wrapping_sub(1))
    }

    /// The smallest span that covers both.
    pub(crate) fn join(self, other: Self) -> Self {
        // INVARIANT: The lower of two firsts is not above the higher of two lasts.
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// `addr` or the next address above that is a multiple of `align`, a power of two.
pub(crate) const fn align_up(addr: usize, align: usize) -> Option<usize> {
    let mask = align.wrapping_sub(1);
    match addr.checked_add(mask) {
        Some(sum) => Some(sum & !mask),
        None => None,
    }
}

/// `addr` or the next address below that is a multiple of `align`, a power of two.
pub(crate) const fn align_down(addr: usize, align: usize) -> usize {
    addr & !align.wrapping_sub(1)
}

/// Is `addr` a multiple of `align`, a power of two?
pub(crate) const fn is_aligned(addr: usize, align: usize) -> bool {
    align_down(addr, align) == addr
}

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[kernel::prelude::kunit_tests(vmap_rust_range)]
mod tests {
    use super::*;

    const TOP: usize = usize::MAX;

    #[test]
    fn span_is_never_empty() {
        assert!(Span::new(2, 1).is_none());
        assert!(Span::from_bounds(0, 0).is_none());
        assert!(Span::from_bounds(5, 5).is_none());
        assert!(Span::with_size(7, 0).is_none());
        assert!(Span::with_size(TOP, 2).is_none());
        assert_eq!(Span::with_size(TOP, 1).map(Span::end), Some(0));
        assert_eq!(Span::new(0, TOP).map(Span::size), Some(TOP));
        assert_eq!(Span::from_bounds(8, 12), Span::with_size(8, 4));
    }

    #[test]
    fn span_room_cover_clip_join() {
        let of = |first, last| Span::new(first, last);
        let Some(whole) = of(10, 19) else {
            assert!(false);
            return;
        };
        assert!(whole.has_room(10));
        assert!(!whole.has_room(11));
        assert_eq!(of(0, 12).and_then(|s| s.clip(whole)), of(10, 12));
        assert_eq!(of(20, 30).and_then(|s| s.clip(whole)), None);
        assert_eq!(of(15, 30).and_then(|s| s.clip(whole)), of(15, 19));
        assert_eq!(of(25, 30).map(|s| s.join(whole)), of(10, 30));
        assert!(of(10, 19).is_some_and(|s| whole.covers(s)));
        assert!(!of(9, 19).is_some_and(|s| whole.covers(s)));
    }

    #[test]
    fn alignment_at_both_ends() {
        assert_eq!(align_up(1, 4096), Some(4096));
        assert_eq!(align_up(4096, 4096), Some(4096));
        assert_eq!(align_up(0, 1 << (usize::BITS - 1)), Some(0));
        assert_eq!(
            align_up(1, 1 << (usize::BITS - 1)),
            Some(1 << (usize::BITS - 1))
        );
        assert_eq!(align_up(TOP, 4096), None);
        assert_eq!(align_up(TOP, 1), Some(TOP));
        assert_eq!(align_down(TOP, 4096), TOP - 4095);
        assert!(is_aligned(0, 1 << (usize::BITS - 1)));
        assert!(!is_aligned(4097, 4096));
    }
}
