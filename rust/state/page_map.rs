// SPDX-License-Identifier: GPL-2.0

//! The page map: finds areas that have an entry of their own in the tree without a walk down the tree. It is a [`Table`], which
//! comes first, as the directory of blocks is one, too.
//!
//! The space is divided into *regions* of [`REGION`] bytes, for each of which the table has an entry. It points to the area
//! that covers the region, or to an array with a pointer for each page.
//!
//! The map is a hint: what is not in it, for lack of memory or of a place, is found in the tree. Its pointers to areas
//! change under the lock of the tree, when an area is inserted and when its entry is erased. Parts and arrays are freed with
//! the map: they are at most as large as the page tables of the areas that were ever there.

use super::prelude::*;
use core::ops::Range;

/// What an entry is: null or a pointer.
pub(super) type Pointer = Atomic<*mut c_void>;

/// A part of a table: the entries of 1 GiB (with pages of 4 KiB). Made when needed, and freed with the table.
pub(super) struct Part<M> {
    /// The number of its first entry, divided by [`MAP_BITS`].
    pub(super) number: usize,
    pub(super) entries: KBox<[Pointer; MAP_BITS]>,
    /// What else the user of the table has for a part.
    pub(super) more: M,
}

impl<M> Part<M> {
    /// Returns entry `entry` of the table, which is in this part.
    #[inline(always)]
    pub(super) fn entry(&self, entry: usize) -> &Pointer {
        // By the remainder, no check remains.
        &self.entries[entry % MAP_BITS]
    }
}

/// A table with an entry for each [`SIZE`] bytes of the address space. The place of a part is its number modulo the number of
/// places: no two parts with the same place exist.
///
/// # Invariants
///
/// A place is null or points to a part that came from a [`KBox`] and lives as long as the table.
pub(super) struct Table<M>(KBox<[Atomic<*mut Part<M>>; MAP_BITS]>);

