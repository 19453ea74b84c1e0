// SPDX-License-Identifier: GPL-2.0

//! Finds areas by address: for C, for readers that pin what they found, and for the list of all areas. [`Space::find`] and
//! [`Space::unlink`] come with every use of an area.

use super::prelude::*;

impl<T: Tlb> Space<T> {
    /// Returns the busy area that contains `addr`. Takes no lock; any context in which RCU is watching.
    #[inline(always)]
    pub(crate) fn find(&self, addr: usize) -> Option<Busy> {
        let rcu = Guard::new();
        match self.blocks.dir.find(addr, &rcu) {
            Some(block) => block.find(addr),
            None => self.tree.index.find(addr, &rcu),
        }
    }

    /// Unlinks the busy area that contains `addr`. Needs no memory. Takes the pin of the area, and so may wait for its
    /// reader, only while there are readers of any areas. Not in interrupts.
    #[inline(always)]
    pub(crate) fn unlink(&self, addr: usize) -> Option<UnlinkedArea<'_>> {
        let rcu = Guard::new();
        match self.blocks.dir.find(addr, &rcu) {
            Some(block) => block.unlink(addr),
            None => self.tree.index.unlink(addr, &rcu),
        }
    }

    /// Pins the lowest busy area that ends above `addr`, if it begins at or below `last`; [`None`] if `last` is below
    /// `addr`. Waits for the pin; task context.
    pub(crate) fn get(&self, addr: usize, last: usize) -> Option<Pinned<'_>> {
        let mut addr = addr;
        while addr <= last {
            // An area has whole pages: no other one begins in this page.
            if addr / PAGE_SIZE == last / PAGE_SIZE {
                return self.pin_at(addr, false);
            }
            let rcu = Guard::new();
            // In a block, or if the page map knows `addr`, without a walk down the tree.
            let pinned = match self.blocks.dir.find(addr, &rcu) {
                Some(block) => match block.pin_next(addr, last) {
                    None => {
                        addr = block.end()?;
                        continue;
                    }
                    pinned => pinned,
                },
                None => self.tree.index.pin_mapped(addr, &rcu),
            };
            drop(rcu);
            if pinned.is_some() {
                return pinned;
            }
            // Without the lock, a step to the next entry would spin behind a writer that it has preempted: it goes up, to
            // nodes that are dead by then. A load, as in `find()`, only goes down, from the root.
            let (span, range) = self.tree.index.lock().next_range(addr)?;
            match range {
                _ if span.first() > last => return None,
                Range::Area(Stage::Busy) => {
                    addr = addr.max(span.first());
                    // Nothing has kept it since it was found. If it is gone, another one may be here by now.
                    let pinned = self.pin_at(addr, false);
                    if pinned.is_some() {
                        return pinned;
                    }
                }
                Range::Block if span.first() > addr => addr = span.first(),
                // It is out of use, or not yet in use; a block that is being inserted or removed has no areas.
                _ => addr = span.next_addr()?,
            }
        }
        None
    }

    /// Pins the busy area that contains `addr` unless that means waiting. Any context, with PREEMPT_RT except interrupts.
    pub(crate) fn try_get(&self, addr: usize) -> Option<Pinned<'_>> {
        self.pin_at(addr, true)
    }

    /// Pins the busy area that contains `addr`, if `try_` unless that means waiting.
    #[inline(never)]
    fn pin_at(&self, addr: usize, try_: bool) -> Option<Pinned<'_>> {
        let rcu = Guard::new();
        match self.blocks.dir.find(addr, &rcu) {
            Some(block) => block.pin_at(addr, try_),
            None => self.tree.index.pin_at(addr, try_, &rcu),
        }
    }

    /// Returns the pins of areas in blocks, or of those in none, for unpinning what [`Space::get`] has pinned.
    pub(crate) fn pins(&self, in_block: bool) -> &Pins {
        if in_block {
            self.blocks.dir.pins()
        } else {
            self.tree.index.pins()
        }
    }

    #[inline(always)]
    pub(crate) fn directory(&self) -> &Directory {
        &self.blocks.dir
    }

    /// Returns the lowest range that waits for a purge, or is being flushed, and that lies behind `last`, which this has
    /// returned, or anywhere without that. An area with an entry of its own counts from when it is unlinked until it is
    /// erased or kept, also if it is leaked. A slot that a purge takes at this moment, and one that is retired after the first
    /// call, may be missed. Sleepable context.
    pub(crate) fn next_lazy(&self, last: Option<Span>) -> Option<Span> {
        let mut addr = match last {
            Some(last) => last.next_addr()?,
            None => {
                self.blocks.note_batches();
                0
            }
        };
        loop {
            let rcu = Guard::new();
            // In a block, without a walk down the tree for each area.
            if let Some(block) = self.blocks.dir.block_at(addr, &rcu) {
                if let Some(lazy) = block.next_lazy(addr) {
                    return Some(lazy);
                }
                addr = block.span()?.next_addr()?;
                drop(rcu);
                mm::cond_resched();
                continue;
            }
            drop(rcu);
            let (span, range) = self.tree.index.lock().next_range(addr)?;
            match range {
                // One that begins before was not there when `last` was found.
                Range::Area(stage) if stage.is_unpurged() && span.first() >= addr => {
                    return Some(span)
                }
                Range::Block if span.first() > addr => addr = span.first(),
                // A block that is being inserted or removed has no areas.
                _ => addr = span.next_addr()?,
            }
            mm::cond_resched();
        }
    }

    /// Returns the first address of the busy area `area`. Walks all areas.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn start_of(&self, area: AreaPtr) -> Option<usize> {
        let mut addr = 0;
        loop {
            let found = self.get(addr, usize::MAX)?.area();
            if found.area() == area {
                return Some(found.span().first());
            }
            addr = found.span().next_addr()?;
        }
    }

    /// Returns whether the page map has an area for `addr`.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn is_mapped(&self, addr: usize) -> bool {
        self.tree.index.is_mapped(addr)
    }
}
