// SPDX-License-Identifier: GPL-2.0

//! The pool: the blocks that no CPU allocates from, in lists under one lock.
//!
//! Each class has a list of partial blocks for each CPU, which prefers them because it has their objects in its
//! caches; one of *orphans*, partial blocks of no CPU; and one of empty blocks. A block without a free slot is in no
//! list until a purge frees one. Any block of a class that has a free slot serves any request of the class, so taking and
//! giving a block are a few steps, and no search is in vain.

use crate::{
    base::prelude::*,
    policy::{
        cpus::Cpus,
        list::List, //
    },
    state::{
        block::{
            Block,
            Place, //
        },
        class::{
            ByClass,
            Class, //
        },
        dir::Directory, //
    },
    sys::grace::{
        GraceBox,
        Guard, //
    }, //
};

/// Maximum number of partial blocks of a class that belong to a CPU. Others are orphans, which any CPU may take.
const MOST_OWNED: usize = 16;

/// Minimum number of empty blocks of a class that a purge keeps.
const LEAST_KEPT: usize = 2;

/// What the lock protects.
pub(crate) struct Pool {
    classes: KBox<ByClass<ClassPool>>,
    /// Number of blocks that exist or are being made, and their bytes.
    live: usize,
    bytes: usize,
}

/// The blocks of a class that belong to no CPU.
struct ClassPool {
    orphans: List,
    empty: List,
    /// Number of blocks that became current since the last purge.
    taken: usize,
    /// Number of slots that this purge has freed.
    purged: usize,
    /// Number of empty blocks that a purge keeps.
    keep: usize,
}

/// Numbers of blocks by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolCensus {
    pub(crate) live: usize,
    pub(crate) bytes: usize,
    /// Blocks in the pool with room.
    pub(crate) partial: usize,
    pub(crate) empty: usize,
}

impl Pool {
    /// Creates the pool of a space without blocks.
    pub(crate) fn new() -> Result<Self> {
        let class = || ClassPool {
            orphans: List::new(),
            empty: List::new(),
            taken: 0,
            purged: 0,
            keep: LEAST_KEPT,
        };
        Ok(Self {
            classes: KBox::new(ByClass::new(class), GFP_NOWAIT)?,
            live: 0,
            bytes: 0,
        })
    }

