// SPDX-License-Identifier: GPL-2.0

//! Pins: a reader pins an area of another owner, so that it stays unchanged meanwhile. Who takes the area out of use waits for
//! such a reader, so how an area is unlinked is here, too.
//!
//! /proc/vmallocinfo, /proc/kcore and others read areas that their owners may free at any time. A pin is one of [`PINS`]
//! spinlocks, chosen by the address of the area object, and there is one count of all readers. The directory has pins for the
//! areas in its blocks, and the index for those with an entry of their own. The protocol is:
//!
//! - A reader finds the area without a lock, increments the count of readers, takes the lock of the
//!   pin, and looks at the area again. If it is still busy, it does not change until the reader unpins it,
//!   although lookups may no longer find it.
//! - A CPU that unlinks an area marks the object as not busy, then reads the count of readers. If that is not
//!   zero, it waits for a reader of this area: it takes the lock once and releases it.
//!
//! Both sides write, execute a full barrier, and read what the other side writes, so at least one of them
//! sees the other: the reader finds the area not busy, or the unlinking CPU waits
//! (`docs/litmus/pin.litmus`).
//!
//! Objects side by side share a pin, so a reader of all areas steps from one to the next without another search: what it finds
//! busy while it holds the pin is pinned, too.
//!
//! While an area is pinned, which lasts for one copied page or the printed lines of a group of objects (with NUMA, C looks at
//! each page of these areas), the unlink of an area with the same pin waits. Allocations and lookups do not wait.
//!
//! A block that was [`Found`] knows its directory: its areas are pinned with the pins of that, their unlink waits for these,
//! and they return to it. So safe code cannot confuse the blocks of two spaces.

use super::prelude::*;

/// Number of pins of a directory or of an index; a power of two.
const PINS: usize = 32;

/// Multiplier of the hash: the golden ratio, as in include/linux/hash.h.
// CAST: The low half is enough for a 32-bit word.
const SPREAD: usize = 0x61c8_8646_80b5_83eb_u64 as usize;

/// All pins of a directory or of an index. Only these pin its areas, and only these are waited for.
///
/// # Invariants
///
/// Each reader that holds a lock or waits for one counts in `readers`.
pub(crate) struct Pins {
    locks: KVec<Locked<()>>,
    readers: CacheAligned<Atomic<usize>>,
}

/// A busy area that does not change while this lives.
///
/// # Invariants
///
/// It was busy after its pin was taken, for which its unlink waits.
pub(crate) struct Pinned<'a> {
    area: Busy,
    // Fields drop in this order: the lock must be free before the reader is no longer counted.
    _lock: LockGuard<'a, ()>,
    _reader: Reader<'a>,
}

impl Pinned<'_> {
    /// Returns the area as it was seen when its pin was taken.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    pub(crate) fn area(&self) -> Busy {
        self.area
    }

    /// Returns the area, and those behind it that are pinned with it.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn areas(&self) -> impl Iterator<Item = Busy> + '_ {
        // SAFETY: By the type invariants, the first one is pinned, and so is each that was found.
        core::iter::successors(Some(self.area), |area| unsafe { area.area().next_pinned() })
    }

    /// Keeps the area pinned until [`Pins::unpin`].
    pub(crate) fn into_ptr(self) -> AreaPtr {
        let area = self.area.area();
        core::mem::forget(self);
        area
    }
}

impl AreaPtr {
    /// Returns the next busy area of a block that is in the group of this one: it has the same pin, so it is pinned, too.
    ///
    /// # Safety
    ///
    /// The area is pinned, and stays so as long as what this returns is used.
    pub(crate) unsafe fn next_pinned(self) -> Option<Busy> {
        // SAFETY: By the safety requirements, the area stays, and with it all objects of its block.
        let mut object = unsafe { self.seen() }.is_in_block().then_some(self)?;
        loop {
            // SAFETY: As above. What is seen busy has its pin taken, for which its unlink waits.
            let next = unsafe {
                object = object.next_in_group()?;
                object.look()
            };
            if next.is_some() {
                return next;
            }
        }
    }
}

/// Counts one reader while it lives.
struct Reader<'a>(&'a Pins);

impl<'a> Reader<'a> {
    fn new(pins: &'a Pins) -> Self {
        // Full: pairs with the full barrier of `Busy::leave()`. The reader looks at the area after it.
        pins.readers.fetch_add(1, Full);
        Self(pins)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `Pins::unlink()`; the reader's accesses come before it.
        self.0.readers.fetch_sub(1, Release);
    }
}

