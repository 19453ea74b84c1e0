// SPDX-License-Identifier: GPL-2.0

//! Reserves ranges of the tree: for one area, for a group of areas at fixed offsets, or for a new block.
//!
//! A search for a gap and the store there must happen under one hold of the tree lock. If memory for the store can
//! be had only without the lock, the search is made again, because others may have changed the tree meanwhile.

use crate::{
    base::{
        fit::{
            highest_congruent,
            lowest_fit,
            lowest_gap_fit,
            Gaps,
            Member, //
        },
        range::Span, //
    },
    policy::{
        drain::Budget,
        space::{
            Request,
            Space, //
        }, //
    },
    state::{
        area::{
            Area,
            AreaList,
            AreaPtr,
            Attributes,
            New, //
        },
        block::{
            Block,
            Small, //
        },
        table::TableGuard, //
    },
    sys::{
        grace::Unpublished,
        maple::StoreError,
        mm::{
            self,
            Gfp,
            Tlb, //
        },
        trace, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// Maximum number of searches for one request. A search is repeated after memory was allocated without the
/// lock, because others may have changed the tree meanwhile.
const MAX_RETRIES: u32 = 16;

/// Why a search and store under the lock failed.
pub(super) enum Miss {
    NoRoom,
    NoMemory,
}

impl<T: Tlb> Space<T> {
    /// Counts a new block for requests like `small`, if the limits allow it. At the limit, blocks of other
    /// bands that are empty, or idle on other CPUs, make room.
    pub(super) fn reserve_block(&self, small: Small) -> bool {
        let reserved = self.reserved.load(Relaxed);
        if self.blocks.reserve(small.block_size(), reserved) {
            return true;
        }
        self.blocks.return_idle(&self.cpus);
        self.blocks.empty() > 0
            && self.free_blocks(true, Budget::atomic(1)) > 0
            && self.blocks.reserve(small.block_size(), reserved)
    }

    /// Creates a block for requests like `small`, and reserves the lowest free range of its size. Sleeps
    /// if `gfp` allows it.
    pub(super) fn new_block(&self, small: Small, gfp: Gfp) -> Result<Unpublished<Block>, Miss> {
        // Allocate memory before the lock is taken.
        let flags = gfp.flags();
        let block = Block::new(small.band(), self.tlb.is_randomized(), flags);
        let block = block.and_then(|block| Unpublished::new(block, flags));
        let mut block = block.map_err(|_| Miss::NoMemory)?;
        let mut window = self.blocks.window().ok_or(Miss::NoRoom)?;
        let size = small.block_size();
        let mut table = self.table.lock();
        for _ in 0..MAX_RETRIES {
            // Try the lowest gap first: the gap that a freed block leaves has exactly this size.
            let span = lowest_gap_fit(&mut table, window, size, size)
                .or_else(|| lowest_fit(&mut table, window, size, size))
                .ok_or(Miss::NoRoom)?;
            if !self.blocks.is_prepared(span.first()) {
                // Allocate memory without the lock. The gap may be taken meanwhile, so search again.
                drop(table);
                match self.blocks.prepare(span.first(), flags) {
                    Ok(()) => {}
                    Err(EBUSY) => {
                        // There can be no block: search in parts where there can be.
                        let next = self.blocks.next_usable(span.first());
                        window = next
                            .and_then(|next| Span::from_bounds(next, window.end()))
                            .ok_or(Miss::NoRoom)?;
                    }
                    Err(_) => return Err(Miss::NoMemory),
                }
                table = self.table.lock();
                continue;
            }
            match table.reserve_block(span) {
                Ok(()) => {
                    self.count(&table, span, true);
                    block.place(span.first());
                    return Ok(block);
                }
                Err(StoreError::Mismatch) => return Err(Miss::NoRoom),
                // The lock may have been dropped: search again.
                Err(StoreError::NoMemory) => {
                    if !table.nomem(gfp) {
                        return Err(Miss::NoMemory);
                    }
                }
            }
        }
        Err(Miss::NoMemory)
    }

    /// Serves a request from the lowest gap of the tree that fits.
    pub(super) fn alloc_searched(
        &self,
        req: &Request,
        mut area: Area<New>,
    ) -> Result<AreaPtr, (Area<New>, Miss)> {
        // Areas of the kernel image and of modules have windows of their own. They are many in a region, and are looked
        // up often.
        let all_pages = req.window != self.home;
        let mut may_prepare = true;
        let mut table = self.table.lock();
        for _ in 0..MAX_RETRIES {
            let Some(span) = lowest_fit(&mut table, req.window, req.size, req.align) else {
                return Err((area, Miss::NoRoom));
            };
            if core::mem::take(&mut may_prepare) && table.lacks(span, all_pages) {
                // Allocate memory without the lock. The gap may be taken meanwhile, so search again.
                drop(table);
                self.table.prepare(span, all_pages, req.gfp.flags());
                table = self.table.lock();
                continue;
            }
            area = match table.publish(area, span, &req.attributes) {
                Ok(area) => {
                    self.count(&table, span, true);
                    self.cpus.here().counters.alloc_tree.one();
                    return Ok(area);
                }
                Err((area, StoreError::NoMemory)) => area,
                Err((area, StoreError::Mismatch)) => {
                    mm::refuse!("{:?} is not free", span);
                    return Err((area, Miss::NoRoom));
                }
            };
            // The lock may have been dropped: search again.
            if !table.nomem(req.gfp) {
                break;
            }
        }
        Err((area, Miss::NoMemory))
    }

    /// Reserves a range for each of `members` at the highest common base in `window`, and passes the areas
    /// to `sink` in order. Reserves all or none. Sleeps if `gfp` allows it.
    pub(crate) fn alloc_congruent(
        &self,
        window: Span,
        members: impl Iterator<Item = Member> + Clone,
        align: usize,
        gfp: Gfp,
        sink: impl FnMut(usize, AreaPtr),
    ) -> Result {
        let result = self.reserve_congruent(window, members.clone(), align, gfp, sink);
        if let Err(error) = result {
            let counters = &self.cpus.here().counters;
            match error == EBUSY {
                true => counters.no_room.one(),
                false => counters.no_memory.one(),
            }
            let ends = members.map(|member| member.offset.saturating_add(member.size));
            trace::refuse(ends.fold(0, usize::max), align, window, gfp, error);
        }
        result
    }

    /// Does what [`Space::alloc_congruent`] says.
    fn reserve_congruent(
        &self,
        window: Span,
        members: impl Iterator<Item = Member> + Clone,
        align: usize,
        gfp: Gfp,
        mut sink: impl FnMut(usize, AreaPtr),
    ) -> Result {
        let mut drained = false;
        for _ in 0..MAX_RETRIES {
            // Allocate the area objects before the lock is taken.
            let mut areas = AreaList::new();
            for _ in members.clone() {
                areas.push(Area::alloc(gfp, -1).ok_or(ENOMEM)?);
            }

            let mut table = self.table.lock();
            let Some(base) = highest_congruent(&mut table, window, members.clone(), align) else {
                drop(table);
                if drained || !self.can_drain_help(window) || self.drain(gfp, window) == 0 {
                    return Err(EBUSY);
                }
                drained = true;
                continue;
            };
            match self.publish_all(&mut table, base, members.clone(), areas, gfp, &mut sink) {
                Ok(()) => return Ok(()),
                Err(Miss::NoMemory) => return Err(ENOMEM),
                // The lock was dropped, and the gap of a member was taken meanwhile.
                Err(Miss::NoRoom) => {}
            }
        }
        Err(ENOMEM)
    }

    /// Publishes `members` at `base`, all or none.
    fn publish_all(
        &self,
        table: &mut TableGuard<'_>,
        base: usize,
        members: impl Iterator<Item = Member> + Clone,
        mut areas: AreaList<New>,
        gfp: Gfp,
        sink: &mut impl FnMut(usize, AreaPtr),
    ) -> Result<(), Miss> {
        for (index, member) in members.clone().enumerate() {
            // One entry each time the lock is held. If another request takes the gap of a member meanwhile, the
            // search is made again.
            table.relock();
            let published = match (member.at(base), areas.pop()) {
                (Some(span), Some(area)) => self.publish_at(table, span, area, gfp),
                _ => Err(Miss::NoRoom),
            };
            match published {
                Ok(area) => sink(index, area),
                Err(miss) => {
                    for member in members.take(index) {
                        table.relock();
                        let addr = base.wrapping_add(member.offset);
                        if let Some((area, proof)) = table.unpublish(addr) {
                            // Lockless readers may have found it. Waiting for them here cannot deadlock:
                            // no reader takes the tree lock while it holds a pin.
                            let area = self.pins.wait_for_readers(area);
                            self.put_back(table, area.never_mapped(proof));
                        }
                    }
                    return Err(miss);
                }
            }
        }
        let counters = &self.cpus.here().counters;
        counters.alloc_congruent.add(members.count());
        Ok(())
    }

    /// Publishes `area` at `span` if that is free.
    fn publish_at(
        &self,
        table: &mut TableGuard<'_>,
        span: Span,
        mut area: Area<New>,
        gfp: Gfp,
    ) -> Result<AreaPtr, Miss> {
        for _ in 0..MAX_RETRIES {
            // A store must follow a search without dropping the lock between.
            if !table
                .gap_around(span.first())
                .is_some_and(|gap| gap.covers(span))
            {
                return Err(Miss::NoRoom);
            }
            area = match table.publish(area, span, &Attributes::NONE) {
                Ok(area) => {
                    self.count(table, span, true);
                    return Ok(area);
                }
                Err((area, _)) => area,
            };
            if !table.nomem(gfp) {
                break;
            }
        }
        Err(Miss::NoMemory)
    }
}
