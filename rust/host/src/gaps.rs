// SPDX-License-Identifier: GPL-2.0

//! Searches for gaps in all small spaces, compared with trying every place.

use crate::{
    base::range::{highest_congruent, lowest_fit, lowest_gap_fit, Gaps},
    prelude::*,
};

/// Number of pages of a small space, and the page number of the first one, which is not aligned.
const PAGES: usize = 8;
const FIRST: usize = 11;

/// A small space in which others reserve pages at each pause of a search.
struct Small {
    /// A bit for each page that is reserved. All other addresses are reserved.
    reserved: u8,
    /// What others reserve next, the first one last.
    at_pause: Vec<u8>,
    pauses: usize,
}

fn pages(first: usize, count: usize) -> Span {
    span_of(first * PAGE_SIZE, count * PAGE_SIZE)
}

impl Small {
    fn new(reserved: u8, at_pause: &[u8]) -> Self {
        Self {
            reserved,
            at_pause: at_pause.to_vec(),
            pauses: 0,
        }
    }

    fn is_free(&self, span: Span) -> bool {
        let mut numbers = span.first() / PAGE_SIZE..span.end() / PAGE_SIZE;
        numbers.all(|page| {
            (FIRST..FIRST + PAGES).contains(&page) && self.reserved >> (page - FIRST) & 1 == 0
        })
    }

    /// Returns all gaps in ascending order.
    fn gaps(&self) -> Vec<Span> {
        let all = (FIRST..FIRST + PAGES).flat_map(|first| {
            let counts = 1..=FIRST + PAGES - first;
            counts.map(move |count| pages(first, count))
        });
        let free: Vec<Span> = all.filter(|&span| self.is_free(span)).collect();
        let largest = |span: &&Span| !free.iter().any(|gap| gap != *span && gap.covers(**span));
        free.iter().filter(largest).copied().collect()
    }

    /// Returns the parts of gaps in `window` that have at least `bytes` bytes, in ascending order.
    fn with_room(&self, window: Span, bytes: usize) -> Vec<Span> {
        let gaps = self.gaps().into_iter();
        let parts = gaps.filter_map(|gap| gap.clip(window));
        parts.filter(|gap| gap.size() >= bytes).collect()
    }
}

impl Gaps for Small {
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        let gap = *self.with_room(window, bytes).first()?;
        Span::with_size(gap.first(), bytes)
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        let gap = *self.with_room(window, bytes).last()?;
        Span::new(gap.last() - (bytes - 1), gap.last())
    }

    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        self.gaps().into_iter().find(|gap| gap.contains(addr))
    }

    fn pause(&mut self) {
        self.pauses += 1;
        self.reserved |= self.at_pause.pop().unwrap_or(0);
    }
}

/// Calls `check` with each small space, each window in it and each alignment.
fn in_small_spaces(check: impl Fn(Small, Span, usize)) {
    for taken in 0..=u8::MAX {
        for first in FIRST..FIRST + PAGES {
            for count in 1..=FIRST + PAGES - first {
                for align in [1, 2, 4, 8] {
                    check(
                        Small::new(taken, &[]),
                        pages(first, count),
                        align * PAGE_SIZE,
                    );
                }
            }
        }
    }
}

/// Returns members with these offsets and sizes, in pages.
fn members(set: &[(usize, usize)]) -> impl ExactSizeIterator<Item = Member> + Clone + '_ {
    set.iter().map(|&(offset, size)| Member {
        offset: offset * PAGE_SIZE,
        size: size * PAGE_SIZE,
    })
}

/// Iterates over all spans of `size` bytes in `window` that start at a multiple of `align`, in ascending
/// order.
fn places(window: Span, size: usize, align: usize) -> impl DoubleEndedIterator<Item = Span> {
    let firsts = (window.first()..window.end()).step_by(PAGE_SIZE);
    firsts.filter_map(move |first| {
        let span = Span::with_size(first, size)?;
        (is_aligned(first, align) && window.covers(span)).then_some(span)
    })
}

