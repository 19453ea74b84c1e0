// SPDX-License-Identifier: GPL-2.0

//! The page map: finds areas that have an entry of their own in the tree without a walk down the tree. It is a [`Parts`], and
//! an array for large areas.
//!
//! The space is divided into *regions* of [`REGION`] bytes, for each of which the parts have an entry. It points to the area
//! that covers the region, or to an array with a pointer for each page. Areas that cover whole parts have pointers of their own,
//! which parts with the same place share: who follows one looks whether the area is the right one.
//!
//! The map is a hint: what is not in it, for lack of memory or of a place, is found in the tree. Its pointers change under
//! the lock of the tree, when an area is inserted and when its entry is erased; those of whole parts also when a kept area is
//! used again. Parts and arrays are freed with the map: they are at most as large as the page tables of the areas that were
//! ever there.

use super::{
    parts::{
        Part,
        Parts,
        Pointer, //
    },
    prelude::*, //
};
use core::ops::Range;

/// Bytes of a region, for which the parts have an entry.
const REGION: usize = SIZE;

/// Bytes of a part. An area at a multiple of this is found nearly as fast as one in a block, however large it is.
pub(crate) const PART: usize = MAP_BITS * REGION;

/// Pointers to an area change with the lock of the tree held, so it has none in entries if it has more regions than this besides
/// the parts that it covers, and none at all if it is in more than [`MAX_PARTS`] parts.
const MAX_REGIONS: usize = MAP_BITS;
const MAX_PARTS: usize = 128;

/// In arrays of regions that they cover, areas with more regions are not: each would be 512 stores with the lock held.
const MAX_COVERED_ARRAYS: usize = 16;

/// In the pointer of a region: it points to the array of its pages. Areas and arrays are aligned to more than this.
const ARRAY: usize = 1;

const _: () = assert!(core::mem::align_of::<bindings::vmap_area>() > ARRAY);

/// The pages of a region: each is null or points to the object of an area.
type Pages = [Pointer; TABLE_PAGES];

/// Where the map has pointers to an area: for the parts that it covers, and in entries of other parts.
struct Pieces {
    parts: Range<usize>,
    whole: Range<usize>,
    regions: Range<usize>,
    covered: Range<usize>,
}

impl Pieces {
    fn of(span: Span) -> Self {
        let [mut parts, mut regions] = [PART, REGION].map(|bytes| touched(span, bytes));
        let [mut whole, covered] = [PART, REGION].map(|bytes| covered(span, bytes));
        if regions
            .len()
            .wrapping_sub(whole.len().wrapping_mul(MAP_BITS))
            > MAX_REGIONS
        {
            regions = 0..0;
        }
        if parts.len() > MAX_PARTS {
            parts = 0..0;
            whole = 0..0;
        }
        Self {
            parts,
            whole,
            regions,
            covered,
        }
    }

    /// Returns the regions of part `number` whose entries, or the pages there, point to the area.
    fn regions_in(&self, number: usize) -> Range<usize> {
        if self.whole.contains(&number) {
            return 0..0;
        }
        let first = number.wrapping_mul(MAP_BITS);
        let end = first.saturating_add(MAP_BITS);
        self.regions.start.max(first)..self.regions.end.min(end)
    }

    /// Returns where in part `number` the entries of those are that the area covers.
    fn covered_in(&self, number: usize) -> Range<usize> {
        let regions = self.regions_in(number);
        let first = number.wrapping_mul(MAP_BITS);
        let [start, end] = [
            regions.start.max(self.covered.start),
            regions.end.min(self.covered.end),
        ];
        start.saturating_sub(first)..end.saturating_sub(first)
    }

    /// Returns the regions of part `number` that the area does not cover: at most its first one and its last one.
    fn edges_in(&self, number: usize) -> impl Iterator<Item = usize> + '_ {
        let regions = self.regions_in(number);
        let first = self.regions.start;
        let last = self
            .regions
            .end
            .checked_sub(1)
            .filter(|&last| last != first);
        let ends = Iterator::chain(core::iter::once(first), last);
        ends.filter(move |region| regions.contains(region) && !self.covered.contains(region))
    }

    /// Returns whether entries of part `number` point to the area; if `all`, from each page in it.
    fn is_in(&self, number: usize, all: bool) -> bool {
        let regions = self.regions_in(number);
        let edges = if all {
            0
        } else {
            self.edges_in(number).count()
        };
        regions.len() > edges
    }
}

/// Areas by address.
///
/// # Invariants
///
/// - The entry of a region with the tag [`ARRAY`] points to [`Pages`] that live as long as the map. A tag comes only under the
///   lock of the tree, and stays.
/// - Any other pointer is null or points to an area object. It is removed before the object is freed, and the memory
///   remains an area object until an RCU grace period after that.
pub(super) struct PageMap {
    regions: Parts<()>,
    /// Areas that cover a part, each in the place of the part: the last one that was noted there, which may be in another part.
    large: KBox<[Pointer; MAP_BITS]>,
}

