// SPDX-License-Identifier: GPL-2.0

//! Lookups of areas that have an entry of their own in the tree: with the page map, and without memory for it.

use super::*;
use crate::check::checked::CheckedSpace;

#[kernel::prelude::kunit_tests(vmap_rust_page_map)]
mod tests {
    use super::*;

    /// What an entry of the map points to is a region.
    const REGION: usize = SIZE;
    const START: usize = 8 * REGION;
    const PAGES: usize = REGION / PAGE_SIZE;

    /// A space, all lookups of which the checker compares.
    struct Areas(CheckedSpace<FlushLog>, Span);

    impl Areas {
        /// Begins without areas. The space is all of `regions`, and requests are for a window without the last one.
        fn new(regions: usize) -> Result<Self> {
            mm::stay_on_this_cpu()?;
            let home = Span::with_size(START, regions * REGION).ok_or(EINVAL)?;
            let window = Span::with_size(START, (regions - 1) * REGION).ok_or(EINVAL)?;
            Ok(Self(World::new(home).checked()?, window))
        }

        fn alloc(&self, pages: usize) -> Result<Span> {
            let area = self
                .0
                .alloc_bare(Request::bytes(self.1, pages * PAGE_SIZE))?;
            Ok(area.span())
        }

        /// Frees the area with number `index` from below, and its range.
        fn free(&self, index: usize) -> Result<Span> {
            let checker = self.0.checker().ok_or(EINVAL)?;
            let span = checker
                .with(|record| record.busy().nth(index))
                .ok_or(EINVAL)?;
            self.0.retire(self.0.unlink(span.first()).ok_or(EINVAL)?);
            self.0.purge(None, true);
            Ok(span)
        }

        /// Looks up each `step`-th page of the window, and both ends of each area.
        fn compare(&self, step: usize) -> Result {
            let checker = self.0.checker().ok_or(EINVAL)?;
            let mut from = 0;
            while let Some(span) =
                checker.with(|record| record.busy().find(|span| span.first() >= from))
            {
                for addr in [span.first(), span.last(), span.end()] {
                    self.0.find(addr);
                }
                from = span.end();
            }
            for addr in (self.1.first()..self.1.end()).step_by(step * PAGE_SIZE) {
                self.0.find(addr);
            }
            checker.agrees().then_some(()).ok_or(EINVAL)
        }

        fn is_mapped(&self, addr: usize) -> bool {
            self.0.space().is_mapped(addr)
        }
    }

    #[test]
    fn small_areas_in_a_window_are_mapped_page_by_page() -> Result {
        let areas = Areas::new(4)?;
        for pages in Iterator::chain(1..40, [PAGES - 1, 1]) {
            let span = areas.alloc(pages)?;
            assert!(areas.is_mapped(span.first()) && areas.is_mapped(span.last()));
        }
        areas.compare(1)?;
        for index in (0..20).rev() {
            let span = areas.free(index * 2)?;
            assert!(!areas.is_mapped(span.first()) && !areas.is_mapped(span.last()));
        }
        areas.compare(1)?;
        areas.alloc(7)?;
        areas.compare(1)?;
        Ok(())
    }

    #[test]
    fn a_large_area_is_mapped_region_by_region() -> Result {
        let areas = Areas::new(12)?;
        areas.alloc(1)?;
        // It does not cover the first and the last region that it is in.
        let large = areas.alloc(4 * PAGES)?;
        areas.alloc(1)?;
        areas.compare(1)?;
        for addr in (large.first()..large.end()).step_by(PAGE_SIZE) {
            assert!(areas.is_mapped(addr));
        }
        areas.free(1)?;
        areas.compare(1)?;
        // Small ones where a region pointed to the large one, and a large one where regions have pages.
        for _ in 0..4 * PAGES - 1 {
            areas.alloc(1)?;
        }
        areas.compare(1)?;
        while areas.free(2)?.end() < large.end() {}
        areas.alloc(3 * PAGES + 1)?;
        areas.compare(1)?;
        Ok(())
    }

    /// Its pages would be too many stores under the lock. Lookups find it in the tree.
    #[test]
    fn an_area_of_many_regions_is_not_in_arrays_of_whole_regions() -> Result {
        let areas = Areas::new(20)?;
        areas.alloc(5 * PAGES)?;
        // Its region has an array from now on.
        let page = areas.alloc(1)?.first();
        areas.free(1)?;
        areas.free(0)?;
        for regions in [16, 17] {
            let area = areas.alloc(regions * PAGES)?;
            assert_eq!(areas.is_mapped(page), regions == 16);
            assert!(areas.is_mapped(area.first()) && areas.is_mapped(area.last()));
            areas.compare(7)?;
            areas.free(0)?;
            areas.compare(7)?;
        }
        Ok(())
    }

    /// Areas with more regions than a part has them are in the map only where they cover a part.
    #[test]
    fn a_part_points_to_the_area_that_covers_it() -> Result {
        // On 32-bit machines there is no room for it.
        if usize::BITS < 64 {
            return Ok(());
        }
        const IN_PART: usize = PART / REGION;
        // A page of each part: the window begins in the first one.
        let page = |part: usize| part * PART + 9 * REGION;
        for (regions, in_part) in [
            (IN_PART, [true, true, false]),
            (IN_PART + 1, [false, false, false]),
            (2 * IN_PART - 8, [true, true, false]),
            (2 * IN_PART - 7, [true, true, true]),
            (2 * IN_PART + 10, [false, true, false]),
            (3 * IN_PART - 8, [true, true, true]),
        ] {
            let areas = Areas::new(3 * IN_PART)?;
            // Before, and between two, it is mapped region by region.
            for pages in [regions, 5, regions].map(|regions| regions * PAGES) {
                let area = areas.alloc(pages)?;
                areas.compare(8 * PAGES + 1)?;
                if pages == regions * PAGES {
                    for (part, want) in in_part.into_iter().enumerate() {
                        let addr = page(part);
                        let want = want && area.contains(addr);
                        assert_eq!(areas.is_mapped(addr), want);
                    }
                }
                areas.free(0)?;
                assert!(!areas.is_mapped(page(1)));
                areas.compare(8 * PAGES + 1)?;
            }
        }
        Ok(())
    }

    /// Without memory for the page map, an area is served and found all the same. The next one gets what it did not.
    #[test]
    fn the_map_may_lack_memory() -> Result {
        let mut unmapped = 0;
        for nth in 1.. {
            let home = Span::with_size(START, 4 * REGION).ok_or(EINVAL)?;
            let space = World::new(home).space()?;
            let window = Span::with_size(START, 3 * REGION).ok_or(EINVAL)?;
            let req = Request {
                gfp: Gfp::NOWAIT,
                ..Request::bytes(window, (PAGES + 3) * PAGE_SIZE)
            };
            let (result, has_failed) = Failing::Only(nth).run(|| space.alloc_bare(req));
            match result {
                Ok(area) => {
                    let span = area.span();
                    unmapped += usize::from(!space.is_mapped(span.last()));
                    for addr in (span.first()..span.end()).step_by(PAGE_SIZE) {
                        assert_eq!(space.find(addr), Some(area));
                    }
                }
                Err(error) => assert_eq!(error, ENOMEM),
            }
            if !has_failed {
                break;
            }
            assert!(space.is_mapped(alloc(&space, &Request::any_page(window))?));
        }
        // In the kernel, what fails may be a sheaf of the slab allocator, which nobody misses.
        assert!(!mm::CAN_FAIL || unmapped > usize::from(mm::CAN_FAIL_ALL));
        Ok(())
    }
}
