// SPDX-License-Identifier: GPL-2.0

//! Pins: a reader pins an area of another owner, so that it stays unchanged meanwhile.
//!
//! /proc/vmallocinfo, /proc/kcore and others read areas that their owners may free at any time. A pin is
//! one of [`PINS`] spinlocks with a count of readers, chosen by the address of the area. The protocol is:
//!
//! - A reader finds the area without a lock, increments the reader count of the pin, takes the lock of the
//!   pin, and looks at the area again. If it is still busy, it does not change until the reader unpins it,
//!   although lookups may no longer find it.
//! - A CPU that unlinks an area marks the object as not busy, then reads the reader count. If that is not
//!   zero, it waits for the reader: it takes the lock once and releases it.
//!
//! Both sides write, execute a full barrier, and read what the other side writes, so at least one of them
//! sees the other: the reader finds the area not busy, or the unlinking CPU waits
//! (`docs/litmus/pin.litmus`).
//!
//! While an area is pinned, which lasts for one printed line or one copied page, the unlink of an area with
//! the same pin waits. Allocations and lookups do not wait.

use crate::{
    base::range::PAGE_SIZE,
    state::area::{
        Area,
        Leaving,
        Unlinked, //
    },
    sys::lock::{
        LockGuard,
        Locked, //
    }, //
};
use kernel::{
    prelude::*,
    static_lock_class,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Release, //
    }, //
};

/// Number of pins; a power of two.
const PINS: usize = 64;

/// Multiplier of the hash: the golden ratio, as in include/linux/hash.h.
// CAST: The low half is enough for a 32-bit word.
const SPREAD: usize = 0x61c8_8646_80b5_83eb_u64 as usize;

/// A lock, and the number of readers that hold it or wait for it.
struct Pin {
    lock: Locked<()>,
    readers: Atomic<usize>,
}

/// All pins.
pub(crate) struct Pins(KVec<Pin>);

/// Keeps an area pinned while it lives.
pub(crate) struct PinGuard<'a> {
    // Fields drop in this order: the lock must be free before the reader is no longer counted.
    _lock: LockGuard<'a, ()>,
    _reader: Reader<'a>,
}

/// Counts one reader while it lives.
struct Reader<'a>(&'a Atomic<usize>);

impl<'a> Reader<'a> {
    fn new(pin: &'a Pin) -> Self {
        // Full: pairs with the full barrier of `AreaPtr::leave()`. The reader looks at the area after it.
        pin.readers.fetch_add(1, Full);
        Self(&pin.readers)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `wait_for_readers()`; the reader's accesses come before it.
        self.0.fetch_sub(1, Release);
    }
}

impl Pins {
    /// Creates the pins.
    pub(crate) fn new() -> Result<Self> {
        let mut pins = KVec::with_capacity(PINS, GFP_NOWAIT)?;
        for _ in 0..PINS {
            let lock = Locked::new((), c"vmap_rust pin", static_lock_class!())?;
            let readers = Atomic::new(0);
            pins.push(Pin { lock, readers }, GFP_NOWAIT)?;
        }
        Ok(Self(pins))
    }

    /// Returns the pin of the area that starts at `start`.
    fn pin_of(&self, start: usize) -> Option<&Pin> {
        // Use the high bits of the product, which depend on all bits of the address: large areas differ
        // only in their high address bits.
        let spread = (start / PAGE_SIZE).wrapping_mul(SPREAD);
        self.0.get(spread.wrapping_shr(usize::BITS - PINS.ilog2()))
    }

    /// Takes the pin of the area that starts at `start`. Spins.
    pub(crate) fn pin(&self, start: usize) -> Option<PinGuard<'_>> {
        let pin = self.pin_of(start)?;
        let reader = Reader::new(pin);
        Some(PinGuard {
            _lock: pin.lock.lock(),
            _reader: reader,
        })
    }

    /// Takes the pin of the area that starts at `start` unless that means waiting; any context.
    pub(crate) fn try_pin(&self, start: usize) -> Option<PinGuard<'_>> {
        let pin = self.pin_of(start)?;
        let reader = Reader::new(pin);
        Some(PinGuard {
            _lock: pin.lock.try_lock()?,
            _reader: reader,
        })
    }

    /// Unpins the area that starts at `start`, whose guard was forgotten.
    ///
    /// # Safety
    ///
    /// For each call, this task has called [`core::mem::forget`] once on a guard that [`Pins::pin`] or
    /// [`Pins::try_pin`] returned for `start`.
    pub(crate) unsafe fn unpin(&self, start: usize) {
        if let Some(pin) = self.pin_of(start) {
            // SAFETY: By the safety requirements, this task owns the lock.
            unsafe { pin.lock.unlock_forgotten() };
            drop(Reader(&pin.readers));
        }
    }

    /// Waits until no reader has `area` pinned. Spins.
    pub(crate) fn wait_for_readers(&self, area: Area<Leaving>) -> Area<Unlinked> {
        if let Some(pin) = area.span().and_then(|span| self.pin_of(span.first())) {
            // Acquire: pairs with the release of a reader that unpins. `AreaPtr::leave()` was a full barrier.
            if pin.readers.load(Acquire) != 0 {
                drop(pin.lock.lock());
            }
        }
        // SAFETY: A reader that saw the area busy with the pin held was counted before that. Either it has
        // unpinned the area, or the load above saw its count and the lock was taken after it. Later readers
        // see the area not busy.
        unsafe { area.left() }
    }
}
