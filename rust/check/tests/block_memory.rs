// SPDX-License-Identifier: GPL-2.0

//! Blocks without memory: whichever allocation fails, the request fails and leaves nothing behind, and freeing
//! does not fail.

use super::{
    blocks::{
        alloc_set,
        fill,
        fill_span,
        make_blocks,
        make_large,
        retire,
        FIRST,
        START, //
    },
    free_all, //
};
use crate::{
    base::prelude::*,
    check::fixtures::{
        publish,
        Failing, //
    },
    state::{
        class::{
            MOST_PAGES,
            SIZE, //
        }, //
    },
    sys::mm::{
        self,
        Gfp, //
    }, //
};

/// More allocations than any step makes.
const MANY: u32 = 200;

#[kernel::prelude::kunit_tests(vmap_rust_block_memory)]
mod tests {
    use super::*;
    use crate::base::fit::Member;

    /// Serves a request for which there is no block yet. The n-th allocation fails, or all from the n-th on, for every n.
    /// If `has_other`, this CPU has a current block of another class, which must stay one. Returns how often one failed.
    fn new_block(fails: fn(u32) -> Failing, has_other: bool) -> Result<u32> {
        let objects = mm::live_objects();
        for nth in 1..MANY {
            // A new space: a part of the directory is made once.
            let (space, mut req) = make_blocks(8, 8)?;
            if has_other {
                fill(&space, &req, 1)?;
            }
            let before = space.blocks();
            (req.size, req.gfp) = (4 * PAGE_SIZE, Gfp::NOWAIT);
            let (result, failed) = fails(nth).run(|| space.alloc(req.again()));
            let blocks = space.blocks();
            assert_eq!((blocks.partial, blocks.empty), (0, 0));
            let is_served = result.is_ok();
            match result {
                Ok(area) => {
                    // Either from a new block, or, without memory for that, from the tree.
                    let tree = space.counters().alloc_tree;
                    assert_eq!(blocks.live, before.live + 1 - tree);
                    assert!(failed || tree == 0);
                    assert_eq!(space.find(area.span().first()), Some(area));
                }
                Err(err) => {
                    assert_eq!((err, blocks), (ENOMEM, before));
                    assert_eq!(space.counters().no_memory, 1);
                }
            }
            // If one allocation fails, the request has another way.
            assert!(is_served || matches!(fails(nth), Failing::From(_)));
            if has_other {
                let refills = space.counters().refill;
                req.size = 2 * PAGE_SIZE;
                assert_eq!(fill(&space, &req, 1)?[0], FIRST + 2 * PAGE_SIZE);
                assert_eq!(space.counters().refill, refills);
            }
            while let Some((area, pin)) = space.get(0) {
                drop(pin);
                retire(&space, area.span().first())?;
            }
            space.purge(None, true);
            assert_eq!(space.validate()?, Default::default());
            assert_eq!(mm::live_objects(), objects);
            if !failed {
                return Ok(nth - 1);
            }
        }
        Err(EINVAL)
    }

    #[test]
    fn every_allocation_for_a_block_fails() -> Result {
        // The objects of 128 slots, the block, the part of the directory, and what it needs.
        let least = 128 / BITS as u32 + 3;
        let one = new_block(Failing::Only, false)?;
        let all = new_block(Failing::From, false)?;
        pr_info!("{one} allocations for a block failed once, {all} with all later ones\n");
        assert!(!mm::CAN_FAIL || one >= least);
        assert!(!mm::CAN_FAIL_ALL || all > least);
        Ok(())
    }

