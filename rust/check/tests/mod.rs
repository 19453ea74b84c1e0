// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the allocator alone, in spaces of their own: nothing is mapped, and the kernel's areas
//! are not touched. Each suite has a file; what several suites use is here.

mod block_memory;
mod blocks;
mod listing;
mod memory;
mod page_map;
mod spaces;
mod traces;

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::fixtures::{
        FlushLog,
        World, //
    },
    policy::space::{
        Request,
        Space, //
    },
    sys::mm, //
};
use kernel::prelude::*;

/// Creates a space of `pages` pages without blocks, and a request for one page anywhere in it.
fn make(start: usize, pages: usize) -> Result<(Space<FlushLog>, Request)> {
    mm::stay_on_this_cpu()?;
    let window = Span::with_size(start, pages * PAGE_SIZE).ok_or(EINVAL)?;
    let space = World::new(window).space()?;
    Ok((space, Request::any_page(window)))
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

/// Allocates an area. Returns its first address.
fn alloc(space: &Space<FlushLog>, req: &Request) -> Result<usize> {
    Ok(space.alloc(req.again())?.span().first())
}
