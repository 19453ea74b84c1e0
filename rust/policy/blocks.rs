// SPDX-License-Identifier: GPL-2.0

//! All blocks, and the current ones of each CPU, from which it allocates without a lock. When one is full, the CPU takes
//! another out of the pool ([`crate::policy::pool`]), or makes one, and puts the old one into the pool.
//!
//! A task that has moved to another CPU may still allocate from the block of its old CPU, which is harmless.
//!
//! CPUs share the current blocks of large classes, in groups: those of the first CPU of the group. If there are too many
//! CPUs for the size of the space, they share those of small classes, too.

use super::prelude::*;

/// A space has room for at least this many blocks of each class that it has: a few would leave no room for others. 128 MiB
/// have room for 63 of the smallest.
pub(super) const LEAST_BLOCKS: usize = 48;

/// Blocks take at most 1/`SHARE` of the space.
pub(super) const SHARE: usize = 4;

/// A purge is to begin when lazy pages reach 1/`LAZY_SHARE` of what blocks may have.
const LAZY_SHARE: usize = 4;

/// CPUs in a group that shares the current blocks of large classes, as a power of two.
const GROUP_SHIFT: u32 = 3;

/// A number of lazy pages that exceeds `lazy_max_pages()` in mm/vmalloc.c, 114,688 with 8,192 CPUs, so that C begins a
/// purge.
const PURGE_NOW: usize = 1 << 20;

/// Returns the logarithm of the number of CPUs that share current blocks: the least for which the current blocks of all
/// groups, one for each of `classes` classes of the smallest blocks, take at most half of `limit` bytes.
fn group_shift(cpus: usize, limit: usize, classes: usize) -> u32 {
    let groups = (limit / SIZE).checked_div(classes.wrapping_mul(2));
    let shared = cpus.max(1).div_ceil(groups.unwrap_or(0).max(1));
    shared
        .checked_next_power_of_two()
        .map_or(0, usize::trailing_zeros)
}

/// The state of one CPU.
pub(crate) struct Cpu {
    /// For each class, the current block. Changes under the lock of the pool. Other CPUs may use them, too.
    pub(crate) current: CacheAligned<[Seat; PLACES]>,
    /// For each class, blocks in the pool with room that were current blocks: partial ones, then empty ones. Used under the
    /// lock of the pool.
    pub(super) own: ByClass<List>,
    pub(crate) counters: Counters<Counter>,
}

impl Cpu {
    pub(super) fn new(node: Node) -> Result<Self> {
        Ok(Self {
            current: CacheAligned::new([const { Seat::new() }; PLACES]),
            own: ByClass::new(node, || List::new(Kind::Owner))?,
            counters: Counters::new(),
        })
    }

    #[inline(always)]
    pub(super) fn seat(&self, class: Class) -> &Seat {
        &self.current[class.number()]
    }
}

pub(crate) type Cpus = PerCpu<Cpu>;

/// Lazy pages of all blocks, and what only purges look at.
pub(super) struct LazyPages {
    /// Estimate of those that became lazy since the last purge began, without those in batches.
    pub(super) retired: Atomic<usize>,
    /// Those of the slots that a purge is flushing, until it has freed all of them.
    pub(super) flushing: Atomic<usize>,
    /// Whether the last purge has left more empty blocks than classes keep, for the next one to free.
    pub(super) has_surplus: Atomic<usize>,
}

/// All blocks of a space.
pub(crate) struct Blocks {
    // Before the directory: seats are left before it goes.
    pub(super) cpus: Cpus,
    pub(super) dir: Directory,
    pub(super) pool: Locked<Pool>,
    /// The largest request that blocks serve, in pages; 0 if there are no blocks.
    most_pages: usize,
    /// Maximum number of bytes of all blocks.
    pub(super) limit: usize,
    /// Bytes of the space, if blocks take at most a share of what other areas leave of it.
    pub(super) share_of: Option<usize>,
    /// [`group_shift`] of small classes, and of shared ones.
    group_shifts: [u32; 2],
    /// With this many lazy pages, a purge is to begin.
    lazy_most: usize,
    /// On a line of its own: requests read the fields above.
    pub(super) lazy: CacheAligned<LazyPages>,
    /// The CPU at which the next [`Blocks::return_current`] without sleeping begins, modulo the number of CPUs.
    next_cpu: Atomic<usize>,
}

