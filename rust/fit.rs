// SPDX-License-Identifier: GPL-2.0

//! Where a request goes: lowest fit for one area, highest fit for congruent areas.
//!
//! The searches only ask for gaps, so that they run over the maple tree, with its lock held, and
//! over any model of it.

use crate::range::{
    align_down,
    align_up,
    Span,
    PAGE_SIZE, //
};

/// A set of reserved spans that can be asked for what is free between them.
pub(crate) trait Gaps {
    /// The lowest `bytes` free addresses in a row within `window`.
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span>;

    /// The highest `bytes` free addresses in a row within `window`.
    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span>;

    /// All of the free addresses in a row around `addr`; [`None`] if `addr` is reserved.
    fn gap_around(&mut self, addr: usize) -> Option<Span>;
}

/// Finds `bytes` free addresses in `window` that start at a multiple of `align`, a power of two.
///
/// The first search is for as much as certainly has an aligned start in it: one descent. Only if
/// there is none, the gaps that are large enough are walked upwards, which also finds one that is
/// exactly as large and exactly as aligned as the request. The walk costs a descent for each gap
/// that does not fit.
///
/// Addresses below the first page are never handed out.
pub(crate) fn lowest_fit(
    gaps: &mut impl Gaps,
    window: Span,
    bytes: usize,
    align: usize,
) -> Option<Span> {
    let align = align.max(PAGE_SIZE);
    let window = Span::new(align_up(window.first().max(1), PAGE_SIZE)?, window.last())?;

    // The window starts at a page, and so does each gap in it: page alignment needs no padding.
    if let Some(padded) = bytes.checked_add(align - PAGE_SIZE) {
        if window.has_room(padded) {
            if let Some(gap) = gaps.lowest_gap(window, padded) {
                return aligned_in(gap, bytes, align);
            }
        }
    }
    // Is there any such place in the window? If not, no need to look at gaps.
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
        rest = Span::new(gap.last().checked_add(1)?, window.last())?;
    }
}

/// `bytes` free addresses that start at a multiple of `align` in the lowest gap of `window` that is as
/// large, if it has them: two descents.
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

/// The lowest `bytes` addresses in `gap` that start at a multiple of `align`.
fn aligned_in(gap: Span, bytes: usize, align: usize) -> Option<Span> {
    let fit = Span::with_size(align_up(gap.first(), align)?, bytes)?;
    gap.covers(fit).then_some(fit)
}

/// One of the areas that are to lie at a common base.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// Bytes from the base.
    pub(crate) offset: usize,
    /// Size in bytes.
    pub(crate) size: usize,
}

impl Member {
    /// Where the member is for a given base.
    pub(crate) fn at(self, base: usize) -> Option<Span> {
        Span::with_size(base.checked_add(self.offset)?, self.size)
    }
}

/// Finds the highest base in `window`, a multiple of `align`, at which all `members` are free.
///
/// Whenever a member does not fit, the base goes down to where it would, and the others are asked
/// again: each step costs one descent, and the base never goes up.
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

    let top = window.last().checked_sub(reach - 1)?;
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
                base = align_down(gap.first().checked_sub(member.offset)?, align);
                continue 'lower;
            }
        }
        return Some(base);
    }
}
