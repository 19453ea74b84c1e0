// SPDX-License-Identifier: GPL-2.0

//! Pins: readers of areas that are not theirs keep them busy.
//!
//! /proc/vmallocinfo, /proc/kcore and others look into areas that their owners may free at any
//! time. They pin an area, look, and let go. A pin is one of a fixed number of spinlocks, chosen by
//! the address of the area. The protocol is:
//!
//! - a reader finds the area without a lock, takes its pin, and looks again: if the index still
//!   holds the area as busy, it stays so until the reader lets go;
//! - who unlinks an area first makes the index say so, then takes the pin once and lets go: when it
//!   has had the pin, each reader that may have seen the area as busy is gone, and each later one
//!   sees that it is not.
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
    static_lock_class, //
};

/// Number of pins; a power of two.
const PINS: usize = 64;

/// All the pins.
pub(crate) struct Pins(KVec<Locked<()>>);

/// Says that an area is pinned.
pub(crate) type PinGuard<'a> = LockGuard<'a, ()>;

impl Pins {
    /// Makes the pins.
    pub(crate) fn new() -> Result<Self> {
        let mut pins = KVec::with_capacity(PINS, GFP_NOWAIT)?;
        for _ in 0..PINS {
            let pin = Locked::new((), c"vmap_rust pin", static_lock_class!())?;
            pins.push(pin, GFP_NOWAIT)?;
        }
        Ok(Self(pins))
    }

    /// The pin of the area that starts at `start`.
    fn pin_of(&self, start: usize) -> Option<&Locked<()>> {
        self.0.get((start / PAGE_SIZE) % PINS)
    }

    /// Takes the pin of the area that starts at `start`. Spins.
    pub(crate) fn pin(&self, start: usize) -> Option<PinGuard<'_>> {
        Some(self.pin_of(start)?.lock())
    }

    /// As [`Pins::pin`], unless that means waiting; any context.
    pub(crate) fn try_pin(&self, start: usize) -> Option<PinGuard<'_>> {
        self.pin_of(start)?.try_lock()
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
            unsafe { pin.unlock_forgotten() };
        }
    }

    /// Waits until no reader looks at `area` any more. Spins.
    pub(crate) fn wait_for_readers(&self, area: Area<Leaving>) -> Area<Unlinked> {
        if let Some(pin) = area.span().and_then(|span| self.pin_of(span.first())) {
            drop(pin.lock());
        }
        // SAFETY: Each reader that saw the area as busy did so with the pin held, before we had it.
        // Later ones see what was stored to the tree before: taking the pin orders the two.
        unsafe { area.left() }
    }
}
