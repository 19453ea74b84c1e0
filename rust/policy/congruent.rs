// SPDX-License-Identifier: GPL-2.0

//! Areas at fixed offsets from a common base, for the percpu allocator: from slots of one block, or else from the tree. Nobody
//! finds an area of a request that fails.

use crate::{
    base::{
        fit::{
            can_fit,
            highest_congruent,
            Gaps,
            Member, //
        },
        prelude::*, //
    },
    policy::{
        space::Space,
        tree::{
            Miss,
            MAX_RETRIES, //
        }, //
    },
    state::{
        area::{
            Area,
            AreaList,
            Busy,
            New,
            Reserved, //
        },
        class::Class,
        table::TableGuard, //
    },
    sys::{
        mm::{
            Gfp,
            Tlb, //
        },
        trace, //
    }, //
};

impl<T: Tlb> Space<T> {
    /// Reserves a range for each of `members` at the highest common base in `window`, and passes the areas
    /// to `sink` in order. Reserves all or none. Sleeps if `gfp` allows it.
    pub(crate) fn alloc_congruent(
        &self,
        window: Span,
        members: impl Iterator<Item = Member> + Clone,
        align: usize,
        gfp: Gfp,
        sink: impl FnMut(usize, Busy),
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
        mut sink: impl FnMut(usize, Busy),
    ) -> Result {
        let ends = { members.clone() }.map(|member| member.offset.saturating_add(member.size));
        // A request that can never fit allocates nothing.
        if !can_fit(window, ends.fold(0, usize::max), align) {
            return Err(EBUSY);
        }
        if window == self.home && self.alloc_set(members.clone(), align, gfp, &mut sink) {
            return Ok(());
        }
        let mut drained = false;
        for _ in 0..MAX_RETRIES {
            // Allocate the area objects before the lock is taken.
            let mut areas = AreaList::new();
            for _ in members.clone() {
                areas.push(Area::alloc(gfp, -1).ok_or(ENOMEM)?);
            }
            let mut held = AreaList::new();
            let mut table = self.table.lock();
            let Some(base) = highest_congruent(&mut table, window, members.clone(), align) else {
                drop(table);
                if drained || !self.drain(gfp) {
                    return Err(EBUSY);
                }
                drained = true;
                continue;
            };
            let result = self.hold_all(&mut table, base, members.clone(), areas, &mut held, gfp);
            drop(table);
            match result {
                Ok(()) => {
                    // All are reserved: now they may be found.
                    for (index, area) in held.enumerate() {
                        if let Some(area) = area.busy_at() {
                            sink(index, area);
                        }
                    }
                    let counters = &self.cpus.here().counters;
                    counters.alloc_congruent.add(members.count());
                    return Ok(());
                }
                Err(miss) => {
                    // Nobody has found them, so there is nothing to undo that others could have seen.
                    for area in held {
                        self.give_back(area.cancel());
                    }
                    if miss == Miss::NoMemory {
                        return Err(ENOMEM);
                    }
                    // The lock was dropped, and the gap of a member was taken meanwhile.
                }
            }
        }
        Err(ENOMEM)
    }

    /// Serves a request for a set of areas at a common base from the current block of a class of which each member needs a
    /// slot. Returns whether it did. Spins.
    fn alloc_set(
        &self,
        members: impl Iterator<Item = Member> + Clone,
        align: usize,
        gfp: Gfp,
        sink: &mut impl FnMut(usize, Busy),
    ) -> bool {
        let ends = { members.clone() }.map(|member| member.offset.saturating_add(member.size));
        let reach = ends.fold(0, usize::max);
        let size = { members.clone() }
            .map(|member| member.size)
            .fold(0, usize::max);
        let smallest = self.blocks.class_of(size, align);
        // With twice the reach, there is more than one place for the set. Each member has a slot of its own.
        let fits = |class: &Class| {
            let slot = class.slot_pages().wrapping_mul(PAGE_SIZE);
            let mut least = 0;
            let mut fits = |member: Member| {
                let number = member.offset / slot;
                let is_new = core::mem::replace(&mut least, number.saturating_add(1)) <= number;
                is_new && (member.offset % slot).saturating_add(member.size) <= slot
            };
            let all_fit = members.clone().all(&mut fits);
            reach <= class.block_size() / 2 && all_fit && slot % align == 0
        };
        let Some(class) = smallest.and_then(|class| self.blocks.classes_from(class).find(fits))
        else {
            return false;
        };
        for refilled in [false, true] {
            if self
                .blocks
                .alloc_set(&self.cpus, class, members.clone(), sink)
            {
                self.cpus
                    .here()
                    .counters
                    .alloc_congruent
                    .add(members.count());
                return true;
            }
            // A block that is not full stays current: the tree serves the set then.
            if refilled || !self.refill(class, gfp) {
                break;
            }
        }
        false
    }

    /// Reserves `members` at `base`, and adds their areas to `held`: not all of them if it fails.
    fn hold_all(
        &self,
        table: &mut TableGuard<'_>,
        base: usize,
        members: impl Iterator<Item = Member>,
        mut areas: AreaList<New>,
        held: &mut AreaList<Reserved>,
        gfp: Gfp,
    ) -> Result<(), Miss> {
        for member in members {
            let span = member.at(base).ok_or(Miss::NoRoom)?;
            let mut area = areas.pop().ok_or(Miss::NoRoom)?;
            let mut tries = 0..MAX_RETRIES;
            loop {
                // A store must follow a search without dropping the lock between.
                if !{ table.gap_around(span.first()) }.is_some_and(|gap| gap.covers(span)) {
                    return Err(Miss::NoRoom);
                }
                area = match table.hold(area, span) {
                    Ok(area) => {
                        held.push(area);
                        break;
                    }
                    Err((area, _)) => area,
                };
                if tries.next().is_none() || !table.nomem(gfp) {
                    return Err(Miss::NoMemory);
                }
            }
        }
        Ok(())
    }
}
