// SPDX-License-Identifier: GPL-2.0

//! The page map: finds areas that have an entry of their own in the tree without a walk down the tree.
//!
//! Such areas are those of the kernel image and of modules, which are looked up often and hardly ever change, and areas
//! that are too large for a block. The space is divided into *regions* of [`REGION`] bytes. An area covers a region,
//! so the region points to it; or the region has an array with a pointer for each page. The regions of 1 GiB (with
//! pages of 4 KiB) are one *part*, in the slot of its number modulo the number of slots.
//!
//! The map is a hint: what is not in it, for lack of memory or of a slot, is found in the tree. It changes under the lock
//! of the tree, when an area is inserted and when its entry is erased. Parts and arrays are never freed before the map:
//! they are at most as large as the page tables of the areas that were ever there.

use super::prelude::*;
use core::ops::Range;

/// Bytes of a region, which is as large as the smallest block.
const REGION: usize = MAP_BITS * PAGE_SIZE;

/// Regions of a part.
const FANOUT: usize = MAP_BITS;

/// Maximum number of parts.
const MAX_PARTS: usize = 512;

/// Areas with more regions are not in the map: it changes with the lock of the tree held.
const MAX_REGIONS: usize = 128;

/// In arrays of regions that they cover, areas with more regions are not: each would be 512 stores with the lock held.
const MAX_COVERED_ARRAYS: usize = 16;

/// In the pointer of a region: it points to the array of its pages. Areas and arrays are aligned to more than this.
const ARRAY: usize = 1;

const _: () = assert!(core::mem::align_of::<bindings::vmap_area>() > ARRAY);

/// The pages of a region: each is null or points to the object of an area.
type Pages = [Atomic<*mut c_void>; MAP_BITS];

struct Part {
    /// The number of its first region, divided by [`FANOUT`].
    number: usize,
    /// Each is null, or points to the object of an area that covers the region, or to [`Pages`] with the tag [`ARRAY`].
    regions: KBox<[Atomic<*mut c_void>; FANOUT]>,
}

/// What a region points to.
enum Region<'a> {
    /// An area that covers it, or nothing.
    Covered(&'a Atomic<*mut c_void>),
    /// The pointers of its pages.
    Paged(&'a Pages),
}

/// Areas by address.
///
/// # Invariants
///
/// - A slot is null or points to a part, and a tagged pointer of a region to [`Pages`]. Both live as long as the map.
/// - Any other pointer is null or points to an area object. It is removed before the object is freed, and the memory
///   remains an area object until an RCU grace period after that.
pub(super) struct PageMap(KBox<[Atomic<*mut Part>; MAX_PARTS]>);

impl PageMap {
    pub(super) fn new() -> Result<Self> {
        // INVARIANT: All slots are null.
        let slots = Node::ANY.new_array(|| Atomic::new(ptr::null_mut()), GFP_NOWAIT)?;
        Ok(Self(slots))
    }

    /// Returns the slot for the part of region `region`.
    fn slot(&self, region: usize) -> &Atomic<*mut Part> {
        // By the remainder, no check remains.
        &self.0[region / FANOUT % MAX_PARTS]
    }

    /// Returns the part in the slot for region `region`, which may be of other regions.
    #[inline(always)]
    fn part(&self, region: usize) -> Option<&Part> {
        // Relaxed: all reads of the part depend on the address, see `prepare()`.
        let part = self.slot(region).load(Relaxed);
        // SAFETY: By the type invariants, the pointer is null or valid as long as `self` is.
        unsafe { part.as_ref() }
    }

    /// Returns what region `region` points to; [`None`] if its part does not exist.
    #[inline(always)]
    fn region(&self, region: usize) -> Option<Region<'_>> {
        let part = self.part(region)?;
        if part.number != region / FANOUT {
            return None;
        }
        let pointer = &part.regions[region % FANOUT];
        // Relaxed: all reads of an array depend on the address, see `prepare()`.
        let raw = pointer.load(Relaxed);
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
            Region::Paged(pages) => &pages[addr / PAGE_SIZE % MAP_BITS],
        };
        // Relaxed: `AreaPtr::look()` orders the reads of the object.
        let raw = pointer.load(Relaxed);
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
            if self.part(region).is_none() {
                return all || is_covered;
            }
            // If another part has the slot, there is no region, and no memory can help.
            let has_no_array = matches!(self.region(region), Some(Region::Covered(_)));
            has_no_array && all && !is_covered
        })
    }

    /// Allocates what [`PageMap::lacks`] misses, as far as there is memory. Sleeps if `flags` allow it.
    pub(super) fn prepare(&self, span: Span, all: bool, flags: Flags) -> Result {
        for region in regions_of(span).filter(|region| all || covers(span, *region)) {
            self.prepare_part(region, flags)?;
            if !covers(span, region) {
                self.prepare_pages(region, flags)?;
            }
        }
        Ok(())
    }

    fn prepare_part(&self, region: usize, flags: Flags) -> Result {
        if self.part(region).is_some() {
            return Ok(());
        }
        let part = Part {
            number: region / FANOUT,
            regions: Node::ANY.new_array(|| Atomic::new(ptr::null_mut()), flags)?,
        };
        let part = KBox::into_raw(KBox::new(part, flags)?);
        // INVARIANT: The part points to nothing yet, and is not freed before the map.
        // Full: a release is needed, so that a CPU that finds the part finds it initialized.
        let slot = self.slot(region);
        if slot.cmpxchg(ptr::null_mut(), part, Full).is_err() {
            // SAFETY: The exchange failed, so nobody else has the pointer.
            drop(unsafe { KBox::from_raw(part) });
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
                    let old = pointer.load(Relaxed);
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
        for slot in self.0.iter() {
            // Relaxed: the map has one owner.
            let part = slot.load(Relaxed);
            if part.is_null() {
                continue;
            }
            // SAFETY: By the type invariants, it is a part that lives as long as the map, which ends here.
            let part = unsafe { KBox::from_raw(part) };
            for region in part.regions.iter() {
                // Relaxed: the map has one owner.
                let raw = region.load(Relaxed);
                if raw.addr() & ARRAY != 0 {
                    // SAFETY: By the type invariants, it is an array that lives as long as the map, which ends here.
                    drop(unsafe { KBox::from_raw(untagged(raw)) });
                }
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
