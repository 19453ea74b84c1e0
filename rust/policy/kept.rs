// SPDX-License-Identifier: GPL-2.0

//! Kept areas: those of the tree that were flushed and keep their entries, for the next requests of exactly their sizes. Each
//! saves thousands of instructions. All of them are free for other requests, too: who finds no gap frees them first.
//!
//! - *Large* areas, which blocks never serve, whoever has asked for them. They have no page tables: a purge takes these first.
//! - Areas for requests with a *window* of their own, such as module space.
//!
//! Each size has a place, which others may share. The last request there says which areas are wanted: those of its window and
//! size, if the one before was for that size, too. Sizes that do not come again would lead to ever new addresses.
//!
//! A purge that makes room keeps none. So none is found where lazy areas fill a window before C purges: those of module space of
//! arm64 (128 MiB) do with 8 CPUs. To keep some there would scatter what is left, so that spaces would get less full.

use super::prelude::*;

/// Large areas have at most 1/`LARGE_SHARE` of the space, together: a request that may not sleep frees few of them.
const LARGE_SHARE: usize = 64;

/// The least bytes of a window that may be asked for again and again: module space of 32-bit arm has 6 MiB or more. An area of an
/// odd window is not kept, nor does its request take a place.
const LEAST_WINDOW: usize = 4 << 20;

/// The most areas that are kept: their objects and entries take about 1 MiB. Each one more frees two of another place, and is
/// freed, too.
const MOST: usize = 16384;

/// Number of places, a prime: powers of two, with a guard page, have one each.
const PLACES: usize = 61;

/// Returns whether an area of `size` bytes is large: blocks never serve it.
fn is_large(size: usize) -> bool {
    size > MOST_PAGES * PAGE_SIZE
}

fn bytes_if_large(size: usize) -> usize {
    if is_large(size) {
        size
    } else {
        0
    }
}

/// Areas for one size and window.
struct Place {
    /// The window and the size of the last request, and whether the one before was for this size. The window in pages: kmemleak
    /// would take an address for a reference to the area that starts there.
    last: Option<(Span, usize, bool)>,
    /// Areas of `size` bytes each, for that or for one before.
    areas: AreaList<Flushed>,
    size: usize,
}

/// All kept areas of a space.
pub(super) struct Kept {
    places: KBox<[Place; PLACES]>,
    /// Number of all areas.
    len: usize,
    /// Bytes of the large ones, and the most that they may have.
    large: usize,
    most_large: usize,
}

impl Kept {
    pub(super) fn new(home: Span) -> Result<Self> {
        let place = || Place {
            last: None,
            areas: AreaList::new(),
            size: 0,
        };
        Ok(Self {
            places: Node::ANY.new_array(place, GFP_NOWAIT)?,
            len: 0,
            large: 0,
            most_large: home.size() / LARGE_SHARE,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether a request may find a kept area, or is to be noted. `has_window` says that it is not for any address.
    pub(super) fn is_for(req: &Request, has_window: bool) -> bool {
        is_large(req.size) || has_window && req.window.has_room(LEAST_WINDOW)
    }

    /// Takes the area that serves a request, for which [`Kept::is_for`] is true.
    pub(super) fn take(&mut self, req: &Request) -> Option<Area<Flushed>> {
        let number = place_of(req.size);
        let place = &mut self.places[number];
        let is_again = place.last.is_some_and(|(_, size, _)| size == req.size);
        place.last = Some((req.window.in_pages(), req.size, is_again));
        let serves = |area: &Area<Flushed>| {
            area.span().is_some_and(|span| {
                let fits = req.window.covers(span) && is_aligned(span.first(), req.align);
                span.size() == req.size && fits
            })
        };
        let area = self.pop_in(number)?;
        if serves(&area) {
            return Some(area);
        }
        self.push_in(number, area);
        None
    }

    /// Keeps an area that was flushed, if it is wanted and has room. Else returns it. Adds areas to `freed` that are no longer
    /// kept: two at most.
    pub(super) fn add(
        &mut self,
        area: Area<Flushed>,
        freed: &mut AreaList<Flushed>,
    ) -> Option<Area<Flushed>> {
        let Some(span) = area.span() else {
            return Some(area);
        };
        let size = span.size();
        let number = place_of(size);
        let place = &mut self.places[number];
        let is_wanted = place.last.is_some_and(|(window, bytes, is_again)| {
            is_again && bytes == size && window.covers(span.in_pages())
        });
        if !is_wanted || bytes_if_large(size) > self.most_large {
            return Some(area);
        }
        if place.areas.is_empty() {
            place.size = size;
        }
        let large = self.large.saturating_add(bytes_if_large(size));
        // A few at a time: the others are still kept, though for nobody perhaps.
        let old = if place.size != size {
            number
        } else if self.len >= MOST {
            self.used_place(number, |_| true)
        } else if large > self.most_large {
            self.used_place(number, is_large)
        } else {
            self.push_in(number, area.keep());
            return None;
        };
        for _ in 0..2 {
            if let Some(area) = self.pop_in(old) {
                freed.push(area);
            }
        }
        Some(area)
    }

    /// Returns the first place after number `from`, in a ring, that has areas of a size for which `is_right`, or any without
    /// areas.
    fn used_place(&self, from: usize, is_right: impl Fn(usize) -> bool) -> usize {
        let mut numbers = (1..=PLACES).map(|step| from.wrapping_add(step) % PLACES);
        let is_used = |place: &Place| !place.areas.is_empty() && is_right(place.size);
        let used = numbers.find(|&number| is_used(&self.places[number]));
        used.unwrap_or_default()
    }

    fn push_in(&mut self, number: usize, area: Area<Flushed>) {
        let place = &mut self.places[number % PLACES];
        place.areas.push_first(area);
        self.len = self.len.wrapping_add(1);
        self.large = self.large.wrapping_add(bytes_if_large(place.size));
    }

    fn pop_in(&mut self, number: usize) -> Option<Area<Flushed>> {
        let place = &mut self.places[number % PLACES];
        let area = place.areas.pop()?;
        self.len = self.len.wrapping_sub(1);
        self.large = self.large.wrapping_sub(bytes_if_large(place.size));
        Some(area)
    }

    /// Takes an area that is no longer to be kept.
    pub(super) fn pop(&mut self) -> Option<Area<Flushed>> {
        self.pop_in(self.used_place(0, |_| true))
    }
}

/// Returns the place of areas of `size` bytes.
fn place_of(size: usize) -> usize {
    size / PAGE_SIZE % PLACES
}