impl Pins {
    // Inlined where the kernel starts, so that it is freed after boot.
    #[inline(always)]
    pub(super) fn new() -> Result<Self> {
        let mut locks = KVec::with_capacity(PINS, GFP_NOWAIT)?;
        for _ in 0..PINS {
            let lock = Locked::new((), c"vmap_rust pin", static_lock_class!())?;
            locks.push_within_capacity(lock)?;
        }
        let readers = CacheAligned::new(Atomic::new(0));
        Ok(Self { locks, readers })
    }

    /// Returns the lock of the pin of `area`.
    fn lock_of(&self, area: AreaPtr) -> Option<&Locked<()>> {
        // Use the high bits of the product, which depend on all bits of the address.
        let spread = (area.as_raw().addr() / GROUP_SIZE).wrapping_mul(SPREAD);
        self.locks
            .get(spread.wrapping_shr(const { usize::BITS - PINS.ilog2() }))
    }

    /// Pins `found` if it is still busy, with the same user. Waits for the pin, unless `try_`: then [`None`] if that means
    /// waiting, and any context in which a lock may be tried.
    ///
    /// # Safety
    ///
    /// The area was found under an RCU read lock, which is still held, in the directory or index that has these pins.
    #[inline(never)]
    pub(super) unsafe fn pin(&self, found: Busy, try_: bool) -> Option<Pinned<'_>> {
        let lock = self.lock_of(found.area())?;
        let reader = Reader::new(self);
        let lock = if try_ { lock.try_lock()? } else { lock.lock() };
        // SAFETY: By the safety requirements, the memory remains an area object.
        let is_busy = unsafe { found.is_still_busy() };
        if !is_busy {
            return None;
        }
        // INVARIANT: It was seen busy with the pin taken. By the safety requirements, its unlink waits for this pin.
        Some(Pinned {
            area: found,
            _lock: lock,
            _reader: reader,
        })
    }

    /// Unpins `area`, and all that were pinned with it.
    ///
    /// # Safety
    ///
    /// For each call, this task has called [`Pinned::into_ptr`] once, of what these pins have pinned. That returned `area`, or
    /// an area from which [`AreaPtr::next_pinned`] has led to it.
    pub(crate) unsafe fn unpin(&self, area: AreaPtr) {
        if let Some(lock) = self.lock_of(area) {
            // SAFETY: By the safety requirements, this task owns the lock.
            unsafe { lock.unlock_forgotten() };
            // Release: as in the destructor of the `Reader`, which `Pinned::into_ptr()` has forgotten.
            self.readers.fetch_sub(1, Release);
        }
    }

    /// Unlinks `area` if it is busy and contains `addr`. If there are readers of any areas, takes its pin, to wait for the
    /// one that has it pinned.
    ///
    /// # Safety
    ///
    /// `area` was found for `addr` under an RCU read lock, which is still held, in the directory or index that has these
    /// pins. The object may have another user by now: if that is busy and contains `addr`, it is there, too.
    #[inline(always)]
    pub(super) unsafe fn unlink(&self, area: AreaPtr, addr: usize) -> Option<Area<Unlinked>> {
        // Another CPU may have written it last.
        area.prefetch_for_write();
        // SAFETY: By the safety requirements, the memory remains an area object.
        let area = unsafe { area.look_to_leave() }.filter(|area| area.contains(addr))?;
        // SAFETY: By the safety requirements, the memory remains an area object.
        let area = unsafe { area.leave() }?;
        // Acquire: pairs with the release of a reader that unpins. `Busy::leave()` was a full barrier.
        if self.readers.load(Acquire) != 0 {
            self.wait_for_reader(&area);
        }
        // SAFETY: It contained `addr` when it was left: by the safety requirements, the pin of a reader is from here. One that
        // saw it busy with the pin held was counted before, by the type invariants. It has unpinned the area, or the load above
        // saw its count, and the lock was taken after it. Later readers see the area not busy.
        Some(unsafe { area.left() })
    }

    /// Waits for the reader that has the pin of `area`.
    #[cold]
    #[inline(never)]
    fn wait_for_reader(&self, area: &Area<Leaving>) {
        if let Some(lock) = self.lock_of(area.ptr()) {
            // Released at once: the reader is done then.
            drop(lock.lock());
        }
    }
}

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

    /// Makes an unmapped area of a block lazy. Notes the batch of this CPU if that is due then, and returns how many pages were
    /// noted. Returns an area that is in no block. Takes locks only to note. Not in an interrupt.
    #[inline(always)]
    pub(crate) fn retire(self) -> Result<Option<usize>, Area<Unlinked>> {
        match self.dir {
            // SAFETY: By the type invariants, the area is in a block of this directory.
            Some(dir) => Ok(unsafe { dir.retire(self.area) }),
            None => Err(self.area),
        }
    }
}
