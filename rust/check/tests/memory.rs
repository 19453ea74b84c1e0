// SPDX-License-Identifier: GPL-2.0

//! Failing memory: whichever allocation of an operation fails, by itself or with all later ones, a request is served or
//! refused as a whole, freeing does not fail, and nothing is left behind.

use super::*;

/// What is done while an allocation fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    /// Make the space.
    New,
    /// Serve the first request of its size, which needs a new block if blocks serve it.
    Alloc,
    /// Serve a request for a set at a common base.
    Congruent,
    /// Free areas, with a purge after each of them.
    Free,
    /// Purge all lazy areas.
    Purge,
    /// Purge all lazy areas, and drain all empty blocks.
    Drain,
    /// Serve a request for the whole space, which drains all empty blocks, or frees stuck areas.
    Room,
    /// Drain all empty blocks and free stuck areas for memory reclaim.
    Reclaim,
}

use Operation::*;

/// An operation, with what and on what it is done, and which of its allocations fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    operation: Operation,
    /// Pages of each area.
    pages: usize,
    /// Areas of one page that are in the tree, with gaps between.
    others: usize,
    may_sleep: bool,
    failing: Failing,
}

/// Offsets of the members of a set, in areas.
const MEMBERS: [usize; 3] = [0, 2, 5];
/// The order in which areas are freed: holes first, then those between them.
const ORDER: [usize; 5] = [1, 3, 0, 4, 2];
/// Pages of areas of small blocks, of large ones, and of the tree, which are too large to be kept.
const SIZES: [usize; 4] = match usize::BITS {
    32 => [1, 8, 60, 2100],
    _ => [1, 600, MOST_PAGES, 3 * PART / PAGE_SIZE],
};

impl Case {
    fn request(self, window: Span, size: usize) -> Request {
        Request {
            gfp: [Gfp::NOWAIT, Gfp::KERNEL][usize::from(self.may_sleep)],
            ..Request::bytes(window, size)
        }
    }

    /// Serves a request for a set: all members or none. None is found before all are reserved.
    fn alloc_set(self, space: &Space<FlushLog>) -> Result {
        let size = self.pages * PAGE_SIZE;
        let members = MEMBERS.into_iter().map(|index| Member {
            offset: index * size,
            size,
        });
        let Request { window, gfp, .. } = self.request(space.home(), size);
        let before = space.validate()?.busy;
        let (mut given, mut all) = (0, true);
        let result = space.alloc_congruent(window, members, PAGE_SIZE, gfp, |index, area| {
            let area = publish(index, area)?;
            given += 1;
            // In the tree, all are reserved before any is busy. A block is not sound meanwhile.
            if space.blocks().live == 0 {
                let census = space.validate().ok()?;
                let taken = census.busy + census.unlinked;
                all &= (census.busy, taken) == (before + given, before + MEMBERS.len());
            }
            Some(area)
        });
        assert!(all);
        assert_eq!(given, result.map_or(0, |()| MEMBERS.len()));
        result
    }