impl PageMap {
    pub(super) fn new() -> Result<Self> {
        // INVARIANT: There is no region, and all other pointers are null.
        Ok(Self {
            regions: Parts::new()?,
            large: Node::ANY.new_array(|| Atomic::new(ptr::null_mut()), GFP_NOWAIT)?,
        })
    }

    /// Returns the array of the pages of a region, or else what its entry is: null or an area.
    ///
    /// # Safety
    ///
    /// `entry` is the entry of a region of this map.
    #[inline(always)]
    unsafe fn pages(&self, entry: &Pointer) -> Result<&Pages, *mut c_void> {
        // Relaxed: all reads of an array depend on the address, see `prepare_pages()`.
        let raw = entry.read_once();
        if raw.addr() & ARRAY == 0 {
            return Err(raw);
        }
        // SAFETY: By the safety requirements and the type invariants, it is an array that lives as long as `self`.
        Ok(unsafe { &*untagged(raw) })
    }

    /// Returns an area that may contain `addr`. Its object was not freed before the RCU read lock was taken, which `_rcu`
    /// shows. Any context in which RCU is watching.
    #[inline(always)]
    pub(super) fn get(&self, addr: usize, _rcu: &Guard) -> Option<AreaPtr> {
        let part = self.regions.part_of(addr / REGION)?;
        // SAFETY: The part is one of this map.
        let raw = match unsafe { self.pages(part.entry(addr / REGION)) } {
            // Relaxed, here and below: `AreaPtr::look()` orders the reads of the object.
            Ok(pages) => pages[addr / PAGE_SIZE % TABLE_PAGES].read_once(),
            Err(raw) => raw,
        };
        // SAFETY: By the type invariants, it is null or points to an area object: pages have no tag.
        unsafe { AreaPtr::new(raw.cast()) }
    }

    /// As [`PageMap::get`], where only an area that covers a part can be. It may be one in another part.
    pub(super) fn get_large(&self, addr: usize, _rcu: &Guard) -> Option<AreaPtr> {
        // Relaxed: as in `get()`. By the remainder, no check remains.
        let raw = self.large[addr / PART % MAP_BITS].read_once();
        // SAFETY: By the type invariants, it is null or points to an area object.
        unsafe { AreaPtr::new(raw.cast()) }
    }

    /// Returns the places of the parts that an area covers.
    fn places(&self, span: Span) -> impl Iterator<Item = &Pointer> {
        let whole = Pieces::of(span).whole;
        whole.map(|number| &self.large[number % MAP_BITS])
    }

    /// Returns whether the map points to `area` for the parts that it covers at `span`.
    pub(super) fn has_large(&self, span: Span, area: AreaPtr) -> bool {
        let raw = area.as_raw().cast();
        // Relaxed: the pointers are only compared.
        self.places(span).all(|place| place.read_once() == raw)
    }

    /// Lets the map point to `area` for the parts that it covers, and no longer to what was noted in their places.
    ///
    /// # Safety
    ///
    /// - The lock of the tree is held.
    /// - `area` is in the tree at exactly `span`.
    pub(super) unsafe fn note_large(&self, span: Span, area: AreaPtr) {
        for place in self.places(span) {
            // INVARIANT: By the safety requirements. `unset()` looks at the same places.
            // Release: orders it after the stores of the owner, as the tree does.
            place.store(area.as_raw().cast(), Release);
        }
    }

    /// Returns whether memory is missing for an area at `span`: for its parts, and, if `all`, for the arrays of regions
    /// that it does not cover.
    pub(super) fn lacks(&self, span: Span, all: bool) -> bool {
        let pieces = Pieces::of(span);
        pieces.parts.clone().any(|number| {
            let first = number.wrapping_mul(MAP_BITS);
            // SAFETY: The part is one of this map.
            let has_none =
                |part: &Part<_>, region| unsafe { self.pages(part.entry(region)) }.is_err();
            pieces.is_in(number, all)
                && match self.regions.part_of(first) {
                    Some(part) => {
                        all && pieces.edges_in(number).any(|region| has_none(part, region))
                    }
                    // If another part has the place, no memory can help.
                    None => self.regions.is_free(first),
                }
        })
    }

