// SPDX-License-Identifier: GPL-2.0

//! Blocks: which areas they serve, how lookups find these, and what becomes of full and of empty blocks. The helpers
//! for a space with blocks are here, too.

use super::{
    alloc,
    free_all, //
};
use crate::{
    base::{
        fit::Member,
        prelude::*,
        stats::line, //
    },
    check::fixtures::{
        publish,
        Failing,
        FlushLog,
        World, //
    },
    policy::space::{
        Request,
        Space, //
    },
    state::{
        area::Busy,
        class::{
            Class,
            MOST_BLOCK_PAGES,
            MOST_PAGES,
            SIZE,
            TABLE_PAGES, //
        }, //
    },
    sys::mm::{
        self,
        Gfp, //
    }, //
};

/// Start of the space, not aligned to a block.
pub(super) const START: usize = 31 * SIZE + PAGE_SIZE;
/// First address of the first block.
pub(super) const FIRST: usize = 32 * SIZE;
/// Slots of a block of areas of two pages.
pub(super) const SLOTS: usize = TABLE_PAGES / 2;

/// Creates a space with room for `blocks` of the smallest blocks, which may have `limit` at most, and a request for two
/// pages.
pub(super) fn make_blocks(blocks: usize, limit: usize) -> Result<(Space<FlushLog>, Request)> {
    mm::stay_on_this_cpu()?;
    let window = Span::from_bounds(START, FIRST + blocks * SIZE + PAGE_SIZE).ok_or(EINVAL)?;
    let space = World::new(window).blocks(limit).space()?;
    Ok((space, Request::bytes(window, 2 * PAGE_SIZE)))
}

/// Creates a space with blocks of all classes, and a request for two pages. [`None`] on 32-bit machines, which have too
/// few addresses.
pub(super) fn make_large() -> Result<Option<(Space<FlushLog>, Request)>> {
    mm::stay_on_this_cpu()?;
    let Some(size) = (130 * PAGE_SIZE).checked_mul(MOST_BLOCK_PAGES) else {
        return if usize::BITS == 32 {
            Ok(None)
        } else {
            Err(EINVAL)
        };
    };
    let window = Span::with_size(START, size).ok_or(EINVAL)?;
    let space = World::new(window).space()?;
    Ok(Some((space, Request::bytes(window, 2 * PAGE_SIZE))))
}

/// Allocates `count` areas. Returns their first addresses.
pub(super) fn fill(space: &Space<FlushLog>, req: &Request, count: usize) -> Result<KVec<usize>> {
    let mut starts = KVec::new();
    for _ in 0..count {
        starts.push(alloc(space, req)?, GFP_KERNEL)?;
    }
    Ok(starts)
}

/// Allocates all of the span from `start` to `end`.
pub(super) fn fill_span(space: &Space<FlushLog>, start: usize, end: usize) -> Result<Busy> {
    let window = Span::from_bounds(start, end).ok_or(EINVAL)?;
    space.alloc(Request::bytes(window, window.size()))
}

/// Frees the area at `start` without a purge. Returns what [`Space::retire`] does.
pub(super) fn retire(space: &Space<FlushLog>, start: usize) -> Result<usize> {
    Ok(space.retire(space.unlink(start).ok_or(EINVAL)?))
}

/// Members of a set: a page, and two pages five pages above it. A slot of four pages has room for each, no smaller one.
pub(super) const SET: [Member; 2] = [
    Member {
        offset: 0,
        size: PAGE_SIZE,
    },
    Member {
        offset: 5 * PAGE_SIZE,
        size: 2 * PAGE_SIZE,
    },
];

