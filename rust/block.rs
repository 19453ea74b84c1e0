// SPDX-License-Identifier: GPL-2.0

//! A block: a piece of the space whose pages are handed out by bitmap.
//!
//! Each page of a block is in one of these states:
//!
//! | page is | in `free` | in `lazy` | in `flushing` |
//! |---|---|---|---|
//! | free | 1 | 0 | 0 |
//! | part of an area that is busy or unlinked | 0 | 0 | 0 |
//! | lazy, and no purge has come to it | 0 | 1 | 0 |
//! | lazy, and about to be flushed | 0 | 0 | 1 |
//!
//! Whoever moves a page from one state to the next owns it meanwhile: who has claimed it, who has
//! unlinked its area, the purge that has taken it out of `lazy`. `starts` has a bit for the first page
//! of each area that is not free. The area objects are part of the block ([`crate::objects`]), one for
//! each `1 << (band + 1)` pages: areas of a block have at least that many, so no two of them start in the
//! same ones.

use crate::{
    area::{
        Area,
        AreaPtr,
        Attributes,
        Leaving,
        Seen,
        Unlinked, //
    },
    bits::{
        self,
        Map,
        Words,
        PAGES, //
    },
    mm,
    objects::Objects,
    range::{
        Span,
        PAGE_SIZE, //
    },
};
use kernel::{
    alloc::Flags,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Bytes in a block.
pub(crate) const SIZE: usize = PAGES * PAGE_SIZE;

/// Areas of up to this many pages, aligned to no more, are served from blocks. Of larger ones a block has
/// so few that a cached range is cheaper (docs/measurements.md).
pub(crate) const MAX_PAGES: usize = PAGES / 16;

/// Number of bands of sizes: 1 to 3 pages, 4 to 7, 8 to 15, 16 to 31, and 32.
pub(crate) const BANDS: usize = 5;

/// A request as blocks see it.
#[derive(Clone, Copy)]
pub(crate) struct Small {
    /// Bytes, guard page included.
    size: usize,
    /// Pages that are reserved for it.
    pages: usize,
    /// The first of them is a multiple of `1 << align`.
    align: u32,
    band: usize,
}

impl Small {
    /// `size` bytes at a multiple of `align` bytes; [`None`] if blocks do not serve that.
    pub(crate) fn new(size: usize, align: usize) -> Option<Self> {
        let pages = size / PAGE_SIZE;
        if pages == 0 || pages > MAX_PAGES || align > MAX_PAGES * PAGE_SIZE {
            return None;
        }
        // Two at least, so that each has an object of its own.
        let pages = pages.max(2);
        Some(Self {
            size,
            pages,
            align: (align / PAGE_SIZE).max(1).trailing_zeros(),
            // CAST: A number of bits fits in a `usize`.
            band: (pages.ilog2() as usize).saturating_sub(1),
        })
    }

    /// The band that serves it: 0 to [`BANDS`] - 1.
    pub(crate) fn band(self) -> usize {
        self.band
    }
}

/// Pages of a block that a purge has taken over.
pub(crate) struct Taken {
    /// What covers them.
    pub(crate) cover: Span,
    /// How many.
    pub(crate) pages: usize,
    /// Of how many areas.
    pub(crate) areas: usize,
}

/// The object of the area that starts at page `first` of a block of band `band`.
fn object_of(band: usize, first: usize) -> usize {
    // CAST: A band is a small number.
    first.wrapping_shr((band as u32).wrapping_add(1))
}

/// A block.
pub(crate) struct Block {
    start: usize,
    band: usize,
    /// The first word of `free` that may have anything.
    hint: Atomic<usize>,
    free: Map,
    starts: Map,
    lazy: Map,
    flushing: Map,
    objects: Objects,
}

impl Block {
    /// A block without a place, all free, with objects for areas of band `band`. Sleeps if `flags`
    /// allow it.
    pub(crate) fn new(band: usize, flags: Flags) -> Result<Self> {
        Ok(Self {
            start: 0,
            band,
            hint: Atomic::new(0),
            free: Map::new(true),
            starts: Map::new(false),
            lazy: Map::new(false),
            flushing: Map::new(false),
            objects: Objects::new(object_of(band, PAGES), flags)?,
        })
    }

    /// Says where it is.
    pub(crate) fn place(&mut self, start: usize) {
        self.start = start;
    }

    /// The addresses of the block.
    pub(crate) fn span(&self) -> Option<Span> {
        Span::with_size(self.start, SIZE)
    }

    /// The band it serves.
    pub(crate) fn band(&self) -> usize {
        self.band
    }

    /// The object of the area that starts at page `first`.
    fn object_of(&self, first: usize) -> usize {
        object_of(self.band, first)
    }

    /// The smallest area it is made for, in pages.
    fn grain(&self) -> usize {
        // CAST: As above.
        2_usize.wrapping_shl(self.band as u32)
    }

    fn page_of(&self, addr: usize) -> Option<usize> {
        let page = addr.checked_sub(self.start)? / PAGE_SIZE;
        (page < PAGES).then_some(page)
    }

    fn address_of(&self, page: usize) -> usize {
        self.start.wrapping_add(page.wrapping_mul(PAGE_SIZE))
    }

    /// Is there room for an area that the block is made for?
    pub(crate) fn is_useful(&self) -> bool {
        bits::find_run(&self.free.words(), self.grain(), 0).is_some()
    }

    /// Is nothing reserved?
    pub(crate) fn is_empty(&self) -> bool {
        bits::weight(&self.free.words()) == PAGES
    }

    /// Makes a busy area of free pages. No lock; any context.
    #[inline]
    pub(crate) fn alloc(&self, small: Small, attributes: &Attributes) -> Option<AreaPtr> {
        let first = self
            .free
            .claim(small.pages, small.align, self.grain(), &self.hint)?;
        let object = self.objects.occupy(self.object_of(first));
        let (Some(area), Some(span)) =
            (object, Span::with_size(self.address_of(first), small.size))
        else {
            // The pages stay reserved: safe, but lost.
            mm::refuse!(
                "page {} of the block at {:#x} is not free",
                first,
                self.start
            );
            return None;
        };
        let area = area.prepare(span, attributes);
        // Before the area is busy: who may look for it finds it.
        self.starts.set_bit(first);
        Some(area.busy())
    }

    /// The busy area that contains `addr`. The caller keeps the block from being freed.
    ///
    /// Who owns the area sees the start bits as they were when it became busy, or newer, and they do
    /// not change within the area as long as it is.
    #[inline(always)]
    pub(crate) fn find(&self, addr: usize) -> Option<(AreaPtr, Seen)> {
        let first = self.starts.at_or_below(self.page_of(addr)?)?;
        let (area, seen) = self.objects.look(self.object_of(first))?;
        seen.contains(addr).then_some((area, seen))
    }

    /// Makes the busy area that contains `addr` one that is not found any more.
    pub(crate) fn unlink(&self, addr: usize) -> Option<Area<Leaving>> {
        let first = self.starts.at_or_below(self.page_of(addr)?)?;
        self.objects.leave(self.object_of(first), addr)
    }

    /// The first of `what` makes something of, of the areas from the one at `addr` on that are not
    /// free. It gets the object and the first address.
    fn next_start<T>(&self, addr: usize, what: impl Fn(usize, usize) -> Option<T>) -> Option<T> {
        let page = self.page_of(addr.max(self.start))?;
        let mut from = self.starts.at_or_below(page).unwrap_or(page);
        let starts = self.starts.words();
        loop {
            let first = bits::next_set(&starts, from)?;
            if let Some(found) = what(self.object_of(first), self.address_of(first)) {
                return Some(found);
            }
            from = first.saturating_add(1);
        }
    }

    /// The lowest busy area that ends above `addr`.
    pub(crate) fn next_busy(&self, addr: usize) -> Option<(AreaPtr, Seen)> {
        self.next_start(addr, |object, start| {
            let (area, seen) = self.objects.look(object)?;
            (seen.span().first() == start && seen.span().last() >= addr).then_some((area, seen))
        })
    }

    /// The lowest area that ends above `addr` and is neither busy nor free.
    pub(crate) fn next_lazy(&self, addr: usize) -> Option<Span> {
        self.next_start(addr, |object, start| {
            let span = self.objects.not_busy(object)?;
            let inside = self.span().is_some_and(|block| block.covers(span));
            (inside && span.first() == start && span.last() >= addr).then_some(span)
        })
    }

    /// The pages of an area of this block: the first, and how many are reserved.
    fn pages_of(&self, area: &Area<Unlinked>) -> Option<(usize, usize)> {
        let first = self.page_of(area.span()?.first())?;
        Some((first, area.pages().max(2)))
    }

    /// Takes over an area that was unmapped, but not flushed. Returns how many pages that are. Ends
    /// with a full barrier.
    pub(crate) fn retire(&self, area: Area<Unlinked>) -> usize {
        let Some((first, pages)) = self.pages_of(&area) else {
            return 0;
        };
        // Before the bits: from then on a purge may make the pages free for the next user.
        area.vacate();
        self.lazy.set_and_fence(first, pages);
        pages
    }

    /// Takes over an area that was never mapped: its pages are free at once.
    pub(crate) fn release(&self, area: Area<Unlinked>) {
        let Some((first, pages)) = self.pages_of(&area) else {
            return;
        };
        area.vacate();
        self.make_free(&bits::run_at(first, pages));
    }

    /// Makes pages free that are the caller's.
    fn make_free(&self, words: &Words) {
        let starts = bits::and(&self.starts.words(), words);
        // The caller owns the pages, so nobody else changes their start bits.
        self.starts.clear_words(&starts);
        self.free.set_words(words);
        // Relaxed: only a hint; who finds nothing looks everywhere.
        let first = words.iter().position(|&word| word != 0).unwrap_or(0);
        if first < self.hint.load(Relaxed) {
            self.hint.store(first, Relaxed);
        }
    }

    /// Takes over all lazy pages for a purge. Only one purge at a time.
    pub(crate) fn snapshot(&self) -> Option<Taken> {
        let words = self.lazy.take();
        let first = bits::next_set(&words, 0)?;
        let end = bits::last_set(&words)?.saturating_add(1);
        self.flushing.store(&words);
        Some(Taken {
            cover: Span::from_bounds(self.address_of(first), self.address_of(end))?,
            pages: bits::weight(&words),
            areas: bits::weight(&bits::and(&words, &self.starts.words())),
        })
    }

    /// The ranges that a purge has taken over.
    pub(crate) fn flushing(&self) -> Words {
        self.flushing.words()
    }

    /// The addresses of a run of pages.
    pub(crate) fn run(&self, first: usize, pages: usize) -> Option<Span> {
        Span::with_size(self.address_of(first), pages.checked_mul(PAGE_SIZE)?)
    }

    /// Makes free what a purge has taken over and flushed. Returns how many pages.
    pub(crate) fn free_flushed(&self) -> usize {
        let words = self.flushing.words();
        self.flushing.store(&[0; bits::WORDS]);
        self.make_free(&words);
        bits::weight(&words)
    }

    /// Claims the whole block, if all of it is free: nobody can allocate from it then.
    pub(crate) fn close(&self) -> bool {
        self.free.claim_at(0, PAGES)
    }

    /// Undoes [`Block::close`].
    pub(crate) fn open(&self) {
        self.free.set(0, PAGES);
    }

    /// Are all objects unused, as they must be before the memory is freed?
    pub(crate) fn is_vacant(&self) -> bool {
        self.objects.are_vacant()
    }

    fn all_words(&self) -> [Words; 4] {
        [&self.flushing, &self.lazy, &self.free, &self.starts].map(Map::words)
    }

    /// Checks what has to be true at any time, and adds up what there is. While others change the block,
    /// an area may be counted twice or not at all, and a block that never stays the same for as long as
    /// it takes to look at it is not judged. If `quiet`, nobody does.
    pub(crate) fn validate(&self, quiet: bool) -> Result<Contents> {
        for _ in 0..MAX_LOOKS {
            let words = self.all_words();
            let (mut contents, sane) = self.check(&words, quiet);
            let [flushing, lazy, ..] = &words;
            contents.lazy_pages = bits::weight(lazy).wrapping_add(bits::weight(flushing));
            if sane {
                return Ok(contents);
            }
            if words == self.all_words() {
                mm::refuse!("block at {:#x}: {:x?}", self.start, words);
                return Err(EINVAL);
            }
        }
        Ok(Contents::default())
    }

    fn check(&self, words: &[Words; 4], quiet: bool) -> (Contents, bool) {
        let [flushing, lazy, free, starts] = words;
        let mut contents = Contents::default();
        let mut sane = true;
        for (index, &free) in free.iter().enumerate() {
            let of = |words: &Words| words.get(index).copied().unwrap_or(0);
            sane &= of(lazy) & free == 0;
            sane &= of(flushing) & free == 0;
            sane &= of(lazy) & of(flushing) == 0;
            sane &= of(starts) & free == 0;
        }
        let mut covered = 0_usize;
        let mut end = 0;
        let mut from = 0;
        while let Some(first) = bits::next_set(starts, from) {
            from = first.saturating_add(1);
            let object = self.object_of(first);
            let span = match self.objects.look(object) {
                Some((_, seen)) => {
                    contents.busy = contents.busy.wrapping_add(1);
                    Some(seen.span())
                }
                None => {
                    contents.unlinked = contents.unlinked.wrapping_add(1);
                    self.objects.not_busy(object)
                }
            };
            let pages = (span.map_or(0, Span::size) / PAGE_SIZE).max(2);
            // An area that is just being made busy has the bounds of the one before.
            if quiet {
                sane &= first >= end;
                sane &= span.is_some_and(|span| span.first() == self.address_of(first));
            }
            end = first.saturating_add(pages);
            covered = covered.wrapping_add(pages);
        }
        if quiet {
            sane &= end <= PAGES;
            // A purge that came to one word of an area and not yet to the next one leaves lazy pages
            // without a start, so this is not always so.
            sane &= covered.wrapping_add(bits::weight(free)) == PAGES;
        }
        (contents, sane)
    }
}

/// How often [`Block::validate`] looks at a block that others change.
const MAX_LOOKS: usize = 100;

/// What is in a block.
#[derive(Default)]
pub(crate) struct Contents {
    /// Busy areas.
    pub(crate) busy: usize,
    /// Areas that are neither busy nor free.
    pub(crate) unlinked: usize,
    /// Pages that wait for a flush.
    pub(crate) lazy_pages: usize,
}
