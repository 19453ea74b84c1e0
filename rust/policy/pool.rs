// SPDX-License-Identifier: GPL-2.0

//! The pool: the blocks that no CPU allocates from, in lists under one lock.
//!
//! Each class has a list of partial blocks and one of empty blocks. Most of them are also in the list of their owner, the CPU
//! that allocated from them last, which prefers them because it has their objects in its caches. A block that gets a free
//! slot when its owner has [`MOST_OWNED`] blocks becomes an *orphan*: it is first in the list of the class, for any CPU. A
//! block without a free slot is in no list until a purge frees one.
//!
//! Any block of a class that has a free slot serves any request of the class, so taking a block is a few steps.

use super::prelude::*;

/// A CPU with this many blocks of a class in its list gets no further partial ones. They are orphans, which any CPU may take.
const MOST_OWNED: usize = 16;

/// Minimum number of empty blocks of a class that a purge keeps.
const LEAST_KEPT: usize = 2;

/// A class that was used, but not in a whole period of this many purges, keeps no empty block, nor any CPU a current one: their
/// page tables are freed.
const PERIOD: usize = 64;

/// What the lock protects.
pub(crate) struct Pool {
    classes: ByClass<ClassPool>,
    /// Number of blocks that exist or are being made, and their bytes.
    live: usize,
    bytes: usize,
    /// Classes for which the next purge has something to do: those that may keep another number of empty blocks then, or
    /// have more than they keep.
    active: ClassSet,
    /// Classes of which blocks became current, or slots free, in this period, and in the one before.
    used: ClassSet,
    used_before: ClassSet,
    /// Number of purges.
    purges: usize,
}

/// The blocks of a class in the pool that have room.
struct ClassPool {
    /// Those with used slots, orphans first.
    partial: List,
    empty: List,
    /// Number of blocks that became current since the last purge.
    taken: usize,
    /// Number of slots that this purge has freed.
    purged: usize,
    /// Number of empty blocks that a purge keeps.
    keep: usize,
}

/// Where a refill takes a block from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Blocks of this CPU, orphans, and empty ones.
    Pool,
    /// Partial blocks of other CPUs, too, as there can be no new block.
    Anyone,
    /// Empty blocks: the current one has room, but not for a set.
    Empty,
}

/// Numbers of blocks by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolCensus {
    pub(crate) live: usize,
    pub(crate) bytes: usize,
    /// Blocks in the pool with room, empty ones too.
    pub(crate) partial: usize,
    pub(crate) empty: usize,
}

impl Pool {
    /// Creates the pool of a space without blocks.
    pub(crate) fn new() -> Result<Self> {
        let class = || ClassPool {
            partial: List::new(Kind::Class),
            empty: List::new(Kind::Class),
            taken: 0,
            purged: 0,
            keep: LEAST_KEPT,
        };
        Ok(Self {
            classes: ByClass::new(Node::ANY, class)?,
            live: 0,
            bytes: 0,
            active: ClassSet::EMPTY,
            used: ClassSet::EMPTY,
            used_before: ClassSet::EMPTY,
            purges: 0,
        })
    }

    /// Counts a new block of `class`, if all blocks have at most `limit` bytes then. A large one leaves room for small ones.
    pub(super) fn reserve(&mut self, class: Class, limit: usize) -> bool {
        let size = class.block_size();
        let left = limit.saturating_sub(self.bytes);
        let share = if size == SIZE { 1 } else { 4 };
        let has_room = size.saturating_mul(share) <= left;
        if has_room {
            self.count(class);
        }
        has_room
    }

    /// Counts a block of `class`.
    pub(super) fn count(&mut self, class: Class) {
        self.live = self.live.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(class.block_size());
    }

    /// Stops counting a block of `class`.
    pub(super) fn unreserve(&mut self, class: Class) {
        self.live = self.live.wrapping_sub(1);
        self.bytes = self.bytes.wrapping_sub(class.block_size());
    }

    /// Counts slots of `class` that a purge has freed.
    pub(super) fn purged(&mut self, class: Class, count: usize) {
        self.active.insert(class);
        let class = self.classes.of_mut(class);
        class.purged = class.purged.wrapping_add(count);
    }

