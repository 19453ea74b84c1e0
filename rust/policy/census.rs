// SPDX-License-Identifier: GPL-2.0

//! Looks at a whole space: numbers for users and for memory reclaim, and checks for tests and debugging.

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
use crate::base::cpu::CpuNumber;
use crate::{
    base::{
        range::{
            is_aligned,
            PAGE_SIZE, //
        },
        stats::Totals, //
    },
    policy::{
        blocks_check::BlockCensus,
        space::Space, //
    },
    state::{
        area::Use,
        table::Entry, //
    },
    sys::mm::{
        self,
        Tlb, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// Numbers of areas by state, and of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) busy: usize,
    pub(crate) unlinked: usize,
    pub(crate) cached: usize,
    pub(crate) blocks: usize,
    /// Lazy pages in blocks.
    pub(crate) lazy_pages: usize,
}

impl<T: Tlb> Space<T> {
    /// Returns the memory that was allocated for CPU `cpu` and no other.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn memory_of_cpu(&self, cpu: CpuNumber) -> impl Iterator<Item = *const c_void> + '_ {
        let state = self.cpus.of(cpu);
        let former = state
            .former
            .iter()
            .map(|former| core::ptr::from_ref(&**former).cast());
        let state = Iterator::chain(core::iter::once(core::ptr::from_ref(state).cast()), former);
        let lazy = self.lazy.memory_of_cpu(cpu).into_iter().flatten();
        let cache = self.cache.memory_of_cpu(cpu).into_iter().flatten();
        Iterator::chain(state, Iterator::chain(lazy, cache))
    }

    /// Returns the number of cached ranges.
    pub(crate) fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Returns the number of cached pages, and how many may stay cached after a purge.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn cached_pages(&self) -> (usize, usize) {
        (self.cache.pages(), self.cache.limit)
    }

    /// Returns the number of cached ranges and empty blocks, which reclaim can free.
    pub(crate) fn reclaimable(&self) -> usize {
        self.cache.len().wrapping_add(self.blocks.empty())
    }

    /// Returns the number of lazy pages. Sleepable context.
    pub(crate) fn lazy_pages(&self) -> usize {
        self.blocks.lazy_pages().wrapping_add(self.lazy.pages())
    }

    /// Returns how many blocks exist, are partial, and are empty.
    pub(crate) fn blocks(&self) -> BlockCensus {
        self.blocks.census()
    }

    /// Returns the sums of the counters of all CPUs.
    pub(crate) fn counters(&self) -> Totals {
        self.cpus.totals()
    }

    /// Checks the index against blocks and cache: entries are whole pages and do not overlap, blocks are
    /// sound, and there are as many cached entries as the cache counts.
    ///
    /// Holds the tree lock during the whole walk: for tests and debugging.
    pub(crate) fn validate(&self) -> Result<Census> {
        self.blocks.validate(&self.cpus, self.is_quiet())?;
        // Ranges enter and leave the cache without the tree lock, so compare the numbers only if the cache
        // did not change meanwhile.
        let before = self.cache.validate()?;
        let mut table = self.table.lock();
        let mut census = Census::default();
        let (mut addr, mut strays, mut cached_pages) = (0, 0_usize, 0_usize);
        while let Some((span, entry)) = table.entry_from(addr) {
            let sane = span.first() >= addr
                && is_aligned(span.first(), PAGE_SIZE)
                && is_aligned(span.end(), PAGE_SIZE);
            if !sane {
                mm::refuse!("index holds {:?} as {:?} after {:#x}", span, entry, addr);
                return Err(EINVAL);
            }
            match entry {
                Entry::Area(_, Use::Busy) => census.busy += 1,
                Entry::Area(_, Use::Unlinked) => census.unlinked += 1,
                Entry::Area(_, Use::Cached) => {
                    census.cached += 1;
                    cached_pages += span.size() / PAGE_SIZE;
                    strays += usize::from(!self.home.covers(span));
                }
                Entry::Block => {
                    census.blocks += 1;
                    // A block that is being inserted or removed may be missing.
                    if let Some(contents) =
                        self.blocks.validate_block(span.first(), self.is_quiet())
                    {
                        let contents = contents?;
                        census.busy += contents.busy;
                        census.unlinked += contents.unlinked;
                        census.lazy_pages += contents.lazy_pages;
                    }
                }
            }
            addr = match span.last().checked_add(1) {
                Some(next) => next,
                None => break,
            };
        }
        let counted = self.strays.load(Relaxed);
        drop(table);
        if strays != counted {
            mm::refuse!("{} cached ranges outside home, {} counted", strays, counted);
            return Err(EINVAL);
        }
        let after = self.cache.validate()?;
        let cached = (after, self.cache.pages());
        if before == after && self.is_quiet() && (census.cached, cached_pages) != cached {
            mm::refuse!(
                "{:?} cached ranges and pages, {:?} in the index",
                cached,
                (census.cached, cached_pages)
            );
            return Err(EINVAL);
        }
        Ok(census)
    }

    /// Returns whether nobody else uses the space, as in tests with a space of their own.
    fn is_quiet(&self) -> bool {
        self.tlb.is_test()
    }
}