impl Blocks {
    /// Creates an empty set of blocks in `home`. They have at most `limit` times the size of the smallest block, by
    /// default a share of `home`.
    pub(crate) fn new(home: Span, limit: Option<usize>) -> Result<Self> {
        let dir = Directory::new(home)?;
        let size = dir.window().map_or(0, Span::size);
        let most = match limit {
            Some(0) => 0,
            Some(_) => size,
            None if size / LEAST_BLOCKS < SIZE => 0,
            None => size / LEAST_BLOCKS,
        };
        let share_of = limit.is_none().then_some(size);
        let limit = limit.map_or(size / SHARE, |blocks| blocks.saturating_mul(SIZE));
        let count = mm::cpu_count();
        let smallest = Class::all().filter(|class| class.block_size() == SIZE);
        // `count()` could panic.
        let smallest = smallest.fold(0_usize, |sum, _| sum.wrapping_add(1));
        let shift = group_shift(count, limit, smallest);
        Ok(Self {
            cpus: PerCpu::new(Cpu::new)?,
            dir,
            pool: Locked::new(Pool::new()?, c"vmap_rust pool", static_lock_class!())?,
            most_pages: Class::all()
                .take_while(|class| class.block_size() <= most)
                .last()
                .map_or(0, Class::slot_pages),
            limit,
            share_of,
            group_shifts: [shift, shift.max(GROUP_SHIFT)],
            lazy_most: limit / PAGE_SIZE / LAZY_SHARE,
            lazy: CacheAligned::new(LazyPages {
                retired: Atomic::new(0),
                flushing: Atomic::new(0),
                has_surplus: Atomic::new(0),
            }),
            next_cpu: Atomic::new(0),
        })
    }

    /// Returns the class of a request for `size` bytes at a multiple of `align`, if blocks serve such requests.
    #[inline(always)]
    pub(crate) fn class_of(&self, size: usize, align: usize) -> Option<Class> {
        Class::for_request(size, align, self.most_pages)
    }

    /// Returns the logarithm of the number of CPUs that share current blocks of `class`.
    #[inline(always)]
    fn group_shift(&self, class: Class) -> u32 {
        let [small, shared] = self.group_shifts;
        if class.is_shared() {
            shared
        } else {
            small
        }
    }

    /// Returns the first CPU of the group of CPUs that share current blocks of `class`, in which this runs.
    pub(super) fn group(&self, class: Class) -> CpuNumber {
        mm::cpu_hint().first_of_group(self.group_shift(class))
    }

