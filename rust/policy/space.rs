// SPDX-License-Identifier: GPL-2.0

//! The allocator: an address space with all its areas, and the order in which a block, the cache and the tree are
//! asked to serve a request.
//!
//! The other operations of [`Space`] are in files of their own: `lookup`, `reserve`, `purge`, `give_back`, `drain`,
//! `census` and `listing`.

use crate::{
    base::range::{
        is_aligned,
        Span,
        PAGE_SIZE, //
    },
    policy::{
        blocks::Blocks,
        cache::{
            Place,
            RangeCache, //
        },
        lazy::LazySet,
        percpu::Cpus,
        reserve::Miss, //
    },
    state::{
        area::{
            Area,
            AreaPtr,
            Attributes, //
        },
        block::Small,
        pins::Pins,
        table::Table, //
    },
    sys::{
        mm::{
            self,
            Gfp,
            Tlb, //
        },
        per_cpu::CacheAligned,
        trace, //
    }, //
};
#[cfg(CONFIG_VMAP_RUST)]
use crate::{
    state::dir::Directory,
    sys::layout::small, //
};
#[cfg(CONFIG_VMAP_RUST)]
use core::mem::offset_of;
#[cfg(CONFIG_VMAP_RUST)]
use kernel::bindings;
use kernel::{
    prelude::*,
    static_lock_class,
    sync::atomic::Atomic, //
};

/// Ranges of at most one in this many pages of a space stay cached after a purge: small spaces, as 32-bit machines have
/// them, would soon need page tables everywhere.
const CACHED_SHARE: usize = 16;

/// A request for an area.
pub(crate) struct Request {
    /// The addresses where the area may be.
    pub(crate) window: Span,
    /// Size in bytes, a multiple of [`PAGE_SIZE`].
    pub(crate) size: usize,
    /// Alignment in bytes, a power of two.
    pub(crate) align: usize,
    /// The fields of the area that C sets.
    pub(crate) attributes: Attributes,
    /// The gfp flags for metadata.
    pub(crate) gfp: Gfp,
    /// NUMA node of the metadata, or -1 for any node.
    pub(crate) node: i32,
}

/// An address space and all areas in it.
pub(crate) struct Space<T: Tlb> {
    pub(super) table: Table,
    pub(super) blocks: Blocks,
    pub(super) cache: RangeCache,
    pub(super) cpus: Cpus,
    pub(super) tlb: T,
    pub(super) lazy: LazySet,
    pub(super) pins: Pins,
    /// Blocks and cached ranges serve only requests for exactly this window.
    pub(super) home: Span,
    /// Bytes of all entries of the tree in `home`, changed under the tree lock.
    pub(super) reserved: CacheAligned<Atomic<usize>>,
    /// Number of cached ranges outside `home`: those that could not be freed for lack of memory. Changed under the
    /// tree lock.
    pub(super) strays: Atomic<usize>,
}

impl<T: Tlb> Space<T> {
    /// Describes a space, and all that it points to, to debuggers. It is at offset `at` of what [`crate::ffi`] points
    /// to.
    #[cfg(CONFIG_VMAP_RUST)]
    pub(crate) const fn describe(info: &mut bindings::vmap_rust_debug_info, at: usize) {
        let home = at + offset_of!(Self, home);
        info.space_home_first = small(home + Span::FIRST);
        info.space_home_last = small(home + Span::LAST);
        Table::describe(info, at + offset_of!(Self, table));
        let blocks = at + offset_of!(Self, blocks);
        Directory::describe(info, blocks + offset_of!(Blocks, dir));
        Cpus::describe(info, at + offset_of!(Self, cpus));
    }

    /// Creates an empty space. Blocks, if `home` is large enough for them, and cached ranges serve
    /// requests for `home`. The blocks together are at most as large as `limit` fine blocks. [`None`]
    /// means the default limit for the size of `home`.
    pub(crate) fn with_blocks(home: Span, tlb: T, limit: Option<usize>) -> Result<Self> {
        let blocks = Blocks::new(home, limit)?;
        let most_cached = match blocks.limit {
            // A space of a few pages, in a test.
            0 => usize::MAX,
            _ => home.size() / PAGE_SIZE / CACHED_SHARE,
        };
        Ok(Self {
            table: Table::new(c"vmap_rust index", static_lock_class!())?,
            blocks,
            cache: RangeCache::new(most_cached)?,
            cpus: Cpus::new()?,
            tlb,
            lazy: LazySet::new()?,
            pins: Pins::new()?,
            home,
            reserved: CacheAligned::new(Atomic::new(0)),
            strays: Atomic::new(0),
        })
    }

