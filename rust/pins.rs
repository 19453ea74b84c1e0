// SPDX-License-Identifier: GPL-2.0

//! Pins: readers of areas that are not theirs keep them busy.
//!
//! /proc/vmallocinfo, /proc/kcore and others look into areas that their owners may free at any
//! time. They pin an area, look, and let go. A pin is one of a fixed number of spinlocks, chosen by
//! the address of the area. The protocol is:
//!
//! - a reader finds the area without a lock, says in the pin that it is there, takes the lock of the
//!   pin, and looks again: if the area is still busy, what it is does not change until the reader lets
//!   go, although others may not find it any more;
//! - who unlinks an area first makes its object say that it is not busy, then looks whether there is a
//!   reader, and only if so takes the lock once and lets go.
//!
//! Both write first and then read what the other has written, with a full barrier between: at least
//! one of the two sees the other. Either the reader finds the area not busy, or who unlinks it waits.
//! (`docs/litmus/pin.litmus`.)
//!
//! A reader that has a pin delays the free of areas that share it, for as long as it takes to print
//! a line or to copy a page, and nothing else: no allocation, no lookup.

use crate::{
    area::{
        Area,
        Leaving,
        Unlinked, //
    },
    lock::{
        LockGuard,
        Locked, //
    },
    range::PAGE_SIZE,
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

/// Odd, and without a pattern in its bits: the golden ratio, as in include/linux/hash.h.
// CAST: The low half will do where a word has 32 bits.
const SPREAD: usize = 0x61c8_8646_80b5_83eb_u64 as usize;

/// A lock, and the number of those that have it or want it.
struct Pin {
    lock: Locked<()>,
    readers: Atomic<usize>,
}

/// All the pins.
pub(crate) struct Pins(KVec<Pin>);

/// Says that an area is pinned.
pub(crate) struct PinGuard<'a> {
    // Dropped in this order: the lock is free before nobody waits for it.
    _lock: LockGuard<'a, ()>,
    _reader: Reader<'a>,
}

/// Counts as a reader as long as it lives.
struct Reader<'a>(&'a Atomic<usize>);

impl<'a> Reader<'a> {
    fn new(pin: &'a Pin) -> Self {
        // Full: the reader looks at the area again after this, see above.
        pin.readers.fetch_add(1, Full);
        Self(&pin.readers)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // Release: what the reader has looked at is done with, see the acquire in `wait_for_readers()`.
        self.0.fetch_sub(1, Release);
    }
}

impl Pins {
    /// Makes the pins.
    pub(crate) fn new() -> Result<Self> {
        let mut pins = KVec::with_capacity(PINS, GFP_NOWAIT)?;
        for _ in 0..PINS {
            let lock = Locked::new((), c"vmap_rust pin", static_lock_class!())?;
            let readers = Atomic::new(0);
            pins.push(Pin { lock, readers }, GFP_NOWAIT)?;
        }
        Ok(Self(pins))
    }

    /// The pin of the area that starts at `start`.
    fn pin_of(&self, start: usize) -> Option<&Pin> {
        // The high bits of the product depend on all of the number: large areas start at multiples of many
        // pages.
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

    /// As [`Pins::pin`], unless that means waiting; any context.
    pub(crate) fn try_pin(&self, start: usize) -> Option<PinGuard<'_>> {
        let pin = self.pin_of(start)?;
        let reader = Reader::new(pin);
        Some(PinGuard {
            _lock: pin.lock.try_lock()?,
            _reader: reader,
        })
    }

    /// Lets go of the area that starts at `start`, the guard of whose pin was forgotten.
    ///
    /// # Safety
    ///
    /// As [`Locked::unlock_forgotten`], for a guard that [`Pins::pin`] or [`Pins::try_pin`] gave for
    /// `start`.
    pub(crate) unsafe fn unpin(&self, start: usize) {
        if let Some(pin) = self.pin_of(start) {
            // SAFETY: By the safety requirements.
            unsafe { pin.lock.unlock_forgotten() };
            drop(Reader(&pin.readers));
        }
    }

    /// Waits until no reader looks at `area` any more. Spins.
    pub(crate) fn wait_for_readers(&self, area: Area<Leaving>) -> Area<Unlinked> {
        if let Some(pin) = area.span().and_then(|span| self.pin_of(span.first())) {
            // Acquire: after what a reader did that has let go. `AreaPtr::leave()` was a full barrier.
            if pin.readers.load(Acquire) != 0 {
                drop(pin.lock.lock());
            }
        }
        // SAFETY: A reader that saw the area as busy with the pin held had said so before; we have
        // seen that, and had the lock after it. Others see that the area is not busy.
        unsafe { area.left() }
    }
}