    /// The n-th allocation for a set at a common base fails, or all from the n-th on, for every n. All members are served
    /// or none.
    #[test]
    fn every_allocation_for_a_set_fails() -> Result {
        for fails in [Failing::Only, Failing::From] {
            let objects = mm::live_objects();
            for nth in 1..MANY {
                let (space, req) = make_blocks(8, 8)?;
                let (result, failed) = fails(nth).run(|| alloc_set(&space, req.window));
                let busy = space.validate()?.busy;
                match result {
                    Ok(spans) => {
                        assert_eq!(busy, 2);
                        let starts = spans.into_iter().flatten().map(Span::first);
                        assert_eq!(free_all(&space, starts), 2);
                    }
                    Err(err) => assert_eq!((err, busy), (ENOMEM, 0)),
                }
                space.purge(None, true);
                assert_eq!(space.validate()?, Default::default());
                assert_eq!(mm::live_objects(), objects);
                if !failed {
                    assert!(nth > 4 || !mm::CAN_FAIL_ALL);
                    break;
                }
            }
        }
        Ok(())
    }

    /// It allocates nothing, and no block leaves its CPU.
    #[test]
    fn a_request_that_can_never_fit_touches_nothing() -> Result {
        let (space, mut req) = make_blocks(8, 8)?;
        let start = fill(&space, &req, 1)?[0];
        let before = space.blocks();
        let far = [0, (usize::MAX / 2) & !(PAGE_SIZE - 1)].map(|offset| Member {
            offset,
            size: PAGE_SIZE,
        });
        let (result, failed) = Failing::Only(1).run(|| {
            let far = far.into_iter();
            space.alloc_congruent(req.window, far, PAGE_SIZE, Gfp::KERNEL, publish)
        });
        assert_eq!((result, failed), (Err(EBUSY), false));
        req.align = 1 << (usize::BITS - 2);
        let (result, failed) = Failing::Only(1).run(|| space.alloc(req.again()));
        assert_eq!((result, failed), (Err(EBUSY), false));
        (req.align, req.size) = (1, req.window.size() + PAGE_SIZE);
        let (result, failed) = Failing::Only(1).run(|| space.alloc(req.again()));
        assert_eq!((result, failed), (Err(EBUSY), false));
        assert_eq!(space.blocks(), before);
        free_all(&space, [start].into_iter());
        Ok(())
    }