    pub(super) fn pool(&self) -> PoolGuard<'_> {
        PoolGuard {
            pool: self.pool.lock(),
            dir: &self.dir,
            cpus: &self.cpus,
        }
    }

    /// Returns the counters of the CPU on which this runs, or ran a moment ago.
    // For what is rare: one copy of the search for the CPU.
    #[inline(never)]
    pub(super) fn counters_here(&self) -> &Counters<Counter> {
        &self.cpus.here().counters
    }

    /// Claims a slot of `class` for `size` bytes in the current block of this CPU, and makes it what `take` does, or gives it back if
    /// that is nothing. Takes no lock, but for a slot that was given back to a block which is in the pool by now.
    #[inline(always)]
    pub(crate) fn claim<A>(
        &self,
        class: Class,
        size: usize,
        take: impl FnOnce(Claimed<'_>) -> Option<A>,
    ) -> Option<A> {
        let rcu = Guard::new();
        let here = self.cpus.here();
        let cpu = match self.group_shift(class) {
            0 => here,
            shift => self.cpus.get(mm::cpu_hint().first_of_group(shift)),
        };
        let seat = cpu.seat(class);
        let block = seat.get(&rcu)?;
        let area = take(block.claim(size)?);
        match area {
            Some(_) => here.counters.hit.one(),
            None => self.gave_back(seat, block, &rcu),
        }
        area
    }

    /// Puts a block into the list that fits, after a slot was given back, if it has left its seat: as in [`Blocks::alloc_set`].
    #[inline(never)]
    fn gave_back(&self, seat: &Seat, block: &Block, rcu: &Guard) {
        // The slot was set with a full barrier, as `Seat::replace()` is one: if the block has left its seat before, this sees it,
        // else who puts it into the pool sees the slot.
        if !seat.get(rcu).is_some_and(|now| core::ptr::eq(now, block)) {
            self.pool().update(block);
        }
    }

    /// Returns `class` and all larger ones of which the space has blocks.
    pub(crate) fn classes_from(&self, class: Class) -> impl Iterator<Item = Class> {
        let most = self.most_pages;
        let larger = class.and_larger();
        larger.take_while(move |class| class.slot_pages() <= most)
    }

    /// Reserves areas at fixed offsets from a common base in the current block of this CPU: all, in order, or none. Takes no
    /// lock if it does.
    pub(crate) fn alloc_set(
        &self,
        class: Class,
        members: impl Iterator<Item = Member> + Clone,
    ) -> Option<AreaList<Reserved>> {
        let rcu = Guard::new();
        let block = self.seat(class).get(&rcu)?;
        let areas = block.alloc_set(members);
        if areas.is_none() {
            // If the block is in the pool by now, others may have put it into a list without the slots that were claimed here
            // for a moment.
            self.pool().update(block);
        }
        areas
    }

    /// Returns the seat of the current block of `class` of this CPU, or of its group.
    fn seat(&self, class: Class) -> &Seat {
        self.cpus.get(self.group(class)).seat(class)
    }

    /// Takes a block of `class` out of the pool, and makes it the current one of this CPU. Returns whether the current block
    /// may have room now. Takes the pool lock.
    pub(crate) fn refill_from_pool(&self, class: Class, from: Source) -> bool {
        let group = self.group(class);
        let rcu = Guard::new();
        let mut pool = self.pool();
        let seat = self.cpus.get(group).seat(class);
        // Another task may have refilled it meanwhile.
        let has_room = seat.get(&rcu).is_some_and(|block| !block.is_full());
        if has_room && from != Source::Empty {
            return true;
        }
        let Some(block) = pool.take(class, group, from, &rcu) else {
            return false;
        };
        let event = if from == Source::Anyone {
            self.counters_here().steal.one();
            Event::Steal
        } else {
            Event::Refill
        };
        self.make_current(&mut pool, group, block, event);
        true
    }

    /// Makes a held block the current one of group `group`, and puts the one before into the pool.
    pub(super) fn make_current(
        &self,
        pool: &mut PoolGuard<'_>,
        group: CpuNumber,
        block: &Block,
        event: Event,
    ) {
        let (class, previous_owner) = (block.class(), block.links().owner());
        let size = class.block_size();
        trace::block(event, block.start(), size, class.number(), previous_owner);
        block.links().set_owner(group);
        let rcu = Guard::new();
        let seat = self.cpus.get(group).seat(class);
        if let Some(previous_block) = seat.replace(Some(block), &rcu) {
            pool.put(previous_block);
        }
        self.counters_here().refill.one();
    }

    /// Puts current blocks for which `is_wanted` returns true into the pool, also those of CPUs that are offline. Of all CPUs
    /// if `may_sleep`; else of [`MAX_ATOMIC`], from the CPU on at which the last such call ended. Takes the pool lock; sleeps
    /// between two CPUs if `may_sleep`.
    pub(crate) fn return_current(&self, may_sleep: bool, is_wanted: &dyn Fn(&Block) -> bool) {
        let count = self.cpus.count().max(1);
        let (first, most) = if may_sleep {
            (0, usize::MAX)
        } else {
            // Relaxed: any CPUs will do.
            (self.next_cpu.fetch_add(MAX_ATOMIC, Relaxed), MAX_ATOMIC)
        };
        let mut returned = 0_usize;
        for nth in 0..most.min(count) {
            let cpu = first.wrapping_add(nth) % count;
            let rcu = Guard::new();
            for seat in self.cpus.get(CpuNumber::new(cpu)).current.iter() {
                // Most have none, or one that is full: do not take the lock for them. If it has another block by now, that one
                // is put into the pool, which is as good.
                if returned >= most || !seat.get(&rcu).is_some_and(is_wanted) {
                    continue;
                }
                let mut pool = self.pool();
                if let Some(block) = seat.replace(None, &rcu) {
                    pool.put(block);
                }
                returned = returned.wrapping_add(1);
            }
            drop(rcu);
            if may_sleep {
                mm::cond_resched();
            }
        }
    }

    /// Counts pages that a CPU has noted. Returns about how many pages are lazy in blocks, or [`PURGE_NOW`] if blocks may have no
    /// room because of them. Any context.
    #[inline(never)]
    pub(super) fn noted(&self, more: usize) -> usize {
        // Relaxed: the count says when to purge, and orders nothing.
        let before = self.lazy.retired.fetch_add(more, Relaxed);
        let pages = before.saturating_add(more);
        if pages < self.lazy_most {
            pages
        } else {
            PURGE_NOW
        }
    }

    /// Notes the lazy slots of all CPUs, for readers. Sleepable context.
    pub(crate) fn note_batches(&self) {
        // If that is too much now, the next retire that notes says so.
        self.noted(self.dir.note_batches());
    }

    /// Returns the number of lazy pages, and of those that a purge is flushing. Sleepable context.
    pub(crate) fn lazy_pages(&self) -> usize {
        self.note_batches();
        // Relaxed: for users, who see no order.
        let mut pages = self.lazy.flushing.read_once();
        self.dir.each_dirty(false, &mut |block| {
            pages = pages.wrapping_add(block.lazy_pages())
        });
        pages
    }
}
