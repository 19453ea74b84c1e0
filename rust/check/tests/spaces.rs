// SPDX-License-Identifier: GPL-2.0

//! A space without blocks: requests, lazy areas, purges and pins.

use super::{
    alloc, //
    free_all,
    make,
};
use crate::{
    base::{
        fit::Member,
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    check::fixtures::{
        publish,
        FlushLog, //
    },
    policy::space::{
        Request,
        Space, //
    },
    sys::mm::{
        self,
        Gfp, //
    }, //
};
use kernel::prelude::*;

#[kernel::prelude::kunit_tests(vmap_rust_space)]
mod tests {
    use super::*;

    const START: usize = 64 << 20;

    #[test]
    fn areas_get_the_lowest_address_and_do_not_overlap() -> Result {
        let (space, req) = make(START, 8)?;
        for index in 0..8 {
            let area = space.alloc(req.again())?;
            assert_eq!(area.span().first(), START + index * PAGE_SIZE);
        }
        assert_eq!(space.alloc(req.again()).err(), Some(EBUSY));
        let starts = (0..8).map(|index| START + index * PAGE_SIZE);
        assert_eq!(free_all(&space, starts), 8);
        assert!(space.find(START).is_none());
        Ok(())
    }

    #[test]
    fn lazy_range_is_not_reused_before_a_purge() -> Result {
        let (space, req) = make(START, 2)?;
        let first = alloc(&space, &req)?;
        let Some(area) = space.unlink(first) else {
            return Err(EINVAL);
        };
        space.retire(area);
        assert_eq!(space.lazy_pages(), 1);
        let second = alloc(&space, &req)?;
        assert!(second != first);
        assert_eq!(space.alloc(req.again()).err(), Some(EBUSY));
        assert_eq!(space.tlb().take(), None);
        assert_eq!(space.purge(None, false), 1);
        assert_eq!(
            space.tlb().take(),
            Span::with_size(first, PAGE_SIZE).map(|span| (span, 1))
        );
        let third = alloc(&space, &req)?;
        assert_eq!(third, first);
        free_all(&space, [first, second].into_iter());
        Ok(())
    }

    #[test]
    fn purge_also_flushes_the_range_of_the_caller() -> Result {
        let (space, req) = make(START, 8)?;
        let also = Span::with_size(START / 2, PAGE_SIZE);
        // Without lazy areas it flushes nothing; the caller flushes its own range.
        assert_eq!(space.purge(also, false), 0);
        assert_eq!(space.tlb().take(), None);
        let start = alloc(&space, &req)?;
        if let Some(area) = space.unlink(start) {
            space.retire(area);
        }
        assert_eq!(space.purge(also, true), 1);
        let cover = Span::from_bounds(START / 2, start + PAGE_SIZE);
        assert_eq!(space.tlb().take(), cover.map(|span| (span, 1)));
        Ok(())
    }

    /// Allocates `count` areas, frees them and purges.
    fn round(space: &Space<FlushLog>, req: &Request, count: usize) -> Result {
        let mut starts = KVec::new();
        for _ in 0..count {
            starts.push(alloc(space, req)?, GFP_KERNEL)?;
        }
        for &start in starts.iter() {
            if let Some(area) = space.unlink(start) {
                space.retire(area);
            }
        }
        assert_eq!(space.purge(None, false), count);
        Ok(())
    }

    #[test]
    fn a_purge_without_lazy_areas_is_not_counted() -> Result {
        let (space, req) = make(START, 8)?;
        assert_eq!(space.purge(None, false), 0);
        assert_eq!(space.counters().purge, 0);
        round(&space, &req, 3)?;
        assert_eq!(space.purge(None, true), 0);
        assert_eq!(space.reclaimable(), 0);
        assert_eq!(space.counters().purge, 1);
        assert_eq!(space.counters().purge_areas, 3);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// Reserves congruent areas; each member is its offset and its size in pages.
    fn congruent(space: &Space<FlushLog>, window: Span, members: [(usize, usize); 2]) -> Result {
        let members = members.map(|(page, count)| Member {
            offset: page * PAGE_SIZE,
            size: count * PAGE_SIZE,
        });
        let members = members.into_iter();
        space.alloc_congruent(window, members, PAGE_SIZE, Gfp::KERNEL, publish)
    }

    /// The range that was reserved for the first member is free again afterwards.
    #[test]
    fn members_that_overlap_have_no_common_base() -> Result {
        let (space, req) = make(START, 8)?;
        assert!(congruent(&space, req.window, [(0, 2), (1, 1)]).is_err());
        assert!(congruent(&space, req.window, [(0, 8), (8, 1)]).is_err());
        free_all(&space, core::iter::empty());
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    #[test]
    fn an_aligned_gap_of_exactly_the_size_is_found() -> Result {
        let align = 16 * PAGE_SIZE;
        let (space, mut req) = make(START, 64)?;
        // Reserve all but one aligned gap of exactly the size.
        let mut starts = KVec::new();
        for page in 0..64 {
            if !(32..48).contains(&page) {
                req.window = Span::with_size(START + page * PAGE_SIZE, PAGE_SIZE).ok_or(EINVAL)?;
                starts.push(alloc(&space, &req)?, GFP_KERNEL)?;
            }
        }
        req.window = Span::with_size(START, 64 * PAGE_SIZE).ok_or(EINVAL)?;
        req.size = align;
        req.align = align;
        let aligned = alloc(&space, &req)?;
        assert_eq!(aligned, START + 32 * PAGE_SIZE);
        assert_eq!(space.alloc(req.again()).err(), Some(EBUSY));
        starts.push(aligned, GFP_KERNEL)?;
        assert_eq!(free_all(&space, starts.iter().copied()), 49);
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
        assert_eq!(space.alloc(req.again()).err(), Some(EBUSY));

        req.align = 1;
        req.size = crate::base::range::align_down(usize::MAX, PAGE_SIZE);
        assert_eq!(space.alloc(req.again()).err(), Some(EBUSY));
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
        let low = space.alloc(req.again())?;
        let high = space.alloc(req.again())?;
        for (addr, expected) in [
            (0, Some(low)),
            (START + PAGE_SIZE, Some(low)),
            (START + 4 * PAGE_SIZE - 1, Some(low)),
            (START + 4 * PAGE_SIZE, Some(high)),
            (START + 8 * PAGE_SIZE, None),
        ] {
            let got = space.get(addr).map(|(area, _pin)| area);
            assert_eq!(got, expected);
        }
        // `try_get()` does not wait for a pin that is held.
        let (area, pin) = space.get(START).ok_or(EINVAL)?;
        assert_eq!(area.span().first(), START);
        if mm::LOCKS_EXCLUDE {
            assert!(space.try_get(START).is_none());
        }
        drop(pin);
        assert!(space.try_get(START).is_some());
        // `try_get()` does not return an area above the address.
        assert!(space.try_get(START - 1).is_none());
        free_all(&space, [START, START + 4 * PAGE_SIZE].into_iter());
        Ok(())
    }
}
