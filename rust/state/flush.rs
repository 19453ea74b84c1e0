// SPDX-License-Identifier: GPL-2.0

//! How freed areas become free addresses: a purge takes what waits, flushes the TLBs once for all of it, and only then makes it
//! free. The types prove that nothing becomes free before its TLB flush:
//!
//! ```text
//! lazy areas, lazy slots --- taken ---> Plan --- flush ---> FlushedPlan --- its list, its slots ---> free
//! ```
//!
//! A [`Plan`] owns what a purge has taken: a list of areas, and a list of blocks that have noted which slots were taken.
//! [`Plan::flush`] turns it into a [`FlushedPlan`]: only this makes lazy areas flushed ones, and lazy slots free. Lists of
//! areas come first: they need no memory, as they are linked through `vmap_area::vm` of the area objects.
//!
//! The plan is flushed as one range that covers everything, as `__purge_vmap_area_lazy()` in mm/vmalloc.c does: where no TLB
//! instruction reaches all CPUs, each flush is a round of interrupts, which isolated CPUs pay for as well.

use super::prelude::*;
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
use core::fmt;

/// States of areas that can be in a list: nobody else reads `vmap_area::vm` of such an area. Readers that have pinned an
/// area that is leaving may.
pub(crate) trait Listed: State {}
impl Listed for New {}
impl Listed for Reserved {}
impl Listed for Lazy {}
impl Listed for Flushed {}

/// A list of areas in state `S`, linked through the area objects.
///
/// # Invariants
///
/// - `first` and `last` are both [`Some`] or both [`None`]. If [`Some`], `vmap_area::vm` links `len` areas
///   from `first` to `last`, and is null in `last`.
/// - The list owns the tokens of all its areas.
pub(crate) struct AreaList<S: Listed> {
    first: Option<AreaPtr>,
    last: Option<AreaPtr>,
    len: usize,
    _state: PhantomData<Area<S>>,
}