// All CPUs share a table. An `Atomic` is `Sync` whatever its pointer leads to, so this asks for it.
impl<M: Send + Sync> Table<M> {
    /// Creates a table without parts.
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
            // INVARIANT: The part came from a box, and is not freed before the table.
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

/// The tables of the kernel live until shutdown, or have no part yet if the start fails.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
impl<M> Drop for Table<M> {
    fn drop(&mut self) {
        // Relaxed: the table has one owner.
        let parts = self.0.iter().map(|place| place.read_once());
        for part in parts.filter(|part| !part.is_null()) {
            // SAFETY: By the type invariants, it came from a box, and it lives as long as the table, which ends here.
            drop(unsafe { KBox::from_raw(part) });
        }
    }
}

/// Bytes of a region, for which the table has an entry.
const REGION: usize = SIZE;

/// Areas with more regions are not in the map: it changes with the lock of the tree held.
const MAX_REGIONS: usize = 128;

/// In arrays of regions that they cover, areas with more regions are not: each would be 512 stores with the lock held.
const MAX_COVERED_ARRAYS: usize = 16;

/// In the pointer of a region: it points to the array of its pages. Areas and arrays are aligned to more than this.
const ARRAY: usize = 1;

const _: () = assert!(core::mem::align_of::<bindings::vmap_area>() > ARRAY);

/// The pages of a region: each is null or points to the object of an area.
type Pages = [Pointer; TABLE_PAGES];

/// What a region points to.
enum Region<'a> {
    /// An area that covers it, or nothing.
    Covered(&'a Pointer),
    /// The pointers of its pages.
    Paged(&'a Pages),
}

/// Areas by address.
///
/// # Invariants
///
/// - The entry of a region with the tag [`ARRAY`] points to [`Pages`] that live as long as the map.
/// - Any other pointer is null or points to an area object. It is removed before the object is freed, and the memory
///   remains an area object until an RCU grace period after that.
pub(super) struct PageMap(Table<()>);

impl PageMap {
    pub(super) fn new() -> Result<Self> {
        // INVARIANT: There is no region.
        Ok(Self(Table::new()?))
    }

    /// Returns what region `region` points to; [`None`] if its part does not exist.
    #[inline(always)]
    fn region(&self, region: usize) -> Option<Region<'_>> {
        let pointer = self.0.part_of(region)?.entry(region);
        // Relaxed: all reads of an array depend on the address, see `prepare_pages()`.
        let raw = pointer.read_once();
        if raw.addr() & ARRAY == 0 {
            return Some(Region::Covered(pointer));
        }
        // SAFETY: By the type invariants, the tagged pointer is that of an array that lives as long as `self`.
        Some(Region::Paged(unsafe { &*untagged(raw) }))
    }

    /// Returns an area that may contain `addr`. Its object was not freed before the RCU read lock was taken, which `_rcu`
    /// shows. Any context in which RCU is watching.
    #[inline(always)]
    pub(super) fn get(&self, addr: usize, _rcu: &Guard) -> Option<AreaPtr> {
        let pointer = match self.region(addr / REGION)? {
            Region::Covered(pointer) => pointer,
            Region::Paged(pages) => &pages[addr / PAGE_SIZE % TABLE_PAGES],
        };
        // Relaxed: `AreaPtr::look()` orders the reads of the object.
        let raw = pointer.read_once();
        // An array may have come meanwhile.
        match raw.addr() & ARRAY {
            // SAFETY: By the type invariants, it is null or points to an area object.
            0 => unsafe { AreaPtr::new(raw.cast()) },
            _ => None,
        }
    }

    /// Returns whether memory is missing for an area at `span`: for its parts, and, if `all`, for the arrays of regions
    /// that it does not cover.
    pub(super) fn lacks(&self, span: Span, all: bool) -> bool {
        regions_of(span).any(|region| {
            let is_covered = covers(span, region);
            if self.0.is_free(region) {
                return all || is_covered;
            }
            // If another part has the place, there is no region, and no memory can help.
            let has_no_array = matches!(self.region(region), Some(Region::Covered(_)));
            has_no_array && all && !is_covered
        })
    }

    /// Allocates what [`PageMap::lacks`] misses, as far as there is memory. Sleeps if `flags` allow it.
    pub(super) fn prepare(&self, span: Span, all: bool, flags: Flags) -> Result {
        for region in regions_of(span).filter(|region| all || covers(span, *region)) {
            match self.0.prepare(region, || (), flags) {
                Ok(_) if covers(span, region) => {}
                Ok(_) => self.prepare_pages(region, flags)?,
                // Another part has the place: no memory can help.
                Err(EBUSY) => {}
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }

    fn prepare_pages(&self, region: usize, flags: Flags) -> Result {
        let Some(Region::Covered(pointer)) = self.region(region) else {
            return Ok(());
        };
        let pages: KBox<Pages> = Node::ANY.new_array(|| Atomic::new(ptr::null_mut()), flags)?;
        let pages = KBox::into_raw(pages);
        let tagged = pages.cast::<c_void>().map_addr(|addr| addr | ARRAY);
        // INVARIANT: The pages point to nothing yet, and are not freed before the map.
        // Full: a release is needed, so that a CPU that finds the array finds it initialized. It fails if an area
        // covers the region by now.
        if pointer.cmpxchg(ptr::null_mut(), tagged, Full).is_err() {
            // SAFETY: The exchange failed, so nobody else has the pointer.
            drop(unsafe { KBox::from_raw(pages) });
        }
        Ok(())
    }

    /// Lets the map point to `area` for all of `span`, or to nothing. Changes no region without memory for it.
    ///
    /// # Safety
    ///
    /// - The lock of the tree is held.
    /// - `area` is in the tree at exactly `span`, or is [`None`] while the object that was there is not freed.
    pub(super) unsafe fn set(&self, span: Span, area: Option<AreaPtr>) {
        let raw = area.map_or(ptr::null_mut(), |area| area.as_raw().cast());
        for region in regions_of(span) {
            match self.region(region) {
                // Release: orders it after the stores of the owner, as the tree does.
                // INVARIANT: By the safety requirements; for lack of a tag it is no array. Only areas that do not cover
                // the region get an array, and this one does.
                Some(Region::Covered(pointer)) if covers(span, region) => {
                    // Relaxed: areas are stored only under the lock, and the exchange decides about an array.
                    let old = pointer.read_once();
                    // An array may come at this moment: `prepare()` makes it without the lock, for a gap that this area may
                    // have taken. It stays, and lookups of the area walk down the tree.
                    if old.addr() & ARRAY == 0 {
                        let _ = pointer.cmpxchg(old, raw, Release);
                    }
                }
                Some(Region::Paged(pages))
                    if !covers(span, region) || regions_of(span).len() <= MAX_COVERED_ARRAYS =>
                {
                    for page in pages.get(pages_of(span, region)).unwrap_or_default() {
                        // INVARIANT: By the safety requirements.
                        page.store(raw, Release);
                    }
                }
                _ => {}
            }
        }
    }
}

/// The map of the kernel lives until shutdown, or has no area yet if the start fails.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
impl Drop for PageMap {
    fn drop(&mut self) {
        for region in self.0.parts().flat_map(|part| part.entries.iter()) {
            // Relaxed: the map has one owner.
            let raw = region.read_once();
            if raw.addr() & ARRAY != 0 {
                // SAFETY: By the type invariants, it is an array that lives as long as the map, which ends here.
                drop(unsafe { KBox::from_raw(untagged(raw)) });
            }
        }
    }
}

/// Returns the array that a tagged pointer points to.
#[inline(always)]
fn untagged(raw: *mut c_void) -> *mut Pages {
    raw.map_addr(|addr| addr & !ARRAY).cast()
}

/// Returns the regions that an area is in; none if they are too many.
fn regions_of(span: Span) -> Range<usize> {
    let (first, last) = (span.first() / REGION, span.last() / REGION);
    if last.wrapping_sub(first) < MAX_REGIONS {
        first..last.saturating_add(1)
    } else {
        0..0
    }
}

/// Returns whether an area that is in `region` covers all of it.
fn covers(span: Span, region: usize) -> bool {
    let first = region.wrapping_mul(REGION);
    span.first() <= first && span.last() >= first.wrapping_add(REGION - 1)
}

/// Returns the pages of an area in a region that it is in.
fn pages_of(span: Span, region: usize) -> Range<usize> {
    let start = region.wrapping_mul(REGION);
    let first = span.first().saturating_sub(start) / PAGE_SIZE;
    let last = span.last().wrapping_sub(start).min(REGION - 1) / PAGE_SIZE;
    first..last.saturating_add(1)
}