    /// Does the operation in a new space, and frees everything. Returns whether an allocation failed.
    pub(crate) fn run(self) -> Result<bool> {
        let (operation, failing, size) = (self.operation, self.failing, self.pages * PAGE_SIZE);
        if operation == New {
            let home = Span::with_size(START, 64 * SIZE).ok_or(EINVAL)?;
            let (space, has_failed) = failing.run(|| World::new(home).space());
            assert!(space.is_ok() || has_failed || matches!(failing, Failing::From(_)));
            // With all that follow, the first may be yet to come.
            let may_be_served = matches!(failing, Failing::From(_)) || !mm::CAN_FAIL_ALL;
            assert!(space.is_err() || !has_failed || may_be_served);
            assert!(space.err().is_none_or(|err| err == ENOMEM));
            return Ok(has_failed);
        }
        let objects = mm::live_objects();
        let (space, _) = make_large()?.map_or_else(|| make_blocks(64, 64), Ok)?;
        let home = space.home();
        for index in 0..self.others {
            let page = START + 2 * index * PAGE_SIZE;
            fill_span(&space, page, page + PAGE_SIZE)?;
        }
        let mut starts = KVec::new();
        if ![Alloc, Congruent].contains(&operation) {
            starts = fill(&space, &Request::bytes(home, size), ORDER.len())?;
        }
        let has_kept = [Room, Reclaim].contains(&operation);
        if has_kept || [Purge, Drain].contains(&operation) {
            for index in ORDER {
                retire(&space, starts[index])?;
            }
        }
        if has_kept {
            // What is in the tree is stuck.
            [Failing::Only, Failing::From][usize::from(mm::CAN_FAIL_ALL)](1)
                .run(|| space.purge(None, false));
            let kept = space.counters().give_back_nomem;
            assert_eq!((space.stuck(), kept), (kept, kept));
            let must_fail = mm::CAN_FAIL && mm::CAN_FAIL_ALL;
            assert!(space.blocks().live > 0 || kept > 0 || !must_fail);
        }
        let out_of_use = || space.stuck() + space.kept();
        let (before, out_before) = (space.blocks(), out_of_use());
        let (result, has_failed) = failing.run(|| match operation {
            New => Ok(()),
            Alloc => space.alloc_bare(self.request(home, size)).map(|area| {
                let ends = [area.span().first(), area.span().last()];
                assert_eq!(ends.map(|addr| space.find(addr)), [Some(area); 2]);
            }),
            Room => space
                .alloc_bare(self.request(home, home.size()))
                .map(|_| ()),
            Congruent => self.alloc_set(&space),
            Free => ORDER.into_iter().try_for_each(|index| {
                retire(&space, starts[index])?;
                assert_eq!(space.purge(None, false), 1);
                Ok(())
            }),
            Purge | Drain => {
                assert_eq!(space.purge(None, operation == Drain), ORDER.len());
                Ok(())
            }
            Reclaim => {
                let freed = space.drain_for_reclaim(usize::MAX);
                let left = space.blocks().live + out_of_use();
                assert_eq!(freed + left, before.live + out_before);
                Ok(())
            }
        });
        let (census, blocks, counters) = (space.validate()?, space.blocks(), space.counters());
        let busy = match operation {
            Alloc | Room => 1,
            Congruent => MEMBERS.len(),
            _ => 0,
        };
        let is_served = result.is_ok();
        assert_eq!(census.busy, self.others + if is_served { busy } else { 0 });
        assert_eq!(census.unlinked, out_of_use());
        assert_eq!(counters.no_memory, usize::from(result == Err(ENOMEM)));
        if let Err(err) = result {
            // Freeing needs no memory.
            assert!(busy > 0 && has_failed, "{self:?}");
            // `EBUSY` lets C purge and try again, which helps only if there is more to free.
            let may_help = operation == Room && space.reclaimable() > 0;
            assert!(
                err == ENOMEM || err == EBUSY && may_help,
                "{self:?}: {err:?}"
            );
            assert!(operation == Room || blocks == before, "{self:?}");
            // One that only lacks memory for a block has another way.
            let has_another = operation == Alloc && space.serves(size);
            assert!(
                !has_another || matches!(failing, Failing::From(_)),
                "{self:?}"
            );
            // One that may sleep tries again, except for its objects: it allocates them first, and again after a drain.
            let is_object = |nth| nth <= busy as u32 || operation == Room && nth > 2;
            let is_lost = matches!(failing, Failing::Only(nth) if !is_object(nth));
            assert!(!(is_lost && self.may_sleep && mm::CAN_FAIL_ALL), "{self:?}");
        } else if operation == Alloc {
            let tree = counters.alloc_tree - self.others;
            assert_eq!(blocks.live + tree, 1, "{self:?}");
            assert!(has_failed || (tree == 0) == space.serves(size));
        }
        assert_eq!(space.reclaimable(), blocks.empty + out_of_use());
        // Blocks that could not be removed, and all others, serve on. Then all is one gap again.
        if operation != Room || !is_served {
            let again = fill(&space, &Request::bytes(home, size), ORDER.len())?;
            assert!(again.iter().all(|&start| space.find(start).is_some()));
        }
        while let Some(area) = space.get(0, usize::MAX).map(|pinned| pinned.area()) {
            retire(&space, area.span().first())?;
        }
        space.purge(None, true);
        assert_eq!(space.validate()?, Default::default());
        fill_span(&space, home.first(), home.end())?;
        assert_eq!(free_all(&space, [home.first()].into_iter()), 1);
        assert_eq!(mm::live_objects(), objects);
        Ok(has_failed)
    }
}

