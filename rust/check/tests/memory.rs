// SPDX-License-Identifier: GPL-2.0

//! A space without blocks, and without memory: whichever allocation fails, the request fails and leaves
//! nothing behind, and freeing does not fail.

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
    check::fixtures::Failing,
    state::area::NeverMapped,
    sys::mm::{
        self,
        Gfp, //
    }, //
};
use kernel::prelude::*;

#[kernel::prelude::kunit_tests(vmap_rust_memory)]
mod tests {
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
                match Failing::Only(nth).run(|| space.alloc(&req)) {
                    (Ok(area), false) => break area,
                    // The request was served although an allocation failed: undo it and go on.
                    (Ok(area), true) => {
                        let start = start_of(&space, area);
                        if let Some(area) = space.unlink(start) {
                            space.release(area, NeverMapped::in_test());
                        }
                        space.purge(None, true);
                    }
                    (Err(err), _) => {
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
            let (result, has_failed) = Failing::Only(nth).run(|| {
                space.alloc_congruent(
                    window,
                    members.iter().copied(),
                    PAGE_SIZE,
                    Gfp::NOWAIT,
                    |index, area| areas[index % 4] = Some(area),
                )
            });
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
            if !has_failed {
                break;
            }
        }
        assert_eq!(space.counters().no_memory, failed);
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
            let (result, failed) = Failing::Only(nth).run(|| space.alloc(&req));
            if let Err(err) = result {
                assert!(err == ENOMEM || err == EBUSY);
                assert_eq!(space.validate()?.busy, 0);
            }
            let area = result.or_else(|_| space.alloc(&req))?;
            assert_eq!(start_of(&space, area), START);
            free_all(&space, [START].into_iter());
            assert_eq!(space.validate()?, Default::default());
            assert_eq!(mm::live_objects(), objects);
            if !failed {
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
            Failing::Only(1).run(|| space.release(area, NeverMapped::in_test()));
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
            if !mm::CAN_FAIL_ALL {
                return Ok(());
            }
            let fails = Failing::From(nth);
            if let Ok(area) = fails.run(|| space.alloc(&req)).0 {
                free_all(&space, [start_of(&space, area)].into_iter());
            } else {
                failed += 1;
            }
            assert_eq!(mm::live_objects(), objects);

            let mut areas = [None; 3];
            let (many, _) = fails.run(|| {
                space.alloc_congruent(
                    req.window,
                    members.iter().copied(),
                    PAGE_SIZE,
                    Gfp::NOWAIT,
                    |index, area| areas[index % 3] = Some(area),
                )
            });
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
                let release = || space.release(area, NeverMapped::in_test());
                kept += usize::from(Failing::Only(1).run(release).1);
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
