// SPDX-License-Identifier: GPL-2.0

//! A space without blocks: requests, lazy areas, purges, cached ranges and pins.

use super::{
    free_all,
    make,
    start_of, //
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
        FlushLog,
        World, //
    },
    policy::space::{
        Request,
        Space, //
    },
    state::area::NeverMapped,
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
            let area = space.alloc(&req)?;
            assert_eq!(start_of(&space, area), START + index * PAGE_SIZE);
        }
        assert_eq!(space.alloc(&req).err(), Some(EBUSY));
        let starts = (0..8).map(|index| START + index * PAGE_SIZE);
        assert_eq!(free_all(&space, starts), 8);
        assert!(space.find(START).is_none());
        Ok(())
    }

    #[test]
    fn lazy_range_is_not_reused_before_a_purge() -> Result {
        let (space, req) = make(START, 2)?;
        let first = start_of(&space, space.alloc(&req)?);
        let Some(area) = space.unlink(first) else {
            return Err(EINVAL);
        };
        space.retire(area);
        assert_eq!(space.lazy_pages(), 1);
        let second = start_of(&space, space.alloc(&req)?);
        assert!(second != first);
        assert_eq!(space.alloc(&req).err(), Some(EBUSY));
        assert_eq!(space.tlb().take(), None);
        assert_eq!(space.purge(None, false), 1);
        assert_eq!(
            space.tlb().take(),
            Span::with_size(first, PAGE_SIZE).map(|span| (span, 1))
        );
        let third = start_of(&space, space.alloc(&req)?);
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
        let start = start_of(&space, space.alloc(&req)?);
        if let Some(area) = space.unlink(start) {
            space.retire(area);
        }
        assert_eq!(space.purge(also, true), 1);
        let cover = Span::from_bounds(START / 2, start + PAGE_SIZE);
        assert_eq!(space.tlb().take(), cover.map(|span| (span, 1)));
        Ok(())
    }

    #[test]
    fn cached_ranges_are_reused_and_make_room_for_others() -> Result {
        let (space, mut req) = make(START, 8)?;
        req.size = 2 * PAGE_SIZE;
        let mut starts = [0; 4];
        for start in &mut starts {
            *start = start_of(&space, space.alloc(&req)?);
        }
        for start in starts {
            if let Some(area) = space.unlink(start) {
                space.retire(area);
            }
        }
        assert_eq!(space.purge(None, false), 4);
        assert_eq!(space.cached(), 4);

        let again = start_of(&space, space.alloc(&req)?);
        assert!(starts.contains(&again));
        assert_eq!(space.cached(), 3);
        assert_eq!(space.counters().alloc_cached, 1);

        // Fits only if the cached ranges are returned to the tree.
        if let Some(area) = space.unlink(again) {
            space.release(area, NeverMapped::in_test());
        }
        req.size = 8 * PAGE_SIZE;
        assert_eq!(start_of(&space, space.alloc(&req)?), START);
        assert_eq!(space.cached(), 0);
        free_all(&space, [START].into_iter());
        Ok(())
    }

    /// Allocates `count` areas, frees them and purges. Returns the number of cached ranges.
    fn round(space: &Space<FlushLog>, req: &Request, count: usize) -> Result<usize> {
        let mut starts = KVec::new();
        for _ in 0..count {
            starts.push(start_of(space, space.alloc(req)?), GFP_KERNEL)?;
        }
        for &start in starts.iter() {
            if let Some(area) = space.unlink(start) {
                space.retire(area);
            }
        }
        assert_eq!(space.purge(None, false), count);
        Ok(space.cached())
    }

    /// A request that must not sleep frees only some cached ranges: those that can help it.
    #[test]
    fn a_narrow_window_full_of_cached_ranges_has_room() -> Result {
        const OUTSIDE: usize = 100;
        const INSIDE: usize = 16;
        let (space, mut req) = make(START, OUTSIDE + INSIDE)?;
        assert_eq!(round(&space, &req, OUTSIDE + INSIDE)?, OUTSIDE + INSIDE);
        let window = Span::with_size(START + OUTSIDE * PAGE_SIZE, INSIDE * PAGE_SIZE);
        req.window = window.ok_or(EINVAL)?;
        req.gfp = Gfp::NOWAIT;
        req.size = INSIDE * PAGE_SIZE;
        let start = start_of(&space, space.alloc(&req)?);
        assert_eq!(start, req.window.first());
        assert_eq!(space.cached(), OUTSIDE);
        free_all(&space, [start].into_iter());
        Ok(())
    }

    #[test]
    fn a_purge_keeps_ranges_for_later_requests() -> Result {
        let (space, req) = make(START, 64)?;
        for count in [16, 16, 1, 4, 16] {
            assert_eq!(round(&space, &req, count)?, 16);
        }
        assert_eq!(space.counters().alloc_tree, 16);
        assert_eq!(space.counters().give_back, 0);
        assert!(space.validate().is_ok());
        free_all(&space, core::iter::empty());
        space.drain_for_reclaim(usize::MAX);
        assert_eq!(space.cached(), 0);
        Ok(())
    }

    /// A range of another size in each round, and one of a size that each round uses.
    #[test]
    fn cached_pages_have_a_bound_after_each_purge() -> Result {
        const ROUNDS: usize = 200;
        let (_, most) = make(START, 1)?.0.cached_pages();
        let (space, mut req) = make(START, 2 * most)?;
        let (_, limit) = space.cached_pages();
        // A small part of the space.
        assert!(limit <= most / 8);
        // Too large for blocks.
        let used = 64.max(limit / 64);
        for round in 1..=ROUNDS {
            for pages in [used + round, used] {
                req.size = pages * PAGE_SIZE;
                let start = start_of(&space, space.alloc(&req)?);
                space.retire(space.unlink(start).ok_or(EINVAL)?);
            }
            assert_eq!(space.purge(None, false), 2);
            assert!(space.cached_pages().0 <= limit);
        }
        // Sizes that nobody asks for again were evicted, and not the one in use.
        assert!(space.counters().give_back > 0);
        assert_eq!(space.counters().alloc_cached, ROUNDS - 1);
        // One purge of more than the bound.
        let pages = limit.div_ceil(8).min(8192);
        req.size = pages * PAGE_SIZE;
        round(&space, &req, limit / pages + 2)?;
        let cached = space.cached_pages().0;
        assert!((limit - pages..=limit).contains(&cached));
        assert!(space.validate().is_ok());
        free_all(&space, core::iter::empty());
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    #[test]
    fn ranges_that_are_too_large_or_outside_home_are_not_cached() -> Result {
        // Pages in the largest range that the cache keeps.
        const LARGEST: usize = 8192;
        let (space, mut req) = make(START, LARGEST + 1)?;
        req.size = LARGEST * PAGE_SIZE;
        assert_eq!(round(&space, &req, 1)?, 1);
        space.drain_for_reclaim(usize::MAX);
        req.size += PAGE_SIZE;
        assert_eq!(round(&space, &req, 1)?, 0);
        // Requests outside home do not use the cache.
        req.window = Span::with_size(START / 2, PAGE_SIZE).ok_or(EINVAL)?;
        req.size = PAGE_SIZE;
        assert_eq!(round(&space, &req, 1)?, 0);
        assert_eq!(space.counters().cache_put, 1);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    #[test]
    fn a_cached_range_of_the_exact_size_is_reused() -> Result {
        const SIZES: usize = 12;
        let (space, mut req) = make(START, SIZES * (SIZES + 1) / 2)?;
        for again in [false, true] {
            let mut starts = KVec::new();
            for pages in 1..=SIZES {
                req.size = pages * PAGE_SIZE;
                starts.push(start_of(&space, space.alloc(&req)?), GFP_KERNEL)?;
            }
            for &start in starts.iter() {
                if let Some(area) = space.unlink(start) {
                    space.retire(area);
                }
            }
            assert_eq!(space.purge(None, false), SIZES);
            assert_eq!(space.cached(), SIZES);
            assert_eq!(space.counters().alloc_cached, if again { SIZES } else { 0 });
        }
        free_all(&space, core::iter::empty());
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// Also if the sizes have common factors, or nearly.
    #[test]
    fn cached_ranges_of_many_sizes_are_all_found() -> Result {
        const SIZES: [usize; 9] = [33, 65, 97, 129, 161, 193, 1025, 2049, 4097];
        let (_, mut req) = make(START, 1)?;
        let pages = SIZES.iter().sum::<usize>();
        req.window = Span::with_size(START, pages * PAGE_SIZE).ok_or(EINVAL)?;
        let space = World::new(req.window).blocks(0).space()?;
        for pages in SIZES {
            req.size = pages * PAGE_SIZE;
            let start = start_of(&space, space.alloc(&req)?);
            space.retire(space.unlink(start).ok_or(EINVAL)?);
        }
        assert_eq!(space.purge(None, false), SIZES.len());
        let mut starts = KVec::new();
        // The last ones first: they have waited behind all others.
        for pages in SIZES.into_iter().rev() {
            req.size = pages * PAGE_SIZE;
            starts.push(start_of(&space, space.alloc(&req)?), GFP_KERNEL)?;
        }
        assert_eq!(space.counters().alloc_cached, SIZES.len());
        free_all(&space, starts.iter().copied());
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    #[test]
    fn a_purge_without_lazy_areas_is_not_counted() -> Result {
        let (space, req) = make(START, 8)?;
        assert_eq!(space.purge(None, false), 0);
        assert_eq!(space.counters().purge, 0);
        assert_eq!(round(&space, &req, 3)?, 3);
        assert_eq!(space.reclaimable(), 3);
        assert_eq!(space.purge(None, true), 0);
        assert_eq!(space.reclaimable(), 0);
        assert_eq!(space.counters().purge, 1);
        assert_eq!(space.counters().purge_areas, 3);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// Draining the whole cache would take too long in atomic context.
    #[test]
    fn a_request_that_must_not_sleep_drains_a_part_of_the_cache() -> Result {
        const AREAS: usize = 300;
        let (space, mut req) = make(START, AREAS)?;
        assert_eq!(round(&space, &req, AREAS)?, AREAS);
        req.size = 2 * PAGE_SIZE;
        req.gfp = Gfp::NOWAIT;
        let start = start_of(&space, space.alloc(&req)?);
        assert!((AREAS / 2..AREAS - 1).contains(&space.cached()));
        free_all(&space, [start].into_iter());
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
        space.alloc_congruent(window, members, PAGE_SIZE, Gfp::KERNEL, |_, _| ())
    }

    #[test]
    fn cached_ranges_make_room_for_a_common_base() -> Result {
        let (space, req) = make(START, 8)?;
        assert_eq!(round(&space, &req, 8)?, 8);
        congruent(&space, req.window, [(0, 5), (5, 3)])?;
        assert_eq!(space.cached(), 0);
        assert_eq!(space.validate()?.busy, 2);
        let result = congruent(&space, req.window, [(0, 1), (1, 1)]);
        assert_eq!(result.err(), Some(EBUSY));
        assert_eq!(space.counters().no_room, 1);
        free_all(&space, [START, START + 5 * PAGE_SIZE].into_iter());
        assert_eq!(space.validate()?, Default::default());
        Ok(())
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
                starts.push(start_of(&space, space.alloc(&req)?), GFP_KERNEL)?;
            }
        }
        req.window = Span::with_size(START, 64 * PAGE_SIZE).ok_or(EINVAL)?;
        req.size = align;
        req.align = align;
        let aligned = start_of(&space, space.alloc(&req)?);
        assert_eq!(aligned, START + 32 * PAGE_SIZE);
        assert_eq!(space.alloc(&req).err(), Some(EBUSY));
        starts.push(aligned, GFP_KERNEL)?;
        assert_eq!(free_all(&space, starts.iter().copied()), 49);
        Ok(())
    }

    #[test]
    fn the_first_and_last_pages_of_the_address_space_can_be_reserved() -> Result {
        let (space, mut req) = make(START, 1)?;
        req.window = Span::from_bounds(0, usize::MAX).ok_or(EINVAL)?;
        let low = start_of(&space, space.alloc(&req)?);
        assert_eq!(low, PAGE_SIZE);

        let top = crate::base::range::align_down(usize::MAX, PAGE_SIZE) - PAGE_SIZE;
        req.window = Span::with_size(top, PAGE_SIZE).ok_or(EINVAL)?;
        let high = start_of(&space, space.alloc(&req)?);
        assert_eq!(high, top);

        req.window = Span::from_bounds(0, usize::MAX).ok_or(EINVAL)?;
        req.align = 1 << (usize::BITS - 1);
        let half = start_of(&space, space.alloc(&req)?);
        assert_eq!(half, req.align);
        assert_eq!(space.alloc(&req).err(), Some(EBUSY));

        req.align = 1;
        req.size = crate::base::range::align_down(usize::MAX, PAGE_SIZE);
        assert_eq!(space.alloc(&req).err(), Some(EBUSY));
        assert_eq!(free_all(&space, [low, high, half].into_iter()), 3);
        Ok(())
    }

    #[test]
    fn every_power_of_two_is_accepted_as_alignment() -> Result {
        let (space, mut req) = make(START, 1)?;
        req.window = Span::from_bounds(0, usize::MAX).ok_or(EINVAL)?;
        for shift in 0..usize::BITS {
            req.align = 1 << shift;
            let start = start_of(&space, space.alloc(&req)?);
            assert!(start != 0 && crate::base::range::is_aligned(start, req.align));
            assert_eq!(free_all(&space, [start].into_iter()), 1);
        }
        Ok(())
    }

    #[test]
    fn pinned_area_is_the_lowest_that_ends_above() -> Result {
        let (space, mut req) = make(START, 8)?;
        req.size = 4 * PAGE_SIZE;
        let low = space.alloc(&req)?;
        let high = space.alloc(&req)?;
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
        assert_eq!(space.start_of_pinned(area, &pin), START);
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