impl<S: Listed> Default for AreaList<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Listed> AreaList<S> {
    pub(crate) const fn new() -> Self {
        // INVARIANT: Both ends are `None`.
        Self {
            first: None,
            last: None,
            len: 0,
            _state: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Appends an area.
    pub(crate) fn push(&mut self, area: Area<S>) {
        area.set_vm(ptr::null_mut());
        let ptr = area.into_ptr();
        match self.last {
            // SAFETY: By the type invariants, the list owns the area.
            Some(last) => unsafe { (*last.as_raw()).__bindgen_anon_1.vm = ptr.as_raw().cast() },
            None => self.first = Some(ptr),
        }
        // INVARIANT: The former last area links to this one, which links to none.
        self.last = Some(ptr);
        self.len = self.len.wrapping_add(1);
    }

    /// Inserts an area before the others. Leaves their objects alone, which other CPUs may have written last.
    pub(crate) fn push_first(&mut self, area: Area<S>) {
        let next = self.first.map(|next| next.as_raw().cast());
        area.set_vm(next.unwrap_or(ptr::null_mut()));
        let ptr = area.into_ptr();
        // INVARIANT: The area links to the former first one, or is the only one.
        self.first = Some(ptr);
        self.last.get_or_insert(ptr);
        self.len = self.len.wrapping_add(1);
    }

    /// Fetches the object of the first area for writing: [`AreaList::pop`] reads it, and its caller changes it.
    pub(crate) fn prefetch(&self) {
        if let Some(first) = self.first {
            first.prefetch_for_write();
        }
    }

    /// Removes the first area.
    pub(crate) fn pop(&mut self) -> Option<Area<S>> {
        let first = self.first?;
        // SAFETY: By the type invariants, the list owns the area.
        let next = unsafe { (*first.as_raw()).__bindgen_anon_1.vm };
        // INVARIANT: The next area becomes the first; without one, the list is empty.
        // SAFETY: By the type invariants, it is null or links an area of the list.
        self.first = unsafe { AreaPtr::new(next.cast()) };
        if self.first.is_none() {
            self.last = None;
        }
        self.len = self.len.wrapping_sub(1);
        // SAFETY: By the type invariants, the list owned the token, and it gives it up.
        let area = unsafe { Area::take_back(first) };
        area.set_vm(ptr::null_mut());
        Some(area)
    }

    /// Calls `what` for each area, in order.
    fn each(&mut self, mut what: impl FnMut(&Area<S>)) {
        let mut seen = Self::new();
        while let Some(area) = self.pop() {
            what(&area);
            seen.push(area);
        }
        *self = seen;
    }
}

impl<S: Listed> Iterator for AreaList<S> {
    type Item = Area<S>;

    fn next(&mut self) -> Option<Area<S>> {
        self.pop()
    }
}

impl<S: Listed> Drop for AreaList<S> {
    fn drop(&mut self) {
        while let Some(area) = self.pop() {
            // Frees a new area, and leaks any other with a report.
            drop(area);
        }
    }
}

/// A list of lazy areas, and a span that covers them.
///
/// # Invariants
///
/// All pages of the areas are in `cover`.
#[derive(Default)]
pub(crate) struct LazyList {
    areas: AreaList<Lazy>,
    /// In pages: kmemleak would take an address for a reference to the area that starts there.
    cover: Option<Span>,
    /// Pages of the largest area.
    largest: usize,
}

impl LazyList {
    /// Inserts an area before the others, and returns its pages. Leaves their objects alone, which other CPUs may have
    /// written last.
    pub(crate) fn push_first(&mut self, area: Area<Lazy>) -> usize {
        let Some(span) = area.span() else {
            // Cannot happen: a span is not empty. The drop of the area reports the leak.
            return 0;
        };
        let pages = span.in_pages();
        // INVARIANT: It covers the pages of the area.
        self.cover = Some(self.cover.map_or(pages, |cover| cover.join(pages)));
        self.areas.push_first(area);
        self.largest = self.largest.max(pages.size());
        pages.size()
    }
}

/// What makes freed ranges safe to reuse: the TLBs and the KASAN shadow, of the kernel or of a test without mappings. All
/// functions run in sleepable context.
///
/// # Safety
///
/// [`Tlb::flush`] returns only when no TLB holds a translation of an address in `span` that was unmapped before the call:
/// the range is reused then.
pub(crate) unsafe trait Tlb {
    /// Flushes `span`, which contains `areas` lazily freed areas, from the TLBs of all CPUs, and frees the page tables that
    /// were taken before. Returns their number.
    fn flush(&self, span: Span, areas: usize) -> usize;

    /// Takes the page tables that map nothing but addresses in `span`, for the next flush.
    ///
    /// # Safety
    ///
    /// The range is unmapped, and nobody uses an address in it before the next [`Tlb::flush`] or [`Tlb::flush_tables`].
    unsafe fn take_tables(&self, _span: Span) {}

    /// If page tables were taken, makes all CPUs forget them, and frees them. Returns their number.
    fn flush_tables(&self) -> usize {
        0
    }

    /// Returns whether areas have KASAN shadow.
    fn has_shadow(&self) -> bool;

    /// Returns whether only a test uses the space.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    fn is_test(&self) -> bool {
        false
    }

    /// Writes an address of the space for users. Task context.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    fn write_address(&self, addr: usize, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "{}", mm::Restricted(addr))
    }

    /// Releases the KASAN shadow of a range that is about to become free.
    ///
    /// # Safety
    ///
    /// The range was flushed, and nobody uses an address in it before the call returns.
    unsafe fn release_shadow(&self, span: Span);

    /// Flushes the TLBs for the released KASAN shadow of all ranges in `span`.
    fn flush_shadow(&self, span: Span);
}

/// Bytes of which the KASAN shadow is released at once, a power of two. Their shadow has 512 pages with pages of 4 KiB.
const PIECE: usize = 8 * SIZE;

const _: () = assert!(PIECE.is_power_of_two());

/// What a purge has taken and not flushed, and the range to flush for it.
///
/// # Invariants
///
/// `cover` covers all areas in `list`, and all slots that the blocks have noted.
#[must_use = "areas in no block that a purge has taken and does not free leak"]
pub(crate) struct Plan<'dir, T: Tlb> {
    tlb: &'dir T,
    dir: &'dir Directory,
    cover: Option<Span>,
    areas: usize,
    list: AreaList<Lazy>,
    /// Pages of the largest area in `list`.
    largest: usize,
    /// The first of the blocks that have noted slots, linked through [`Links::next_in_plan`].
    first: Option<BlockNumber>,
    slot_pages: usize,
}

impl<'dir, T: Tlb> Plan<'dir, T> {
    /// Returns a plan with nothing to flush, for blocks of `dir` and their TLB.
    pub(crate) const fn new(dir: &'dir Directory, tlb: &'dir T) -> Self {
        // INVARIANT: There is nothing to cover.
        Self {
            tlb,
            dir,
            cover: None,
            areas: 0,
            list: AreaList::new(),
            largest: 0,
            first: None,
            slot_pages: 0,
        }
    }

    /// Adds a range to flush.
    pub(crate) fn add(&mut self, span: Span) {
        self.cover = Some(self.cover.map_or(span, |cover| cover.join(span)));
    }

