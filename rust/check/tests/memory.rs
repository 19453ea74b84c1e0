// SPDX-License-Identifier: GPL-2.0

//! A space without blocks, and without memory: whichever allocation fails, the request fails and leaves
//! nothing behind, and freeing does not fail.

use super::{
    alloc,
    free_all,
    make, //
};
use crate::{
    base::{
        fit::Member,
        prelude::*, //
    },
    check::fixtures::{
        publish,
        Failing,
        FlushLog, //
    },
    policy::space::Space,
    sys::mm::{
        self,
        Gfp, //
    }, //
};

#[kernel::prelude::kunit_tests(vmap_rust_memory)]
mod tests {
    use super::*;

    const START: usize = 128 << 20;

    /// Frees the area at `start` at once.
    fn release(space: &Space<FlushLog>, start: usize) -> Result {
        let area = space.unlink(start).ok_or(EINVAL)?;
        space.retire(area);
        space.purge(None, false);
        Ok(())
    }

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
                match Failing::Only(nth).run(|| space.alloc(req.again())) {
                    (Ok(area), false) => break area,
                    // The request was served although an allocation failed: undo it and go on.
                    (Ok(area), true) => {
                        release(&space, area.span().first())?;
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
            assert_eq!(area.span().first(), START + index * PAGE_SIZE);
            assert_eq!(space.validate()?.busy, index + 1);
        }
        pr_info!("{failed} requests without memory in {AREAS} areas\n");
        assert!(!mm::CAN_FAIL || failed >= AREAS);
        let starts = (0..AREAS).map(|index| START + index * PAGE_SIZE);
        assert_eq!(free_all(&space, starts), AREAS);
        assert_eq!(space.validate()?, Default::default());
        assert_eq!(mm::live_objects(), objects);
        Ok(())
    }

    /// Returns members of one page each.
    fn members<const N: usize>(pages: [usize; N]) -> impl Iterator<Item = Member> + Clone {
        pages.into_iter().map(|page| Member {
            offset: page * PAGE_SIZE,
            size: PAGE_SIZE,
        })
    }

    /// The n-th allocation of a request for congruent areas fails, for every n. All are reserved or none, and none is found
    /// before all are reserved.
    #[test]
    fn every_allocation_of_alloc_congruent_fails_once() -> Result {
        const AREAS: usize = 200;
        const OFFSETS: [usize; 4] = [0, 2, 8, 64];
        let (space, req) = make(START, 2 * AREAS)?;
        let others = (0..AREAS).map(|index| START + 2 * index * PAGE_SIZE);
        // Every second page is reserved, so that new entries split tree nodes.
        let mut one = req.again();
        for start in others.clone() {
            one.window = Span::with_size(start, PAGE_SIZE).ok_or(EINVAL)?;
            space.alloc(one.again())?;
        }
        let objects = mm::live_objects();
        let mut failed = 0;
        for nth in 1..100 {
            let mut starts = [0; OFFSETS.len()];
            let mut given = 0;
            let mut reserved = Ok(());
            let (result, has_failed) = Failing::Only(nth).run(|| {
                let (align, gfp) = (PAGE_SIZE, Gfp::NOWAIT);
                space.alloc_congruent(req.window, members(OFFSETS), align, gfp, |index, area| {
                    let area = publish(index, area)?;
                    starts[index % OFFSETS.len()] = area.span().first();
                    given += 1;
                    // The others are not busy yet, but their ranges are taken.
                    reserved = space.validate().and_then(|census| {
                        let all = census.busy + census.unlinked;
                        let is_right = (census.busy, all) == (AREAS + given, AREAS + OFFSETS.len());
                        is_right.then_some(()).ok_or(EINVAL)
                    });
                    Some(area)
                })
            });
            reserved?;
            match result {
                Ok(()) => {
                    for (start, page) in starts.into_iter().zip(OFFSETS) {
                        assert_eq!(start - page * PAGE_SIZE, starts[0]);
                    }
                    assert_eq!(free_all(&space, starts.into_iter()), OFFSETS.len());
                }
                Err(err) => {
                    assert_eq!((err, given), (ENOMEM, 0));
                    failed += 1;
                    assert_eq!(space.validate()?.unlinked, space.stuck());
                    space.purge(None, false);
                }
            }
            let census = space.validate()?;
            assert_eq!((census.busy, census.unlinked, space.stuck()), (AREAS, 0, 0));
            assert_eq!(mm::live_objects(), objects);
            if !has_failed {
                break;
            }
        }
        assert_eq!(space.counters().no_memory, failed);
        pr_info!("{failed} requests for a common base without memory\n");
        assert!(!mm::CAN_FAIL || failed >= OFFSETS.len());
        assert_eq!(free_all(&space, others), AREAS);
        Ok(())
    }

    /// Frees what is busy of the first `count` pages at once. Returns the number of areas.
    fn free(space: &Space<FlushLog>, count: usize) -> usize {
        let starts = (0..count).map(|index| START + index * PAGE_SIZE);
        starts
            .filter(|&start| release(space, start).is_ok())
            .count()
    }

