// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the allocator alone, in spaces of their own: nothing is mapped, and the kernel's areas
//! are not touched. Each suite has a file; what several suites use is here.

mod bitmaps;
mod blocks;
mod checker;
mod listing;
pub(crate) mod memory;
mod page_map;
mod spaces;
mod traces;

use crate::{
    check::{
        fixtures::{
            publish,
            Failing,
            FlushLog,
            World, //
        },
        random::Random, //
    },
    policy::prelude::*, //
};

/// Start of the space, not aligned to a block.
const START: usize = 31 * SIZE + PAGE_SIZE;
/// First address of the first block.
const FIRST: usize = 32 * SIZE;
/// Slots of a block of areas of two pages.
const SLOTS: usize = TABLE_PAGES / 2;

/// Creates a space of `pages` pages without blocks, and a request for one page anywhere in it.
fn make(start: usize, pages: usize) -> Result<(Space<FlushLog>, Request)> {
    mm::stay_on_this_cpu()?;
    let window = Span::with_size(start, pages * PAGE_SIZE).ok_or(EINVAL)?;
    let space = World::new(window).space()?;
    Ok((space, Request::any_page(window)))
}

/// Creates a space with room for `blocks` of the smallest blocks, which may have `limit` at most, and a request for two
/// pages.
fn make_blocks(blocks: usize, limit: usize) -> Result<(Space<FlushLog>, Request)> {
    mm::stay_on_this_cpu()?;
    let window = Span::from_bounds(START, FIRST + blocks * SIZE + PAGE_SIZE).ok_or(EINVAL)?;
    let space = World::new(window).blocks(limit).space()?;
    Ok((space, Request::bytes(window, 2 * PAGE_SIZE)))
}

/// Creates a space with blocks of all classes, and a request for two pages. [`None`] on 32-bit machines, which have too
/// few addresses.
fn make_large() -> Result<Option<(Space<FlushLog>, Request)>> {
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

/// Allocates an area. Returns its first address.
fn alloc(space: &Space<FlushLog>, req: &Request) -> Result<usize> {
    Ok(space.alloc_bare(*req)?.span().first())
}

/// Allocates `count` areas. Returns their first addresses.
fn fill(space: &Space<FlushLog>, req: &Request, count: usize) -> Result<KVec<usize>> {
    let mut starts = KVec::new();
    for _ in 0..count {
        starts.push(alloc(space, req)?, GFP_KERNEL)?;
    }
    Ok(starts)
}

/// Allocates all of the span from `start` to `end`.
fn fill_span(space: &Space<FlushLog>, start: usize, end: usize) -> Result<Busy> {
    let window = Span::from_bounds(start, end).ok_or(EINVAL)?;
    space.alloc_bare(Request::bytes(window, window.size()))
}

/// Frees the area at `start` without a purge. Returns what [`Space::retire`] does.
fn retire(space: &Space<FlushLog>, start: usize) -> Result<usize> {
    Ok(space.retire(space.unlink(start).ok_or(EINVAL)?))
}

/// Frees the areas that start at `starts`, and purges. Returns the number of areas freed.
fn free_all(space: &Space<FlushLog>, starts: impl Iterator<Item = usize>) -> usize {
    let freed = starts.filter(|&start| retire(space, start).is_ok()).count();
    space.purge(None, true);
    freed
}