    /// Ends a purge: each class keeps as many empty blocks as it took since the last one, but not more than the slots fill
    /// that were freed; or an eighth less than before. Returns whether a class has more than it keeps, and classes that were unused
    /// for so long that they keep none.
    pub(super) fn end_purge(&mut self) -> (bool, ClassSet) {
        let mut has_surplus = false;
        for class in self.active {
            let of_class = self.classes.of_mut(class);
            let taken = core::mem::take(&mut of_class.taken);
            // `div_ceil()` could panic.
            let slots = class.slots().max(1);
            let freed = core::mem::take(&mut of_class.purged);
            let freed = freed.saturating_add(slots.wrapping_sub(1)) / slots;
            let less = of_class.keep.wrapping_sub(of_class.keep.div_ceil(8));
            of_class.keep = taken.min(freed).max(less).max(LEAST_KEPT);
            if taken.max(freed) != 0 {
                self.used.insert(class);
            }
            if of_class.empty.len() > of_class.keep {
                has_surplus = true;
            } else if of_class.keep == LEAST_KEPT {
                self.active.remove(class);
            }
        }
        self.purges = self.purges.wrapping_add(1);
        let mut idle = ClassSet::EMPTY;
        if self.purges % PERIOD == 0 {
            let used = core::mem::replace(&mut self.used, ClassSet::EMPTY);
            idle = core::mem::replace(&mut self.used_before, used).without(used);
            for class in idle {
                self.classes.of_mut(class).keep = 0;
                self.active.insert(class);
            }
        }
        (has_surplus, idle)
    }

    pub(super) fn census(&self) -> PoolCensus {
        let empty = self.empty();
        let partial = self.classes.iter().map(|class| class.partial.len());
        PoolCensus {
            live: self.live,
            bytes: self.bytes,
            partial: partial.fold(empty, usize::wrapping_add),
            empty,
        }
    }

    pub(super) fn empty(&self) -> usize {
        self.classes
            .iter()
            .fold(0, |sum, class| sum.wrapping_add(class.empty.len()))
    }
}

/// The locked pool, with the blocks in it and their owners.
pub(crate) struct PoolGuard<'a> {
    pub(super) pool: LockGuard<'a, Pool>,
    pub(super) dir: &'a Directory,
    pub(super) cpus: &'a Cpus,
}

impl<'a> PoolGuard<'a> {
    /// Returns the list of blocks of `class` whose owner is `cpu`.
    fn own(&self, cpu: CpuNumber, class: Class) -> &'a List {
        self.cpus.get(cpu).own.of(class)
    }

    /// Returns the lists in which a block is, and where it is put into each.
    fn lists(&self, block: &Block) -> [Option<(&List, End)>; 2] {
        let class = self.pool.classes.of(block.class());
        let own = || self.own(block.links().owner(), block.class());
        match block.links().place() {
            Place::Held | Place::Full => [None, None],
            Place::Owned => [Some((&class.partial, End::Last)), Some((own(), End::First))],
            Place::Orphan => [Some((&class.partial, End::First)), None],
            Place::Empty => [Some((&class.empty, End::First)), Some((own(), End::Last))],
        }
    }

    /// Moves a block to `place`.
    fn move_to(&mut self, block: &Block, place: Place) {
        for (list, _) in self.lists(block).into_iter().flatten() {
            list.remove(self.dir, block);
        }
        block.links().set_place(place);
        for (list, end) in self.lists(block).into_iter().flatten() {
            list.push(self.dir, block, end);
        }
        self.pool.active.insert(block.class());
    }

    /// Puts a block that is held into the pool.
    pub(super) fn put(&mut self, block: &Block) {
        // First as if it were full, which is in no list: `update()` leaves a held block alone.
        self.move_to(block, Place::Full);
        self.update(block);
    }

    /// Moves a block to the list that fits, if it is in the pool and slots of it became free.
    pub(super) fn update(&mut self, block: &Block) {
        let now = block.links().place();
        let place = match now {
            Place::Held => return,
            _ if block.is_empty() => Place::Empty,
            // An owned block or an orphan with free slots stays what it is.
            Place::Full if !block.is_full() => {
                if self.own(block.links().owner(), block.class()).len() < MOST_OWNED {
                    Place::Owned
                } else {
                    Place::Orphan
                }
            }
            place => place,
        };
        if place != now {
            self.move_to(block, place);
        }
    }

    /// Takes a block of `class` for the CPUs of group `group`.
    pub(super) fn take<'r>(
        &mut self,
        class: Class,
        group: CpuNumber,
        from: Source,
        rcu: &'r Guard,
    ) -> Option<&'r Block>
    where
        'a: 'r,
    {
        let dir = self.dir;
        let own = self.own(group, class);
        let of_class = self.pool.classes.of(class);
        let mut block = None;
        if from != Source::Empty {
            // A partial one of its own, an orphan, or an empty one of its own: these are first in their lists.
            let own_block = own.first(dir, rcu);
            block = own_block
                .filter(|block| block.links().place() == Place::Owned)
                .or_else(|| {
                    let first = of_class.partial.first(dir, rcu);
                    first.filter(|block| block.links().place() == Place::Orphan)
                })
                .or(own_block);
        }
        block = block.or_else(|| of_class.empty.first(dir, rcu));
        if from == Source::Anyone {
            block = block.or_else(|| of_class.partial.first(dir, rcu));
        }
        let block = block?;
        self.hold(block);
        Some(block)
    }

    /// Takes a block that is about to be current out of the pool, or counts a new one as taken. Its owner stays.
    pub(super) fn hold(&mut self, block: &Block) {
        self.move_to(block, Place::Held);
        let class = self.pool.classes.of_mut(block.class());
        class.taken = class.taken.wrapping_add(1);
    }

    /// Takes an empty block out of the directory: of a class with more than it keeps, or of any class if `all`.
    pub(super) fn remove_empty(&mut self, all: bool) -> Option<Placed> {
        let rcu = Guard::new();
        let classes = if all {
            ClassSet::all()
        } else {
            self.pool.active
        };
        for class in classes {
            let keep = if all {
                0
            } else {
                self.pool.classes.of(class).keep
            };
            while self.pool.classes.of(class).empty.len() > keep {
                let Some(block) = self.pool.classes.of(class).empty.first(self.dir, &rcu) else {
                    break;
                };
                // Held: nobody puts it into a list before this is done, or it is put back.
                self.move_to(block, Place::Held);
                let removed = block.number().and_then(|number| self.dir.remove(number));
                if removed.is_some() {
                    self.pool.unreserve(class);
                    return removed;
                }
                // A task that moved to another CPU has allocated from it: try the next one. If that area is free again by
                // now, the block is first in the list again: do not try it for ever.
                self.put(block);
                if block.links().place() == Place::Empty {
                    break;
                }
            }
        }
        None
    }
}

