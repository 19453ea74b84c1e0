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
//! - *block*: a piece of the space whose *units* are handed out by bitmap: pages if it is a *fine* block,
//!   32 pages if it is a *coarse* one.
//! - *band*: sizes that are served from the same blocks.
//! - *current block*: the one a CPU allocates from, one for each band.
//! - *pool*: the blocks that are nobody's current one. *Partial*: with room. *Empty*: all free.
//! - *cached*: free for a request of exactly its size, not merged with its neighbours.
//! - *gap*: addresses that are not reserved.
//! - *pin*: what keeps an area busy while somebody looks at it who does not own it.
//!
//! # How it works
//!
//! One maple tree holds what is reserved in the whole address space: modules, vmalloc, KASAN shadow,
//! percpu. Gaps of the tree are the free space; there is no second tree.
//!
//! A small request for all of vmalloc space is served from the current block of the CPU: bits of a
//! bitmap are claimed, and an area object that is part of the block becomes busy. No lock, no
//! allocation, no change of the tree. Others are served from a cached range of their size, or else from
//! the lowest gap that fits.
//!
//! Finding an area takes no lock: from the address to the block by a few loads, to the start of the area
//! by a bitmap; and through the tree, which is in RCU mode, for what is not in a block. The state of an
//! area is in its object, so taking it out of use is one exchange there: unlinking cannot fail. Giving a
//! range back to the tree may need memory, and if there is none, it stays as a cached range or an empty
//! block: freeing cannot fail either.
//!
//! # Modules, from the outside in
//!
//! | module | does | unsafe |
//! |---|---|---|
//! | `ffi` | the operations as C calls them | yes |
//! | `debugfs` | what users can read | no |
//! | `checked`, `checker` | for debugging: an independent record of all areas that every answer is compared with | no |
//! | `space` | the allocator: who serves a request, what becomes of a freed range | no |
//! | `blocks` | which CPU allocates from which block, where there is room, purge of blocks | no |
//! | `block`, `bits` | one block; bitmaps that several CPUs change at once | no |
//! | `lazy`, `cache`, `fit`, `flush` | lazy areas, cached ranges, searches, what to flush | no |
//! | `percpu`, `stats` | what each CPU has for itself; counters | no |
//! | `range` | address arithmetic | no |
//! | `dir`, `objects` | from an address to its block; area objects of blocks | yes |
//! | `table`, `area`, `pins` | states of areas as types, kept true with the index | yes |
//! | `maple`, `grace`, `lock`, `mm` | bindings: maple tree, RCU, spinlock, the rest of mm | yes |
//! | `tests`, `trace`, `model` | KUnit, random traces, and what they are compared with | no |
//!
//! A module only uses those below it, or next to it in its row.
//!
//! # Lock order
//!
//! ```text
//! vmap_purge_lock -> lazy part
//!                 -> pool
//!                 -> tree lock -> slab (without waiting)
//!                              -> cache part
//!                              -> pin  (only to undo a percpu request)
//! pin -> vb->lock (C, for /proc/kcore)
//! ```
//!
//! Nothing is taken with the lock of the pool, of a lazy part or of a cache part held, and who holds a
//! pin never takes the tree lock. What takes no lock at all is argued in `docs/lock-free.md`, and
//! `docs/design.md` has the reasons.

mod area;
#[forbid(unsafe_code)]
mod bits;
#[forbid(unsafe_code)]
mod block;
#[forbid(unsafe_code)]
mod blocks;
#[forbid(unsafe_code)]
mod cache;
#[forbid(unsafe_code)]
mod debugfs;
mod dir;
mod ffi;
#[forbid(unsafe_code)]
mod fit;
#[forbid(unsafe_code)]
mod flush;
mod grace;
#[forbid(unsafe_code)]
mod lazy;
mod lock;
mod maple;
mod mm;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[forbid(unsafe_code)]
mod model;
mod objects;
#[forbid(unsafe_code)]
mod percpu;
mod pins;
#[forbid(unsafe_code)]
mod range;
#[forbid(unsafe_code)]
mod checker;
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
#[forbid(unsafe_code)]
mod checked;

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
        randomize: bool {
            default: false,
            description: "Randomise the placement of areas of up to 1,024 pages within their blocks",
        },
        check: bool {
            default: false,
            description: "Compare every answer with an independent record of all areas (CONFIG_VMAP_RUST_DEBUG only)",
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
