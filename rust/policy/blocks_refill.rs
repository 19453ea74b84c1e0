// SPDX-License-Identifier: GPL-2.0

//! How a CPU gets another block when its current one has no room.
//!
//! It takes the first of these that has room: a block in the pool that it remembers, an idle one of its NUMA node,
//! a new one. If there can be no new one, it takes a block that another CPU owns. A search looks at a few blocks
//! while it holds the lock of the pool, and the next search goes on behind them.

use crate::{
    base::{
        bits,
        cpu::CpuNumber, //
    },
    policy::{
        blocks::{
            Blocks,
            Room,
            IDLE_EPOCHS, //
        },
        percpu::Cpus,
        pool::{
            Pool,
            Position,
            Search,
            Whose,
            START, //
        }, //
    },
    state::{
        area::{
            AreaPtr,
            Attributes, //
        },
        block::{
            Band,
            Block,
            Small,
            Tried, //
        },
        lack::Lack,
        maps::{
            Entry,
            PoolLocked, //
        }, //
    },
    sys::{
        grace::{
            GraceBox,
            Guard,
            Unpublished, //
        },
        trace::Event, //
    }, //
};
use kernel::sync::atomic::Relaxed;

/// Maximum number of former blocks, and then of idle ones, that a refill searches before it makes a new block.
const MAX_REFILL_TRIES: usize = 4;

/// Maximum number of blocks that a search among those of all CPUs searches while it holds the lock.
const MAX_STEAL_TRIES: usize = 8;

/// Maximum number of blocks at which a search for an idle block, or among those of all CPUs, looks while it holds
/// the lock. Most looks end at the owner of the block, or at what an earlier search did not find in it.
const MAX_LOOKS: usize = 16;

impl Blocks {
    /// Allocates an area from a block in the pool that this CPU owns or that is idle. It becomes the current
    /// block of the band. Spins.
    pub(crate) fn refill(
        &self,
        cpus: &Cpus,
        small: Small,
        attributes: &Attributes,
    ) -> Option<AreaPtr> {
        let cpu = cpus.here();
        let mut pool = self.pool.lock();
        // Another task on this CPU may have refilled it meanwhile.
        if let Some(area) = self.alloc(cpus, cpu, small, attributes) {
            return Some(area);
        }
        let seat = cpus.first_of_group(self.group_shift(small));
        let (entry, area) = match self.take_own(&mut pool, cpus, seat, small, attributes) {
            Some(found) => found,
            None => {
                let band = small.band();
                let mut search = Search {
                    whose: Whose::OwnOrIdle(seat, pool.epoch.saturating_sub(IDLE_EPOCHS)),
                    tries: MAX_REFILL_TRIES,
                    from: pool.bands.of(band).cursor_own,
                };
                let found = self.take_partial(&mut pool, band, small, attributes, &mut search);
                // Without one, the next search continues there, so that searches reach all blocks in the end.
                let next = found.as_ref().map_or(search.from, |_| START);
                pool.bands.of_mut(band).cursor_own = next;
                found?
            }
        };
        self.make_current(&mut pool, cpus, small, small.band(), entry, Event::Refill);
        cpu.counters.refill.one();
        Some(area)
    }

    /// Allocates an area from any block that can serve the request, also from blocks of other CPUs and of
    /// lower bands of the same kind: for lack of room for a new block. Spins.
    pub(crate) fn steal(
        &self,
        cpus: &Cpus,
        small: Small,
        attributes: &Attributes,
    ) -> Option<AreaPtr> {
        self.return_current(cpus);
        for band in small.bands().rev() {
            // All blocks, in bounded holds of the lock, from a place of its own: other searches go on meanwhile.
            let mut search = Search {
                whose: Whose::AnyonesAgain,
                tries: MAX_STEAL_TRIES,
                from: START,
            };
            // It only goes forward, so it ends.
            loop {
                let mut pool = self.pool.lock();
                let found = self.take_partial(&mut pool, band, small, attributes, &mut search);
                if let Some((entry, area)) = found {
                    self.make_current(&mut pool, cpus, small, band, entry, Event::Steal);
                    cpus.here().counters.steal.one();
                    return Some(area);
                }
                if search.from == START {
                    break;
                }
            }
        }
        None
    }

    /// Allocates an area from a block of the band of the request in the pool, also of one that another
    /// CPU owns: for lack of room for a new block since `room`, or, if that is [`None`], for lack of memory.
    /// Spins.
    pub(crate) fn take_anyones(
        &self,
        cpus: &Cpus,
        small: Small,
        attributes: &Attributes,
        room: Option<Room>,
    ) -> Option<AreaPtr> {
        let mut pool = self.pool.lock();
        let in_band = pool.bands.of_mut(small.band());
        if in_band.has_searched_all() {
            (in_band.room, in_band.lack) = (self.room.load(Relaxed), Lack::ALL);
        }
        in_band.lack = in_band.lack.and(Lack::of(small));
        let mut search = Search {
            whose: Whose::Anyones,
            tries: MAX_STEAL_TRIES,
            from: in_band.cursor_all,
        };
        let found = self.take_partial(&mut pool, small.band(), small, attributes, &mut search);
        let in_band = pool.bands.of_mut(small.band());
        // Also after a success: the blocks before have no room until the next purge.
        in_band.cursor_all = search.from;
        let Some((entry, area)) = found else {
            // Otherwise the next request continues the search. Room that was made behind the search, or for
            // this request, while it went on, must not be hidden.
            if let (Some(room), true) = (room, in_band.has_searched_all()) {
                if in_band.room.wrapping_add(1) == room.0 {
                    self.note_no_room(small.band(), in_band.lack, room);
                }
            }
            return None;
        };
        self.make_current(&mut pool, cpus, small, small.band(), entry, Event::Refill);
        cpus.here().counters.refill.one();
        Some(area)
    }