    /// Counts a new block of `class`, if all blocks have at most `limit` bytes then. A large one leaves room for small ones.
    pub(super) fn reserve(&mut self, class: Class, limit: usize) -> bool {
        let size = class.block_size();
        let left = limit.saturating_sub(self.bytes);
        let share = if size == Class::SMALLEST.block_size() {
            1
        } else {
            4
        };
        let ok = size.saturating_mul(share) <= left;
        if ok {
            self.count(class);
        }
        ok
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

    /// Returns the list in which a block is.
    fn list<'a>(&'a self, cpus: &'a Cpus, block: &Block) -> Option<&'a List> {
        let class = self.classes.of(block.class());
        match block.links().place() {
            Place::Held | Place::Full => None,
            Place::Owned => Some(cpus.of(block.links().owner()).partial.of(block.class())),
            Place::Orphan => Some(&class.orphans),
            Place::Empty => Some(&class.empty),
        }
    }

    /// Moves a block to `place`.
    fn move_to(&mut self, dir: &Directory, cpus: &Cpus, block: &Block, place: Place) {
        if let Some(list) = self.list(cpus, block) {
            list.remove(dir, block);
        }
        block.links().set_place(place);
        if let Some(list) = self.list(cpus, block) {
            list.push(dir, block);
        }
    }

    /// Puts a block that is held into the pool.
    pub(super) fn put(&mut self, dir: &Directory, cpus: &Cpus, block: &Block) {
        self.move_to(dir, cpus, block, Place::Full);
        self.update(dir, cpus, block);
    }

    /// Moves a block to the list that fits, if it is in the pool and slots of it became free.
    pub(super) fn update(&mut self, dir: &Directory, cpus: &Cpus, block: &Block) {
        let now = block.links().place();
        if now == Place::Held {
            return;
        }
        let free = block.free_slots();
        let place = match now {
            _ if free == block.class().slots() => Place::Empty,
            Place::Full if free > 0 => {
                let own = cpus.of(block.links().owner()).partial.of(block.class());
                match own.len() < MOST_OWNED {
                    true => Place::Owned,
                    false => Place::Orphan,
                }
            }
            place => place,
        };
        if place != now {
            self.move_to(dir, cpus, block, place);
        }
    }

    /// Takes a block of `class` for CPU `cpu`: one of its own, an orphan, or an empty one.
    pub(super) fn take<'a>(
        &mut self,
        dir: &'a Directory,
        cpus: &Cpus,
        class: Class,
        cpu: CpuNumber,
        rcu: &'a Guard,
    ) -> Option<&'a Block> {
        let own = cpus.of(cpu).partial.of(class);
        let of_class = self.classes.of(class);
        let block = { own.first(dir, rcu) }
            .or_else(|| of_class.orphans.first(dir, rcu))
            .or_else(|| of_class.empty.first(dir, rcu))?;
        self.hold(dir, cpus, block);
        Some(block)
    }

    /// Takes an empty block of `class`.
    pub(super) fn take_empty<'a>(
        &mut self,
        dir: &'a Directory,
        cpus: &Cpus,
        class: Class,
        rcu: &'a Guard,
    ) -> Option<&'a Block> {
        let block = self.classes.of(class).empty.first(dir, rcu)?;
        self.hold(dir, cpus, block);
        Some(block)
    }

    /// Takes a partial block of `class` that belongs to any CPU, for lack of room.
    pub(super) fn take_anyones<'a>(
        &mut self,
        dir: &'a Directory,
        cpus: &Cpus,
        class: Class,
        rcu: &'a Guard,
    ) -> Option<&'a Block> {
        let block = cpus
            .iter()
            .find_map(|other| other.partial.of(class).first(dir, rcu))?;
        self.hold(dir, cpus, block);
        Some(block)
    }

    /// Takes a block out of the pool that is about to be current. Its owner stays.
    pub(super) fn hold(&mut self, dir: &Directory, cpus: &Cpus, block: &Block) {
        self.move_to(dir, cpus, block, Place::Held);
        let class = self.classes.of_mut(block.class());
        class.taken = class.taken.wrapping_add(1);
    }

    /// Takes an empty block out of the directory: of a class with more than it keeps, or of any class if `all`.
    pub(super) fn remove_empty(
        &mut self,
        dir: &Directory,
        cpus: &Cpus,
        all: bool,
    ) -> Option<GraceBox<Block>> {
        let rcu = Guard::new();
        for class in Class::all() {
            let of_class = self.classes.of(class);
            let keep = if all { 0 } else { of_class.keep };
            while self.classes.of(class).empty.len() > keep {
                let Some(block) = self.classes.of(class).empty.first(dir, &rcu) else {
                    break;
                };
                // Held: nobody puts it into a list before this is done, or it is put back.
                self.move_to(dir, cpus, block, Place::Held);
                let removed = block.number().and_then(|number| dir.remove(number));
                if removed.is_some() {
                    self.unreserve(class);
                    return removed;
                }
                // A task that moved to another CPU has allocated from it. Once that area is free again, it is empty.
                self.put(dir, cpus, block);
                if block.links().place() == Place::Empty {
                    break;
                }
            }
        }
        None
    }

    /// Counts slots of `class` that a purge has freed.
    pub(super) fn purged(&mut self, class: Class, count: usize) {
        let class = self.classes.of_mut(class);
        class.purged = class.purged.wrapping_add(count);
    }

    /// Ends a purge: each class keeps as many empty blocks as it took since the last one, but not more than the slots fill
    /// that were freed; or an eighth less than before.
    pub(super) fn end_purge(&mut self) {
        for class in Class::all() {
            let of_class = self.classes.of_mut(class);
            if of_class.taken | of_class.purged == 0 && of_class.keep == LEAST_KEPT {
                continue;
            }
            let taken = core::mem::take(&mut of_class.taken);
            let freed = core::mem::take(&mut of_class.purged).div_ceil(class.slots());
            let less = of_class.keep.wrapping_sub(of_class.keep.div_ceil(8));
            of_class.keep = taken.min(freed).max(less).max(LEAST_KEPT);
        }
    }

    /// Returns numbers of blocks, except those that belong to a CPU.
    pub(super) fn census(&self) -> PoolCensus {
        let empty = self.empty();
        let orphans = self.classes.iter().map(|class| class.orphans.len());
        PoolCensus {
            live: self.live,
            bytes: self.bytes,
            partial: orphans.fold(empty, usize::wrapping_add),
            empty,
        }
    }

    /// Returns the number of empty blocks.
    pub(super) fn empty(&self) -> usize {
        self.classes
            .iter()
            .fold(0, |sum, class| sum.wrapping_add(class.empty.len()))
    }
}

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[kernel::prelude::kunit_tests(vmap_rust_pool)]
mod tests {
    use super::*;
    use crate::{
        check::fixtures::World,
        policy::blocks::Source,
        sys::mm::Gfp, //
    };

    /// Who has just freed a slot may come before it is put back.
    #[test]
    fn a_block_that_is_put_back_is_in_one_list() -> Result {
        let home = Span::with_size(1 << 28, 1 << 28).ok_or(EINVAL)?;
        let space = World::new(home).space()?;
        let (blocks, cpus) = (&space.blocks, &space.cpus);
        let class = Class::SMALLEST;
        assert!(space.refill(class, Source::Pool, Gfp::KERNEL));
        blocks.return_current(cpus);
        let removed = blocks.remove_empty(cpus, true).ok_or(EINVAL)?;
        let number = blocks.dir.insert(removed).map_err(|_| EINVAL)?;
        let rcu = Guard::new();
        let block = blocks.dir.block(number, &rcu).ok_or(EINVAL)?;
        let mut pool = blocks.pool.lock();
        pool.count(class);
        pool.update(&blocks.dir, cpus, block);
        assert_eq!(block.links().place(), Place::Held);
        pool.put(&blocks.dir, cpus, block);
        assert_eq!(block.links().place(), Place::Empty);
        drop(pool);
        assert_eq!(space.validate()?.blocks, 1);
        Ok(())
    }
}
