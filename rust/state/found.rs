// SPDX-License-Identifier: GPL-2.0

//! A block that was found in its directory, and its areas: they are pinned with the pins of that directory, their unlink
//! waits for these, and they return to that directory. So safe code cannot confuse the blocks of two spaces.

use super::prelude::*;

/// A block, and its directory.
///
/// # Invariants
///
/// `block` was found in `dir` while the RCU read lock was held that it borrows.
pub(crate) struct Found<'dir, 'rcu> {
    dir: &'dir Directory,
    block: &'rcu Block,
}

impl Directory {
    /// Returns the block at `addr`, to look for its areas. Any context in which RCU is watching.
    #[inline(always)]
    pub(crate) fn find<'dir: 'rcu, 'rcu>(
        &'dir self,
        addr: usize,
        rcu: &'rcu Guard,
    ) -> Option<Found<'dir, 'rcu>> {
        let block = self.block_at(addr, rcu)?;
        // INVARIANT: It was just found.
        Some(Found { dir: self, block })
    }
}

impl<'dir> Found<'dir, '_> {
    /// Returns the first address behind the block; [`None`] if there is none.
    pub(crate) fn end(&self) -> Option<usize> {
        self.block.span()?.next_addr()
    }

    /// Returns the busy area that contains `addr`.
    #[inline(always)]
    pub(crate) fn find(&self, addr: usize) -> Option<Busy> {
        self.block.find(addr)
    }

    /// Unlinks the busy area that contains `addr`. Waits for its pin if a reader has it.
    #[inline(always)]
    pub(crate) fn unlink(&self, addr: usize) -> Option<UnlinkedArea<'dir>> {
        // SAFETY: By the type invariants, the directory has the block, found under the RCU read lock.
        let area = unsafe { self.dir.pins.unlink(self.block.object_at(addr), addr) }?;
        // INVARIANT: An area that is not free keeps its block in the directory.
        let dir = Some(self.dir);
        Some(UnlinkedArea { area, dir })
    }

    /// Pins the lowest busy area that ends above `addr`, if there is one in the block that begins at or below `last`. Waits
    /// for the pin; task context.
    pub(crate) fn pin_next(&self, addr: usize, last: usize) -> Option<Pinned<'dir>> {
        loop {
            let found = self.block.next_busy(addr, last)?;
            // SAFETY: By the type invariants, the directory has the block, found under the RCU read lock.
            let pinned = unsafe { self.dir.pins.pin(found, false) };
            // It may have been unlinked before the pin was taken.
            if pinned.is_some() {
                return pinned;
            }
        }
    }

    /// Pins the busy area that contains `addr`. Waits for the pin, unless `try_`: then [`None`] if that means waiting, and
    /// any context in which a lock may be tried.
    #[inline(always)]
    pub(crate) fn pin_at(&self, addr: usize, try_: bool) -> Option<Pinned<'dir>> {
        let found = self.find(addr)?;
        // SAFETY: By the type invariants, the directory has the block, found under the RCU read lock.
        unsafe { self.dir.pins.pin(found, try_) }
    }
}

/// An area that was unlinked, and the directory to which it returns.
///
/// # Invariants
///
/// `dir` has the block of the area, or it is [`None`] and the area is in no block.
#[must_use = "dropping an area leaks its range"]
pub(crate) struct UnlinkedArea<'dir> {
    area: Area<Unlinked>,
    dir: Option<&'dir Directory>,
}

impl<'dir> UnlinkedArea<'dir> {
    /// Wraps a lone area.
    pub(super) fn lone(area: Area<Unlinked>) -> Self {
        // INVARIANT: Without a directory, it is used as an area that is in no block.
        Self { area, dir: None }
    }

    /// Takes back an area from C code; [`None`] if it is not unlinked.
    ///
    /// # Safety
    ///
    /// Those of [`Area::from_c`], and `dir` is the directory of the space that has unlinked the area.
    #[inline(always)]
    pub(crate) unsafe fn from_c(ptr: AreaPtr, dir: &'dir Directory) -> Option<Self> {
        // SAFETY: By the safety requirements.
        let area = unsafe { Area::from_c(ptr) }?;
        // INVARIANT: A space has one directory for all its blocks.
        let dir = area.is_in_block().then_some(dir);
        Some(Self { area, dir })
    }

    /// Gives the area up: C code owns it from now on.
    pub(crate) fn into_ptr(self) -> AreaPtr {
        self.area.into_ptr()
    }

    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    pub(crate) fn ptr(&self) -> AreaPtr {
        self.area.ptr()
    }

    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    pub(crate) fn span(&self) -> Option<Span> {
        self.area.span()
    }

    /// Makes an unmapped area of a block lazy, and returns its size in pages. Returns an area that is in no block.
    /// Takes a lock if the block is clean. Not in an interrupt.
    #[inline(always)]
    pub(crate) fn retire(self) -> Result<usize, Area<Unlinked>> {
        match self.dir {
            // SAFETY: By the type invariants, the area is in a block of this directory.
            Some(dir) => Ok(unsafe { dir.retire(self.area) }),
            None => Err(self.area),
        }
    }
}