    /// Takes all slots that became lazy before the call. Sleepable context.
    pub(crate) fn take_slots(&mut self) {
        let dir = self.dir;
        dir.note_batches();
        dir.each_dirty(true, &mut |block| self.take_from(block));
    }

    /// Takes the lazy slots of a block.
    fn take_from(&mut self, block: &Block) {
        // Acquire: pairs with the release in `Plan::drain()`.
        if block.links().is_in_plan.cmpxchg(0, 1, Acquire).is_err() {
            mm::refuse("a block is in another plan", &[block.start()], &[]);
            // It was made clean before: the next purge comes to it.
            self.dir.make_lazy(block, &[0; WORDS]);
            return;
        }
        let words = block.lazy.take();
        let bounds = map::next_set(&words, 0).zip(map::last_set(&words));
        let cover = bounds.and_then(|(first, last)| {
            let count = last.number().wrapping_sub(first.number()).wrapping_add(1);
            block.slots(first, count)
        });
        let Some(cover) = cover else {
            if bounds.is_some() {
                // Cannot happen: the slots are in the block.
                self.dir.make_lazy(block, &words);
            }
            // Release: as in `drain()`.
            block.links().is_in_plan.store(0, Release);
            return;
        };
        // INVARIANT: It covers the slots.
        self.add(cover);
        block.flushing.set_words(&words);
        let count = map::weight(&words);
        self.areas = self.areas.wrapping_add(count);
        let pages = count.wrapping_mul(block.class().slot_pages());
        self.slot_pages = self.slot_pages.wrapping_add(pages);
        block.links().next_in_plan.set(self.first);
        self.first = block.number();
    }

    /// Adds a list of areas. The plan has none yet.
    pub(crate) fn add_list(&mut self, list: LazyList) {
        // INVARIANT: `cover` covers the areas.
        if let Some(cover) = list.cover.and_then(Span::from_pages) {
            self.add(cover);
        }
        self.areas = self.areas.wrapping_add(list.areas.len());
        self.list = list.areas;
        self.largest = list.largest;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cover.is_none()
    }

    /// Returns the number of lazily freed areas to flush, and how many of them are in no block.
    pub(crate) fn areas(&self) -> (usize, usize) {
        (self.areas, self.list.len())
    }

    pub(crate) fn cover(&self) -> Option<Span> {
        self.cover
    }

    /// Returns the number of pages of the slots that were taken.
    pub(crate) fn slot_pages(&self) -> usize {
        self.slot_pages
    }

    /// Takes the page tables of areas that are above [`MOST_PAGES`]. Sleepable context, with `vmap_purge_lock` held.
    pub(crate) fn take_tables(&mut self) {
        if self.largest <= MOST_PAGES {
            return;
        }
        let tlb = self.tlb;
        self.list.each(|area| {
            if let Some(span) = area.span().filter(|_| area.pages() > MOST_PAGES) {
                // SAFETY: C has unmapped what is lazy. The plan owns it until the flush.
                unsafe { tlb.take_tables(span) };
            }
        });
    }

    /// Flushes everything in the plan with one call, and page tables that were taken. Sleepable context, with
    /// `vmap_purge_lock` held.
    pub(crate) fn flush(self) -> FlushedPlan<'dir, T> {
        let tables = match self.cover {
            Some(cover) => self.tlb.flush(cover, self.areas),
            None => 0,
        };
        // INVARIANT: The flush was for all that is in the plan, by its invariants.
        FlushedPlan { plan: self, tables }
    }

    /// Takes all slots out of the plan. Calls `what` for each block with those that it had. Sleepable context, though `what`
    /// must not sleep.
    fn drain(&mut self, what: &dyn Fn(&Block, &Words)) {
        while let Some(number) = self.first {
            let rcu = Guard::new();
            // A block with a slot that is not free stays.
            let Some(block) = self.dir.block(number, &rcu) else {
                break;
            };
            self.first = block.links().next_in_plan.get();
            let slots = block.flushing.take();
            // Release: the next plan finds no slots noted.
            block.links().is_in_plan.store(0, Release);
            what(block, &slots);
            drop(rcu);
            mm::cond_resched();
        }
    }
}

impl<T: Tlb> Drop for Plan<'_, T> {
    /// Makes the slots lazy again that were not freed. Sleepable context.
    fn drop(&mut self) {
        let dir = self.dir;
        self.drain(&|block, slots| dir.make_lazy(block, slots));
    }
}

