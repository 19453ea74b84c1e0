// SPDX-License-Identifier: GPL-2.0

//! Gives a range back to the tree, or caches it, and keeps account of what the tree holds.
//!
//! Freeing a range in the tree may need memory. Without memory, the range stays cached, so freeing an area never
//! fails.

use crate::{
    base::{
        cpu::CpuNumber,
        range::Span, //
    },
    policy::space::Space,
    state::{
        area::{
            Area,
            Cached,
            Flushed,
            State, //
        },
        table::{
            Spare,
            TableGuard, //
        }, //
    },
    sys::{
        maple::StoreError,
        mm::{
            self,
            Tlb, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

impl<T: Tlb> Space<T> {
    /// Caches the range of a flushed area at CPU `cpu`, by default at this one.
    pub(super) fn keep(&self, area: Area<Flushed>, cpu: Option<CpuNumber>) {
        self.cache.put(area.cached(), cpu);
        self.cpus.here().counters.cache_put.one();
    }

    /// Frees the range of a flushed area, or caches it if there is no memory for freeing it.
    pub(super) fn put_back(&self, table: &mut TableGuard<'_>, area: Area<Flushed>) {
        if let Err(area) = self.give_back(table, area) {
            if self.is_stray(&area) {
                self.count_strays(usize::wrapping_add);
            }
            self.keep(area, None);
        }
    }

    /// Returns whether the range of an area is outside `home`.
    fn is_stray<S: State>(&self, area: &Area<S>) -> bool {
        !area.span().is_some_and(|span| self.home.covers(span))
    }

    /// Adds one to the number of cached ranges outside `home`, or subtracts one. The tree lock is held.
    fn count_strays(&self, change: fn(usize, usize) -> usize) {
        // Relaxed: written only under the lock, and read as an estimate.
        self.strays
            .store(change(self.strays.load(Relaxed), 1), Relaxed);
    }

    /// Counts an entry that was added to the tree, or removed if not `added`. The tree lock is held, of which
    /// `_table` is the proof.
    pub(super) fn count(&self, _table: &TableGuard<'_>, span: Span, added: bool) {
        if !self.home.covers(span) {
            return;
        }
        // Relaxed: written only under the lock, and read as an estimate.
        let before = self.reserved.load(Relaxed);
        let after = match added {
            true => before.wrapping_add(span.size()),
            false => before.wrapping_sub(span.size()),
        };
        self.reserved.store(after, Relaxed);
    }

    /// Frees the range of an area. Returns the area if there is no memory for that.
    fn give_back<S: Spare>(
        &self,
        table: &mut TableGuard<'_>,
        area: Area<S>,
    ) -> Result<(), Area<S>> {
        let counters = &self.cpus.here().counters;
        let span = area.span();
        match table.give_back(area) {
            Ok(area) => {
                drop(area);
                if let Some(span) = span {
                    self.count(table, span, false);
                }
                counters.give_back.one();
                self.blocks.note_room();
                Ok(())
            }
            Err((area, StoreError::NoMemory)) => {
                counters.give_back_nomem.one();
                Err(area)
            }
            Err((area, StoreError::Mismatch)) => {
                mm::refuse!("{:?} is not in the index", area.span());
                // Leak it: a range without an entry must not be reused. The drop reports the leak.
                drop(area);
                Ok(())
            }
        }
    }

    /// Frees a cached range. Returns its area if there is no memory for that.
    pub(super) fn give_back_cached(
        &self,
        table: &mut TableGuard<'_>,
        area: Area<Cached>,
    ) -> Result<(), Area<Cached>> {
        let is_stray = self.is_stray(&area);
        self.give_back(table, area)?;
        if is_stray {
            self.count_strays(usize::wrapping_sub);
        }
        Ok(())
    }
}
