// SPDX-License-Identifier: GPL-2.0

//! Busy areas as their owners have described them: reads what C has stored.

use crate::{
    base::prelude::*,
    debug::{
        callers::{
            Owned,
            Owner, //
        },
        KernelSpace, //
    }, //
};

/// In the flags of an area that belong to C: it is one of vm_map_ram(). The macro is in mm/vmalloc.c, so there is no binding.
const VMAP_RAM: usize = 0x1;

/// Returns the lowest busy area that ends above `addr` as its owner has described it. Spins; task context.
pub(super) fn next(space: &KernelSpace, addr: usize) -> Option<Owned> {
    // C unlinks an area before it frees what the area points to, and unlinking waits for the pin.
    let pinned = space.get(addr, usize::MAX)?;
    let (area, span) = (pinned.area().area(), pinned.area().span());
    // SAFETY: The area is pinned, so C does not write the field, and the union holds a `vm_struct` in a busy area.
    let vm = unsafe { (*area.as_raw()).__bindgen_anon_1.vm };
    let (owner, pages) = if vm.is_null() {
        // SAFETY: The area is pinned, so it is valid.
        let flags = unsafe { area.flags() };
        match flags & VMAP_RAM {
            0 => (Owner::Caller(0), 0),
            _ => (Owner::MapRam, 0),
        }
    } else {
        // SAFETY: The `vm_struct` is not freed while the area is pinned. C sets its caller before the area is busy,
        // or with the area pinned.
        let caller = unsafe { (*vm).caller };
        // SAFETY: As for the caller. C may change this field at any time, as a whole word.
        let pages = unsafe { Atomic::<usize>::from_ptr(&raw mut (*vm).nr_pages) };
        // Relaxed: a statistic orders nothing.
        (Owner::Caller(caller.addr()), pages.load(Relaxed))
    };
    Some(Owned {
        end: span.end(),
        bytes: span.size(),
        pages,
        owner,
    })
}