/// What was in a [`Plan`] when it was flushed. Only [`Plan::flush`] makes one.
///
/// # Invariants
///
/// What it has was flushed after it was taken.
#[must_use = "areas in no block that a purge has taken and does not free leak"]
pub(crate) struct FlushedPlan<'dir, T: Tlb> {
    plan: Plan<'dir, T>,
    tables: usize,
}

impl<T: Tlb> FlushedPlan<'_, T> {
    /// Returns the number of page tables that the flush has freed.
    pub(crate) fn tables(&self) -> usize {
        self.tables
    }

    /// Takes the areas that are in no block: the only way from [`Lazy`] to [`Flushed`].
    pub(crate) fn take_list(&mut self) -> AreaList<Flushed> {
        let mut lazy = core::mem::take(&mut self.plan.list);
        // INVARIANT: By the type invariants, the areas were flushed. The links are unchanged. The objects keep the code of
        // `Lazy` until their next change of state; others only read from it that the areas are not busy.
        AreaList {
            first: lazy.first.take(),
            last: lazy.last.take(),
            len: core::mem::take(&mut lazy.len),
            _state: PhantomData,
        }
    }

    /// Releases the KASAN shadow of all that the plan has. Sleepable context.
    pub(crate) fn release_shadow(&mut self) {
        let tlb = self.plan.tlb;
        let Some(cover) = self.plan.cover.filter(|_| tlb.has_shadow()) else {
            return;
        };
        self.each_run(|span| {
            // SAFETY: By the type invariants, the slots were flushed, and nobody gets them before `free_slots()`.
            unsafe { release_in_pieces(span, tlb) };
        });
        self.plan.list.each(|area| {
            if let Some(span) = area.span() {
                // SAFETY: By the type invariants, the area was flushed. Its range is reserved as long as it is in the list.
                unsafe { release_in_pieces(span, tlb) };
            }
        });
        tlb.flush_shadow(cover);
    }

    /// Calls `what`, which may sleep, for each run of slots that the plan has.
    fn each_run(&self, what: impl Fn(Span)) {
        let mut next = self.plan.first;
        while let Some(number) = next {
            let rcu = Guard::new();
            let Some(block) = self.plan.dir.block(number, &rcu) else {
                break;
            };
            let (size, slots) = (block.class().slot_pages(), block.flushing.words());
            next = block.links().next_in_plan.get();
            drop(rcu);
            let bytes = |slots: usize| slots.wrapping_mul(size).wrapping_mul(PAGE_SIZE);
            for (first, count) in map::runs(&slots) {
                let start = number.start().wrapping_add(bytes(first.number()));
                if let Some(span) = Span::with_size(start, bytes(count)) {
                    what(span);
                }
            }
        }
    }

    /// Frees all slots of the plan. Calls `what` for each of their blocks afterwards, with the number of slots. Sleepable
    /// context, though `what` must not sleep.
    pub(crate) fn free_slots(&mut self, what: impl Fn(&Block, usize)) {
        self.plan.drain(&|block, slots| {
            block.free.set_words(slots);
            what(block, map::weight(slots));
        });
    }
}

/// Takes the page tables of a block that was removed from its directory. Sleepable context, with `vmap_purge_lock` held.
pub(crate) fn take_tables(removed: &Placed, tlb: &impl Tlb) {
    if let Some(span) = removed.span() {
        // SAFETY: By the invariants of `Placed`, the range was flushed, nobody uses it, and it stays reserved.
        unsafe { tlb.take_tables(span) };
    }
}

/// Releases the KASAN shadow of a block that was removed from its directory: what several areas shared could not be released
/// with one of them. Sleepable context.
pub(crate) fn release_shadow(removed: &Placed, tlb: &impl Tlb) {
    if let Some(span) = removed.span().filter(|_| tlb.has_shadow()) {
        // SAFETY: By the invariants of `Placed`, the range was flushed, nobody uses it, and it stays reserved.
        unsafe { release_in_pieces(span, tlb) };
        tlb.flush_shadow(span);
    }
}

/// Releases the KASAN shadow of `span`, and lets other tasks run between two pieces. Sleepable context.
///
/// # Safety
///
/// Those of [`Tlb::release_shadow`].
unsafe fn release_in_pieces(span: Span, tlb: &impl Tlb) {
    let mut start = span.first();
    loop {
        // The last address of this piece: the next one begins at a multiple of it, so they share no page of KASAN shadow.
        let last = span.last().min(start | (PIECE - 1));
        if let Some(piece) = Span::new(start, last) {
            // SAFETY: By the safety requirements, of which this is a part.
            unsafe { tlb.release_shadow(piece) };
        }
        mm::cond_resched();
        if last == span.last() {
            return;
        }
        start = last.wrapping_add(1);
    }
}
