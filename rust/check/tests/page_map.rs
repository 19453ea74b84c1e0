// SPDX-License-Identifier: GPL-2.0

//! Lookups of areas that have an entry of their own in the tree: with the page map, and without memory for it.

use super::free_all;
use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::{
        fixtures::{
            Failing,
            FlushLog,
            World, //
        },
        random::Random, //
    },
    policy::space::{
        Request,
        Space, //
    },
    state::{
        area::Busy,
        class::SIZE as REGION, //
    },
    sys::mm::{
        self,
        Gfp, //
    }, //
};
use kernel::prelude::*;

#[kernel::prelude::kunit_tests(vmap_rust_page_map)]
mod tests {
    use super::*;

    const START: usize = 8 * REGION;
    const PAGES: usize = REGION / PAGE_SIZE;

    /// Areas of a space: the test has allocated them and not freed them.
    struct Areas {
        space: Space<FlushLog>,
        window: Span,
        spans: KVec<Option<Span>>,
    }

    impl Areas {
        /// Begins without areas. The space is all of `regions`, and requests are for a window without the last one.
        fn new(regions: usize) -> Result<Self> {
            mm::stay_on_this_cpu()?;
            let home = Span::with_size(START, regions * REGION).ok_or(EINVAL)?;
            Ok(Self {
                space: World::new(home).space()?,
                window: Span::with_size(START, (regions - 1) * REGION).ok_or(EINVAL)?,
                spans: KVec::new(),
            })
        }

        fn alloc(&mut self, pages: usize) -> Result<Span> {
            self.alloc_failing(pages, Failing::Only(0)).0
        }

        /// Allocates an area while memory is `failing`. Returns its addresses, and whether an allocation failed.
        fn alloc_failing(&mut self, pages: usize, failing: Failing) -> (Result<Span>, bool) {
            let mut req = Request::any_page(self.window);
            (req.size, req.gfp) = (pages * PAGE_SIZE, Gfp::NOWAIT);
            let (area, has_failed) = failing.run(|| self.space.alloc(req.again()));
            (area.and_then(|area| self.note(area)), has_failed)
        }

        fn note(&mut self, area: Busy) -> Result<Span> {
            let span = area.span();
            match self.spans.iter_mut().find(|span| span.is_none()) {
                Some(slot) => *slot = Some(span),
                None => self.spans.push(Some(span), GFP_KERNEL)?,
            }
            Ok(span)
        }

        fn live(&self) -> impl Iterator<Item = Span> + '_ {
            self.spans.iter().copied().flatten()
        }

        /// Frees the area with number `index`, and its range.
        fn free(&mut self, index: usize) -> Result<Span> {
            let mut live = self.spans.iter_mut().filter(|span| span.is_some());
            let span = live.nth(index).and_then(Option::take).ok_or(EINVAL)?;
            assert_eq!(free_all(&self.space, [span.first()].into_iter()), 1);
            Ok(span)
        }

        /// Compares the answer for each `step`-th page of the window, and for both ends of each area.
        fn compare(&self, step: usize) {
            let ends = |span: Span| [span.first(), span.last(), span.end()];
            let pages = (self.window.first()..self.window.end()).step_by(step * PAGE_SIZE);
            let addresses = Iterator::chain(self.live().flat_map(ends), pages);
            for addr in addresses {
                let expected = self.live().find(|span| span.contains(addr));
                let found = self.space.find(addr).map(Busy::span);
                assert_eq!(found, expected, "at {:x}", addr);
            }
        }

        fn is_mapped(&self, addr: usize) -> bool {
            self.space.is_mapped(addr)
        }
    }

    #[test]
    fn small_areas_in_a_window_are_mapped_page_by_page() -> Result {
        let mut areas = Areas::new(4)?;
        for pages in Iterator::chain(1..40, [PAGES - 1, 1]) {
            let span = areas.alloc(pages)?;
            assert!(areas.is_mapped(span.first()) && areas.is_mapped(span.last()));
        }
        areas.compare(1);
        for index in (0..20).rev() {
            let span = areas.free(index * 2)?;
            assert!(!areas.is_mapped(span.first()) && !areas.is_mapped(span.last()));
        }
        areas.compare(1);
        areas.alloc(7)?;
        areas.compare(1);
        Ok(())
    }

    #[test]
    fn a_large_area_is_mapped_region_by_region() -> Result {
        let mut areas = Areas::new(12)?;
        areas.alloc(1)?;
        // It does not cover the first and the last region that it is in.
        let large = areas.alloc(4 * PAGES)?;
        areas.alloc(1)?;
        areas.compare(1);
        for addr in (large.first()..large.end()).step_by(PAGE_SIZE) {
            assert!(areas.is_mapped(addr));
        }
        areas.free(1)?;
        areas.compare(1);
        // Small ones where a region pointed to the large one, and a large one where regions have pages.
        for _ in 0..4 * PAGES - 1 {
            areas.alloc(1)?;
        }
        areas.compare(1);
        while areas.live().count() > 3 {
            areas.free(2)?;
        }
        areas.alloc(3 * PAGES + 1)?;
        areas.compare(1);
        Ok(())
    }

    #[test]
    fn what_has_too_many_regions_is_found_in_the_tree() -> Result {
        // On 32-bit machines there is no room for it.
        if usize::BITS < 64 {
            return Ok(());
        }
        let mut areas = Areas::new(300)?;
        let large = areas.alloc(200 * PAGES)?;
        assert!(!areas.is_mapped(large.first()));
        areas.compare(PAGES / 2 + 1);
        areas.free(0)?;
        let small = areas.alloc(100 * PAGES)?;
        assert!(areas.is_mapped(small.first()));
        areas.compare(PAGES / 2 + 1);
        Ok(())
    }

    /// Without memory for the page map, an area is served and found all the same.
    #[test]
    fn the_map_may_lack_memory() -> Result {
        let (mut nth, mut unmapped) = (1, 0);
        loop {
            let mut areas = Areas::new(4)?;
            let (result, has_failed) = areas.alloc_failing(PAGES + 3, Failing::Only(nth));
            match result {
                Ok(span) => unmapped += usize::from(!areas.is_mapped(span.last())),
                Err(error) => assert_eq!(error, ENOMEM),
            }
            areas.compare(1);
            if !has_failed {
                break;
            }
            // The next one gets what the first did not.
            let next = areas.alloc(3)?;
            assert!(areas.is_mapped(next.first()));
            areas.compare(1);
            nth += 1;
        }
        assert!(!mm::CAN_FAIL || unmapped > 1);
        Ok(())
    }

    #[test]
    fn random_areas_are_found() -> Result {
        let mut areas = Areas::new(10)?;
        let mut random = Random::new(1);
        for round in 0..300 {
            let live = areas.live().count();
            if live > 20 || (round % 3 == 2 && live > 0) {
                areas.free(random.below(live))?;
            } else {
                let most = if random.below(4) == 0 { 3 * PAGES } else { 30 };
                // Without room, others are freed in the rounds that follow.
                let _ = areas.alloc(1 + random.below(most));
            }
            areas.compare(61);
        }
        Ok(())
    }
}
