// SPDX-License-Identifier: GPL-2.0

//! A list of blocks in the pool, linked through the blocks. Used under the lock of the pool.

use super::prelude::*;

/// The links of its blocks that a list uses. A block is in at most one list of each kind.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// All blocks of a class that have free slots only, or all that have others, too.
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

/// A list of blocks.
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
        self.len.load(Relaxed)
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
        self.len.store(self.len().wrapping_add(1), Relaxed);
    }

    /// Removes a block, which is in this list.
    pub(crate) fn remove(&self, dir: &Directory, block: &Block) {
        let [next, before] = self.links(block).each_ref().map(BlockHint::get);
        self.set(dir, next, End::Last, before);
        self.set(dir, before, End::First, next);
        self.len.store(self.len().wrapping_sub(1), Relaxed);
    }
}
