// SPDX-License-Identifier: GPL-2.0

//! An allocator of vmap areas: ranges of kernel virtual addresses for vmalloc(), vmap(), ioremap(),
//! vm_map_ram(), the percpu allocator, modules and BPF.
//!
//! # Interface
//!
//! mm/vmalloc.c asks the allocator to reserve a range (an *area*), to find the area that contains an
//! address, and to take an area back. C code maps and unmaps the pages; the allocator manages only
//! addresses.
//!
//! # Terms
//!
//! - *area*: a reserved range of whole pages, guard page included; `struct vmap_area` in C.
//! - *busy*: in use; lookups find it.
//! - *unlinked*: out of use; lookups no longer find it, but its range is still reserved.
//! - *lazy*: unlinked and unmapped, but perhaps still in a TLB. *Retiring* an unlinked area makes it lazy.
//! - *purge*: flush the TLBs for all lazy areas, then free their ranges.
//! - *owner* of an area: the code that reserved it and has not freed it yet.
//! - *space*: an address space with all its areas, blocks and cached ranges. The kernel has one; tests make
//!   others. *Home*: the range in which blocks and cached ranges are; in the kernel, vmalloc space.
//! - *index*: the maple tree of all reserved ranges. *Gap*: a range that is not reserved.
//! - *block*: a range whose *units* are allocated by a bitmap. A unit is one page in a *fine* block, and
//!   32 pages in a *coarse* one. The *number* of a block is that of its first entry in the directory of blocks.
//! - *band*: the sizes that are served from the same blocks.
//! - *current block*: the block from which a CPU, or a group of CPUs, allocates; it has one for each band.
//! - *held*: a block that is current or about to be removed.
//! - *pool*: the blocks that are not held. A *partial* block has room; an *empty* one has only free units.
//! - *owner* of a block: the CPU whose current block it is or was last.
//! - *representative* purge: one that is large enough to estimate demand.
//! - *cached* range: a range with its own entry in the index, not part of a block, and free for
//!   requests of exactly its size.
//! - *drain*: give back cached ranges and empty blocks, to make room or to free memory.
//! - *pin*: a spinlock with a count of readers, one of 64, chosen by the address of an area. A reader that
//!   *pins* an area of another owner holds its pin: the area stays unchanged, and its unlink waits.
//!
//! # How it works
//!
//! One maple tree holds the reserved ranges of the whole address space: modules, vmalloc, KASAN shadow,
//! percpu. Its gaps are the free space; there is no second tree.
//!
//! A request for up to 1,024 pages anywhere in vmalloc space is served from the current block of the CPU.
//! It claims bits of a bitmap and makes an area object of the block busy. This takes no lock, allocates no
//! memory and does not change the tree. If the block has no room, the CPU takes another one: one that it
//! owns, an idle one of another CPU, or a new one, which can be anywhere in vmalloc space. Any other
//! request takes a cached range of its size, or else the lowest gap that fits.
//!
//! Finding an area takes no lock. A few loads lead from the address to its block. The units of a block are
//! in groups of the size of its smallest area, and each group has an area object: the area is at the object
//! of the group of the address, or at one shortly before it. If the address is in no block, the page map leads to
//! the object, or else a walk down the tree, which is in RCU mode.
//!
//! The area object stores the state of the area, so unlinking is one atomic exchange and cannot fail.
//! Freeing a range in the tree may need memory. Without memory, the range stays cached, or the empty block
//! stays in the pool, so freeing cannot fail either.
//!
//! What one CPU writes on its fast paths shares no cache line with what other CPUs read. Values that many
//! CPUs use are [`sys::per_cpu::CacheAligned`], and a [`base::map::Map`] fills a cache line. CPUs count lazy pages for
//! themselves, and seldom add them to the common count.
//!
//! # Layers, from the outside in
//!
//! | folder | modules | unsafe |
//! |---|---|---|
//! | | `ffi`: the operations that C calls | yes |
//! | | `debugfs`: files for users: name of the active allocator, counters, checks | no |
//! | `check` | `record`, `checker`, `checked`: in tests and for debugging: compare answers with an independent record of all areas | no |
//! | | `tests`, `checker_tests`, `fixtures`: KUnit cases; what tests make a space of, and allocations that fail | no |
//! | | `trace`, `trace_steps`, `random`: random traces of requests, the numbers of which a seed repeats | no |
//! | `policy` | `space`, `reserve`: decide what serves a request, and reserve ranges of the tree | no |
//! | | `purge`, `drain`, `give_back`: decide what becomes of a freed range, and return it | no |
//! | | `lookup`, `census`, `listing`, `callers`: find areas by address; numbers and checks; the list of all ranges; sums by caller | no |
//! | | `blocks`: all blocks: which CPU has which; `pool`: which have room | no |
//! | | `blocks_refill`, `blocks_current`, `blocks_limit`, `blocks_purge`, `blocks_check`: what is done with blocks | no |
//! | | `lazy`, `cache`, `cache_part`: lazy areas and cached ranges that have an entry of their own | no |
//! | | `percpu`: state of each CPU | no |
//! | `state` | `area`, `view`, `list`: the area object and its states as types, what others see of it, lists | yes |
//! | | `objects`: area objects of a block | yes |
//! | | `block`, `owner`, `band`: one block, the CPU that has it, its size and that of its areas | no |
//! | | `block_walk`, `block_check`, `block_units`: the areas of a block in order, its checks, and the states of its units | no |
//! | | `block_number`, `by_band`: the number of a block; a value for each band | no |
//! | | `table`, `page_map`, `dir`, `pins`: the index, a map of its areas, the block at an address, pins | yes |
//! | | `maps`: bitmaps of the directory, and the proof that the lock of the pool is held | no |
//! | | `flush`: what a purge flushes, and the proof that it was flushed | no |
//! | `sys` | bindings: `maple` (maple tree), `grace` (RCU), `lock` (spinlock), `mm` (the rest of mm, memory on a NUMA node) | yes |
//! | | `trace` (tracepoints), `layout` (for the description that debuggers read) | yes |
//! | | `per_cpu`: a value for each CPU, on cache lines of its own and on the node of the CPU | no |
//! | `base` | `bits`, `map`, `fit`, `range`, `cpu`, `stats`, `line`: bits, shared bitmaps, searches for gaps, addresses, CPUs, counters, text | no |
//!
//! A folder uses only folders below it; only tests may use `check`.
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
//! A lazy part and a cache part are the lists of one or several CPUs in `policy::lazy` and `policy::cache`. While the lock
//! of a part or of the pool is held, no other lock is taken. A task that holds a pin never takes the tree
//! lock.
//!
//! `docs/lock-free.md` shows why the code without locks is correct, and `docs/design.md` has the reasons
//! for the design.

#[forbid(unsafe_code)]
mod base;
#[forbid(unsafe_code)]
mod check;
#[forbid(unsafe_code)]
mod debugfs;
mod ffi;
#[forbid(unsafe_code)]
mod policy;
mod state;
mod sys;

use kernel::prelude::*;

/// Returns whether C uses this allocator.
pub(crate) fn is_running() -> bool {
    sys::mm::ops_name() == Some(c"rust")
}

/// What can wait for the initcalls. Areas are served from `vmalloc_init()` on, see [`ffi`].
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
            description: "Fail to start, as if there were no memory (CONFIG_VMAP_RUST_DEBUG only)",
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
