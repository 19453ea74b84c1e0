// SPDX-License-Identifier: GPL-2.0

//! Blocks: which areas they serve, how lookups find these, and what becomes of full and of empty blocks.

use super::*;

/// Members of a set: a page, and two pages five pages above it. A slot of four pages has room for each, no smaller one.
const SET: [Member; 2] = [
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
fn alloc_set(space: &Space<FlushLog>, window: Span) -> Result<[Option<Span>; 2]> {
    let mut spans = [None; 2];
    let members = SET.into_iter();
    space.alloc_congruent(window, members, PAGE_SIZE, Gfp::NOWAIT, |index, area| {
        let area = publish(index, area)?;
        spans[index % 2] = Some(area.span());
        Some(area)
    })?;
    Ok(spans)
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
                let area = space.alloc_bare(req)?;
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
        // `get()` returns all of them in ascending order, and none that begins behind its limit.
        let mut addr = 0;
        for _ in 0..all.len() {
            let area = space.get(addr, usize::MAX).ok_or(EINVAL)?.area();
            let first = area.span().first();
            assert!(first >= addr && all.contains(&area));
            let got = [first - 1, first].map(|last| Some(space.get(addr, last)?.area()));
            assert_eq!(got, [None, Some(area)]);
            addr = area.span().end();
        }
        assert!(space.get(addr, usize::MAX).is_none());
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
                let area = space.alloc_bare(req)?.span();
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

    #[test]
    fn partial_blocks_are_used_before_a_new_one_is_made() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, 2 * SLOTS + 10)?;
        for (index, &start) in starts.iter().enumerate() {
            assert_eq!(start, FIRST + index * 2 * PAGE_SIZE);
        }
        // Full blocks are in no list.
        let (blocks, counters) = (space.blocks(), space.counters());
        assert_eq!(
            (blocks.live, blocks.bytes, blocks.partial),
            (3, 3 * SIZE, 0)
        );
        assert_eq!((counters.block_new, counters.refill), (3, 3));
        assert_eq!((counters.hit, counters.alloc_tree), (2 * SLOTS + 10, 0));
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

    /// A walk over all areas passes over those that are not busy, and needs one search for a group of 32 slots.
    #[test]
    fn areas_side_by_side_are_pinned_together() -> Result {
        let (space, req) = make_blocks(1, 1)?;
        let starts = fill(&space, &req, 40)?;
        let retired = [1, 31, 32, 33].map(|nth| starts[nth]);
        for start in retired {
            retire(&space, start)?;
        }
        let mut busy = starts.iter().filter(|start| !retired.contains(start));
        let (mut addr, mut searches) = (0, 0);
        while let Some(pinned) = space.get(addr, usize::MAX) {
            for area in pinned.areas() {
                assert_eq!(busy.next(), Some(&area.span().first()));
                addr = area.span().end();
            }
            searches += 1;
        }
        assert!(busy.next().is_none());
        assert_eq!(searches, 2);
        let freed = free_all(&space, starts.iter().copied());
        assert_eq!(freed, starts.len() - retired.len());
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
            let found = space.get(0, usize::MAX);
            assert!(found.is_some_and(|found| found.area() == area));
            assert_eq!(free_all(&space, [FIRST].into_iter()), 1);
            // Then a block replaces the area.
        }
        req.size = PAGE_SIZE;
        assert_eq!(alloc(&space, &req)?, FIRST);
        free_all(&space, [FIRST].into_iter());
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

    /// The current block of another class stays one: it is neither put into the pool nor freed.
    #[test]
    fn a_request_that_can_never_fit_touches_no_block_and_allocates_nothing() -> Result {
        let (space, mut req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, 1)?;
        retire(&space, starts[0])?;
        space.purge(None, false);
        let before = space.blocks();
        let outside = Span::with_size(START / 2, SIZE).ok_or(EINVAL)?;
        for (window, size, align) in [
            (req.window, req.window.size() + PAGE_SIZE, 1),
            (req.window, usize::MAX / PAGE_SIZE * PAGE_SIZE, 1),
            (outside, 2 * SIZE, 1),
            (req.window, PAGE_SIZE, 1 << (usize::BITS - 2)),
        ] {
            (req.window, req.size, req.align) = (window, size, align);
            let (result, failed) = Failing::Only(1).run(|| space.alloc_bare(req));
            assert_eq!(result.err(), Some(EBUSY));
            assert!(!failed);
            assert_eq!(space.blocks(), before);
        }
        assert_eq!(space.counters().no_room, 4);
        let far = [0, (usize::MAX / 2) & !(PAGE_SIZE - 1)].map(|offset| Member {
            offset,
            size: PAGE_SIZE,
        });
        let (result, failed) = Failing::Only(1).run(|| {
            let far = far.into_iter();
            space.alloc_congruent(space.home(), far, PAGE_SIZE, Gfp::KERNEL, publish)
        });
        assert_eq!((result, failed), (Err(EBUSY), false));
        assert_eq!(space.blocks(), before);
        assert_eq!((before.live, before.partial), (1, 0));
        (req.window, req.size, req.align) = (space.home(), 2 * PAGE_SIZE, 1);
        assert_eq!(alloc(&space, &req)?, FIRST);
        assert_eq!(space.counters().refill, 1);
        free_all(&space, [FIRST].into_iter());
        Ok(())
    }
}
