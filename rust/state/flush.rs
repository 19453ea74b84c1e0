// SPDX-License-Identifier: GPL-2.0

//! What a purge takes, flushes and frees. The types prove that nothing becomes free before its TLB flush:
//!
//! ```text
//! lazy areas, pages of blocks --- taken ---> Plan --- flush ---> FlushedPlan --- its lists, its pages ---> free
//! ```
//!
//! A [`Plan`] owns what a purge has taken: lists of areas, and the right to the pages that blocks have noted as taken.
//! Both are added together with the range to flush for them. [`Plan::flush`] consumes the plan and returns a
//! [`FlushedPlan`], which has exactly what was in the plan. Only this makes lazy areas flushed ones, and lets blocks
//! free what they have noted.
//!
//! One thing is left to the callers: a block notes its pages at the same place for every plan, because a place for
//! each would need memory. So there is only one plan for the blocks of a space at a time. `vmap_purge_lock` ensures
//! that.
//!
//! The plan is flushed as one range that covers everything, as `__purge_vmap_area_lazy()` in mm/vmalloc.c
//! does. Several smaller ranges would cost more: without TLB instructions that reach all CPUs, each flush
//! is a round of interrupts (`flush_tlb_kernel_range()` in arch/x86/mm/tlb.c), which isolated CPUs pay for
//! as well.

use crate::{
    base::range::Span,
    state::{
        area::{
            Flushed,
            Lazy,
            State, //
        },
        list::{
            AreaList,
            LazyList, //
        }, //
    },
    sys::mm::{
        self,
        Tlb, //
    }, //
};
use core::{
    marker::PhantomData,
    ops::Range, //
};

/// Maximum number of lists in a plan.
pub(crate) const MAX_LISTS: usize = 8;

/// What a purge has taken and not flushed, and the range to flush for it.
///
/// # Invariants
///
/// `cover` covers all areas in `lists`, and all pages that blocks have added.
#[must_use = "what a purge has taken and does not free leaks"]
pub(crate) struct Plan {
    cover: Option<Span>,
    areas: usize,
    /// Pages in `pages`.
    block_pages: usize,
    lists: [AreaList<Lazy>; MAX_LISTS],
    pages: Pages<Lazy>,
}

impl Plan {
    /// Returns a plan with nothing to flush.
    pub(crate) const fn new() -> Self {
        // INVARIANT: There is nothing to cover.
        Self {
            cover: None,
            areas: 0,
            block_pages: 0,
            lists: [const { AreaList::new() }; MAX_LISTS],
            pages: Pages::NONE,
        }
    }

    /// Counts `areas` lazily freed areas.
    pub(crate) fn count(&mut self, areas: usize) {
        self.areas = self.areas.wrapping_add(areas);
    }

    /// Adds a range to flush.
    pub(crate) fn add(&mut self, span: Span) {
        self.cover = Some(self.cover.map_or(span, |cover| cover.join(span)));
    }

    /// Adds a list of areas as number `index`, which is below [`MAX_LISTS`] and not in use.
    pub(crate) fn add_list(&mut self, index: usize, list: LazyList) {
        let (areas, cover) = list.into_parts();
        // INVARIANT: `cover` covers the areas.
        if let Some(cover) = cover {
            self.add(cover);
        }
        if let Some(list) = self.lists.get_mut(index) {
            *list = areas;
        }
    }

    /// Adds `units` units, which have `pages` pages, that a block has taken. All of them are in `cover`.
    pub(super) fn add_units(&mut self, cover: Span, units: usize, pages: usize) {
        self.add(cover);
        self.block_pages = self.block_pages.wrapping_add(pages);
        self.pages.units = self.pages.units.wrapping_add(units);
    }

    /// Notes that all pages that were added are in blocks at `slots` of the directory.
    pub(crate) fn set_slots(&mut self, slots: Range<usize>) {
        self.pages.slots = slots;
    }

    /// Returns whether there is nothing to flush.
    pub(crate) fn is_empty(&self) -> bool {
        self.cover.is_none()
    }

    /// Returns the number of lazily freed areas to flush.
    pub(crate) fn areas(&self) -> usize {
        self.areas
    }

    /// Returns the range to flush.
    pub(crate) fn cover(&self) -> Option<Span> {
        self.cover
    }

    /// Returns the number of pages that blocks have added.
    pub(crate) fn block_pages(&self) -> usize {
        self.block_pages
    }

    /// Returns the number of units that blocks have added.
    pub(crate) fn units(&self) -> usize {
        self.pages.units
    }

    /// Flushes everything in the plan with one call. Sleepable context, with `vmap_purge_lock` held.
    pub(crate) fn flush(self, tlb: &impl Tlb) -> FlushedPlan {
        if let Some(cover) = self.cover {
            tlb.flush(cover, self.areas);
        }
        // INVARIANT: The flush was for all that is in the plan, by its invariants.
        FlushedPlan {
            cover: self.cover,
            lists: self.lists,
            pages: self.pages.flushed(),
        }
    }
}

/// What was in a [`Plan`] when it was flushed.
///
/// # Invariants
///
/// What it has was flushed after it was taken.
#[must_use = "what a purge has taken and does not free leaks"]
pub(crate) struct FlushedPlan {
    cover: Option<Span>,
    lists: [AreaList<Lazy>; MAX_LISTS],
    pages: Pages<Flushed>,
}

impl FlushedPlan {
    /// Returns the range that was flushed.
    pub(crate) fn cover(&self) -> Option<Span> {
        self.cover
    }

    /// Takes list `index`.
    pub(crate) fn take_list(&mut self, index: usize) -> AreaList<Flushed> {
        match self.lists.get_mut(index) {
            Some(list) => list.take().flushed(self),
            None => AreaList::new(),
        }
    }

    /// Takes the right to free the pages that blocks have taken, if they have taken some.
    pub(crate) fn take_pages(&mut self) -> Option<Pages<Flushed>> {
        let pages = core::mem::replace(&mut self.pages, Pages::NONE);
        (pages.units > 0).then_some(pages)
    }
}

/// Pages that blocks have taken for a plan, in state [`Lazy`] or [`Flushed`]. The blocks know which pages.
#[must_use = "pages that blocks have taken must be flushed and freed"]
pub(crate) struct Pages<S: State> {
    units: usize,
    /// Where in the directory the blocks are. There may be other blocks between.
    slots: Range<usize>,
    _state: PhantomData<S>,
}

impl<S: State> Pages<S> {
    const NONE: Self = Self {
        units: 0,
        slots: 0..0,
        _state: PhantomData,
    };
}

impl Pages<Lazy> {
    /// The caller has flushed the pages.
    fn flushed(mut self) -> Pages<Flushed> {
        Pages {
            units: core::mem::take(&mut self.units),
            slots: self.slots.clone(),
            _state: PhantomData,
        }
    }
}

impl Pages<Flushed> {
    /// Returns where in the directory the blocks are.
    pub(crate) fn slots(&self) -> Range<usize> {
        self.slots.clone()
    }

    /// Ends the right to free the pages: the caller has let all blocks free them.
    pub(crate) fn freed(mut self) {
        self.units = 0;
    }
}

impl<S: State> Drop for Pages<S> {
    fn drop(&mut self) {
        if self.units > 0 {
            // Not safe: the next purge may free them with a flush that does not cover them.
            mm::refuse!(
                "{} units of blocks were dropped in state {}",
                self.units,
                S::CODE
            );
        }
    }
}
