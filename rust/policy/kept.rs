// SPDX-License-Identifier: GPL-2.0

//! Kept areas: those of the tree that were flushed and keep their entries, for the next requests of exactly their sizes. Each
//! saves thousands of instructions. All of them are free for other requests, too: who finds no gap frees them first.
//!
//! - *Large* areas, which blocks never serve, whoever has asked for them.
//! - Areas for requests with a *window* of their own, such as module space. Each size has a place, which others may share. The
//!   last request there says which areas are wanted.
//!
//! A purge that makes room keeps none. So none is found where lazy areas fill a window before C purges: those of module space of
//! arm64 (128 MiB) do with 8 CPUs. To keep some there would scatter what is left, so that spaces would get less full.

use super::prelude::*;

/// Maximum number of large areas that are kept: a request that may not sleep can free as many.
const MOST_LARGE: usize = MAX_ATOMIC;

/// So many are kept whatever sizes are asked for: loads with a few sizes in turn find theirs.
const FEW_LARGE: usize = 4;

/// They have at most 1/`LARGE_SHARE` of the space, together.
const LARGE_SHARE: usize = 64;

/// The least bytes of a window that may be asked for again and again: module space of 32-bit arm has 6 MiB or more. An area of an
/// odd window is not kept, nor does its request take a place.
const LEAST_WINDOW: usize = 4 << 20;

/// The most areas that are kept for windows: their objects and entries take about 1 MiB. Each one more frees two of another place,
/// and is freed, too.
const MOST_IN_PLACES: usize = 16384;

/// Number of places.
const PLACES: usize = 64;

/// Returns whether an area of `size` bytes is large: blocks never serve it.
fn is_large(size: usize) -> bool {
    size > MOST_PAGES * PAGE_SIZE
}

/// Areas for one size and window.
struct Place {
    /// The window and the size of the last request. In pages: kmemleak would take an address for a reference to the area that
    /// starts there.
    wanted: Option<(Span, usize)>,
    /// Areas of `size` bytes each, for that or for one before.
    areas: AreaList<Flushed>,
    size: usize,
}

/// All kept areas of a space.
pub(super) struct Kept {
    /// The one that was kept last is first.
    large: AreaList<Flushed>,
    /// Large ones that are no longer kept: the next purge frees them with their page tables, which a request cannot.
    given_up: AreaList<Flushed>,
    /// The largest of them, in bytes: such as do not use up the places of the page map.
    largest: usize,
    places: KBox<[Place; PLACES]>,
    /// Number of all areas in `places`.
    in_places: usize,
}

impl Kept {
    pub(super) fn new(home: Span) -> Result<Self> {
        let place = || Place {
            wanted: None,
            areas: AreaList::new(),
            size: 0,
        };
        Ok(Self {
            large: AreaList::new(),
            given_up: AreaList::new(),
            largest: (home.size() / LARGE_SHARE / MOST_LARGE).min(PART - PAGE_SIZE),
            places: Node::ANY.new_array(place, GFP_NOWAIT)?,
            in_places: 0,
        })
    }

    pub(super) fn len(&self) -> usize {
        let large = self.large.len().wrapping_add(self.given_up.len());
        large.wrapping_add(self.in_places)
    }

    pub(super) fn given_up(&self) -> usize {
        self.given_up.len()
    }

    /// Returns whether a request may find a kept area, or is to be noted. `has_window` says that it is not for any address.
    pub(super) fn is_for(req: &Request, has_window: bool) -> bool {
        is_large(req.size) || has_window && req.window.has_room(LEAST_WINDOW)
    }

    /// Takes the area that serves a request, for which [`Kept::is_for`] is true.
    pub(super) fn take(&mut self, req: &Request) -> Option<Area<Flushed>> {
        if is_large(req.size) {
            return self.take_large(req);
        }
        let place = &mut self.places[place_of(req.size)];
        place.wanted = Some((req.window.in_pages(), req.size));
        let area = place.areas.pop()?;
        if !serves(&area, req) {
            place.areas.push_first(area);
            return None;
        }
        self.in_places = self.in_places.wrapping_sub(1);
        Some(area)
    }