    /// Allocates what [`PageMap::lacks`] misses, as far as there is memory. Sleeps if `flags` allow it. Calls `lock` for each
    /// array.
    ///
    /// # Safety
    ///
    /// What `lock` returns holds the lock of the tree.
    pub(super) unsafe fn prepare<L>(
        &self,
        span: Span,
        all: bool,
        flags: Flags,
        lock: impl Fn() -> L,
    ) -> Result {
        let pieces = Pieces::of(span);
        for number in pieces.parts.clone() {
            if !pieces.is_in(number, all) {
                continue;
            }
            let entry = number.wrapping_mul(MAP_BITS);
            let part = match self.regions.prepare(entry, || (), flags) {
                Ok(part) => part,
                // Another part has the place: no memory can help.
                Err(EBUSY) => continue,
                Err(err) => return Err(err),
            };
            for region in pieces.edges_in(number).filter(|_| all) {
                let entry = part.entry(region);
                // SAFETY: The part is one of this map, and `lock` is as it asks for, by the safety requirements.
                unsafe {
                    if self.pages(entry).is_err() {
                        Self::prepare_pages(entry, flags, &lock)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the array of the pages of a region.
    ///
    /// # Safety
    ///
    /// As [`PageMap::prepare`]; `entry` is the entry of a region of this map.
    unsafe fn prepare_pages<L>(entry: &Pointer, flags: Flags, lock: impl Fn() -> L) -> Result {
        let pages: KBox<Pages> = Node::ANY.new_array(|| Atomic::new(ptr::null_mut()), flags)?;
        let lock = lock();
        // An area may cover the region by now, or another CPU has made the array.
        if entry.read_once().is_null() {
            let raw = KBox::into_raw(pages).cast::<c_void>();
            // INVARIANT: The pages point to nothing yet, and are not freed before the map. The lock of the tree is held.
            // Release: a CPU that finds the array finds it initialized.
            entry.store(raw.map_addr(|addr| addr | ARRAY), Release);
        }
        drop(lock);
        Ok(())
    }

    /// Lets the map point to `area`, as far as it has memory for that.
    ///
    /// # Safety
    ///
    /// - The lock of the tree is held.
    /// - `area` is in the tree at exactly `span`.
    pub(super) unsafe fn set(&self, span: Span, area: AreaPtr) {
        // SAFETY: By the safety requirements, which both functions have.
        unsafe {
            self.note_large(span, area);
            self.set_regions(span, area.as_raw().cast());
        }
    }

    /// Lets the map no longer point to `area`.
    ///
    /// # Safety
    ///
    /// - The lock of the tree is held.
    /// - `area` was in the tree at exactly `span`, is no longer, and the object is not freed yet.
    pub(super) unsafe fn unset(&self, span: Span, area: AreaPtr) {
        let raw: *mut c_void = area.as_raw().cast();
        // INVARIANT: Here and in the regions are all pointers to the area, for which the span was the same.
        // Relaxed: all stores are under the lock, and null publishes nothing.
        for place in self.places(span).filter(|place| place.read_once() == raw) {
            place.write_once(ptr::null_mut());
        }
        // SAFETY: By the safety requirements.
        unsafe { self.set_regions(span, ptr::null_mut()) };
    }

    /// Stores `raw` in the entries and pages for `span`.
    ///
    /// # Safety
    ///
    /// - The lock of the tree is held.
    /// - `raw` is null, or an area that is in the tree at exactly `span`.
    unsafe fn set_regions(&self, span: Span, raw: *mut c_void) {
        let pieces = Pieces::of(span);
        for number in pieces.parts.clone() {
            let Some(part) = self.regions.part_of(number.wrapping_mul(MAP_BITS)) else {
                continue;
            };
            // Release, here and below: orders it after the stores of the owner, as the tree does.
            // INVARIANT: By the safety requirements. Where there is a tag, it stays.
            let set_pages = |pages: &Pages, range: Range<usize>| {
                for page in pages.get(range).unwrap_or_default() {
                    page.store(raw, Release);
                }
            };
            for region in pieces.edges_in(number) {
                // SAFETY: The part is one of this map.
                if let Ok(pages) = unsafe { self.pages(part.entry(region)) } {
                    set_pages(pages, pages_of(span, region));
                }
            }
            let covered = part.entries.get(pieces.covered_in(number));
            for entry in covered.unwrap_or_default() {
                // SAFETY: The part is one of this map. Entries change only under the lock.
                match unsafe { self.pages(entry) } {
                    Err(_) => entry.store(raw, Release),
                    Ok(pages) if pieces.regions.len() <= MAX_COVERED_ARRAYS => {
                        set_pages(pages, 0..TABLE_PAGES);
                    }
                    Ok(_) => {}
                }
            }
        }
    }
}

/// The map of the kernel lives until shutdown, or has no area yet if the start fails.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
impl Drop for PageMap {
    fn drop(&mut self) {
        for region in self.regions.parts().flat_map(|part| part.entries.iter()) {
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

/// Returns the multiples of `bytes` bytes that an area is in.
fn touched(span: Span, bytes: usize) -> Range<usize> {
    span.first() / bytes..(span.last() / bytes).saturating_add(1)
}

/// Returns those that it covers.
fn covered(span: Span, bytes: usize) -> Range<usize> {
    let is_full = span.last() % bytes == bytes.wrapping_sub(1);
    span.first().div_ceil(bytes)..(span.last() / bytes).saturating_add(usize::from(is_full))
}

/// Returns the pages of an area in a region that it is in.
fn pages_of(span: Span, region: usize) -> Range<usize> {
    let start = region.wrapping_mul(REGION);
    let first = span.first().saturating_sub(start) / PAGE_SIZE;
    let last = span.last().wrapping_sub(start).min(REGION - 1) / PAGE_SIZE;
    first..last.saturating_add(1)
}
