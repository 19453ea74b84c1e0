// SPDX-License-Identifier: GPL-2.0

//! Areas at fixed offsets from a common base, for the percpu allocator: from slots of one block, or else from the tree. Nobody
//! finds an area of a request that fails.

use super::prelude::*;

impl<T: Tlb> Space<T> {
    /// Reserves a range for each of `members` at a common base: in one block, from the top down, or at the highest base in
    /// `window`; for all or none. Passes the areas to `publish` in order, which makes them busy. Sleeps if `gfp` allows it.
    pub(crate) fn alloc_congruent(
        &self,
        window: Span,
        members: impl Iterator<Item = Member> + Clone,
        align: usize,
        gfp: Gfp,
        mut publish: impl FnMut(usize, Area<Reserved>) -> Option<Busy>,
    ) -> Result {
        let ends = members
            .clone()
            .map(|member| member.offset.saturating_add(member.size));
        let reach = ends.fold(0, usize::max);
        let areas = self
            .reserve_congruent(window, members, reach, align, gfp)
            .inspect_err(|&err| self.refused(reach, align, window, gfp, err))?;
        self.blocks.counters_here().alloc_congruent.add(areas.len());
        // All are reserved: now they may be found.
        for (index, area) in (0..areas.len()).zip(areas) {
            publish(index, area);
        }
        Ok(())
    }

    /// Does what [`Space::alloc_congruent`] says, for members that end `reach` bytes from their base, and nobody finds yet.
    fn reserve_congruent(
        &self,
        window: Span,
        members: impl Iterator<Item = Member> + Clone,
        reach: usize,
        align: usize,
        gfp: Gfp,
    ) -> Result<AreaList<Reserved>> {
        // A request that can never fit allocates nothing.
        if !can_fit(window, reach, align) {
            return Err(EBUSY);
        }
        // The percpu allocator aligns its window: that of the space may end off a page, as on x86.
        let blocks = self.blocks.dir.window();
        if blocks.is_some_and(|blocks| window.covers(blocks)) {
            if let Some(areas) = self.alloc_set(members.clone(), reach, align, gfp) {
                return Ok(areas);
            }
        }
        let mut drained = false;
        for _ in 0..MAX_RETRIES {
            // Allocate the area objects before the lock is taken.
            let mut areas = AreaList::new();
            for _ in members.clone() {
                areas.push(Area::alloc(gfp, -1).ok_or(ENOMEM)?);
            }
            let mut held = AreaList::new();
            let times = self.tree.times_freed();
            let mut index = self.tree.index.lock();
            let Some(base) = highest_congruent(&mut index, window, members.clone(), align) else {
                drop(index);
                if drained {
                    return Err(EBUSY);
                }
                self.blocks
                    .return_current(gfp.may_block(), &Block::is_empty);
                self.drain(gfp);
                // Another CPU may have freed what this one has not found.
                if self.tree.times_freed() == times {
                    return Err(EBUSY);
                }
                drained = true;
                continue;
            };
            let result = self.hold_all(&mut index, base, members.clone(), areas, &mut held, gfp);
            drop(index);
            match result {
                Ok(()) => return Ok(held),
                Err(error) => {
                    // Nobody has found them, so there is nothing to undo that others could have seen.
                    for area in held {
                        self.tree.give_back(area.cancel(), &self.blocks.cpus);
                    }
                    if error == ENOMEM {
                        return Err(ENOMEM);
                    }
                    // The lock was dropped, and the gap of a member was taken meanwhile.
                }
            }
        }
        Err(ENOMEM)
    }

    /// Reserves a set of areas at a common base in the current block of the smallest class of which each member has a slot of
    /// its own, and half a block is `reach` bytes. [`None`], so that the tree serves them, also if the members do not ascend.
    /// Sleeps if `gfp` allows it.
    fn alloc_set(
        &self,
        members: impl Iterator<Item = Member> + Clone,
        reach: usize,
        align: usize,
        gfp: Gfp,
    ) -> Option<AreaList<Reserved>> {
        let sizes = members.clone().map(|member| member.size);
        // Blocks of smaller classes are too small.
        let least = least_slot(reach.saturating_mul(2));
        let smallest = self.blocks.class_of(sizes.fold(least, usize::max), align);
        let fits = |class: &Class| {
            let slot = class.slot_pages().wrapping_mul(PAGE_SIZE);
            // With twice the reach, there is more than one place for the set.
            if reach > class.block_size() / 2 || !is_aligned(slot, align) {
                return false;
            }
            // The slot behind that of the last member.
            let mut next = 0;
            for member in members.clone() {
                let number = member.offset.checked_div(slot).unwrap_or(0);
                let inside = member.offset.checked_rem(slot).unwrap_or(0);
                if number < next || inside.saturating_add(member.size) > slot {
                    return false;
                }
                next = number.saturating_add(1);
            }
            true
        };
        let class = self.blocks.classes_from(smallest?).find(fits)?;
        let mut areas = self.blocks.alloc_set(class, members.clone());
        // A block with room may have none for a set: areas that stay in it may be anywhere. An empty one has.
        for from in [Source::Pool, Source::Empty] {
            if areas.is_none() && self.refill(class, from, gfp) {
                areas = self.blocks.alloc_set(class, members.clone());
            }
        }
        areas
    }

    /// Reserves `members` at `base`, and adds their areas to `held`: not all of them if it fails. The objects that are left
    /// in `areas` are freed then.
    fn hold_all(
        &self,
        index: &mut IndexGuard<'_>,
        base: usize,
        members: impl Iterator<Item = Member>,
        mut areas: AreaList<New>,
        held: &mut AreaList<Reserved>,
        gfp: Gfp,
    ) -> Result {
        for member in members {
            let span = member.at(base).ok_or(EBUSY)?;
            let mut area = areas.pop().ok_or(EBUSY)?;
            let mut tries = 0..MAX_RETRIES;
            loop {
                // A store must follow a search without dropping the lock between.
                let gap = index.gap_around(span.first());
                if !gap.is_some_and(|gap| gap.covers(span)) {
                    return Err(EBUSY);
                }
                area = match index.reserve(area, span) {
                    Ok(area) => {
                        held.push(area);
                        break;
                    }
                    Err((area, _)) => area,
                };
                if tries.next().is_none() || !index.nomem(gfp) {
                    return Err(ENOMEM);
                }
            }
        }
        Ok(())
    }
}
