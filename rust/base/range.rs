// SPDX-License-Identifier: GPL-2.0

//! Spans of addresses, address arithmetic without overflow, and searches for free addresses. A search asks only for gaps,
//! through the trait [`Gaps`], so tests try it without a tree.

/// The page size in bytes.
pub(crate) const PAGE_SIZE: usize = kernel::page::PAGE_SIZE;

/// A span of addresses, never empty. Both ends are inclusive, as in the maple tree, so that it can contain the last address.
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
    pub(crate) fn from_bounds(start: usize, end: usize) -> Option<Self> {
        Self::new(start, end.checked_sub(1)?)
    }

    /// Returns the span of `bytes` addresses from `first` on; [`None`] if it would be empty or exceed the address space.
    pub(crate) fn with_size(first: usize, bytes: usize) -> Option<Self> {
        Self::new(first, first.checked_add(bytes.checked_sub(1)?)?)
    }

    pub(crate) const fn first(self) -> usize {
        self.first
    }

    pub(crate) const fn last(self) -> usize {
        self.last
    }

    /// Returns the first address after the span; 0 if the span ends at the end of the address space.
    pub(crate) const fn end(self) -> usize {
        self.last.wrapping_add(1)
    }

    /// Returns the first address after the span; [`None`] if the span ends at the end of the address space.
    pub(crate) const fn next_addr(self) -> Option<usize> {
        self.last.checked_add(1)
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
pub(crate) fn align_up(addr: usize, align: usize) -> Option<usize> {
    let mask = align.wrapping_sub(1);
    Some(addr.checked_add(mask)? & !mask)
}

/// Rounds `addr` down to a multiple of `align`, a power of two.
pub(crate) const fn align_down(addr: usize, align: usize) -> usize {
    addr & !align.wrapping_sub(1)
}

/// Returns whether `addr` is a multiple of `align`, a power of two.
pub(crate) const fn is_aligned(addr: usize, align: usize) -> bool {
    align_down(addr, align) == addr
}

/// A set of reserved spans with queries for the gaps between them: the locked maple tree, or any model of it.
pub(crate) trait Gaps {
    /// Returns the lowest free run of `bytes` addresses within `window`.
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span>;

    /// Returns the highest free run of `bytes` addresses within `window`.
    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span>;

    /// Returns the whole gap around `addr`; [`None`] if `addr` is reserved.
    fn gap_around(&mut self, addr: usize) -> Option<Span>;

    /// Lets others change the set between two steps of a long search. Gaps found before may be gone.
    fn pause(&mut self) {}
}

/// Finds a free run of `bytes` addresses in `window` that starts at a multiple of `align`, a power of two, not in page 0.
///
/// The first search takes one descent: it asks for a gap so large that it must contain an aligned start. Only if there is
/// none, it walks upwards over the gaps of at least `bytes`, with a descent for each gap that does not fit.
pub(crate) fn lowest_fit(
    gaps: &mut impl Gaps,
    window: Span,
    bytes: usize,
    align: usize,
) -> Option<Span> {
    let align = align.max(PAGE_SIZE);
    let window = Span::new(align_up(window.first().max(1), PAGE_SIZE)?, window.last())?;

    // The window starts at a page, and so does each gap in it: page alignment needs no padding.
    if let Some(padded) = bytes.checked_add(align.wrapping_sub(PAGE_SIZE)) {
        if window.has_room(padded) {
            if let Some(gap) = gaps.lowest_gap(window, padded) {
                return aligned_in(gap, bytes, align);
            }
        }
    }
    // If even the empty window has no aligned start, no gap has one.
    aligned_in(window, bytes, align)?;
    if align == PAGE_SIZE {
        return None;
    }

    let mut rest = window;
    loop {
        if !rest.has_room(bytes) {
            return None;
        }
        let found = gaps.lowest_gap(rest, bytes)?;
        let gap = gaps.gap_around(found.first())?.clip(window)?;
        if let Some(fit) = aligned_in(gap, bytes, align) {
            return Some(fit);
        }
        gaps.pause();
        rest = Span::new(gap.next_addr()?, window.last())?;
    }
}

/// As [`lowest_fit`], but only in the lowest gap of at least `bytes`. Takes two descents.
pub(crate) fn lowest_gap_fit(
    gaps: &mut impl Gaps,
    window: Span,
    bytes: usize,
    align: usize,
) -> Option<Span> {
    if !window.has_room(bytes) {
        return None;
    }
    let found = gaps.lowest_gap(window, bytes)?;
    let gap = gaps.gap_around(found.first())?.clip(window)?;
    aligned_in(gap, bytes, align)
}

/// Returns whether a run of `bytes` addresses that starts at a multiple of `align`, a power of two, fits in `window`.
pub(crate) fn can_fit(window: Span, bytes: usize, align: usize) -> bool {
    aligned_in(window, bytes, align.max(PAGE_SIZE)).is_some()
}

/// Returns the lowest run of `bytes` addresses in `gap` that starts at a multiple of `align`.
fn aligned_in(gap: Span, bytes: usize, align: usize) -> Option<Span> {
    let fit = Span::with_size(align_up(gap.first(), align)?, bytes)?;
    gap.covers(fit).then_some(fit)
}

/// One of several *congruent* areas, which have fixed offsets from a common base.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// Bytes from the base.
    pub(crate) offset: usize,
    /// In bytes.
    pub(crate) size: usize,
}

impl Member {
    /// Returns the addresses of the member for a given base.
    pub(crate) fn at(self, base: usize) -> Option<Span> {
        Span::with_size(base.checked_add(self.offset)?, self.size)
    }
}

/// Finds the highest base in `window`, a multiple of `align`, at which all `members` are free.
///
/// When a member does not fit, the base moves down to where it does, and all members are tried again. A step is one descent.
pub(crate) fn highest_congruent(
    gaps: &mut impl Gaps,
    window: Span,
    members: impl Iterator<Item = Member> + Clone,
    align: usize,
) -> Option<usize> {
    let mut reach = 0;
    for member in members.clone() {
        reach = reach.max(member.offset.checked_add(member.size)?);
    }
    if reach == 0 {
        return None;
    }

    let top = window.last().checked_sub(reach.wrapping_sub(1))?;
    let mut base = align_down(top, align);
    'lower: loop {
        if base < window.first() {
            return None;
        }
        for member in members.clone() {
            let want = member.at(base)?;
            let below = Span::new(window.first().checked_add(member.offset)?, want.last())?;
            if !below.has_room(member.size) {
                return None;
            }
            let gap = gaps.highest_gap(below, member.size)?;
            if gap != want {
                // All members are tried again, so what others change now is seen.
                gaps.pause();
                base = align_down(gap.first().checked_sub(member.offset)?, align);
                continue 'lower;
            }
        }
        return Some(base);
    }
}