    /// Inserts a new block, whose range is reserved, makes it the current block, and allocates an area
    /// from it. Returns the block if its place is taken.
    pub(crate) fn adopt(
        &self,
        cpus: &Cpus,
        block: Unpublished<Block>,
        small: Small,
        attributes: &Attributes,
    ) -> Result<Option<AreaPtr>, GraceBox<Block>> {
        // Mark it held before publishing it: a CPU with a stale number must not take it from the pool. It
        // stays closed until all its entries are set: areas in it must be found at each of their
        // addresses.
        let mut pool = self.pool.lock();
        let entry = self.dir.insert(block.into())?;
        self.take_into_use(&mut pool, small.band(), entry);
        let rcu = Guard::new();
        let area = self.dir.block(entry.number, &rcu).and_then(|block| {
            block.open();
            // Few others can have allocated from the block yet, so there is room.
            block.alloc(small, attributes)
        });
        self.make_current(&mut pool, cpus, small, small.band(), entry, Event::Open);
        let cpu = cpus.here();
        cpu.counters.block_new.one();
        cpu.counters.refill.one();
        Ok(area)
    }

    /// Takes a block with room that CPU `seat` remembers out of the pool, and allocates the area from it.
    fn take_own(
        &self,
        pool: &mut Pool,
        cpus: &Cpus,
        seat: CpuNumber,
        small: Small,
        attributes: &Attributes,
    ) -> Option<(Entry<'_>, AreaPtr)> {
        let band = small.band();
        let former = cpus.of(seat).former.of(band);
        let rcu = Guard::new();
        let (mut last, mut tries) = (None, 0);
        while tries < MAX_REFILL_TRIES {
            let number = former.lowest_above(last)?;
            last = Some(number);
            // Others may have taken it since, or it was freed.
            let found = self.dir.entry(number).zip(self.dir.block(number, &rcu));
            let found = found.filter(|(entry, block)| {
                let partial = entry.maps.pool(&pool.locked).partial.of(band);
                partial.has(entry.bit) && block.owner().0 == seat
            });
            let Some((entry, block)) = found else {
                former.forget(number);
                continue;
            };
            match block.alloc_in_pool(small, attributes) {
                Tried::Found(area) => {
                    self.take_into_use(pool, band, entry);
                    return Some((entry, area));
                }
                Tried::NoRoom => tries = tries.saturating_add(1),
                Tried::Lacks => {}
            }
        }
        None
    }

    /// Takes a block of `band` with room out of the pool, and allocates the area from it. Continues `search`.
    fn take_partial(
        &self,
        pool: &mut Pool,
        band: Band,
        small: Small,
        attributes: &Attributes,
        search: &mut Search,
    ) -> Option<(Entry<'_>, AreaPtr)> {
        if pool.bands.of(band).partial == 0 {
            search.from = START;
            return None;
        }
        let rcu = Guard::new();
        let (mut looks, mut searches) = (0, 0);
        while looks < MAX_LOOKS && searches < search.tries {
            looks = looks.saturating_add(1);
            let Some((slot, entry)) = self.next_partial(&pool.locked, band, search.from) else {
                search.from = START;
                break;
            };
            search.from = (slot, entry.bit.number().wrapping_add(1));
            let block = self.dir.block(entry.number, &rcu);
            let block = block.filter(|block| block.serves(small) && search.whose.may_take(block));
            let Some(block) = block else {
                continue;
            };
            if let Whose::AnyonesAgain = search.whose {
                block.note_room();
            }
            match block.alloc_in_pool(small, attributes) {
                Tried::Found(area) => {
                    self.take_into_use(pool, band, entry);
                    return Some((entry, area));
                }
                Tried::NoRoom => searches = searches.saturating_add(1),
                Tried::Lacks => {}
            }
        }
        None
    }

    /// Returns the slot and the entry of the first block in the pool, from `from` on, with room for the
    /// band.
    fn next_partial(
        &self,
        locked: &PoolLocked,
        band: Band,
        from: Position,
    ) -> Option<(usize, Entry<'_>)> {
        for part in self.dir.maps_in(from.0..usize::MAX) {
            let start = if part.slot == from.0 { from.1 } else { 0 };
            let partial = part.maps.pool(locked).partial.of(band);
            if let Some(bit) = bits::next_set(&partial.words(), start) {
                return Some((part.slot, part.entry(bit)));
            }
        }
        None
    }
}
