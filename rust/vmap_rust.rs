// SPDX-License-Identifier: GPL-2.0

//! An allocator of vmap areas: ranges of kernel virtual addresses for vmalloc(), vmap(), ioremap(),
//! vm_map_ram(), the percpu allocator, modules and BPF.
//!
//! # What it is asked
//!
//! mm/vmalloc.c reserves a range (an *area*), finds the area that contains an address, and takes an
//! area back. It maps and unmaps pages itself; the allocator only knows addresses.
//!
//! # Terms
//!
//! - *area*: a reserved range of whole pages, with its guard page; `struct vmap_area` in C.
//! - *busy*: in use, can be found.
//! - *unlinked*: out of use, can no longer be found, still reserved.
//! - *lazy*: unlinked and unmapped, but perhaps still in a TLB.
//! - *purge*: flush the TLBs for all lazy areas, then make their ranges free.
//! - *cached*: free for a request of exactly its size, not merged with its neighbours.
//! - *gap*: addresses that are not reserved.
//! - *pin*: what keeps an area busy while somebody looks at it who does not own it.
//!
//! # How it works
//!
//! One maple tree holds every area in the whole address space: modules, vmalloc, KASAN shadow,
//! percpu. Gaps of the tree are the free space; there is no second tree. The tree is in RCU mode,
//! so finding an area takes no lock. Taking an area out of use changes the tag of its entry in
//! place, which needs no memory: unlinking cannot fail. Giving a range back to the tree may need
//! memory, and if there is none, the range stays as a cached one: freeing cannot fail either.
//!
//! A request is served from a cached range of its size, or else from the lowest gap that fits.
//! Small requests will be served by per-CPU blocks in front of the tree; `Space::alloc` is the
//! place where they will be asked first.
//!
//! # Modules, from the outside in
//!
//! | module | does | unsafe |
//! |---|---|---|
//! | `ffi` | the operations as C calls them | yes |
//! | `debugfs` | what users can read | no |
//! | `space` | the allocator: who serves a request, what becomes of a freed range | no |
//! | `lazy`, `cache`, `fit`, `stats` | lazy areas, cached ranges, searches, counters | no |
//! | `range` | address arithmetic | no |
//! | `table`, `area`, `pins` | states of areas as types, kept true with the index | yes |
//! | `maple`, `lock`, `mm` | bindings: maple tree, spinlock, the rest of mm | yes |
//! | `tests`, `trace`, `model` | KUnit, random traces, and what they are compared with | no |
//!
//! A module only uses those below it.
//!
//! # Lock order
//!
//! ```text
//! vmap_purge_lock -> lazy part
//!                 -> tree lock -> slab (without waiting)
//!                              -> pin  (only to undo a percpu request)
//! pin -> vb->lock (C, for /proc/kcore)
//! ```
//!
//! Who holds a pin never takes the tree lock, and nothing is taken with a lazy part's lock held.
//! `docs/design.md` has the reasons.

mod area;
#[forbid(unsafe_code)]
mod cache;
#[forbid(unsafe_code)]
mod debugfs;
mod ffi;
#[forbid(unsafe_code)]
mod fit;
#[forbid(unsafe_code)]
mod lazy;
mod lock;
mod maple;
mod mm;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[forbid(unsafe_code)]
mod model;
mod pins;
#[forbid(unsafe_code)]
mod range;
#[forbid(unsafe_code)]
mod space;
#[forbid(unsafe_code)]
mod stats;
mod table;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
mod tests;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[forbid(unsafe_code)]
mod trace;

use kernel::prelude::*;

/// Is this allocator the one that C uses?
pub(crate) fn is_running() -> bool {
    mm::ops_name() == Some(c"rust")
}

/// Only what can wait until initcalls: areas are served from `vmalloc_init()` on, see [`ffi`].
struct VmapRust {
    _debugfs: debugfs::DebugFs,
}

module! {
    type: VmapRust,
    name: "vmap_rust",
    authors: ["vmap-rust maintainers"],
    description: "Allocator of vmap areas",
    license: "GPL",
    params: {
        fail_init: bool {
            default: false,
            description: "Fail to start, as without memory (CONFIG_VMAP_RUST_DEBUG only)",
        },
    },
}

impl kernel::Module for VmapRust {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _debugfs: debugfs::DebugFs::new()?,
        })
    }
}