    /// A request needs the range of a stuck area, and the n-th allocation fails, for every n. Returns how often one failed.
    fn drain_without_memory(gfp: Gfp) -> Result<u32> {
        const AREAS: usize = 8;
        for nth in 1..40 {
            let objects = mm::live_objects();
            let (space, mut req) = make(START, AREAS)?;
            for _ in 0..AREAS {
                space.alloc(req.again())?;
            }
            // Behind a gap, with which its own merges, a range needs memory to become one.
            let stuck = START + 3 * PAGE_SIZE;
            release(&space, stuck - PAGE_SIZE)?;
            Failing::Only(1).run(|| release(&space, stuck)).0?;
            let count = usize::from(mm::CAN_FAIL);
            assert_eq!((space.stuck(), space.reclaimable()), (count, count));
            assert_eq!(free(&space, AREAS), AREAS - 2);
            (req.size, req.gfp) = (AREAS * PAGE_SIZE, gfp);
            let (result, failed) = Failing::Only(nth).run(|| space.alloc(req.again()));
            if let Err(err) = result {
                // Once the range is free, only memory was short.
                assert!(err == ENOMEM || (err == EBUSY && space.stuck() == 1));
                let census = space.validate()?;
                assert_eq!((census.busy, census.unlinked), (0, space.stuck()));
            }
            let area = result.or_else(|_| space.alloc(req.again()))?;
            assert_eq!(area.span().first(), START);
            free_all(&space, [START].into_iter());
            assert_eq!(space.validate()?, Default::default());
            assert_eq!(mm::live_objects(), objects);
            if !failed {
                return Ok(nth - 1);
            }
        }
        Err(EINVAL)
    }

    #[test]
    fn every_allocation_of_a_drain_fails_once() -> Result {
        let sleeping = drain_without_memory(Gfp::KERNEL)?;
        let other = drain_without_memory(Gfp::NOWAIT)?;
        pr_info!("{sleeping} drains that may sleep, {other} that must not, without memory\n");
        // The kernel fails only allocations that must not sleep.
        assert!(!mm::CAN_FAIL || other > 0);
        Ok(())
    }

    /// All allocations from the n-th on fail. Only on the build host: the kernel can make only one
    /// allocation fail, and the next attempt succeeds.
    #[test]
    fn requests_without_memory_leave_nothing_behind() -> Result {
        let (space, mut req) = make(START, 64)?;
        req.gfp = Gfp::NOWAIT;
        let objects = mm::live_objects();
        let mut failed = 0;
        for nth in 1..20 {
            let fails = Failing::From(nth);
            let mut starts = [0; 3];
            match fails.run(|| alloc(&space, &req)).0 {
                Ok(start) => starts[0] = start,
                Err(err) => {
                    assert_eq!(err, ENOMEM);
                    failed += 1;
                }
            }
            free_all(&space, starts.into_iter());
            assert_eq!(mm::live_objects(), objects);

            let (many, _) = fails.run(|| {
                let (align, gfp) = (PAGE_SIZE, Gfp::NOWAIT);
                let members = members([0, 4, 9]);
                space.alloc_congruent(req.window, members, align, gfp, |index, area| {
                    let area = publish(index, area)?;
                    starts[index % 3] = area.span().first();
                    Some(area)
                })
            });
            if let Err(err) = many {
                assert_eq!(err, ENOMEM);
                failed += 1;
            }
            free_all(&space, starts.into_iter());
            assert_eq!(space.validate()?, Default::default());
            assert_eq!(mm::live_objects(), objects);
        }
        // One area needs an object and a node, three congruent ones need three of each.
        assert_eq!(failed, if mm::CAN_FAIL_ALL { 2 + 6 } else { 0 });
        Ok(())
    }

    /// Frees areas while each allocation fails. No free fails, no range leaks, and the next purge returns what is stuck.
    #[test]
    fn freeing_needs_no_memory() -> Result {
        const AREAS: usize = 400;
        let (space, mut req) = make(START, AREAS)?;
        for _ in 0..AREAS {
            space.alloc(req.again())?;
        }
        // In a kernel, only one allocation of each purge fails, and that may be one of a debugging option.
        let fails = [Failing::Only, Failing::From][usize::from(mm::CAN_FAIL_ALL)];
        // Every third area first: each hole needs a tree node in RCU mode.
        for first in 0..3 {
            for index in (first..AREAS).step_by(3) {
                space.retire(space.unlink(START + index * PAGE_SIZE).ok_or(EINVAL)?);
                let (purged, _) = fails(1).run(|| space.purge(None, false));
                assert_eq!((purged, space.tlb().flushes()), (1, 1));
            }
            assert_eq!(space.validate()?.unlinked, space.stuck());
        }
        let (failed, stuck) = (space.counters().give_back_nomem, space.stuck());
        pr_info!("{failed} failures to free {AREAS} areas, {stuck} of them are stuck\n");
        // The maple tree needs no node for some erasures, and has another way for others.
        assert!(failed >= stuck && (failed > 0 || !mm::CAN_FAIL));
        assert!(stuck > AREAS / 2 || !mm::CAN_FAIL_ALL);
        // No address of a stuck area is found or served.
        assert!((0..AREAS).all(|index| space.find(START + index * PAGE_SIZE).is_none()));
        // Nothing is flushed once more.
        assert_eq!(space.purge(None, false), 0);
        assert_eq!(
            (space.tlb().flushes(), space.stuck(), space.reclaimable()),
            (0, 0, 0)
        );
        assert_eq!(space.validate()?, Default::default());
        // All ranges merge into one gap for a request that needs all of it.
        req.size = AREAS * PAGE_SIZE;
        assert_eq!(alloc(&space, &req)?, START);
        free_all(&space, [START].into_iter());
        Ok(())
    }
}
