// SPDX-License-Identifier: GPL-2.0

//! A list of blocks in the pool, linked through the blocks. Used under the lock of the pool.

use crate::{
    base::prelude::*,
    state::{
        block::Block,
        block_number::BlockHint,
        dir::Directory, //
    },
    sys::grace::Guard, //
};

/// A list of blocks.
pub(crate) struct List {
    first: BlockHint,
    len: Atomic<usize>,
}

impl List {
    /// Creates an empty list.
    pub(crate) const fn new() -> Self {
        Self {
            first: BlockHint::new(),
            len: Atomic::new(0),
        }
    }

    /// Returns the number of blocks. Without the lock, it may change at once.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: written under the lock.
        self.len.load(Relaxed)
    }

    /// Returns the first block.
    pub(crate) fn first<'a>(&self, dir: &'a Directory, rcu: &'a Guard) -> Option<&'a Block> {
        dir.block(self.first.get()?, rcu)
    }

    /// Inserts a block, which is in no list, before the others.
    pub(crate) fn push(&self, dir: &Directory, block: &Block) {
        let next = self.first.get();
        block.links().next.set(next);
        block.links().before.set(None);
        let rcu = Guard::new();
        if let Some(next) = next.and_then(|next| dir.block(next, &rcu)) {
            next.links().before.set(block.number());
        }
        self.first.set(block.number());
        self.len.store(self.len().wrapping_add(1), Relaxed);
    }

    /// Removes a block, which is in this list.
    pub(crate) fn remove(&self, dir: &Directory, block: &Block) {
        let [next, before] = [&block.links().next, &block.links().before].map(BlockHint::get);
        let rcu = Guard::new();
        match before.and_then(|before| dir.block(before, &rcu)) {
            Some(before) => before.links().next.set(next),
            None => self.first.set(next),
        }
        if let Some(next) = next.and_then(|next| dir.block(next, &rcu)) {
            next.links().before.set(before);
        }
        self.len.store(self.len().wrapping_sub(1), Relaxed);
    }
}
