// SPDX-License-Identifier: GPL-2.0

//! An allocator of vmap areas: ranges of kernel virtual addresses for vmalloc(), vmap(), ioremap(),
//! vm_map_ram(), the percpu allocator, modules and BPF.
//!
//! # Interface
//!
//! mm/vmalloc.c asks the allocator to reserve a range (an *area*), to find the area that contains an address, and to take
//! an area back. C code maps and unmaps the pages; the allocator manages only addresses.
//!
//! # Terms
//!
//! - *area*: a reserved range of whole pages, guard page included; `struct vmap_area` in C.
//! - *busy*: in use; lookups find it.
//! - *unlinked*: out of use; lookups no longer find it, but its range is still reserved.
//! - *lazy*: unlinked and unmapped, but perhaps still in a TLB. *Retiring* an unlinked area makes it lazy.
//! - *purge*: flush the TLBs for all lazy areas, then free their ranges.
//! - *table*: a page table of PTEs. To *take* one is to clear the entry that points to it; a flush comes before it is freed.
//! - *owner* of an area: the code that reserved it and has not freed it yet.
//! - *space*: an address space with all its areas and blocks. The kernel has one; tests make others. *Home*: the
//!   range in which blocks are; in the kernel, vmalloc space.
//! - *index*: the maple tree of all reserved ranges, *the tree* for short. *Gap*: a range that is not reserved.
//! - *class*: the sizes that are served from slots of one size.
//! - *block*: an aligned range that is divided into *slots* of one class. The *number* of a block is that of its first
//!   entry in the directory of blocks.
//! - *lone area*: one in no block. It has an entry of its own in the index, and an object of the slab cache.
//! - *current block*: the block from which a CPU, or a group of CPUs, allocates; it has one for each class, in a *seat*.
//! - *held*: a block that is current or about to be removed.
//! - *pool*: the blocks that are not held. A *partial* block has free slots, an *empty* one only free slots.
//! - *owner* of a block: the CPU whose current block it is or was last. An *orphan* is in the list of no CPU.
//! - *batch*: slots that a CPU has made lazy, and not yet *noted* in the bitmaps of their blocks.
//! - *dirty*: a block in which lazy slots were noted since the last purge.
//! - *stuck*: a flushed area that could not be erased from the index for lack of memory. *Kept*: one that was not erased, for the
//!   next request of its size: above 80 MiB, or for a window that is asked for again.
//! - *drain*: give back empty blocks, to make room or to free memory.
//! - *pin*: one of 32 spinlocks for areas in blocks, or of 32 for lone areas, chosen by the address of the area object. A reader
//!   that *pins* an area of another owner holds its pin: the area stays unchanged, and its unlink waits. So does vrealloc(),
//!   which changes the `vm_struct` of its own area.
//!
//! # How it works
//!
//! One maple tree holds the reserved ranges of the whole address space: modules, vmalloc, KASAN shadow, percpu. Its gaps are
//! the free space.
//!
//! A request for up to 80 MiB anywhere in vmalloc space, or less if that is small, claims a bit of the current block of its
//! class, and makes the object of that slot busy. This takes no lock, allocates no memory and does not change the tree. If the
//! block is full, the CPU takes another one out of the pool, or makes one. Any other request takes a kept area, or else the
//! lowest gap with room for it and for the padding of its alignment, which areas of 1 GiB or more get, too. A percpu set takes
//! slots of one block, or else the highest base.
//!
//! Finding an area takes no lock: a few loads lead from the address to its block, and a multiplication to the slot and its
//! object; else the page map leads to the object, or a walk down the tree, which is in RCU mode.
//!
//! The area object stores the state of the area, so unlinking is one compare-exchange, which needs no memory. Freeing a range
//! in the tree may need some. Without it, the area is stuck until the next purge or drain, or the empty block stays in the pool.
//!
//! # Layers, from the outside in
//!
//! To read it top-down, begin with `ffi`, then `policy`, and follow a request. A folder uses only folders below it;
//! only tests, `debugfs`, and with DEBUG `kernel_space`, may use `check`.
//!
//! | folder | modules | unsafe |
//! |---|---|---|
//! | | `ffi`: the operations that C calls; `kernel_space`: the space that they use, its TLB and its start | yes |
//! | | `debugfs`: files for users | no |
//! | `check` | `record`, `checker`, `checked`, `watched`: compare answers with an independent record of all areas; `validate`, `slots`: check all invariants; `listing`: the list of all ranges. Some are modules of `policy` or `state`, whose private items they use (`#[path]`) | no, but in `watched` |
//! | | `tests`, `fixtures`, `trace`, `random`: KUnit cases, by layer or by subject; what they make a space of, and random requests | no |
//! | `policy` | `mod`: the order in which a request is served, and the end of an area; `congruent`: areas at a common base | no |
//! | | `blocks`, `pool`, `supply`: current blocks, the others, and the birth and the death of blocks | no |
//! | | `tree`, `kept`: lone areas, from the request to the free range; those that wait for the next request | no |
//! | | `lookup`: find areas by address | no |
//! | `state` | `area`: states as types and tokens of areas | yes |
//! | | `objects`: what others see of an area; the area objects of a block | yes |
//! | | `class`, `block`: sizes; one block and its slots | no |
//! | | `index`, `page_map`: all reserved ranges; a map of those that are areas | yes |
//! | | `parts`: a pointer for each 2 MiB, for the page map and the directory | yes |
//! | | `dir`: where blocks are: in the directory of addresses, in the seat of a CPU | yes |
//! | | `batch`: lazy slots that a CPU has not yet noted in their blocks | yes |
//! | | `pins`: areas that are pinned, and unlinked | yes |
//! | | `flush`: lists of tokens; TLBs and KASAN shadow; what a purge takes, flushes and frees | yes |
//! | `sys` | bindings: `maple` (maple tree), `grace` (RCU), `trace`, `mm` (the rest: memory, CPUs, spinlocks, reports) | yes |
//! | | `per_cpu`: a value for each CPU, on cache lines of its own and on the node of the CPU; counters | no |
//! | `base` | `map`, `range`: bitmaps; addresses and gaps | no |
//! | | `mod`: relaxed loads and stores that are no calls | yes |
//!
//! # Lock order
//!
//! ```text
//! fs_reclaim -> vmap_purge_lock (purge, shrinker)
//! vmap_purge_lock -> mmap lock of init_mm (C only tries it)
//!                 -> pool
//!                 -> pin (C frees a block of vm_map_ram())
//!                 -> lists of lazy, of stuck and of kept areas
//!                 -> batch of a CPU -> marks of dirty blocks
//!                 -> tree lock -> slab (without waiting)
//! pin -> vb->lock (C, for /proc/kcore)
//! ```
//!
//! While the lock of the pool, of a list, of a batch, of the marks or of the tree is held, no other lock is taken, except those
//! of the marks under that of a batch, and of the slab under that of the tree. A task that holds a pin never takes the tree
//! lock. A lock, also the RCU read lock, is held as long as its guard: until a `drop()` of it, or else the end of the block
//! that declares it. One without a name, as in `lock().f()`, ends with the statement; a pin lasts until `unpin()`.
//!
//! But for fs_reclaim and the mutex `vmap_purge_lock`, these are spinlocks that do not disable interrupts: code that takes one
//! must not run in an interrupt. Any context, also an NMI, may look up an area ([`policy::Space::find`]) and try to pin
//! it (`try_get()`; with PREEMPT_RT not in interrupts). C calls all others in tasks. `unlink()` may wait for a reader, and to
//! retire an area takes locks if it is in no block, or if the batch of the CPU is full. `alloc_current()` takes none of these
//! locks, but may call get_random_u32(), which is not for NMIs.
//!
//! `docs/lock-free.md` shows why the code without locks is correct, and `docs/design.md` has the reasons for the design.