    /// More memory may come: other CPUs should not pay for a request that fails without it.
    #[test]
    fn a_request_without_memory_leaves_other_current_blocks_alone() -> Result {
        new_block(Failing::Only, true)?;
        new_block(Failing::From, true)?;
        // The only block that may exist has room for larger areas, and there is no memory for an area in the tree.
        let (space, mut req) = make_blocks(8, 1)?;
        req.size = 8 * PAGE_SIZE;
        let large = fill(&space, &req, 1)?;
        let before = space.blocks();
        (req.size, req.gfp) = (PAGE_SIZE, Gfp::NOWAIT);
        let (result, failed) = Failing::Only(1).run(|| space.alloc(req.again()));
        assert_eq!(failed, mm::CAN_FAIL);
        assert_eq!(result.err(), failed.then_some(ENOMEM));
        assert_eq!((space.blocks(), before.partial), (before, 0));
        assert_eq!(space.counters().steal, 0);
        free_all(&space, [large[0], START].into_iter());
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// A request needs an empty block to be drained, and the n-th allocation fails, for every n. Returns how often one
    /// failed, and how often the block was gone then.
    fn drain_without_memory(gfp: Gfp) -> Result<(u32, u32)> {
        let mut drained = 0;
        for nth in 1..MANY {
            let (space, mut req) = make_blocks(1, 1)?;
            let starts = fill(&space, &req, 1)?;
            retire(&space, starts[0])?;
            space.purge(None, false);
            assert_eq!(space.blocks().live, 1);
            (req.size, req.align, req.gfp) = (SIZE, SIZE, gfp);
            let (result, failed) = Failing::Only(nth).run(|| space.alloc(req.again()));
            if let Err(err) = result {
                // `EBUSY` lets C purge and try again: that helps only if the block is still there.
                let is_kept = space.counters().give_back_nomem > 0;
                assert_eq!(err, if is_kept { EBUSY } else { ENOMEM });
                drained += u32::from(space.blocks().live == 0);
                assert_eq!(space.validate()?.busy, 0);
            }
            let area = result.or_else(|_| space.alloc(req.again()))?;
            assert_eq!(area.span().first(), FIRST);
            assert_eq!(free_all(&space, [FIRST].into_iter()), 1);
            assert_eq!(space.validate()?, Default::default());
            if !failed {
                return Ok((nth - 1, drained));
            }
        }
        Err(EINVAL)
    }

    #[test]
    fn a_request_without_memory_says_so_after_a_drain() -> Result {
        let (sleeping, _) = drain_without_memory(Gfp::KERNEL)?;
        let (other, drained) = drain_without_memory(Gfp::NOWAIT)?;
        pr_info!("{sleeping} drains that may sleep, {other} that must not, without memory\n");
        // The kernel fails only allocations that must not sleep: first the area, then what the drain needs. Whether one
        // fails after the drain depends on what its slab has at hand.
        assert!(!mm::CAN_FAIL || other > 1);
        assert!(!mm::CAN_FAIL_ALL || drained > 0);
        Ok(())
    }

    #[test]
    fn a_block_whose_range_cannot_be_erased_serves_on() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        // Neighbours in the tree: erasing between them needs memory.
        for page in [0, 2, 4] {
            let start = START + page * PAGE_SIZE;
            fill_span(&space, start, start + PAGE_SIZE)?;
        }
        let starts = fill(&space, &req, 3)?;
        for &start in starts.iter() {
            retire(&space, start)?;
        }
        let (purged, failed) = Failing::Only(1).run(|| space.purge(None, true));
        assert_eq!((purged, failed), (3, mm::CAN_FAIL));
        let kept = usize::from(failed);
        let blocks = space.blocks();
        assert_eq!(
            (blocks.live, blocks.empty, blocks.bytes),
            (kept, kept, kept * SIZE)
        );
        assert_eq!((space.reclaimable(), space.stuck()), (kept, 0));
        assert_eq!(space.counters().give_back_nomem, kept);
        assert_eq!(space.validate()?.busy, 3);
        assert_eq!(fill(&space, &req, 3)?[..], starts[..]);
        assert_eq!(space.counters().block_new, 2 - kept);
        let others = [0, 2, 4].map(|page| START + page * PAGE_SIZE);
        let all = Iterator::chain(starts.iter(), &others).copied();
        assert_eq!(free_all(&space, all), 6);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// Frees areas of `pages` pages, with a drain of all empty blocks if `drain`, while the n-th allocation fails, for every
    /// n. Returns how often one failed.
    fn free_without_memory(pages: usize, drain: bool) -> Result<u32> {
        for nth in 1..MANY {
            let objects = mm::live_objects();
            let (space, mut req) = make_large()?.map_or_else(|| make_blocks(64, 64), Ok)?;
            req.size = pages * PAGE_SIZE;
            let starts = fill(&space, &req, 5)?;
            // Holes first, then the areas between them.
            let (freed, failed) = Failing::Only(nth).run(|| -> Result {
                [1, 3, 0, 4, 2].into_iter().try_for_each(|index| {
                    let area = space.unlink(starts[index]).ok_or(EINVAL)?;
                    space.retire(area);
                    space.purge(None, drain);
                    Ok(())
                })
            });
            freed?;
            let census = space.validate()?;
            // A stuck area counts as unlinked.
            assert_eq!((census.busy, census.unlinked), (0, space.stuck()));
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
        // The last one is too large for a block.
        let sizes = match usize::BITS {
            64.. => [1, 600, MOST_PAGES + 1],
            _ => [1, 60, 600],
        };
        for pages in sizes {
            for drain in [false, true] {
                failed += free_without_memory(pages, drain)?;
            }
        }
        pr_info!("{failed} allocations of freeing failed\n");
        assert!(!mm::CAN_FAIL || failed > 0);
        Ok(())
    }
}