/// Serves a request for a set as [`SET`]. Returns where the areas are.
pub(super) fn alloc_set(space: &Space<FlushLog>, window: Span) -> Result<[Option<Span>; 2]> {
    let mut spans = [None; 2];
    let members = SET.into_iter();
    space.alloc_congruent(window, members, PAGE_SIZE, Gfp::NOWAIT, |index, area| {
        let area = publish(index, area)?;
        spans[index % 2] = Some(area.span());
        Some(area)
    })?;
    Ok(spans)
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

    /// Frees the areas at `starts`, and purges without a drain.
    fn purge_all(space: &Space<FlushLog>, starts: &[usize]) -> Result {
        for &start in starts {
            retire(space, start)?;
        }
        assert_eq!(space.purge(None, false), starts.len());
        Ok(())
    }

    /// Creates a space with room for one block, of `pages` pages each, in which all other addresses are taken. It has
    /// `count` areas in the block. Returns the space, its request, and these areas.
    fn make_full(pages: usize, count: usize) -> Result<(Space<FlushLog>, Request, KVec<usize>)> {
        let (space, mut req) = make_blocks(1, 1)?;
        req.size = pages * PAGE_SIZE;
        let starts = fill(&space, &req, count)?;
        assert_eq!(starts[0], FIRST);
        fill_span(&space, START, FIRST)?;
        fill_span(&space, FIRST + SIZE, FIRST + SIZE + PAGE_SIZE)?;
        Ok((space, req, starts))
    }

    /// Ends a test with a space of [`make_full`], of which the areas `starts` are left.
    fn end_full(space: &Space<FlushLog>, starts: &[usize]) -> Result {
        let others = [START, FIRST + SIZE];
        let all = Iterator::chain(others.iter(), starts).copied();
        assert_eq!(free_all(space, all), starts.len() + 2);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    #[test]
    fn each_counter_has_a_line_with_its_meaning() -> Result {
        let (space, _) = make_blocks(8, 8)?;
        let mut written = Written::default();
        let counters = space.counters();
        assert!(counters.all().iter().all(|&(name, value, meaning)| line(
            &mut written,
            name,
            value,
            meaning
        )
        .is_ok()));
        assert!(written.lines > 12);
        // On average at least a name, a number and two words per line.
        assert!(written.words >= 4 * written.lines);
        Ok(())
    }

    #[test]
    fn requests_with_a_window_of_their_own_are_served_by_the_tree() -> Result {
        let (space, mut req) = make_blocks(64, 64)?;
        req.window = Span::with_size(FIRST + 8 * SIZE, 256 * PAGE_SIZE).ok_or(EINVAL)?;
        req.gfp = Gfp::NOWAIT;
        for round in 0..200 {
            let mut starts = KVec::new();
            for index in 0..8 {
                req.size = (1 + (round + index) % 31) * PAGE_SIZE;
                starts.push(alloc(&space, &req)?, GFP_KERNEL)?;
            }
            assert!(starts.iter().all(|&start| req.window.contains(start)));
            purge_all(&space, &starts)?;
            // Nothing is left in the window, though the purge was no drain.
            assert_eq!(space.validate()?, Default::default());
        }
        assert_eq!(space.counters().alloc_tree, 200 * 8);
        assert_eq!(space.counters().block_new, 0);
        Ok(())
    }

    #[test]
    fn areas_get_the_lowest_slot_of_the_lowest_block() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, 2 * SLOTS)?;
        for (index, &start) in starts.iter().enumerate() {
            assert_eq!(start, FIRST + index * 2 * PAGE_SIZE);
        }
        // Both blocks are full: neither the current one nor the other is in a list.
        let blocks = space.blocks();
        assert_eq!(
            (blocks.live, blocks.bytes, blocks.partial),
            (2, 2 * SIZE, 0)
        );
        let counters = space.counters();
        assert_eq!((counters.block_new, counters.refill), (2, 2));
        assert_eq!((counters.hit, counters.alloc_tree), (2 * SLOTS, 0));
        let census = space.validate()?;
        assert_eq!((census.busy, census.blocks), (2 * SLOTS, 2));
        assert_eq!(free_all(&space, starts.iter().copied()), 2 * SLOTS);
        assert_eq!(space.blocks(), Default::default());
        assert_eq!(space.counters().block_freed, 2);
        Ok(())
    }

    #[test]
    fn lazy_slots_are_not_reused_before_a_purge() -> Result {
        let (space, req) = make_blocks(8, 1)?;
        let starts = fill(&space, &req, SLOTS)?;
        let freed = starts[7];
        retire(&space, freed)?;
        assert_eq!(space.lazy_pages(), 2);
        // The block is full, and there may be no other: the tree serves the request.
        let other = fill(&space, &req, 1)?;
        assert!(other[0] < FIRST || other[0] >= FIRST + SIZE);
        assert_eq!(space.tlb().take(), None);
        assert_eq!(space.purge(None, false), 1);
        let flushed = Span::with_size(freed, 2 * PAGE_SIZE);
        assert_eq!(space.tlb().take(), flushed.map(|span| (span, 1)));
        assert_eq!(space.lazy_pages(), 0);
        // The slot is reused although other areas of the block are busy.
        assert_eq!(fill(&space, &req, 1)?[0], freed);
        let all = Iterator::chain(starts.iter(), &*other);
        assert_eq!(free_all(&space, all.copied()), SLOTS + 1);
        Ok(())
    }

    #[test]
    fn retired_areas_are_listed_until_they_are_flushed() -> Result {
        let (space, mut req) = make_blocks(8, 8)?;
        req.size = 5 * PAGE_SIZE;
        let starts = fill(&space, &req, 3)?;
        let span = Span::with_size(starts[1], 5 * PAGE_SIZE);
        let area = space.unlink(starts[1] + 3 * PAGE_SIZE).ok_or(EINVAL)?;
        // C unmaps it first.
        assert_eq!(space.next_lazy(None), None);
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
    fn an_area_is_unlinked_once_and_not_found_afterwards() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, 2)?;
        let area = space.unlink(starts[0] + PAGE_SIZE).ok_or(EINVAL)?;
        for step in 0..3 {
            for addr in [starts[0], starts[0] + 2 * PAGE_SIZE - 1] {
                assert!(space.find(addr).is_none());
                assert!(space.try_get(addr).is_none());
                assert!(space.unlink(addr).is_none());
            }
            let next = space.get(starts[0]).map(|(area, _pin)| area.span().first());
            assert_eq!(next, Some(starts[1]));
            match step {
                0 => assert_eq!(space.lazy_pages(), 0),
                1 => assert_eq!(space.purge(None, false), 0),
                _ => break,
            }
        }
        space.retire(area);
        assert!(space.unlink(starts[0]).is_none());
        assert_eq!(space.purge(None, false), 1);
        assert!(space.unlink(starts[0]).is_none());
        assert_eq!(free_all(&space, starts.iter().copied()), 1);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// With areas of each class: whole slots, aligned as much as these are, and small areas with such an alignment.
    #[test]
    fn every_address_of_an_area_finds_it_and_no_other() -> Result {
        let Some((space, mut req)) = make_large()? else {
            return Ok(());
        };
        let mut all = KVec::new();
        for class in Class::all() {
            let slot = class.slot_pages();
            let align = 1 << slot.trailing_zeros();
            for (pages, align) in [(slot, 1), (slot, align), (1, align)] {
                (req.size, req.align) = (pages * PAGE_SIZE, align * PAGE_SIZE);
                let area = space.alloc(req.again())?;
                assert!(is_aligned(area.span().first(), req.align));
                all.push(area, GFP_KERNEL)?;
            }
        }
        assert_eq!(space.blocks().live, Class::all().count());
        assert_eq!(space.counters().alloc_tree, 0);
        assert_eq!(space.validate()?.busy, all.len());
        for &area in all.iter() {
            let (span, pages) = (area.span(), area.span().size() / PAGE_SIZE);
            let some = (0..pages).step_by(1 + pages / 64);
            for page in Iterator::chain(some, [pages - 1]) {
                let first = span.first() + page * PAGE_SIZE;
                assert_eq!(space.find(first), Some(area));
                assert_eq!(space.find(first + PAGE_SIZE - 1), Some(area));
            }
            assert!(space.find(span.first() - 1) != Some(area));
            assert!(space.find(span.end()) != Some(area));
        }
        // `get()` returns all of them in ascending order.
        let mut addr = 0;
        for _ in 0..all.len() {
            let (area, _pin) = space.get(addr).ok_or(EINVAL)?;
            assert!(area.span().first() >= addr && all.contains(&area));
            addr = area.span().end();
        }
        assert!(space.get(addr).is_none());
        let starts = all.iter().map(|area| area.span().first());
        assert_eq!(free_all(&space, starts), all.len());
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    #[test]
    fn blocks_serve_up_to_64_mib_and_a_guard_page_in_a_large_space() -> Result {
        let Some((space, mut req)) = make_large()? else {
            return Ok(());
        };
        assert!(space.serves(PAGE_SIZE) && space.serves(MOST_PAGES * PAGE_SIZE));
        assert!(!space.serves(0) && !space.serves((MOST_PAGES + 1) * PAGE_SIZE));
        // The size is with pages of 4 KiB.
        req.size = ((1 << 14) + 1) * PAGE_SIZE;
        let starts = fill(&space, &req, 3)?;
        let slot = MOST_PAGES * PAGE_SIZE;
        assert_eq!([starts[1] - starts[0], starts[2] - starts[1]], [slot, slot]);
        assert!(space.find(starts[0] + req.size - 1).is_some());
        assert!(space.find(starts[0] + req.size).is_none());
        // The area is listed as it is, but the slot counts as a whole.
        retire(&space, starts[1])?;
        assert_eq!(space.lazy_pages(), MOST_PAGES);
        assert_eq!(space.validate()?.lazy_pages, MOST_PAGES);
        let span = Span::with_size(starts[1], req.size);
        assert_eq!(space.next_lazy(None), span);
        assert_eq!(space.purge(None, false), 1);
        let (flushed, _) = space.tlb().take().ok_or(EINVAL)?;
        assert!(span.is_some_and(|span| flushed.covers(span)));
        assert_eq!(fill(&space, &req, 1)?[0], starts[1]);
        assert_eq!(space.counters().alloc_tree, 0);
        // The tree serves what is larger, and what has a larger alignment than any slot.
        req.size = (MOST_PAGES + 1) * PAGE_SIZE;
        let larger = alloc(&space, &req)?;
        (req.size, req.align) = (PAGE_SIZE, MOST_PAGES.next_power_of_two() * PAGE_SIZE);
        let aligned = alloc(&space, &req)?;
        assert!(is_aligned(aligned, req.align));
        assert_eq!(space.counters().alloc_tree, 2);
        let others = [larger, aligned];
        free_all(&space, Iterator::chain(starts.iter(), &others).copied());
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// A space has blocks of the classes for which it has room for at least 48 blocks.
    #[test]
    fn a_small_space_has_blocks_of_small_classes_only() -> Result {
        for (blocks, most) in [(47, 0), (48, 32), (2 * 48, 64), (4 * 48, 128)] {
            let end = FIRST + blocks * SIZE + PAGE_SIZE;
            let home = Span::from_bounds(START, end).ok_or(EINVAL)?;
            let space = World::new(home).space()?;
            for pages in 1..=2 * 128 {
                let serves = space.serves(pages * PAGE_SIZE);
                assert_eq!(serves, (..=most).contains(&pages));
            }
        }
        Ok(())
    }

    /// A table of PTEs that one area needs would make way for a larger entry of the other, in turns.
    #[test]
    fn areas_of_whole_page_tables_share_none() -> Result {
        let Some((space, mut req)) = make_large()? else {
            return Ok(());
        };
        let mut areas: KVec<Span> = KVec::new();
        for pages in [512, 3, 513, 448, 1000, 1, 1025, 300, 3000, 5000] {
            req.size = pages * PAGE_SIZE;
            for _ in 0..3 {
                let area = space.alloc(req.again())?.span();
                let [first, last] = [area.first(), area.last()].map(|addr| addr / SIZE);
                for other in areas.iter() {
                    let is_large = pages.max(other.size() / PAGE_SIZE) >= TABLE_PAGES;
                    let is_apart = other.last() / SIZE < first || other.first() / SIZE > last;
                    assert!(is_apart || !is_large);
                }
                areas.push(area, GFP_KERNEL)?;
            }
        }
        assert_eq!(space.counters().alloc_tree, 0);
        free_all(&space, areas.iter().map(|area| area.first()));
        Ok(())
    }

    /// A stale entry of the directory must not lead to the block that replaces another one.
    #[test]
    fn blocks_of_different_sizes_replace_each_other() -> Result {
        let (space, mut req) = make_blocks(32, 32)?;
        for pages in [2, 100, 30, 2, 30, 100, 2] {
            req.size = pages * PAGE_SIZE;
            let starts = fill(&space, &req, 12)?;
            assert_eq!(starts[0], FIRST);
            assert_eq!(space.blocks().live, 1);
            assert_eq!(space.validate()?.busy, 12);
            assert_eq!(free_all(&space, starts.iter().copied()), 12);
            assert_eq!(space.blocks(), Default::default());
            for page in 0..4 * TABLE_PAGES {
                assert!(space.find(FIRST + page * PAGE_SIZE).is_none());
            }
        }
        Ok(())
    }

    #[test]
    fn partial_blocks_are_used_before_a_new_one_is_made() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, 2 * SLOTS + 10)?;
        assert_eq!((space.blocks().live, space.blocks().partial), (3, 0));
        // One area of each block; the last block is the current one.
        let freed = [1, SLOTS + 1, 2 * SLOTS + 1].map(|index| starts[index]);
        purge_all(&space, &freed)?;
        assert_eq!(space.blocks().partial, 2);
        let again = fill(&space, &req, 1 + SLOTS - 10 + 2)?;
        assert_eq!(space.counters().block_new, 3);
        assert_eq!(again[0], freed[2]);
        let [.., one, two] = again[..] else {
            return Err(EINVAL);
        };
        assert_eq!([one.min(two), one.max(two)], [freed[0], freed[1]]);
        // All are full now.
        let more = alloc(&space, &req)?;
        assert_eq!(more, FIRST + 3 * SIZE);
        let all = (0..3 * SLOTS + 1).map(|index| FIRST + index * 2 * PAGE_SIZE);
        assert_eq!(free_all(&space, all), 3 * SLOTS + 1);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    #[test]
    fn a_freed_block_is_not_found_any_more() -> Result {
        let (space, mut req) = make_blocks(1, 1)?;
        for _ in 0..2 {
            let starts = fill(&space, &req, 1)?;
            assert_eq!((starts[0], space.blocks().live), (FIRST, 1));
            assert_eq!(free_all(&space, starts.iter().copied()), 1);
            assert_eq!(space.blocks().live, 0);
            // A large area replaces the block.
            let area = fill_span(&space, FIRST, FIRST + SIZE)?;
            for page in [0, SLOTS, TABLE_PAGES - 1] {
                assert_eq!(space.find(FIRST + page * PAGE_SIZE), Some(area));
            }
            assert!(space.get(0).is_some_and(|(found, _pin)| found == area));
            assert_eq!(free_all(&space, [FIRST].into_iter()), 1);
            // Then a block replaces the area.
        }
        req.size = PAGE_SIZE;
        assert_eq!(alloc(&space, &req)?, FIRST);
        free_all(&space, [FIRST].into_iter());
        Ok(())
    }

    #[test]
    fn a_request_without_room_takes_larger_slots() -> Result {
        let (space, mut req, large) = make_full(20, 1)?;
        // The slots are aligned to four pages, not to more.
        (req.size, req.align) = (2 * PAGE_SIZE, 4 * PAGE_SIZE);
        let small = fill(&space, &req, 3)?;
        assert_eq!(space.counters().steal, 3);
        for (index, &start) in small.iter().enumerate() {
            assert_eq!(start, FIRST + (index + 1) * 20 * PAGE_SIZE);
            let found = [0, 1, 2, 19].map(|page| space.find(start + page * PAGE_SIZE).is_some());
            assert_eq!(found, [true, true, false, false]);
        }
        // Neither a larger area nor a larger alignment fits.
        for (pages, align) in [(21, 1), (2, 16)] {
            (req.size, req.align) = (pages * PAGE_SIZE, align * PAGE_SIZE);
            assert_eq!(space.alloc(req.again()).err(), Some(EBUSY));
        }
        assert_eq!(space.counters().no_room, 2);
        assert_eq!(space.validate()?.busy, 4 + 2);
        let mut all = small;
        all.push(large[0], GFP_KERNEL)?;
        end_full(&space, &all)
    }

    #[test]
    fn an_empty_block_makes_room_for_what_is_larger() -> Result {
        for gfp in [Gfp::KERNEL, Gfp::NOWAIT] {
            for pages in [8, TABLE_PAGES] {
                let (space, mut req, small) = make_full(2, 3)?;
                (req.size, req.gfp) = (pages * PAGE_SIZE, gfp);
                // With an area in it, the block stays.
                purge_all(&space, &small[1..])?;
                assert_eq!(space.alloc(req.again()).err(), Some(EBUSY));
                assert_eq!(space.blocks().live, 1);
                purge_all(&space, &small[..1])?;
                assert_eq!((space.blocks().live, space.blocks().empty), (1, 1));
                assert_eq!(alloc(&space, &req)?, FIRST);
                let counters = space.counters();
                assert_eq!((counters.block_freed, counters.steal), (1, 0));
                assert_eq!(space.blocks(), Default::default());
                end_full(&space, &[FIRST])?;
            }
        }
        Ok(())
    }

    /// A block serves sets with exactly the window of the space, until no place in it has all members free.
    #[test]
    fn sets_at_a_common_base_come_from_blocks() -> Result {
        let (space, req) = make_blocks(8, 1)?;
        let mut all = KVec::new();
        let mut sets = 0;
        while sets < TABLE_PAGES {
            let spans = alloc_set(&space, req.window)?;
            sets += 1;
            let base = spans[0].ok_or(EINVAL)?.first();
            for (member, span) in SET.into_iter().zip(spans) {
                assert_eq!(span, member.at(base));
                let span = span.ok_or(EINVAL)?;
                for addr in [span.first(), span.last()] {
                    assert_eq!(space.find(addr).map(Busy::span), Some(span));
                }
                assert!(space.find(span.end()).map(Busy::span) != Some(span));
                all.push(span.first(), GFP_KERNEL)?;
            }
            assert_eq!(space.validate()?.busy, 2 * sets);
            if !(FIRST..FIRST + SIZE).contains(&base) {
                break;
            }
        }
        // A set takes two neighbours of the 128 slots: the last one was served by the tree.
        assert_eq!(sets, TABLE_PAGES / 4 / 2 + 1);
        assert_eq!(space.counters().alloc_congruent, 2 * sets);
        assert_eq!((space.blocks().live, space.counters().alloc_tree), (1, 0));
        // One of another window is served by the tree, too.
        let window = Span::from_bounds(START, FIRST).ok_or(EINVAL)?;
        for span in alloc_set(&space, window)? {
            let span = span.ok_or(EINVAL)?;
            assert!(window.covers(span));
            all.push(span.first(), GFP_KERNEL)?;
        }
        assert_eq!(free_all(&space, all.iter().copied()), 2 * sets + 2);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// The current block has room, but no two neighbours are free. It stays for other requests.
    #[test]
    fn a_set_that_has_no_place_in_a_block_gets_an_empty_one() -> Result {
        let (space, mut req) = make_blocks(8, 2)?;
        req.size = 4 * PAGE_SIZE;
        let all = fill(&space, &req, TABLE_PAGES / 4)?;
        let odd = |start: &&usize| (*start / req.size) % 2 == 1;
        for start in all.iter().filter(odd) {
            retire(&space, *start)?;
        }
        space.purge(None, false);
        let spans = alloc_set(&space, req.window)?;
        assert!(spans[0].is_some_and(|span| span.first() >= FIRST + SIZE));
        assert_eq!((space.blocks().live, space.counters().alloc_tree), (2, 0));
        assert_eq!(space.counters().alloc_congruent, 2);
        let sets = spans.iter().flatten().map(|span| span.first());
        let even = all
            .iter()
            .copied()
            .filter(|start| (start / req.size) % 2 == 0);
        assert_eq!(
            free_all(&space, Iterator::chain(even, sets)),
            TABLE_PAGES / 8 + 2
        );
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// Sets use partial blocks of the pool before they ask for an empty one.
    #[test]
    fn sets_fill_partial_blocks() -> Result {
        const ROUNDS: usize = 8;
        let (space, req) = make_blocks(2 * ROUNDS, 2 * ROUNDS)?;
        let one = [Member {
            offset: 0,
            size: 4 * PAGE_SIZE,
        }];
        let mut kept = KVec::new();
        for _ in 0..ROUNDS {
            let mut all = KVec::new();
            for _ in 0..TABLE_PAGES / 4 {
                let (window, gfp) = (req.window, Gfp::NOWAIT);
                space.alloc_congruent(window, one.into_iter(), PAGE_SIZE, gfp, |index, area| {
                    let area = publish(index, area)?;
                    all.push(area.span().first(), GFP_NOWAIT).ok()?;
                    Some(area)
                })?;
            }
            let (first, others) = all.split_first().ok_or(EINVAL)?;
            kept.push(*first, GFP_KERNEL)?;
            for start in others {
                retire(&space, *start)?;
            }
            space.purge(None, false);
        }
        assert_eq!((space.blocks().live, space.counters().alloc_tree), (2, 0));
        assert_eq!(free_all(&space, kept.iter().copied()), ROUNDS);
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }

    /// A search for room for a block is repeated when a range of the tree became free.
    #[test]
    fn a_returned_range_makes_room_for_a_block() -> Result {
        let (space, req) = make_blocks(1, 1)?;
        // The only place of a block, and nothing of the gap before it.
        fill_span(&space, FIRST, FIRST + SIZE)?;
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

    /// The current block of another class stays one: it is neither put into the pool nor freed.
    #[test]
    fn a_request_that_can_never_fit_touches_no_block_and_allocates_nothing() -> Result {
        let (space, mut req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, 1)?;
        retire(&space, starts[0])?;
        space.purge(None, false);
        let before = space.blocks();
        let outside = Span::with_size(START / 2, SIZE).ok_or(EINVAL)?;
        for (window, size) in [
            (req.window, req.window.size() + PAGE_SIZE),
            (req.window, usize::MAX / PAGE_SIZE * PAGE_SIZE),
            (outside, 2 * SIZE),
        ] {
            (req.window, req.size) = (window, size);
            let (result, failed) = Failing::Only(1).run(|| space.alloc(req.again()));
            assert_eq!(result.err(), Some(EBUSY));
            assert!(!failed);
            assert_eq!(space.blocks(), before);
        }
        assert_eq!(space.counters().no_room, 3);
        assert_eq!((before.live, before.partial), (1, 0));
        (req.window, req.size) = (space.home(), 2 * PAGE_SIZE);
        assert_eq!(alloc(&space, &req)?, FIRST);
        assert_eq!(space.counters().refill, 1);
        free_all(&space, [FIRST].into_iter());
        Ok(())
    }

    #[test]
    fn lazy_pages_of_blocks_count_when_a_large_area_is_freed() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        let small = fill(&space, &req, 200)?;
        fill_span(&space, START, START + 40 * PAGE_SIZE)?;
        let mut lazy = 0;
        for &start in small.iter() {
            // 0 if this CPU has only counted the pages by itself.
            lazy = lazy.max(retire(&space, start)?);
        }
        assert!(lazy > 0 && lazy <= 400);
        assert!(retire(&space, START)? >= lazy + 40);
        assert_eq!(space.lazy_pages(), 400 + 40);
        space.purge(None, true);
        Ok(())
    }

    /// C begins a purge if `retire()` returns more than `lazy_max_pages()` in mm/vmalloc.c.
    #[test]
    fn a_purge_is_due_when_a_quarter_of_what_blocks_may_have_is_lazy() -> Result {
        let (space, req) = make_blocks(8, 1)?;
        let starts = fill(&space, &req, SLOTS)?;
        let mut due = None;
        for (index, &start) in starts.iter().enumerate() {
            if retire(&space, start)? > 1 << 19 {
                due = due.or(Some(index));
            }
        }
        assert!(due.is_some_and(|index| (SLOTS / 4 - 1..SLOTS / 2).contains(&index)));
        space.purge(None, true);
        Ok(())
    }

    #[test]
    fn a_purge_flushes_once_wherever_the_areas_are() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, 4 * SLOTS)?;
        for count in 1..=5 {
            for &start in starts.iter().skip(count).step_by(SLOTS).take(count) {
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
        const BLOCKS: usize = 20;
        let (space, req) = make_blocks(BLOCKS, BLOCKS)?;
        for _ in 0..3 {
            let starts = fill(&space, &req, BLOCKS * SLOTS)?;
            purge_all(&space, &starts)?;
            // One is the current block.
            assert_eq!(space.blocks().empty, BLOCKS - 1);
        }
        assert_eq!(space.counters().block_new, BLOCKS);
        assert_eq!(space.counters().block_freed, 0);
        // The first round took all, the others one less. Each purge after which none was needed keeps an eighth less.
        for empty in [16, 14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 2] {
            purge_all(&space, &fill(&space, &req, 1)?)?;
            let blocks = space.blocks();
            assert_eq!((blocks.empty, blocks.live), (empty, empty + 1));
            assert_eq!(space.reclaimable(), empty);
        }
        assert_eq!(space.drain_for_reclaim(usize::MAX), 3);
        assert_eq!(space.blocks(), Default::default());
        assert_eq!(space.validate()?, Default::default());
        Ok(())
    }
}