mod base;
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
#[forbid(unsafe_code)]
mod check;
#[forbid(unsafe_code)]
mod debugfs;
mod ffi;
mod kernel_space;
#[forbid(unsafe_code)]
mod policy;
mod state;
mod sys;

use kernel::prelude::*;

/// What can wait for the initcalls. Areas are served from `vmalloc_init()` on, see [`kernel_space`].
struct VmapRust {
    /// The files remain until shutdown. kmemleak finds them here.
    _debugfs: Pin<KBox<kernel::debugfs::Scope<debugfs::Files>>>,
}

module! {
    type: VmapRust,
    name: "vmap_rust",
    authors: ["vmap-rust maintainers"],
    description: "Allocator of vmap areas",
    license: "GPL",
    params: {
        fail_init: u8 {
            default: 0,
            description: "Fail to start, as if there were no memory (CONFIG_VMAP_RUST_DEBUG only)",
        },
        randomize: u8 {
            default: 0,
            description: "Randomise the placement of areas within their blocks",
        },
        check: u8 {
            default: 0,
            description: "Compare every answer with an independent record of all areas (CONFIG_VMAP_RUST_DEBUG only)",
        },
    },
}

impl kernel::Module for VmapRust {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        if kernel_space::space().is_some() && !cfg!(CONFIG_RUST_INLINE_HELPERS) {
            pr_info!("would be faster with CONFIG_RUST_INLINE_HELPERS\n");
        }
        Ok(Self {
            _debugfs: debugfs::new()?,
        })
    }
}
