// SPDX-License-Identifier: GPL-2.0

//! Blocks without memory: whichever allocation fails, the request fails and leaves nothing behind, and freeing
//! does not fail.

use super::{
    blocks::{
        fill,
        make_blocks,
        retire,
        FIRST,
        START, //
    },
    free_all, //
};
use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::fixtures::{
        Failing,
        World, //
    },
    policy::space::Request,
    state::{
        area::NeverMapped,
        band::{
            COARSE_PAGES,
            MAX_UNITS, //
        },
        block::{
            COARSE_SIZE,
            SIZE, //
        }, //
    },
    sys::mm::{
        self,
        Gfp, //
    }, //
};
use kernel::prelude::*;

#[kernel::prelude::kunit_tests(vmap_rust_block_memory)]
mod tests {
    use super::*;

    /// The n-th allocation fails, for every n. The request is served or fails with `ENOMEM`, and leaves
    /// nothing behind.
    #[test]
    fn every_allocation_for_a_block_fails_once() -> Result {
        let (space, mut req) = make_blocks(8, 8)?;
        req.gfp = Gfp::NOWAIT;
        let objects = mm::live_objects();
        for nth in 1..40 {
            let (result, failed) = Failing::Only(nth).run(|| space.alloc(&req));
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
            if !failed {
                break;
            }
        }
        // Without any memory the block stays, and a later purge returns it to the tree.
        let starts = fill(&space, &req, 1)?;
        let (retired, failed) = Failing::From(1).run(|| -> Result {
            retire(&space, starts[0])?;
            space.purge(None, true);
            Ok(())
        });
        retired?;
        if failed {
            assert_eq!(space.blocks().live, 1);
            assert_eq!(space.blocks().empty, 1);
            assert_eq!(space.counters().give_back_nomem, 1);
            assert!(space.validate().is_ok());
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
            if !mm::CAN_FAIL_ALL {
                return Ok(());
            }
            match Failing::From(nth).run(|| space.alloc(&req)).0 {
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
            let (result, failed) = Failing::Only(nth).run(|| space.alloc(&req));
            if let Err(err) = result {
                assert!(err == ENOMEM || err == EBUSY);
                assert!(space.validate().is_ok());
            }
            let area = result.or_else(|_| space.alloc(&req))?;
            assert_eq!(space.start_of_busy(area), Some(FIRST));
            assert_eq!(free_all(&space, [FIRST].into_iter()), 1);
            assert_eq!(space.validate()?, Default::default());
            if !failed {
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
            let space = World::new(window).blocks(2 * COARSE_PAGES).space()?;
            let req = Request::bytes(window, pages * PAGE_SIZE);
            let starts = fill(&space, &req, 5)?;
            // Holes first, then the areas between them.
            let (freed, failed) = Failing::Only(nth).run(|| -> Result {
                [1, 3, 0, 4, 2].into_iter().try_for_each(|index| {
                    let area = space.unlink(starts[index]).ok_or(EINVAL)?;
                    match how {
                        Free::Release => space.release(area, NeverMapped::in_test()),
                        Free::Purge | Free::Drain => {
                            space.retire(area);
                            space.purge(None, matches!(how, Free::Drain));
                        }
                    }
                    Ok(())
                })
            });
            freed?;
            let census = space.validate()?;
            assert_eq!((census.busy, census.unlinked), (0, 0));
            space.purge(None, true);
            assert_eq!(space.validate()?, Default::default());
            assert_eq!(mm::live_objects(), objects);
            if !failed {
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
