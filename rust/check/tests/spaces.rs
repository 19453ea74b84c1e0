// SPDX-License-Identifier: GPL-2.0

//! A space without blocks: requests, lazy areas, purges and pins.

use super::*;

#[kernel::prelude::kunit_tests(vmap_rust_space)]
mod tests {
    use super::*;

    const START: usize = 64 << 20;

    #[test]
    fn a_purge_also_flushes_the_range_of_the_caller_if_there_are_lazy_areas() -> Result {
        let (space, req) = make(START, 8)?;
        let also = Span::with_size(START / 2, PAGE_SIZE);
        // Without lazy areas it flushes nothing; the caller flushes its own range.
        assert_eq!(space.purge(also, false), 0);
        assert_eq!(space.tlb().take(), None);
        assert_eq!(space.counters().purge, 0);
        let start = alloc(&space, &req)?;
        if let Some(area) = space.unlink(start) {
            space.retire(area);
        }
        assert_eq!(space.purge(also, true), 1);
        let cover = Span::from_bounds(START / 2, start + PAGE_SIZE);
        assert_eq!(space.tlb().take(), cover.map(|span| (span, 1)));
        assert_eq!(space.purge(None, true), 0);
        let counters = space.counters();
        assert_eq!((counters.purge, counters.purge_areas), (1, 1));
        Ok(())
    }

    #[test]
    fn the_first_and_last_pages_of_the_address_space_can_be_reserved() -> Result {
        let (space, mut req) = make(START, 1)?;
        req.window = Span::from_bounds(0, usize::MAX).ok_or(EINVAL)?;
        let low = alloc(&space, &req)?;
        assert_eq!(low, PAGE_SIZE);

        let top = crate::base::range::align_down(usize::MAX, PAGE_SIZE) - PAGE_SIZE;
        req.window = Span::with_size(top, PAGE_SIZE).ok_or(EINVAL)?;
        let high = alloc(&space, &req)?;
        assert_eq!(high, top);

        req.window = Span::from_bounds(0, usize::MAX).ok_or(EINVAL)?;
        req.align = 1 << (usize::BITS - 1);
        let half = alloc(&space, &req)?;
        assert_eq!(half, req.align);
        assert_eq!(space.alloc_bare(req).err(), Some(EBUSY));

        req.align = 1;
        req.size = crate::base::range::align_down(usize::MAX, PAGE_SIZE);
        assert_eq!(space.alloc_bare(req).err(), Some(EBUSY));
        assert_eq!(free_all(&space, [low, high, half].into_iter()), 3);
        Ok(())
    }

    #[test]
    fn every_power_of_two_is_accepted_as_alignment() -> Result {
        let (space, mut req) = make(START, 1)?;
        req.window = Span::from_bounds(0, usize::MAX).ok_or(EINVAL)?;
        for shift in 0..usize::BITS {
            req.align = 1 << shift;
            let start = alloc(&space, &req)?;
            assert!(start != 0 && crate::base::range::is_aligned(start, req.align));
            assert_eq!(free_all(&space, [start].into_iter()), 1);
        }
        Ok(())
    }

    #[test]
    fn pinned_area_is_the_lowest_that_ends_above() -> Result {
        let (space, mut req) = make(START, 8)?;
        req.size = 4 * PAGE_SIZE;
        let low = space.alloc_bare(req)?;
        let high = space.alloc_bare(req)?;
        for (addr, expected) in [
            (0, Some(low)),
            (START + PAGE_SIZE, Some(low)),
            (START + 4 * PAGE_SIZE - 1, Some(low)),
            (START + 4 * PAGE_SIZE, Some(high)),
            (START + 8 * PAGE_SIZE, None),
        ] {
            let got = space.get(addr, usize::MAX).map(|pinned| pinned.area());
            assert_eq!(got, expected);
        }
        // One that begins behind the limit is not returned.
        let first = low.span().first();
        for addr in [first - 4 * PAGE_SIZE, first - 1, first] {
            for (last, expected) in [(first - 1, None), (first, Some(low))] {
                let got = space.get(addr, last).map(|pinned| pinned.area());
                assert_eq!(got, expected);
            }
        }
        // `try_get()` does not wait for a pin that is held.
        let pinned = space.get(START, usize::MAX).ok_or(EINVAL)?;
        assert_eq!(pinned.area().span().first(), START);
        if mm::LOCKS_EXCLUDE {
            assert!(space.try_get(START).is_none());
        }
        drop(pinned);
        assert!(space.try_get(START).is_some());
        // `try_get()` does not return an area above the address.
        assert!(space.try_get(START - 1).is_none());
        free_all(&space, [START, START + 4 * PAGE_SIZE].into_iter());
        Ok(())
    }
}