    /// If there is none of its size, gives up the two that were kept longest, but leaves [`FEW_LARGE`]: with sizes that do not
    /// come again, kept areas would lead to ever new addresses, and page tables.
    fn take_large(&mut self, req: &Request) -> Option<Area<Flushed>> {
        let mut others = AreaList::new();
        let found = loop {
            match self.large.pop() {
                Some(area) if !serves(&area, req) => others.push(area),
                found => break found,
            }
        };
        others.append(core::mem::take(&mut self.large));
        for _ in 0..2 {
            if found.is_none() && others.len() > FEW_LARGE {
                if let Some(oldest) = others.pop() {
                    self.given_up.push(oldest);
                }
            }
        }
        self.large = others;
        found
    }

    /// See [`super::tree::Tree::will_keep`].
    pub(super) fn will_keep(&self) -> impl FnMut(Span) -> bool {
        let (largest, mut count) = (self.largest, self.large.len());
        move |span| {
            let is_kept = span.size() <= largest && count < MOST_LARGE;
            count = count.wrapping_add(usize::from(is_kept));
            is_kept
        }
    }

    /// Takes up to `most` large areas, and those that were given up.
    pub(super) fn take_large_areas(&mut self, most: usize) -> AreaList<Flushed> {
        let mut areas = core::mem::take(&mut self.given_up);
        for _ in 0..most.min(self.large.len()) {
            if let Some(area) = self.large.pop() {
                areas.push(area);
            }
        }
        areas
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
        if is_large(size) {
            if size > self.largest || self.large.len() >= MOST_LARGE {
                return Some(area);
            }
            self.large.push(area.keep());
            return None;
        }
        let number = place_of(size);
        let place = &mut self.places[number];
        let is_wanted =
            |(window, bytes): (Span, _)| bytes == size && window.covers(span.in_pages());
        if !place.wanted.is_some_and(is_wanted) {
            return Some(area);
        }
        if place.areas.is_empty() {
            place.size = size;
        }
        // A few at a time: the others are still kept, though for nobody perhaps.
        let old = if place.size != size {
            number
        } else if self.in_places >= MOST_IN_PLACES {
            self.used_place(number.wrapping_add(1))
        } else {
            place.areas.push_first(area.keep());
            self.in_places = self.in_places.wrapping_add(1);
            return None;
        };
        for _ in 0..2 {
            if let Some(area) = self.pop_in(old) {
                freed.push(area);
            }
        }
        Some(area)
    }

    /// Returns the first place from number `from` on, in a ring, that has areas, or any without these.
    fn used_place(&self, from: usize) -> usize {
        let mut numbers = (0..PLACES).map(|step| from.wrapping_add(step) % PLACES);
        let used = numbers.find(|&number| !self.places[number].areas.is_empty());
        used.unwrap_or_default()
    }

    fn pop_in(&mut self, number: usize) -> Option<Area<Flushed>> {
        let area = self.places[number % PLACES].areas.pop()?;
        self.in_places = self.in_places.wrapping_sub(1);
        Some(area)
    }

    /// Takes an area that is no longer to be kept.
    pub(super) fn pop(&mut self) -> Option<Area<Flushed>> {
        let large = self.given_up.pop().or_else(|| self.large.pop());
        large.or_else(|| self.pop_in(self.used_place(0)))
    }
}

/// Returns the place of areas of `size` bytes: small sizes have one each.
fn place_of(size: usize) -> usize {
    size / PAGE_SIZE % PLACES
}

fn serves(area: &Area<Flushed>, req: &Request) -> bool {
    area.span().is_some_and(|span| {
        span.size() == req.size && req.window.covers(span) && is_aligned(span.first(), req.align)
    })
}
