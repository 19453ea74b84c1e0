// SPDX-License-Identifier: GPL-2.0

//! [`Parts`]: a pointer for each [`SIZE`] bytes of the address space, in parts that are made when they are needed. The directory
//! of blocks are such parts, and most of the page map.

use super::prelude::*;

/// What an entry is: null or a pointer.
pub(super) type Pointer = Atomic<*mut c_void>;

/// A part: the entries of 1 GiB (with pages of 4 KiB). Made when needed, and freed with all others.
pub(super) struct Part<M> {
    /// The number of its first entry, divided by [`MAP_BITS`].
    pub(super) number: usize,
    pub(super) entries: KBox<[Pointer; MAP_BITS]>,
    /// What else the user of the parts has for each.
    pub(super) more: M,
}

impl<M> Part<M> {
    /// Returns entry `entry` of all, which is in this part.
    #[inline(always)]
    pub(super) fn entry(&self, entry: usize) -> &Pointer {
        // By the remainder, no check remains.
        &self.entries[entry % MAP_BITS]
    }
}

/// All parts, with an entry for each [`SIZE`] bytes of the address space. The place of one is its number modulo the number of
/// places: no two parts with the same place exist.
///
/// # Invariants
///
/// A place is null or points to a part that came from a [`KBox`] and lives as long as this.
pub(super) struct Parts<M>(KBox<[Atomic<*mut Part<M>>; MAP_BITS]>);

// All CPUs share them. An `Atomic` is `Sync` whatever its pointer leads to, so this asks for it.
impl<M: Send + Sync> Parts<M> {
    /// Creates the places, without parts.
    pub(super) fn new() -> Result<Self> {
        // INVARIANT: All places are null.
        let places = Node::ANY.new_array(|| Atomic::new(ptr::null_mut()), GFP_NOWAIT)?;
        Ok(Self(places))
    }

    /// Returns the place for part `number`.
    #[inline(always)]
    fn place(&self, number: usize) -> &Atomic<*mut Part<M>> {
        // By the remainder, no check remains.
        &self.0[number % MAP_BITS]
    }

    /// Returns the part in the place for part `number`, which may be another one.
    #[inline(always)]
    pub(super) fn in_place(&self, number: usize) -> Option<&Part<M>> {
        // Relaxed: all reads of the part depend on the address, see `prepare()`.
        let part = self.place(number).read_once();
        // SAFETY: By the type invariants, the pointer is null or valid as long as `self` is.
        unsafe { part.as_ref() }
    }

    /// Returns the part that has entry `entry`.
    #[inline(always)]
    pub(super) fn part_of(&self, entry: usize) -> Option<&Part<M>> {
        let number = entry / MAP_BITS;
        self.in_place(number).filter(|part| part.number == number)
    }

    /// Returns whether the part that has entry `entry` can be made: there is none in its place.
    pub(super) fn is_free(&self, entry: usize) -> bool {
        self.in_place(entry / MAP_BITS).is_none()
    }

    /// Returns the part that has entry `entry`, and makes it with `more` if there is none. Fails with `EBUSY` if another part
    /// has its place. Sleeps if `flags` allow it.
    pub(super) fn prepare(
        &self,
        entry: usize,
        more: impl FnOnce() -> M,
        flags: Flags,
    ) -> Result<&Part<M>> {
        if self.is_free(entry) {
            let part = Part {
                number: entry / MAP_BITS,
                entries: Node::ANY.new_array(|| Atomic::new(ptr::null_mut()), flags)?,
                more: more(),
            };
            let part = KBox::into_raw(KBox::new(part, flags)?);
            // INVARIANT: The part came from a box, and is not freed before `self`.
            // Full: a release is needed, so that a CPU that finds the part finds it initialized.
            let place = self.place(entry / MAP_BITS);
            if place.cmpxchg(ptr::null_mut(), part, Full).is_err() {
                // SAFETY: The exchange failed, so nobody else has the pointer.
                drop(unsafe { KBox::from_raw(part) });
            }
        }
        // Another CPU may have used the place meanwhile.
        self.part_of(entry).ok_or(EBUSY)
    }

    /// Returns all parts.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part<M>> {
        (0..MAP_BITS).filter_map(|number| self.in_place(number))
    }
}

/// Those of the kernel live until shutdown, or there is none yet if the start fails.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
impl<M> Drop for Parts<M> {
    fn drop(&mut self) {
        // Relaxed: `self` has one owner.
        let parts = self.0.iter().map(|place| place.read_once());
        for part in parts.filter(|part| !part.is_null()) {
            // SAFETY: By the type invariants, it came from a box, and lives as long as `self`, which ends here.
            drop(unsafe { KBox::from_raw(part) });
        }
    }
}
