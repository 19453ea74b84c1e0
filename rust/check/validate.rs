// SPDX-License-Identifier: GPL-2.0

//! Checks a whole space, and what tests ask of one. A module of `policy`.

use super::prelude::*;

/// Numbers of areas by state, and of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) busy: usize,
    pub(crate) unlinked: usize,
    pub(crate) blocks: usize,
    /// Pages in blocks that no purge has taken.
    pub(crate) lazy_pages: usize,
}

impl<T: Tlb> Space<T> {
    /// Checks the index against the blocks: entries are whole pages and do not overlap, and blocks are sound.
    ///
    /// Holds the tree lock during the whole walk: for tests and debugging.
    pub(crate) fn validate(&self) -> Result<Census> {
        let is_quiet = self.tlb.is_test();
        self.blocks.note_batches();
        self.blocks.validate(is_quiet)?;
        let mut index = self.tree.index.lock();
        let mut census = Census::default();
        let mut addr = 0;
        while let Some((span, range)) = index.next_range(addr) {
            let sane = span.first() >= addr
                && is_aligned(span.first(), PAGE_SIZE)
                && is_aligned(span.end(), PAGE_SIZE);
            if !sane {
                let addresses = [span.first(), span.end(), addr];
                mm::refuse("the index has a bad range", &addresses, &[]);
                return Err(EINVAL);
            }
            match range {
                Range::Area(Stage::Busy) => census.busy += 1,
                Range::Area(_) => census.unlinked += 1,
                Range::Block => {
                    census.blocks += 1;
                    let rcu = Guard::new();
                    // A block that is being inserted or removed may be missing.
                    if let Some(block) = self.blocks.dir.block_at(span.first(), &rcu) {
                        let contents = block.validate(is_quiet)?;
                        census.busy += contents.busy;
                        census.unlinked += contents.unlinked;
                        census.lazy_pages += contents.lazy_pages;
                    }
                }
            }
            addr = match span.next_addr() {
                Some(next) => next,
                None => break,
            };
        }
        Ok(census)
    }
}

impl Blocks {
    /// Checks the pool against the blocks. Holds its lock during the whole walk: for tests and debugging. `quiet` means
    /// that nobody else uses the blocks. `EINVAL` if they do not fit.
    fn validate(&self, quiet: bool) -> Result {
        let pool = self.pool.lock();
        let counted = pool.census();
        let cpus = self.cpus.iter();
        let owned = cpus.flat_map(|cpu| cpu.own.iter().map(List::len));
        let owned = owned.fold(0, usize::wrapping_add);
        let mut found_owned = 0_usize;
        let mut found = PoolCensus::default();
        self.dir.try_each(|block| {
            let place = block.links().place();
            let free = block.free_slots();
            let fits = match place {
                Place::Held => block.is_current(),
                _ if block.is_current() => false,
                Place::Full => free == 0,
                Place::Empty => free == block.class().slots(),
                Place::Owned | Place::Orphan => (1..block.class().slots()).contains(&free),
            };
            if quiet && !fits {
                // CAST: A place is a small number.
                let numbers = [free, place as usize];
                mm::refuse("a block is at the wrong place", &[block.start()], &numbers);
                return Err(EINVAL);
            }
            if quiet && block.lazy_pages() > 0 && !self.dir.is_marked(block) {
                mm::refuse("no purge would take lazy slots", &[block.start()], &[]);
                return Err(EINVAL);
            }
            found.live = found.live.wrapping_add(1);
            found.bytes = found.bytes.wrapping_add(block.class().block_size());
            if matches!(place, Place::Owned | Place::Empty) {
                found_owned = found_owned.wrapping_add(1);
            }
            if matches!(place, Place::Owned | Place::Orphan | Place::Empty) {
                found.partial = found.partial.wrapping_add(1);
            }
            if place == Place::Empty {
                found.empty = found.empty.wrapping_add(1);
            }
            Ok(())
        })?;
        if quiet && (found != counted || found_owned != owned) {
            let of = |it: PoolCensus| [it.live, it.bytes, it.partial, it.empty];
            mm::refuse("numbers of blocks found", &[], &of(found));
            mm::refuse("numbers of blocks counted", &[], &of(counted));
            mm::refuse("owned blocks found and counted", &[], &[found_owned, owned]);
            return Err(EINVAL);
        }
        Ok(())
    }
}

impl<T: Tlb> Space<T> {
    #[inline(always)]
    pub(crate) fn tlb(&self) -> &T {
        &self.tlb
    }

    /// Puts all current blocks into the pool.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn return_all(&self) {
        self.blocks.return_current(true, &|_| true);
    }

    /// Returns the window that blocks serve.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn home(&self) -> Span {
        self.home
    }

    /// Returns the memory that was allocated for CPU `cpu` and no other.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn memory_of_cpu(&self, cpu: CpuNumber) -> [*const c_void; 2] {
        let cpu = self.blocks.cpus.get(cpu);
        let own = cpu.own.iter().as_slice().as_ptr();
        [ptr::from_ref(cpu).cast(), own.cast()]
    }

    /// Returns whether blocks serve requests for `size` bytes.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn serves(&self, size: usize) -> bool {
        self.blocks.class_of(size, 1).is_some()
    }
}