    /// Reserves a range and makes it a busy area. Fails with `ENOMEM` without memory for metadata, with
    /// `EBUSY` without room. Sleeps only if the request's flags allow it.
    #[inline(always)]
    pub(crate) fn alloc(&self, req: &Request) -> Result<AreaPtr> {
        // Blocks lie anywhere in `home`: a request with a window of its own must not get a range outside
        // it.
        let small = match req.window == self.home {
            true => self.blocks.small(req.size, req.align),
            false => None,
        };
        let cpu = self.cpus.here();
        if let Some(small) = small {
            let area = self.blocks.alloc(&self.cpus, cpu, small, &req.attributes);
            if let Some(area) = area {
                cpu.counters.hit.one();
                return Ok(area);
            }
            if let Some(area) = self.alloc_refilled(req, small) {
                return Ok(area);
            }
        }
        self.alloc_large(req, small)
    }

    /// Serves a request that blocks do not serve, or for which they have no room.
    #[inline(never)]
    fn alloc_large(&self, req: &Request, small: Option<Small>) -> Result<AreaPtr> {
        if let Some(area) = self.alloc_cached(req) {
            return Ok(area);
        }
        let counters = &self.cpus.here().counters;
        let area = match Area::alloc(req.gfp, req.node) {
            None => None,
            Some(area) => match self.alloc_searched(req, area) {
                Ok(area) => return Ok(area),
                Err((_, Miss::NoMemory)) => None,
                Err((area, Miss::NoRoom)) => Some(area),
            },
        };

        // Room in the blocks of other CPUs needs neither a gap nor memory.
        if let Some(small) = small {
            if let Some(area) = self.blocks.steal(&self.cpus, small, &req.attributes) {
                return Ok(area);
            }
        }
        let Some(area) = area else {
            counters.no_memory.one();
            return Err(Self::refuse(req, ENOMEM));
        };
        if self.can_drain_help(req.window) && self.drain(req.gfp, req.window) > 0 {
            if let Some(area) = small.and_then(|small| self.alloc_refilled(req, small)) {
                return Ok(area);
            }
            if let Ok(area) = self.alloc_searched(req, area) {
                return Ok(area);
            }
        }
        counters.no_room.one();
        Err(Self::refuse(req, EBUSY))
    }

    /// Traces a request that gets no area.
    fn refuse(req: &Request, error: Error) -> Error {
        trace::refuse(req.size, req.align, req.window, req.gfp, error);
        error
    }

    /// Serves a request from a block in the pool, or from a new block, which becomes the current one.
    #[inline(never)]
    fn alloc_refilled(&self, req: &Request, small: Small) -> Option<AreaPtr> {
        let room = self.blocks.may_have_room(small)?;
        let area = self.blocks.refill(&self.cpus, small, &req.attributes);
        if area.is_some() {
            return area;
        }
        let block = match self.reserve_block(small) {
            true => self.new_block(small, req.gfp).inspect_err(|_| {
                self.blocks.unreserve(small.block_size());
            }),
            false => Err(Miss::NoRoom),
        };
        let block = match block {
            Ok(block) => block,
            Err(miss) => {
                let (cpus, blocks) = (&self.cpus, &self.blocks);
                let room = matches!(miss, Miss::NoRoom).then_some(room);
                return blocks.take_anyones(cpus, small, &req.attributes, room);
            }
        };
        match self.blocks.adopt(&self.cpus, block, small, &req.attributes) {
            Ok(area) => area,
            Err(block) => {
                // Leak the range: it stays reserved, and reuse would not be safe.
                mm::refuse!("there are two blocks at {:?}", block.span());
                self.blocks.unreserve(small.block_size());
                None
            }
        }
    }

    /// Serves a request from a cached range of its size.
    fn alloc_cached(&self, req: &Request) -> Option<AreaPtr> {
        if req.window != self.home {
            return None;
        }
        let (area, place) = self.cache.take(req.size / PAGE_SIZE, |area| {
            // The cache may hold ranges outside `home` that could not be freed.
            area.span()
                .is_some_and(|span| self.home.covers(span) && is_aligned(span.first(), req.align))
        })?;
        let area = area.reuse(&req.attributes)?;
        let counters = &self.cpus.here().counters;
        counters.alloc_cached.one();
        if let Place::Elsewhere = place {
            counters.cached_elsewhere.one();
        }
        Some(area.busy())
    }

    /// Returns the TLB of the space.
    #[inline(always)]
    pub(crate) fn tlb(&self) -> &T {
        &self.tlb
    }

    /// Returns the window that blocks and cached ranges serve.
    #[inline(always)]
    pub(crate) fn home(&self) -> Span {
        self.home
    }
}
