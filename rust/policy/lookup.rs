// SPDX-License-Identifier: GPL-2.0

//! Finds areas by address: for C, for readers that pin what they found, and for the list of all areas.
//!
//! An address leads to its block, or else to an entry of the tree. [`Space::find`] and [`Space::unlink`] come with
//! every use of an area, and the search takes no lock. What a reader has pinned stays as it was seen.

use crate::{
    base::prelude::*,
    policy::space::Space,
    state::{
        area::{
            Area,
            AreaPtr,
            Busy,
            Seen,
            Unlinked,
            Use, //
        },
        pins::{
            PinGuard,
            Pins, //
        },
        table::{
            Entry,
            Next,
            LOOKS, //
        }, //
    },
    sys::{
        grace::Guard,
        mm::{
            self,
            Tlb, //
        }, //
    }, //
};

impl<T: Tlb> Space<T> {
    /// Returns the busy area that contains `addr`, with its bounds and flags.
    #[inline(always)]
    fn look(&self, addr: usize, rcu: &Guard) -> Option<(AreaPtr, Seen)> {
        match self.blocks.dir.block_at(addr, rcu) {
            Some(block) => block.find(addr),
            None => self.table.find(addr, rcu),
        }
    }

    /// Returns the busy area that contains `addr`. Takes no lock; any context in which RCU is watching.
    #[inline(always)]
    pub(crate) fn find(&self, addr: usize) -> Option<Busy> {
        let (area, seen) = self.look(addr, &Guard::new())?;
        Some(seen.of(area))
    }

    /// Unlinks the busy area that contains `addr`. Never allocates, sleeps or fails. Takes a lock only if
    /// somebody reads an area that is pinned.
    #[inline(always)]
    pub(crate) fn unlink(&self, addr: usize) -> Option<Area<Unlinked>> {
        let rcu = Guard::new();
        let area = match self.blocks.dir.block_at(addr, &rcu) {
            Some(block) => block.unlink(addr),
            None => self.table.unlink(addr, &rcu),
        };
        drop(rcu);
        Some(self.pins.wait_for_readers(area?))
    }

    /// Pins the lowest busy area that ends above `addr`. Spins; task context.
    pub(crate) fn get(&self, addr: usize) -> Option<(Busy, PinGuard<'_>)> {
        if let Some(found) = self.get_in_block(addr) {
            return Some(found);
        }
        loop {
            let found = self.next_busy(addr)?;
            let start = found.1.span().first();
            let pin = self.pins.pin(start)?;
            // The area may have been unlinked before the lock of the pin was taken, and a new area may be
            // at its address. So compare everything that was seen.
            if self.look(start, &Guard::new()) == Some(found) {
                return Some((found.1.of(found.0), pin));
            }
        }
    }

    /// Pins the lowest busy area that ends above `addr`, if it is in the block that contains `addr`: there, a reader
    /// of all areas needs no walk down the tree for each of them. Spins; task context.
    fn get_in_block(&self, addr: usize) -> Option<(Busy, PinGuard<'_>)> {
        let rcu = Guard::new();
        let block = self.blocks.dir.block_at(addr, &rcu)?;
        let found = block.next_busy(addr)?;
        let start = found.1.span().first();
        let pin = self.pins.pin(start)?;
        // As in `get()`. An area that is busy keeps its block.
        (block.find(start) == Some(found)).then_some((found.1.of(found.0), pin))
    }

    /// Pins the busy area that contains `addr` unless that means waiting. Any context, with PREEMPT_RT except interrupts.
    pub(crate) fn try_get(&self, addr: usize) -> Option<(Busy, PinGuard<'_>)> {
        let rcu = Guard::new();
        let found = self.look(addr, &rcu)?;
        let pin = self.pins.try_pin(found.1.span().first())?;
        // The area may have been unlinked before the lock of the pin was taken.
        (self.look(addr, &rcu) == Some(found)).then_some((found.1.of(found.0), pin))
    }

    /// Returns the lowest busy area that ends above `addr`. Task context.
    fn next_busy(&self, addr: usize) -> Option<(AreaPtr, Seen)> {
        let mut addr = addr;
        loop {
            // With PREEMPT_RT, a lockless walk would spin behind a writer that it has preempted. Taking
            // the lock gives priority inheritance.
            let next = if cfg!(CONFIG_PREEMPT_RT) {
                self.table.lock().next(addr)
            } else {
                self.table.next(addr)
            };
            match next? {
                Next::Busy(area, seen) => return Some((area, seen)),
                Next::Block(span) => {
                    let rcu = Guard::new();
                    let block = self.blocks.dir.block_at(span.first(), &rcu);
                    let found = block.and_then(|block| block.next_busy(addr));
                    if found.is_some() {
                        return found;
                    }
                    addr = span.last().checked_add(1)?;
                }
            }
        }
    }

    /// Returns the pins, for unpinning what [`Space::get`] has pinned.
    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Returns the lowest range that waits for a purge, or is being flushed, and that lies behind `last`, which this has
    /// returned, or anywhere without that. An area with an entry of its own counts from when it is unlinked.
    /// Sleepable context.
    pub(crate) fn next_lazy(&self, last: Option<Span>) -> Option<Span> {
        let mut addr = match last {
            Some(last) => last.last().checked_add(1)?,
            None => 0,
        };
        loop {
            let rcu = Guard::new();
            // In a block, without a walk down the tree for each area.
            if let Some(block) = self.blocks.dir.block_at(addr, &rcu) {
                if let Some(lazy) = block.next_lazy(addr) {
                    return Some(lazy);
                }
                addr = block.span()?.last().checked_add(1)?;
                drop(rcu);
                mm::cond_resched();
                continue;
            }
            drop(rcu);
            let tried = addr;
            let mut table = self.table.lock();
            for _ in 0..LOOKS {
                let (span, entry) = table.entry_from(addr)?;
                match entry {
                    // One that begins before was not there when `last` was found.
                    Entry::Area(_, Use::Unlinked) if span.first() >= addr => return Some(span),
                    Entry::Area(..) => addr = span.last().checked_add(1)?,
                    Entry::Block => {
                        // One that is being inserted or removed has no areas.
                        addr = match span.contains(tried) {
                            true => span.last().checked_add(1)?,
                            false => span.first(),
                        };
                        break;
                    }
                }
            }
            drop(table);
            mm::cond_resched();
        }
    }

    /// Returns the first address of the busy area `area`. Walks all areas.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn start_of(&self, area: AreaPtr) -> Option<usize> {
        let mut addr = 0;
        loop {
            let (found, seen) = self.next_busy(addr)?;
            if found == area {
                return Some(seen.span().first());
            }
            addr = seen.span().last().checked_add(1)?;
        }
    }

    /// Returns whether the page map has an area for `addr`.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn is_mapped(&self, addr: usize) -> bool {
        self.table.is_mapped(addr)
    }
}
