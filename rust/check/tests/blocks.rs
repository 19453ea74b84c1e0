// SPDX-License-Identifier: GPL-2.0

//! Blocks: which areas they serve, how lookups find these, and what becomes of empty blocks. The helpers for a
//! space with blocks are here, too.

use super::free_all;
use crate::{
    base::{
        range::{
            Span,
            PAGE_SIZE, //
        },
        stats::line, //
    },
    check::fixtures::{
        Failing,
        FlushLog,
        World, //
    },
    policy::space::{
        Request,
        Space, //
    },
    state::{
        area::NeverMapped,
        band::{
            COARSE_PAGES,
            MAX_UNITS,
            TABLE_PAGES, //
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

/// Start of the space, not aligned to a block.
pub(super) const START: usize = 31 * SIZE + PAGE_SIZE;
/// First address of the first block.
pub(super) const FIRST: usize = 32 * SIZE;
/// Pages in a block.
const PAGES: usize = SIZE / PAGE_SIZE;

/// Creates a space with room for `blocks` blocks, which may have `limit` at most, and a request for two
/// pages.
pub(super) fn make_blocks(blocks: usize, limit: usize) -> Result<(Space<FlushLog>, Request)> {
    mm::stay_on_this_cpu()?;
    let window = Span::from_bounds(START, FIRST + blocks * SIZE).ok_or(EINVAL)?;
    let space = World::new(window).blocks(limit).space()?;
    Ok((space, Request::bytes(window, 2 * PAGE_SIZE)))
}

/// Allocates `count` areas. Returns their first addresses.
pub(super) fn fill(space: &Space<FlushLog>, req: &Request, count: usize) -> Result<KVec<usize>> {
    let mut starts = KVec::new();
    for _ in 0..count {
        let area = space.alloc(req)?;
        let start = space.start_of_busy(area).ok_or(EINVAL)?;
        starts.push(start, GFP_KERNEL)?;
    }
    Ok(starts)
}

/// Frees the area at `start` without a purge.
pub(super) fn retire(space: &Space<FlushLog>, start: usize) -> Result {
    space.retire(space.unlink(start).ok_or(EINVAL)?);
    Ok(())
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
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_a_line_with_its_meaning() -> Result {
        let (space, _) = make_blocks(8, 8)?;
        let mut written = Written::default();
        let counters = space.counters();
        assert!(counters
            .each(|name, value, meaning| line(&mut written, name, value, meaning))
            .is_ok());
        assert!(written.lines > 15);
        // On average at least a name, a number and two words per line.
        assert!(written.words >= 4 * written.lines);
        Ok(())
    }

    /// Ranges that only requests with a window of their own could use would fill the window if they were cached: such a
    /// request gets no cached range, and one that must not sleep makes room for only a few.
    #[test]
    fn small_areas_in_a_window_leave_no_cached_ranges() -> Result {
        let (space, mut req) = make_blocks(64, 64)?;
        req.window = Span::with_size(FIRST + 8 * SIZE, 256 * PAGE_SIZE).ok_or(EINVAL)?;
        req.gfp = Gfp::NOWAIT;
        for round in 0..200 {
            let mut starts = KVec::new();
            for index in 0..8 {
                req.size = (1 + (round + index) % 31) * PAGE_SIZE;
                let area = space.alloc(&req)?;
                starts.push(space.start_of_busy(area).ok_or(EINVAL)?, GFP_KERNEL)?;
            }
            for &start in starts.iter() {
                retire(&space, start)?;
            }
            assert_eq!(space.purge(None, false), 8);
            assert_eq!(space.cached(), 0);
        }
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
        assert_eq!(space.next_lazy(None), span);
        space.retire(area);
        assert_eq!(space.next_lazy(None), span);
        assert_eq!(space.next_lazy(span), None);
        let census = space.validate()?;
        assert_eq!((census.busy, census.unlinked, census.lazy_pages), (2, 1, 5));
        space.purge(None, false);
        assert_eq!(space.next_lazy(None), None);
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
        let space = World::new(window).space().ok()?;
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
        assert_eq!(space.next_lazy(None), span);
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
        let (area, _) = Failing::Only(1).run(|| space.alloc(&req));
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
        space.release(area, NeverMapped::in_test());
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
}