/// Calls `run` with each case, for each allocation that it makes; `run` returns whether one failed. Returns how often one did.
pub(crate) fn each_case(mut run: impl FnMut(Case) -> Result<bool>) -> Result<u32> {
    let mut all = 0;
    let mut each_failure = |case: Case, failing: fn(u32) -> Failing| -> Result {
        let mut nth = 1;
        while run(Case {
            failing: failing(nth),
            ..case
        })? {
            all += 1;
            // With those of others there may be hundreds.
            nth += if mm::CAN_FAIL_ALL { 1 } else { 1 + nth / 8 };
        }
        Ok(())
    };
    for operation in [New, Alloc, Congruent, Free, Purge, Drain, Room, Reclaim] {
        for pages in SIZES {
            for (others, may_sleep) in [(0, false), (0, true), (40, false)] {
                // With others there is no room for a request of the whole space.
                if others > 0 && [New, Room].contains(&operation) {
                    continue;
                }
                let failing = Failing::Only(0);
                let case = Case {
                    operation,
                    pages,
                    others,
                    may_sleep,
                    failing,
                };
                each_failure(case, Failing::Only)?;
                each_failure(case, Failing::From)?;
            }
        }
    }
    Ok(all)
}

#[kernel::prelude::kunit_tests(vmap_rust_memory)]
mod tests {
    use super::*;

    #[test]
    fn whichever_allocation_fails_nothing_is_left_behind() -> Result {
        let failed = each_case(Case::run)?;
        pr_info!("{failed} allocations failed\n");
        assert!(!mm::CAN_FAIL || failed > 50);
        assert!(!mm::CAN_FAIL_ALL || failed > 200);
        Ok(())
    }

    /// Fills a space until the tree has several levels. In each step the n-th allocation fails, for ascending n until one
    /// is served at once.
    #[test]
    fn every_allocation_fails_once_while_the_tree_grows() -> Result {
        const COUNT: usize = 600;
        mm::stay_on_this_cpu()?;
        let home = Span::with_size(START, COUNT * PAGE_SIZE).ok_or(EINVAL)?;
        let space = World::new(home).space()?;
        let req = Request {
            gfp: Gfp::NOWAIT,
            ..Request::any_page(home)
        };
        for index in 0..COUNT {
            for nth in 1.. {
                let (area, has_failed) = Failing::Only(nth).run(|| space.alloc_bare(req));
                let start = area.map(|area| area.span().first());
                assert_eq!(
                    start.unwrap_or(START + index * PAGE_SIZE),
                    START + index * PAGE_SIZE
                );
                assert!(start.is_ok() || has_failed);
                assert_eq!(space.validate()?.busy, index + usize::from(start.is_ok()));
                if !has_failed {
                    break;
                }
                free_all(&space, start.into_iter());
            }
        }
        let starts = (0..COUNT).map(|index| START + index * PAGE_SIZE);
        assert_eq!(free_all(&space, starts), COUNT);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// No range leaks, and the next purge frees what is stuck. Each hole in the tree needs a node.
    #[test]
    fn stuck_areas_are_neither_found_nor_flushed_again() -> Result {
        const COUNT: usize = 400;
        mm::stay_on_this_cpu()?;
        let home = Span::with_size(START, COUNT * PAGE_SIZE).ok_or(EINVAL)?;
        let space = World::new(home).space()?;
        let starts = fill(&space, &Request::any_page(home), COUNT)?;
        // In a kernel, only one allocation of each purge fails, and that may be one of a debugging option.
        let fails = [Failing::Only, Failing::From][usize::from(mm::CAN_FAIL_ALL)];
        for first in 0..3 {
            for &start in starts.iter().skip(first).step_by(3) {
                retire(&space, start)?;
                let (purged, _) = fails(1).run(|| space.purge(None, false));
                assert_eq!((purged, space.tlb().flushes()), (1, 1));
            }
            assert_eq!(space.validate()?.unlinked, space.stuck());
        }
        let (failed, stuck) = (space.counters().give_back_nomem, space.stuck());
        // The maple tree needs no node for some erasures, and has another way for others.
        assert!(failed >= stuck && (failed > 0 || !mm::CAN_FAIL));
        assert!(stuck > COUNT / 2 || !mm::CAN_FAIL_ALL);
        assert!(starts.iter().all(|&start| space.find(start).is_none()));
        assert_eq!(space.purge(None, false), 0);
        let left = (space.tlb().flushes(), space.stuck(), space.reclaimable());
        assert_eq!(left, (0, 0, 0));
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }
}
