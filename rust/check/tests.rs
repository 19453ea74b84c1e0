// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the allocator alone, in spaces of their own: nothing is mapped, and the kernel's areas
//! are not touched.

use crate::{
    base::{
        fit::Member,
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    check::trace::FlushLog,
    policy::space::{
        Request,
        Space, //
    },
    state::area::Attributes,
    sys::mm::{
        self,
        Gfp, //
    }, //
};
use kernel::prelude::*;

/// Creates a space of `pages` pages without blocks, and a request for one page anywhere in it.
fn make(start: usize, pages: usize) -> Result<(Space<FlushLog>, Request)> {
    mm::stay_on_this_cpu()?;
    let window = Span::with_size(start, pages * PAGE_SIZE).ok_or(EINVAL)?;
    let space = Space::new(window, FlushLog::new()?)?;
    let request = Request {
        window,
        size: PAGE_SIZE,
        align: 1,
        attributes: Attributes::NONE,
        gfp: Gfp::KERNEL,
        node: -1,
    };
    Ok((space, request))
}

/// Frees the areas that start at `starts`, and purges. Returns the number of areas freed.
fn free_all(space: &Space<FlushLog>, starts: impl Iterator<Item = usize>) -> usize {
    let mut freed = 0;
    for start in starts {
        if let Some(area) = space.unlink(start) {
            space.retire(area);
            freed += 1;
        }
    }
    space.purge(None, true);
    freed
}

/// Returns the first address of an area.
fn start_of(space: &Space<FlushLog>, area: crate::state::area::AreaPtr) -> usize {
    space.table_entry(area).map_or(0, Span::first)
}

#[kernel::prelude::kunit_tests(vmap_rust_trace)]
mod traces {
    use super::*;
    use crate::{
        check::trace::Difference,
        state::block::COARSE_PAGES, //
    };

    /// Runs a trace, and reports a failure with the arguments that repeat it.
    fn trace(seed: u64, steps: usize, blocks: usize) -> bool {
        passed(
            crate::check::trace::run(seed, steps, blocks),
            seed,
            steps,
            blocks,
        )
    }

    /// Returns whether a trace passed, and reports a failure.
    ///
    /// 64-bit numbers are printed in hexadecimal: decimal needs a 64-bit division, which panics in 32-bit
    /// kernels.
    fn passed(
        outcome: Result<core::result::Result<(), Difference>>,
        seed: u64,
        steps: usize,
        blocks: usize,
    ) -> bool {
        match outcome {
            Ok(Ok(())) => true,
            Ok(Err(difference)) => {
                pr_err!("seed {seed:#x}, {steps} steps, {blocks} blocks: {difference}\n");
                false
            }
            Err(err) => {
                pr_err!("seed {seed:#x}: {err:?}\n");
                false
            }
        }
    }

    #[test]
    fn short_traces_agree_with_the_model() {
        for seed in 1..=40 {
            assert!(trace(seed, 200, 0));
        }
    }

    #[test]
    fn long_traces_agree_with_the_model() {
        for seed in 1..=4 {
            assert!(trace(seed << 32, 4000, 0));
        }
    }

    /// With one to nine blocks: less than one for each band, up to enough.
    #[test]
    fn traces_with_blocks_agree_with_the_model() {
        for seed in 1..=40 {
            assert!(trace(seed, 400, 1 + seed as usize % 9));
        }
        for seed in 1..=4 {
            assert!(trace(seed << 32, 4000, 9));
        }
    }

    /// With room for one coarse block and no fine one, up to four coarse blocks and some fine ones.
    #[test]
    fn traces_with_coarse_blocks_agree_with_the_model() {
        for seed in 1..=40 {
            assert!(trace(seed, 400, COARSE_PAGES + 7 * (seed as usize % 17)));
        }
        for seed in 1..=4 {
            assert!(trace(seed << 32, 2000, 200));
        }
    }

    #[test]
    fn traces_with_randomized_placement_agree_with_the_model() {
        for seed in 1..=20_usize {
            for blocks in [seed % 9 + 1, COARSE_PAGES + 7 * (seed % 17)] {
                // CAST: A small number.
                let number = seed as u64;
                let outcome = crate::check::trace::run_randomized(number, 400, blocks);
                assert!(passed(outcome, number, 400, blocks));
            }
        }
    }

    /// Traces that proptest (rust/prop) shrank from failures with faults of `scripts/faults`.
    #[test]
    fn small_traces() {
        let traces = [
            [[0, 16384, 16384, 0, 4096, 21846, 0, 0, 0, 0]],
            [[0, 16384, 8192, 0, 4096, 0, 0, 0, 0, 0]],
        ];
        for blocks in [0, 1, COARSE_PAGES] {
            for trace in &traces {
                assert!(matches!(
                    crate::check::trace::replay(trace, blocks),
                    Ok(Ok(()))
                ));
            }
        }
    }

    #[test]
    fn traces_with_a_new_seed_each_boot_agree_with_the_model() {
        let seed = mm::random_seed();
        pr_info!("trace of this boot: seed {seed:#x}\n");
        assert!(trace(seed, 2000, 0));
        assert!(trace(seed, 2000, 9));
        assert!(trace(seed, 2000, 100));
    }
}

#[kernel::prelude::kunit_tests(vmap_rust_space)]
mod spaces {
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
            space.release(area);
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
    fn purge_keeps_as_many_ranges_as_were_needed_since_the_last_one() -> Result {
        let (space, req) = make(START, 64)?;
        assert_eq!(round(&space, &req, 16)?, 16);
        // All were needed: all are cached, and the tree is not searched again.
        assert_eq!(round(&space, &req, 16)?, 16);
        assert_eq!(space.counters().alloc_tree, 16);
        assert_eq!(space.counters().give_back, 0);
        // A purge of one area is not representative.
        assert_eq!(round(&space, &req, 1)?, 16);
        assert_eq!(round(&space, &req, 16)?, 16);
        assert_eq!(space.counters().alloc_tree, 16);
        // Four were needed: each purge trims half of the idle ones, at first twelve.
        for (cached, given_back) in [(4 + 6, 6), (4 + 3, 9), (4 + 1, 11), (4, 12), (4, 12)] {
            assert_eq!(round(&space, &req, 4)?, cached);
            assert_eq!(space.counters().give_back, given_back);
        }
        assert!(space.validate().is_ok());
        free_all(&space, core::iter::empty());
        space.drain_for_reclaim(usize::MAX);
        assert_eq!(space.cached(), 0);
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
        let space = Space::with_blocks(req.window, FlushLog::new()?, Some(0))?;
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

#[kernel::prelude::kunit_tests(vmap_rust_memory)]
mod memory {
    use super::*;

    const START: usize = 128 << 20;

    /// Fills a space until the tree has several levels. In each step the n-th allocation fails, for
    /// ascending n until the step succeeds; a failed step leaves nothing behind.
    #[test]
    fn every_allocation_of_alloc_fails_once() -> Result {
        const AREAS: usize = 600;
        let (space, mut req) = make(START, AREAS)?;
        req.gfp = Gfp::NOWAIT;
        let objects = mm::live_objects();
        let mut failed = 0;
        for index in 0..AREAS {
            let mut nth = 1;
            let area = loop {
                mm::fail_nth(nth);
                let result = space.alloc(&req);
                let left = mm::fail_nth(0);
                match result {
                    Ok(area) if left > 0 || !mm::CAN_FAIL => break area,
                    // The request was served although an allocation failed: undo it and go on.
                    Ok(area) => {
                        let start = start_of(&space, area);
                        if let Some(area) = space.unlink(start) {
                            space.release(area);
                        }
                        space.purge(None, true);
                    }
                    Err(err) => {
                        assert_eq!(err, ENOMEM);
                        failed += 1;
                    }
                }
                nth += 1;
                assert!(nth < 100);
            };
            assert!(start_of(&space, area) >= START);
            let census = space.validate()?;
            assert_eq!(census.busy, index + 1);
        }
        pr_info!("{failed} requests without memory in {AREAS} areas\n");
        assert!(!mm::CAN_FAIL || failed >= AREAS);
        let starts = (0..AREAS).map(|index| START + index * PAGE_SIZE);
        assert_eq!(free_all(&space, starts), AREAS);
        let census = space.validate()?;
        assert_eq!(census.busy + census.unlinked + census.cached, 0);
        assert_eq!(mm::live_objects(), objects);
        Ok(())
    }

    /// The n-th allocation of a request for congruent areas fails, for every n. Entries stored before the
    /// failure are removed.
    #[test]
    fn every_allocation_of_alloc_congruent_fails_once() -> Result {
        const AREAS: usize = 200;
        let (space, mut req) = make(START, 2 * AREAS)?;
        // Every second page is reserved, so that new entries split tree nodes.
        for index in 0..AREAS {
            req.window = Span::with_size(START + 2 * index * PAGE_SIZE, PAGE_SIZE).ok_or(EINVAL)?;
            space.alloc(&req)?;
        }
        let window = Span::with_size(START, 2 * AREAS * PAGE_SIZE).ok_or(EINVAL)?;
        let members = [0, 2, 8, 64].map(|page| Member {
            offset: page * PAGE_SIZE,
            size: PAGE_SIZE,
        });
        let objects = mm::live_objects();
        let mut failed = 0;
        for nth in 1..100 {
            let mut areas = [None; 4];
            mm::fail_nth(nth);
            let result = space.alloc_congruent(
                window,
                members.iter().copied(),
                PAGE_SIZE,
                Gfp::NOWAIT,
                |index, area| areas[index % 4] = Some(area),
            );
            let left = mm::fail_nth(0);
            match result {
                Ok(()) => {
                    let starts = areas.map(|area| area.map_or(0, |area| start_of(&space, area)));
                    for (start, member) in starts.into_iter().zip(members) {
                        assert_eq!(start - member.offset, starts[0]);
                    }
                    free_all(&space, starts.into_iter());
                }
                Err(err) => {
                    assert_eq!(err, ENOMEM);
                    failed += 1;
                }
            }
            let census = space.validate()?;
            assert_eq!(census.busy, AREAS);
            assert_eq!(census.unlinked, 0);
            space.purge(None, true);
            assert_eq!(space.cached(), 0);
            assert_eq!(mm::live_objects(), objects);
            if left > 0 {
                break;
            }
        }
        pr_info!("{failed} requests for a common base without memory\n");
        assert!(!mm::CAN_FAIL || failed >= members.len());
        free_all(
            &space,
            (0..AREAS).map(|index| START + 2 * index * PAGE_SIZE),
        );
        Ok(())
    }

    /// A request needs the cached ranges to be drained, and the n-th allocation fails, for every n. A range
    /// that remains cached is drained by the next request.
    #[test]
    fn every_allocation_of_a_drain_fails_once() -> Result {
        let sleeping = drain_without_memory(Gfp::KERNEL)?;
        let other = drain_without_memory(Gfp::NOWAIT)?;
        pr_info!("{sleeping} drains that may sleep, {other} that must not, without memory\n");
        // The kernel fails only allocations that must not sleep.
        assert!(!mm::CAN_FAIL || other > 0);
        Ok(())
    }

    /// Returns the number of allocations, each of which was made to fail once.
    fn drain_without_memory(gfp: Gfp) -> Result<u32> {
        const AREAS: usize = 8;
        for nth in 1..40 {
            let objects = mm::live_objects();
            let (space, mut req) = make(START, AREAS)?;
            for _ in 0..AREAS {
                space.alloc(&req)?;
            }
            for index in 0..AREAS {
                if let Some(area) = space.unlink(START + index * PAGE_SIZE) {
                    space.retire(area);
                }
            }
            assert_eq!(space.purge(None, false), AREAS);
            assert_eq!(space.cached(), AREAS);
            req.size = AREAS * PAGE_SIZE;
            req.gfp = gfp;
            mm::fail_nth(nth);
            let result = space.alloc(&req);
            let left = mm::fail_nth(0);
            if let Err(err) = result {
                assert!(err == ENOMEM || err == EBUSY);
                assert_eq!(space.validate()?.busy, 0);
            }
            let area = result.or_else(|_| space.alloc(&req))?;
            assert_eq!(start_of(&space, area), START);
            free_all(&space, [START].into_iter());
            assert_eq!(space.validate()?, Default::default());
            assert_eq!(mm::live_objects(), objects);
            if left > 0 || !mm::CAN_FAIL {
                return Ok(nth - 1);
            }
        }
        Err(EINVAL)
    }

    /// The range remains cached because there is no memory to return it to the tree.
    #[test]
    fn a_cached_range_outside_home_is_not_used_for_home() -> Result {
        let (space, mut req) = make(START, 16)?;
        let away = START / 2;
        // Three neighbours: freeing the first needs a tree node, to merge it with the gap below.
        req.window = Span::with_size(away, 3 * PAGE_SIZE).ok_or(EINVAL)?;
        for _ in 0..3 {
            space.alloc(&req)?;
        }
        if let Some(area) = space.unlink(away) {
            mm::fail_nth(1);
            space.release(area);
            mm::fail_nth(0);
        }
        assert!(!mm::CAN_FAIL || space.cached() == 1);
        req.window = Span::with_size(START, 16 * PAGE_SIZE).ok_or(EINVAL)?;
        for _ in 0..16 {
            let start = start_of(&space, space.alloc(&req)?);
            assert!(start >= START);
        }
        let starts = (0..16).map(|index| START + index * PAGE_SIZE);
        free_all(&space, starts);
        free_all(
            &space,
            [1, 2].map(|page| away + page * PAGE_SIZE).into_iter(),
        );
        let census = space.validate()?;
        assert_eq!(census.busy + census.unlinked + census.cached, 0);
        Ok(())
    }

    /// All allocations from the n-th on fail. Only on the build host: the kernel can make only one
    /// allocation fail, and the next attempt succeeds.
    #[test]
    fn requests_without_memory_leave_nothing_behind() -> Result {
        let (space, mut req) = make(START, 64)?;
        req.gfp = Gfp::NOWAIT;
        let objects = mm::live_objects();
        let members = [0, 4, 9].map(|page| Member {
            offset: page * PAGE_SIZE,
            size: PAGE_SIZE,
        });
        let mut failed = 0;
        for nth in 1..20 {
            if !mm::fail_from(nth) {
                return Ok(());
            }
            let one = space.alloc(&req);
            mm::fail_from(0);
            if let Ok(area) = one {
                free_all(&space, [start_of(&space, area)].into_iter());
            } else {
                failed += 1;
            }
            assert_eq!(mm::live_objects(), objects);

            let mut areas = [None; 3];
            mm::fail_from(nth);
            let many = space.alloc_congruent(
                req.window,
                members.iter().copied(),
                PAGE_SIZE,
                Gfp::NOWAIT,
                |index, area| areas[index % 3] = Some(area),
            );
            mm::fail_from(0);
            if many.is_ok() {
                let starts = areas.map(|area| area.map_or(0, |area| start_of(&space, area)));
                free_all(&space, starts.into_iter());
            } else {
                failed += 1;
            }
            space.purge(None, true);
            let census = space.validate()?;
            assert_eq!(census.busy + census.unlinked + census.cached, 0);
            assert_eq!(mm::live_objects(), objects);
        }
        // One area needs an object and a node, three congruent ones need three of each.
        assert_eq!(failed, 2 + 6);
        Ok(())
    }

    /// Frees areas while each allocation fails. No free fails, no range leaks, and all ranges are usable
    /// again once there is memory.
    #[test]
    fn freeing_needs_no_memory() -> Result {
        const AREAS: usize = 400;
        let (space, mut req) = make(START, AREAS)?;
        for _ in 0..AREAS {
            space.alloc(&req)?;
        }
        let mut kept = 0;
        // Every third area first: each hole needs a tree node in RCU mode.
        for first in 0..3 {
            for index in (first..AREAS).step_by(3) {
                let Some(area) = space.unlink(START + index * PAGE_SIZE) else {
                    return Err(EINVAL);
                };
                mm::fail_nth(1);
                space.release(area);
                if mm::fail_nth(0) == 0 {
                    kept += 1;
                }
            }
            let census = space.validate()?;
            assert_eq!(census.unlinked, 0);
        }
        pr_info!("{kept} of {AREAS} areas freed without memory\n");
        assert!(!mm::CAN_FAIL || space.counters().give_back_nomem > 0);
        // All ranges merge into one gap for a request that needs all of it.
        req.size = AREAS * PAGE_SIZE;
        assert_eq!(start_of(&space, space.alloc(&req)?), START);
        free_all(&space, [START].into_iter());
        Ok(())
    }
}

/// Counts the lines and words that are written.
#[derive(Default)]
struct Written {
    lines: usize,
    words: usize,
}

impl core::fmt::Write for Written {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.lines += text.matches('\n').count();
        self.words += text.split_whitespace().count();
        Ok(())
    }
}

#[kernel::prelude::kunit_tests(vmap_rust_blocks)]
mod blocks {
    use super::*;
    use crate::state::block::{
        COARSE_PAGES,
        COARSE_SIZE,
        MAX_UNITS,
        SIZE,
        TABLE_PAGES, //
    };

    /// Start of the space, not aligned to a block.
    const START: usize = 31 * SIZE + PAGE_SIZE;
    /// First address of the first block.
    const FIRST: usize = 32 * SIZE;
    /// Pages in a block.
    const PAGES: usize = SIZE / PAGE_SIZE;

    /// Creates a space with room for `blocks` blocks, which may have `limit` at most, and a request for two
    /// pages.
    fn make_blocks(blocks: usize, limit: usize) -> Result<(Space<FlushLog>, Request)> {
        mm::stay_on_this_cpu()?;
        let window = Span::from_bounds(START, FIRST + blocks * SIZE).ok_or(EINVAL)?;
        let space = Space::with_blocks(window, FlushLog::new()?, Some(limit))?;
        let request = Request {
            window,
            size: 2 * PAGE_SIZE,
            align: 1,
            attributes: Attributes::NONE,
            gfp: Gfp::KERNEL,
            node: -1,
        };
        Ok((space, request))
    }

    /// Allocates `count` areas. Returns their first addresses.
    fn fill(space: &Space<FlushLog>, req: &Request, count: usize) -> Result<KVec<usize>> {
        let mut starts = KVec::new();
        for _ in 0..count {
            let area = space.alloc(req)?;
            let start = space.start_of_busy(area).ok_or(EINVAL)?;
            starts.push(start, GFP_KERNEL)?;
        }
        Ok(starts)
    }

    /// Frees the area at `start` without a purge.
    fn retire(space: &Space<FlushLog>, start: usize) -> Result {
        space.retire(space.unlink(start).ok_or(EINVAL)?);
        Ok(())
    }

    #[test]
    fn each_counter_has_a_line_with_its_meaning() -> Result {
        let (space, _) = make_blocks(8, 8)?;
        let mut written = Written::default();
        assert!(space.counters().write(&mut written).is_ok());
        assert!(written.lines > 15);
        // On average at least a name, a number and two words per line.
        assert!(written.words >= 4 * written.lines);
        Ok(())
    }

    #[test]
    fn areas_get_the_lowest_pages_of_the_lowest_block() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, PAGES)?;
        for (index, &start) in starts.iter().enumerate() {
            assert_eq!(start, FIRST + index * 2 * PAGE_SIZE);
        }
        assert_eq!(space.blocks().live, 2);
        assert_eq!(space.counters().block_new, 2);
        assert_eq!(space.counters().hit, PAGES - 2);
        let census = space.validate()?;
        assert_eq!((census.busy, census.blocks), (PAGES, 2));
        assert_eq!(free_all(&space, starts.iter().copied()), PAGES);
        assert_eq!(space.blocks(), Default::default());
        Ok(())
    }

    #[test]
    fn lazy_pages_of_a_block_are_not_reused_before_a_purge() -> Result {
        let (space, req) = make_blocks(8, 1)?;
        let starts = fill(&space, &req, PAGES / 2)?;
        let freed = starts[7];
        retire(&space, freed)?;
        assert_eq!(space.lazy_pages(), 2);
        // The block is full, and there is no other: the tree serves the request.
        let other = fill(&space, &req, 1)?;
        assert!(other[0] < FIRST || other[0] >= FIRST + SIZE);
        assert_eq!(space.tlb().take(), None);
        assert_eq!(space.purge(None, false), 1);
        let flushed = Span::with_size(freed, 2 * PAGE_SIZE);
        assert_eq!(space.tlb().take(), flushed.map(|span| (span, 1)));
        assert_eq!(space.lazy_pages(), 0);
        // The freed pages are reused although other areas of the block are busy.
        assert_eq!(fill(&space, &req, 1)?[0], freed);
        let all = Iterator::chain(starts.iter(), &*other);
        assert_eq!(free_all(&space, all.copied()), PAGES / 2 + 1);
        Ok(())
    }

    #[test]
    fn retired_areas_are_listed_until_they_are_flushed() -> Result {
        let (space, mut req) = make_blocks(8, 8)?;
        req.size = 5 * PAGE_SIZE;
        let starts = fill(&space, &req, 3)?;
        let span = Span::with_size(starts[1], 5 * PAGE_SIZE);
        let Some(area) = space.unlink(starts[1] + 3 * PAGE_SIZE) else {
            return Err(EINVAL);
        };
        assert_eq!(space.next_lazy(0), span);
        space.retire(area);
        assert_eq!(space.next_lazy(0), span);
        assert_eq!(space.next_lazy(starts[1] + 4 * PAGE_SIZE), span);
        assert_eq!(space.next_lazy(starts[2]), None);
        let census = space.validate()?;
        assert_eq!((census.busy, census.unlinked, census.lazy_pages), (2, 1, 5));
        space.purge(None, false);
        assert_eq!(space.next_lazy(0), None);
        let census = space.validate()?;
        assert_eq!((census.busy, census.unlinked, census.lazy_pages), (2, 0, 0));
        free_all(&space, starts.iter().copied());
        Ok(())
    }

    #[test]
    fn every_address_of_an_area_finds_it_and_no_other() -> Result {
        let (space, req) = make_blocks(32, 32)?;
        find_everywhere(&space, req, 1..=MAX_UNITS)
    }

    #[test]
    fn every_address_of_a_coarse_area_finds_it_and_no_other() -> Result {
        let Some((space, req)) = make_coarse() else {
            return no_coarse();
        };
        let largest = MAX_UNITS * COARSE_PAGES;
        find_everywhere(&space, req, (MAX_UNITS + 1..=largest).step_by(29))
    }

    /// Allocates an area of each size in pages, all from blocks, and looks up every page of them.
    fn find_everywhere(
        space: &Space<FlushLog>,
        mut req: Request,
        sizes: impl Iterator<Item = usize>,
    ) -> Result {
        let mut all = KVec::new();
        for pages in sizes {
            req.size = pages * PAGE_SIZE;
            req.align = PAGE_SIZE << (pages % 6);
            let area = space.alloc(&req)?;
            let start = space.start_of_busy(area).ok_or(EINVAL)?;
            assert!(crate::base::range::is_aligned(start, req.align));
            all.push((start, pages, area), GFP_KERNEL)?;
        }
        assert!(space.validate().is_ok());
        for &(start, pages, area) in all.iter() {
            for page in 0..pages {
                assert_eq!(space.find(start + page * PAGE_SIZE), Some(area));
                assert_eq!(space.find(start + (page + 1) * PAGE_SIZE - 1), Some(area));
            }
            assert!(space.find(start - 1) != Some(area));
            assert!(space.find(start + pages * PAGE_SIZE) != Some(area));
        }
        // `get()` returns all of them in ascending order.
        let mut addr = 0;
        for _ in 0..all.len() {
            let Some((area, _pin)) = space.get(addr) else {
                return Err(EINVAL);
            };
            let found = all.iter().find(|(_, _, other)| *other == area);
            let &(start, pages, _) = found.ok_or(EINVAL)?;
            assert!(start >= addr);
            addr = start + pages * PAGE_SIZE;
        }
        assert!(space.get(addr).is_none());
        assert_eq!(space.counters().alloc_tree, 0);
        let starts = all.iter().map(|&(start, _, _)| start);
        assert_eq!(free_all(space, starts), all.len());
        Ok(())
    }

    /// Creates a space with coarse blocks, and a request for two pages. [`None`] on 32-bit machines.
    fn make_coarse() -> Option<(Space<FlushLog>, Request)> {
        let window = Span::with_size(START, COARSE_SIZE.checked_mul(66)?)?;
        let space = Space::with_blocks(window, FlushLog::new().ok()?, None).ok()?;
        let (_, mut req) = make_blocks(1, 1).ok()?;
        req.window = window;
        Some((space, req))
    }

    /// Checks that only 32-bit machines, whose address space is too small, have no coarse blocks.
    fn no_coarse() -> Result {
        assert_eq!(usize::BITS, 32);
        Ok(())
    }

    #[test]
    fn large_areas_reserve_whole_units() -> Result {
        let Some((space, mut req)) = make_coarse() else {
            return no_coarse();
        };
        let unit = COARSE_PAGES * PAGE_SIZE;
        // Two units and one page.
        req.size = 2 * unit + PAGE_SIZE;
        let starts = fill(&space, &req, 3)?;
        assert_eq!(starts[0] % COARSE_SIZE, 0);
        assert_eq!(starts[1] - starts[0], 3 * unit);
        assert_eq!(starts[2] - starts[1], 3 * unit);
        assert!(space.find(starts[0] + req.size - 1).is_some());
        assert!(space.find(starts[0] + req.size).is_none());
        retire(&space, starts[1])?;
        assert_eq!(space.lazy_pages(), 3 * COARSE_PAGES);
        let span = Span::with_size(starts[1], req.size);
        assert_eq!(space.next_lazy(0), span);
        assert_eq!(space.validate()?.lazy_pages, 3 * COARSE_PAGES);
        assert_eq!(space.purge(None, false), 1);
        let (flushed, _) = space.tlb().take().ok_or(EINVAL)?;
        assert!(span.is_some_and(|span| flushed.covers(span)));
        // One page with a large alignment reserves two units.
        req.size = PAGE_SIZE;
        req.align = 2 * MAX_UNITS * PAGE_SIZE;
        let other = fill(&space, &req, 1)?[0];
        assert_eq!(other % req.align, 0);
        assert_eq!(space.validate()?.busy, 3);
        free_all(&space, [starts[0], starts[2], other].into_iter());
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// A table of PTEs that one area needs would make way for a larger entry of the other, in turns.
    #[test]
    fn areas_of_whole_page_tables_have_blocks_of_their_own() -> Result {
        let Some((space, mut req)) = make_coarse() else {
            return no_coarse();
        };
        // With pages of 16 KiB and more, such an area is too large for a block.
        if TABLE_PAGES >= MAX_UNITS * COARSE_PAGES {
            return Ok(());
        }
        let table = TABLE_PAGES * PAGE_SIZE;
        req.size = table + PAGE_SIZE;
        let plain = fill(&space, &req, 2)?;
        req.align = table;
        let aligned = fill(&space, &req, 2)?;
        // As aligned, but so small that it needs a table anyway.
        req.size = (MAX_UNITS + 1) * PAGE_SIZE;
        let short = fill(&space, &req, 1)?;
        let block_of = |start| start / COARSE_SIZE;
        assert!(aligned.iter().all(|start| start % table == 0));
        assert_eq!(block_of(aligned[0]), block_of(aligned[1]));
        let others = [plain[0], plain[1], short[0]];
        for other in others {
            assert!(block_of(other) != block_of(aligned[0]));
        }
        assert_eq!(space.counters().alloc_tree, 0);
        assert_eq!(free_all(&space, others.into_iter()), 3);
        assert_eq!(free_all(&space, [aligned[0], aligned[1]].into_iter()), 2);
        Ok(())
    }

    /// Directory entries of one kind of block must not be used for the other.
    #[test]
    fn a_coarse_block_replaces_fine_ones_and_fine_ones_replace_it() -> Result {
        let Some((space, mut req)) = make_coarse() else {
            return no_coarse();
        };
        let mut first = None;
        for round in 0..6 {
            req.size = match round % 2 {
                0 => 2 * PAGE_SIZE,
                _ => 100 * PAGE_SIZE,
            };
            let starts = fill(&space, &req, 40)?;
            assert_eq!(*first.get_or_insert(starts[0]), starts[0]);
            assert_eq!(space.blocks().live, 1);
            assert_eq!(space.validate()?.busy, 40);
            assert_eq!(free_all(&space, starts.iter().copied()), 40);
            assert_eq!(space.blocks(), Default::default());
            for offset in (0..COARSE_SIZE).step_by(SIZE) {
                assert!(space.find(starts[0] + offset).is_none());
            }
        }
        Ok(())
    }

    #[test]
    fn partial_blocks_are_reused_lowest_first() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, PAGES + PAGES / 2)?;
        assert_eq!(space.counters().block_new, 3);
        // Free one area of each block; the last block is the current one.
        let freed = [1, PAGES / 2 + 1, PAGES + 1].map(|index| starts[index]);
        for start in freed.into_iter().rev() {
            retire(&space, start)?;
        }
        assert_eq!(space.purge(None, false), 3);
        let again = fill(&space, &req, 3)?;
        assert_eq!(&*again, &[freed[2], freed[0], freed[1]]);
        assert_eq!(space.counters().block_new, 3);
        assert_eq!(free_all(&space, starts.iter().copied()), PAGES + PAGES / 2);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    #[test]
    fn a_freed_block_is_not_found_any_more() -> Result {
        let (space, mut req) = make_blocks(1, 1)?;
        let starts = fill(&space, &req, 1)?;
        assert_eq!(starts[0], FIRST);
        assert_eq!(free_all(&space, starts.iter().copied()), 1);
        assert_eq!(space.blocks().live, 0);
        // A large area replaces the block.
        req.size = SIZE;
        req.align = SIZE;
        let area = space.alloc(&req)?;
        for page in [0, PAGES / 2, PAGES - 1] {
            assert_eq!(space.find(FIRST + page * PAGE_SIZE), Some(area));
        }
        assert!(space.get(0).is_some_and(|(found, _pin)| found == area));
        assert_eq!(free_all(&space, [FIRST].into_iter()), 1);
        // A block replaces the area.
        req.size = 2 * PAGE_SIZE;
        req.align = 1;
        let starts = fill(&space, &req, 1)?;
        assert_eq!(space.blocks().live, 1);
        free_all(&space, starts.iter().copied());
        Ok(())
    }

    #[test]
    fn a_request_steals_from_other_blocks_before_it_fails() -> Result {
        // The only block serves all bands, and there is no room outside it.
        let (space, mut req) = make_blocks(1, 1)?;
        let small = fill(&space, &req, 1)?;
        req.window = Span::from_bounds(START, FIRST).ok_or(EINVAL)?;
        req.size = FIRST - START;
        fill(&space, &req, 1)?;
        // A request of a higher band gets no block of its own.
        req.size = MAX_UNITS * PAGE_SIZE;
        req.window = space.home();
        let large = fill(&space, &req, 3)?;
        assert_eq!(space.counters().steal, 3);
        assert!(large.iter().all(|&start| start > small[0]));
        // The block looks as far back as its largest area reaches.
        for &start in large.iter() {
            let area = space.find(start).ok_or(EINVAL)?;
            assert!((1..MAX_UNITS).all(|page| space.find(start + page * PAGE_SIZE) == Some(area)));
        }
        assert!(space.validate().is_ok());
        let all = Iterator::chain(small.iter(), &*large);
        assert_eq!(free_all(&space, all.copied()), 4);
        assert_eq!(space.validate()?.busy, 1);
        // An empty block and cached ranges make room for a large request.
        let again = fill(&space, &req, 4)?;
        for &start in again.iter() {
            retire(&space, start)?;
        }
        space.purge(None, false);
        req.size = SIZE;
        req.align = SIZE;
        assert_eq!(fill(&space, &req, 1)?[0], FIRST);
        free_all(&space, [START, FIRST].into_iter());
        Ok(())
    }

    /// A search for room for a block is repeated when a range was returned to the tree.
    #[test]
    fn a_returned_range_makes_room_for_a_block() -> Result {
        let (space, mut req) = make_blocks(1, 1)?;
        // The only place of a block, and nothing of the gap before it.
        req.size = SIZE;
        req.align = SIZE;
        assert_eq!(fill(&space, &req, 1)?[0], FIRST);
        req.size = 2 * PAGE_SIZE;
        req.align = 1;
        let others = fill(&space, &req, 2)?;
        assert_eq!(space.counters().alloc_tree, 3);
        assert_eq!(space.counters().block_new, 0);
        assert_eq!(free_all(&space, [FIRST].into_iter()), 1);
        let small = fill(&space, &req, 1)?;
        assert_eq!(small[0], FIRST);
        assert_eq!(space.counters().block_new, 1);
        let all = Iterator::chain(others.iter(), &*small);
        assert_eq!(free_all(&space, all.copied()), 3);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// A request is served from the block of another band if there is no memory for an area object.
    #[test]
    fn room_in_other_blocks_takes_no_memory() -> Result {
        let (space, mut req) = make_blocks(8, 1)?;
        let small = fill(&space, &req, 1)?;
        req.size = 4 * PAGE_SIZE;
        req.gfp = Gfp::NOWAIT;
        mm::fail_nth(1);
        let area = space.alloc(&req);
        mm::fail_nth(0);
        let start = space.start_of_busy(area?).ok_or(EINVAL)?;
        assert!(!mm::CAN_FAIL || space.counters().steal == 1);
        assert_eq!(free_all(&space, [small[0], start].into_iter()), 2);
        Ok(())
    }

    #[test]
    fn lazy_pages_of_blocks_count_when_a_large_area_is_freed() -> Result {
        const LARGE: usize = MAX_UNITS + 8;
        let (space, mut req) = make_blocks(8, 8)?;
        let small = fill(&space, &req, 200)?;
        req.size = LARGE * PAGE_SIZE;
        let large = fill(&space, &req, 1)?;
        let mut lazy = 0;
        for &start in small.iter() {
            // 0 if this CPU has only counted the pages by itself.
            lazy = lazy.max(space.retire(space.unlink(start).ok_or(EINVAL)?));
        }
        assert!(lazy > 0);
        let area = space.unlink(large[0]).ok_or(EINVAL)?;
        assert!(space.retire(area) >= lazy);
        space.purge(None, true);
        Ok(())
    }

    #[test]
    fn an_empty_block_is_freed_for_a_block_of_a_lower_band() -> Result {
        for gfp in [Gfp::KERNEL, Gfp::NOWAIT] {
            // The only block serves all bands, and there is no room outside it.
            let (space, mut req) = make_blocks(1, 1)?;
            req.window = Span::from_bounds(START, FIRST).ok_or(EINVAL)?;
            req.size = FIRST - START;
            fill(&space, &req, 1)?;
            req.window = space.home();
            req.size = MAX_UNITS * PAGE_SIZE;
            let large = fill(&space, &req, 1)?;
            retire(&space, large[0])?;
            space.purge(None, false);
            assert_eq!(space.blocks().live, 1);
            req.size = PAGE_SIZE;
            req.gfp = gfp;
            assert_eq!(fill(&space, &req, 1)?[0], FIRST);
            assert_eq!(space.counters().block_new, 2);
            assert_eq!(space.counters().block_freed, 1);
            assert_eq!(space.counters().steal, 0);
            free_all(&space, [START, FIRST].into_iter());
        }
        Ok(())
    }

    #[test]
    fn released_pages_are_free_at_once() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, PAGES / 2 + 1)?;
        // The first block is full, and not the current one.
        let area = space.unlink(starts[5]).ok_or(EINVAL)?;
        space.release(area);
        assert_eq!(space.lazy_pages(), 0);
        assert_eq!(space.purge(None, false), 0);
        assert_eq!(space.blocks().partial, 1);
        assert_eq!(space.validate()?.busy, PAGES / 2);
        free_all(&space, starts.iter().copied());
        Ok(())
    }

    #[test]
    fn a_purge_flushes_once_wherever_the_areas_are() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, 2 * PAGES)?;
        for count in 1..=5 {
            for &start in starts.iter().skip(count).step_by(PAGES / 2).take(count) {
                retire(&space, start)?;
            }
            assert!(space.purge(None, false) > 0);
            assert_eq!(space.tlb().flushes(), 1);
        }
        // Nothing was retired, so nothing is flushed.
        assert_eq!(space.purge(Some(req.window), false), 0);
        assert_eq!(space.tlb().flushes(), 0);
        free_all(&space, starts.iter().copied());
        Ok(())
    }

    #[test]
    fn purges_keep_empty_blocks_that_were_needed_and_trim_idle_ones() -> Result {
        let (space, req) = make_blocks(16, 16)?;
        for _ in 0..3 {
            let starts = fill(&space, &req, 3 * PAGES)?;
            for &start in starts.iter() {
                retire(&space, start)?;
            }
            assert_eq!(space.purge(None, false), 3 * PAGES);
        }
        // Each round uses six blocks: the second and the third round took none from the tree.
        assert_eq!(space.counters().block_new, 6);
        assert_eq!(space.counters().block_freed, 0);
        // A purge of one area is not representative.
        let starts = fill(&space, &req, 1)?;
        retire(&space, starts[0])?;
        space.purge(None, false);
        assert_eq!(space.blocks().live, 6);
        // Idle blocks are trimmed by the next representative purges.
        for _ in 0..4 {
            let starts = fill(&space, &req, PAGES / 2)?;
            for &start in starts.iter() {
                retire(&space, start)?;
            }
            space.purge(None, false);
        }
        assert!(space.blocks().live <= 4);
        assert!(space.reclaimable() > 0);
        space.drain_for_reclaim(usize::MAX);
        assert_eq!(space.blocks(), Default::default());
        Ok(())
    }

    /// The n-th allocation fails, for every n. The request is served or fails with `ENOMEM`, and leaves
    /// nothing behind.
    #[test]
    fn every_allocation_for_a_block_fails_once() -> Result {
        let (space, mut req) = make_blocks(8, 8)?;
        req.gfp = Gfp::NOWAIT;
        let objects = mm::live_objects();
        for nth in 1..40 {
            mm::fail_nth(nth);
            let result = space.alloc(&req);
            let left = mm::fail_nth(0);
            match result {
                Ok(area) => {
                    let start = space.start_of_busy(area).ok_or(EINVAL)?;
                    assert_eq!(space.validate()?.busy, 1);
                    free_all(&space, [start].into_iter());
                }
                Err(err) => assert_eq!(err, ENOMEM),
            }
            assert_eq!(space.validate()?, Default::default());
            assert_eq!(mm::live_objects(), objects);
            if left > 0 {
                break;
            }
        }
        // Without any memory the block stays, and a later purge returns it to the tree.
        let starts = fill(&space, &req, 1)?;
        if mm::fail_from(1) {
            retire(&space, starts[0])?;
            space.purge(None, true);
            mm::fail_from(0);
            assert_eq!(space.blocks().live, 1);
            assert_eq!(space.blocks().empty, 1);
            assert_eq!(space.counters().give_back_nomem, 1);
            assert!(space.validate().is_ok());
        } else {
            retire(&space, starts[0])?;
        }
        space.purge(None, true);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// All allocations from the n-th on fail, for every n.
    #[test]
    fn requests_without_memory_leave_no_block_behind() -> Result {
        let (space, mut req) = make_blocks(8, 8)?;
        req.gfp = Gfp::NOWAIT;
        let objects = mm::live_objects();
        let mut failed = 0;
        for nth in 1..40 {
            if !mm::fail_from(nth) {
                return Ok(());
            }
            let result = space.alloc(&req);
            mm::fail_from(0);
            match result {
                Ok(area) => {
                    let start = space.start_of_busy(area).ok_or(EINVAL)?;
                    assert_eq!(free_all(&space, [start].into_iter()), 1);
                }
                Err(err) => {
                    assert_eq!(err, ENOMEM);
                    failed += 1;
                }
            }
            space.purge(None, true);
            assert_eq!(space.validate()?, Default::default());
            assert_eq!(mm::live_objects(), objects);
        }
        assert!(failed > 2 && space.counters().block_new > 0);
        Ok(())
    }

    /// A request needs an empty block to be drained, and the n-th allocation fails, for every n.
    #[test]
    fn every_allocation_of_a_drain_of_blocks_fails_once() -> Result {
        let sleeping = drain_without_memory(Gfp::KERNEL)?;
        let other = drain_without_memory(Gfp::NOWAIT)?;
        pr_info!("{sleeping} drains that may sleep, {other} that must not, without memory\n");
        assert!(!mm::CAN_FAIL || other > 0);
        Ok(())
    }

    /// Returns the number of allocations, each of which was made to fail once.
    fn drain_without_memory(gfp: Gfp) -> Result<u32> {
        for nth in 1..40 {
            let (space, mut req) = make_blocks(1, 1)?;
            let starts = fill(&space, &req, 1)?;
            retire(&space, starts[0])?;
            space.purge(None, false);
            assert_eq!(space.blocks().live, 1);
            req.size = SIZE;
            req.align = SIZE;
            req.gfp = gfp;
            mm::fail_nth(nth);
            let result = space.alloc(&req);
            let left = mm::fail_nth(0);
            if let Err(err) = result {
                assert!(err == ENOMEM || err == EBUSY);
                assert!(space.validate().is_ok());
            }
            let area = result.or_else(|_| space.alloc(&req))?;
            assert_eq!(space.start_of_busy(area), Some(FIRST));
            assert_eq!(free_all(&space, [FIRST].into_iter()), 1);
            assert_eq!(space.validate()?, Default::default());
            if left > 0 || !mm::CAN_FAIL {
                return Ok(nth - 1);
            }
        }
        Err(EINVAL)
    }

    /// Ways to free areas.
    #[derive(Clone, Copy, Debug)]
    enum Free {
        /// Release areas that were never mapped.
        Release,
        /// Retire areas and purge.
        Purge,
        /// Retire areas and purge with a drain of all cached ranges and empty blocks.
        Drain,
    }

    /// Frees areas of `pages` pages while the n-th allocation fails, for every n. Returns the number of
    /// allocations, each of which was made to fail once.
    fn free_without_memory(pages: usize, how: Free) -> Result<u32> {
        mm::stay_on_this_cpu()?;
        // 32-bit machines have no coarse blocks.
        let bytes = COARSE_SIZE.checked_mul(66).unwrap_or(64 * SIZE);
        let window = Span::with_size(START, bytes).ok_or(EINVAL)?;
        for nth in 1..200 {
            let objects = mm::live_objects();
            let space = Space::with_blocks(window, FlushLog::new()?, Some(2 * COARSE_PAGES))?;
            let req = Request {
                window,
                size: pages * PAGE_SIZE,
                align: 1,
                attributes: Attributes::NONE,
                gfp: Gfp::KERNEL,
                node: -1,
            };
            let starts = fill(&space, &req, 5)?;
            mm::fail_nth(nth);
            // Holes first, then the areas between them.
            for index in [1, 3, 0, 4, 2] {
                let area = space.unlink(starts[index]).ok_or(EINVAL)?;
                match how {
                    Free::Release => space.release(area),
                    Free::Purge | Free::Drain => {
                        space.retire(area);
                        space.purge(None, matches!(how, Free::Drain));
                    }
                }
            }
            let left = mm::fail_nth(0);
            let census = space.validate()?;
            assert_eq!((census.busy, census.unlinked), (0, 0));
            space.purge(None, true);
            assert_eq!(space.validate()?, Default::default());
            assert_eq!(mm::live_objects(), objects);
            if left > 0 || !mm::CAN_FAIL {
                return Ok(nth - 1);
            }
        }
        Err(EINVAL)
    }

    /// Freeing never fails. Ranges that could not be returned to the tree are returned later.
    #[test]
    fn every_allocation_of_freeing_fails_once() -> Result {
        let mut failed = 0;
        for pages in [1, 8 * COARSE_PAGES, (MAX_UNITS + 1) * COARSE_PAGES] {
            for how in [Free::Release, Free::Purge, Free::Drain] {
                failed += free_without_memory(pages, how)?;
            }
        }
        pr_info!("{failed} allocations of freeing failed\n");
        assert!(!mm::CAN_FAIL || failed > 0);
        Ok(())
    }
}