/// The links of its blocks that a list uses. A block is in at most one list of each kind.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// The empty, or the partial blocks of a class.
    Class = 0,
    /// Blocks of a class with room, of one owner.
    Owner = 1,
}

/// An end of a list; also a side of a block in it.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// The first block; the next one.
    First = 0,
    /// The last block; the one before.
    Last = 1,
}

impl End {
    fn opposite(self) -> Self {
        match self {
            Self::First => Self::Last,
            Self::Last => Self::First,
        }
    }
}

/// A list of blocks, linked through them. Used under the lock of the pool.
pub(crate) struct List {
    kind: Kind,
    ends: [BlockHint; 2],
    len: Atomic<usize>,
}

impl List {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            ends: [const { BlockHint::new() }; 2],
            len: Atomic::new(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        // Relaxed: written under the lock.
        self.len.read_once()
    }

    pub(crate) fn first<'a>(&self, dir: &'a Directory, rcu: &'a Guard) -> Option<&'a Block> {
        dir.block(self.ends[0].get()?, rcu)
    }

    /// Returns the links of a block for this list: to the next one, and to the one before.
    fn links<'a>(&self, block: &'a Block) -> &'a [BlockHint; 2] {
        // CAST: The variants are small numbers.
        &block.links().chains[self.kind as usize]
    }

    /// Stores `to` where block `at` leads on side `end`; in the end of the list if there is no such block.
    #[inline(never)]
    fn set(&self, dir: &Directory, at: Option<BlockNumber>, end: End, to: Option<BlockNumber>) {
        let rcu = Guard::new();
        let links = match at.and_then(|at| dir.block(at, &rcu)) {
            Some(block) => self.links(block),
            None => &self.ends,
        };
        // CAST: The variants are small numbers.
        links[end as usize].set(to);
    }

    /// Inserts a block, which is in no list of this kind, at `end`.
    pub(crate) fn push(&self, dir: &Directory, block: &Block, end: End) {
        let other = end.opposite();
        // CAST: The variants are small numbers.
        let [at, before] = [end, other].map(|end| end as usize);
        let (number, neighbour) = (block.number(), self.ends[at].get());
        self.links(block)[at].set(neighbour);
        self.links(block)[before].set(None);
        self.set(dir, neighbour, other, number);
        self.ends[at].set(number);
        self.len.write_once(self.len().wrapping_add(1));
    }

    /// Removes a block, which is in this list.
    pub(crate) fn remove(&self, dir: &Directory, block: &Block) {
        let [next, before] = self.links(block).each_ref().map(BlockHint::get);
        self.set(dir, next, End::Last, before);
        self.set(dir, before, End::First, next);
        self.len.write_once(self.len().wrapping_sub(1));
    }
}