/// The expected result is the lowest fit in the lowest gap that is large enough for any start of the gap, or
/// without such a gap the lowest fit of all gaps.
#[test]
fn lowest_fit_is_right_in_all_small_spaces() {
    in_small_spaces(|mut small, window, align| {
        for size in (1..5).map(|count| count * PAGE_SIZE) {
            let padded = small.with_room(window, size + align - PAGE_SIZE);
            let best = match padded.first() {
                Some(&gap) => places(gap, size, align).next(),
                None => places(window, size, align).find(|&span| small.is_free(span)),
            };
            assert_eq!(lowest_fit(&mut small, window, size, align), best);
            // `lowest_gap_fit()` tries only the lowest gap of at least the size.
            let gap = small.with_room(window, size).first().copied();
            let best = gap.and_then(|gap| places(gap, size, align).next());
            assert_eq!(lowest_gap_fit(&mut small, window, size, align), best);
        }
    });
}

#[test]
fn highest_base_is_right_in_all_small_spaces() {
    let sets: [&[(usize, usize)]; 6] = [
        &[(0, 1)],
        &[(0, 2), (3, 1)],
        &[(1, 1), (2, 2)],
        &[(3, 1), (0, 1)],
        &[(0, 1), (0, 2)],
        &[(0, 4), (4, 3), (7, 1)],
    ];
    in_small_spaces(|mut small, window, align| {
        for set in sets {
            let fits = |base: &Span| {
                members(set).all(|member| {
                    let span = member.at(base.first()).expect("no overflow");
                    window.covers(span) && small.is_free(span)
                })
            };
            let bases = places(window, PAGE_SIZE, align);
            let best = bases.rev().find(fits).map(Span::first);
            assert_eq!(
                highest_congruent(&mut small, window, members(set), align),
                best
            );
        }
    });
}

/// Searches pause after each gap that does not fit, and what they return is free although others reserve
/// pages meanwhile.
#[test]
fn long_searches_pause_and_see_what_changed() {
    let mut pauses = 0;
    for reserved in 0..=u8::MAX {
        let at_pause = (0..PAGES).map(|page| vec![1 << page]);
        for reserved_at_pause in at_pause.chain([vec![], vec![0b1000_0001, 0b0011_0000]]) {
            let window = pages(FIRST, PAGES);
            let pair = [(0, 2), (3, 1)];
            let mut set = Small::new(reserved, &reserved_at_pause);
            if let Some(span) = lowest_fit(&mut set, window, 2 * PAGE_SIZE, 4 * PAGE_SIZE) {
                assert!(set.is_free(span));
            }
            pauses += set.pauses;
            let mut set = Small::new(reserved, &reserved_at_pause);
            if let Some(base) = highest_congruent(&mut set, window, members(&pair), PAGE_SIZE) {
                let mut spans = members(&pair).map(|member| member.at(base).expect("no overflow"));
                assert!(spans.all(|span| set.is_free(span)));
            }
            pauses += set.pauses;
        }
    }
    assert!(pauses > 1000);
}

#[test]
fn members_without_size_or_outside_the_address_space_have_no_base() {
    let window = pages(FIRST, PAGES);
    let base = |offset, size| {
        let members = [Member { offset, size }].into_iter();
        highest_congruent(&mut Small::new(0, &[]), window, members, PAGE_SIZE)
    };
    assert!(base(0, PAGE_SIZE).is_some());
    assert_eq!(base(0, 0), None);
    assert_eq!(base(PAGE_SIZE, 0), None);
    assert_eq!(base(usize::MAX, PAGE_SIZE), None);
    assert_eq!(base(usize::MAX - PAGE_SIZE, PAGE_SIZE), None);
    assert_eq!(base(0, (PAGES + 1) * PAGE_SIZE), None);
    let none = highest_congruent(&mut Small::new(0, &[]), window, members(&[]), PAGE_SIZE);
    assert_eq!(none, None);
}
