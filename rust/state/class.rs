// SPDX-License-Identifier: GPL-2.0

//! Classes of sizes: an area is served from a slot of its class, and all slots of a block are of one class.
//!
//! Sizes include the guard page. They are exact up to 8 pages; above, each doubling has four classes. Above
//! [`TABLE_PAGES`] a slot is a multiple of that many pages: with pages of 4 KiB and words of 64 bits such an area shares no table
//! of PTEs with another one.
//!
//! A block has at least 512 pages and mostly at least 16 slots, and is a power of two of pages.

use super::prelude::*;

/// Pages that a table of PTEs maps with pages of 4 KiB and words of 64 bits: the least that a block has.
pub(crate) const TABLE_PAGES: usize = 512;

/// Bytes of the smallest block, and of what an entry of the directory stands for.
pub(crate) const SIZE: usize = TABLE_PAGES * PAGE_SIZE;

/// The largest slot in pages: 80 MiB with pages of 4 KiB, since an area of 64 MiB has a guard page.
pub(crate) const MOST_PAGES: usize = 5 << 12;

/// Slots of a block, except the largest class: a power of two of pages has more for most classes.
const LEAST_SLOTS: usize = 16;

/// The largest block in pages: 1 GiB with pages of 4 KiB.
pub(crate) const MOST_BLOCK_PAGES: usize = TABLE_PAGES * MAP_BITS;
// Kconfig excludes 32-bit kernels with pages larger than 4 KiB.
const _: () = assert!(MOST_BLOCK_PAGES.checked_mul(PAGE_SIZE).is_some());

/// Sizes up to this many pages have a class each.
pub(super) const EXACT: usize = 8;

/// Groups of CPUs share the blocks of classes above this size, which are larger than the smallest ones: what such an area costs
/// is mapping its pages, and blocks for each CPU would need more page tables.
const MOST_OWN: usize = TABLE_PAGES / LEAST_SLOTS;

/// Number of classes: some below the last one are not used.
const CLASSES: usize = number_for(MOST_PAGES - 1) + 1;

/// Elements of a table with one for each class: a power of two, so that finding one needs no check.
pub(crate) const PLACES: usize = CLASSES.next_power_of_two();

/// Returns the number of the smallest class with room for `last + 1` pages, which are at most [`MOST_PAGES`].
#[inline(always)]
const fn number_for(last: usize) -> usize {
    if last < EXACT {
        return last;
    }
    let log = last.ilog2();
    let steps = last >> log.wrapping_sub(2);
    // CAST: A logarithm fits in a `usize`.
    let doubling = (log as usize).wrapping_sub(EXACT.ilog2() as usize);
    // Above a table of PTEs, classes of the same size are one: the last one of them.
    let more = match last / TABLE_PAGES {
        0 => 0,
        1 => 3,
        2 | 3 => 1,
        _ => 0,
    };
    EXACT
        .wrapping_add(doubling.wrapping_mul(4))
        .wrapping_add(steps & 3 | more)
}

/// The pages of a slot of each class, 0 of one that is not used.
const SLOT_PAGES: [u32; PLACES] = {
    let mut sizes = [0; PLACES];
    let mut last = 0;
    while last < MOST_PAGES {
        let pages = if last < TABLE_PAGES {
            last + 1
        } else {
            (last + 1).next_multiple_of(TABLE_PAGES)
        };
        // CAST: At most `MOST_PAGES`. The largest size of a class is that of its slots.
        sizes[number_for(last)] = pages as u32;
        last += 1;
    }
    sizes
};

/// Returns a size in bytes, whole pages, of which each smaller class has blocks of less than `block` bytes, as far as blocks are
/// that large.
pub(crate) fn least_slot(block: usize) -> usize {
    match block.checked_next_power_of_two() {
        Some(..=SIZE) => PAGE_SIZE,
        // Smaller classes have room for `LEAST_SLOTS` slots in half of such a block.
        Some(block) => (block / 2 / LEAST_SLOTS).wrapping_add(PAGE_SIZE),
        None => usize::MAX,
    }
}

/// A class.
///
/// # Invariants
///
/// Its number is below [`CLASSES`], and it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Class(u8);

impl Class {
    /// The smallest class.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    // INVARIANT: There are more classes.
    pub(crate) const SMALLEST: Self = Self(0);

    /// Returns the smallest class with slots for `size` bytes at multiples of `align`, a power of two; [`None`] if a slot
    /// needs more than `most` pages, at most [`MOST_PAGES`], or if `size` is not a number of whole pages.
    #[inline(always)]
    pub(crate) fn for_request(size: usize, align: usize, most: usize) -> Option<Self> {
        // The low bits of a size that is no multiple of a page become high ones: it is too large.
        let pages = size.rotate_right(PAGE_SIZE.trailing_zeros());
        // So `last + 1` is the number of pages, rounded up to a multiple of `align`. The slots of its class are a multiple of
        // `align`, too, as is asserted below.
        let last = pages.wrapping_sub(1) | (align.wrapping_sub(1) / PAGE_SIZE);
        // INVARIANT: `MOST_PAGES` has the largest number, and no request is larger.
        // CAST: A class is a small number.
        (last < most).then(|| Self(number_for(last) as u8))
    }

    pub(crate) fn and_larger(self) -> ClassSet {
        ClassSet(ClassSet::ALL.0 >> self.number() << self.number())
    }

    pub(crate) fn all() -> ClassSet {
        ClassSet::ALL
    }

    #[inline(always)]
    pub(crate) const fn number(self) -> usize {
        // By the invariant, the remainder changes nothing. No check of an index remains.
        self.0 as usize % PLACES
    }

    #[inline(always)]
    pub(crate) const fn slot_pages(self) -> usize {
        // CAST: It fits.
        SLOT_PAGES[self.number()] as usize
    }

    #[inline(never)]
    pub(crate) const fn block_pages(self) -> usize {
        let least = LEAST_SLOTS.wrapping_mul(self.slot_pages());
        match least.checked_next_power_of_two() {
            Some(..TABLE_PAGES) => TABLE_PAGES,
            Some(pages @ ..MOST_BLOCK_PAGES) => pages,
            _ => MOST_BLOCK_PAGES,
        }
    }

    pub(crate) const fn block_size(self) -> usize {
        self.block_pages().wrapping_mul(PAGE_SIZE)
    }

    /// Returns the number of slots of a block, from 12 to [`MAP_BITS`].
    pub(crate) const fn slots(self) -> usize {
        // Slots have pages, which a plain division would check, and panic.
        match self.block_pages().checked_div(self.slot_pages()) {
            Some(slots) => slots,
            None => 0,
        }
    }

    /// Returns `2^32 / slot_pages()`, rounded up: pages are divided by a multiplication, exact for each page of a block, as is
    /// asserted below.
    pub(super) const fn reciprocal(self) -> u64 {
        // 32-bit kernels have no division of 64-bit numbers. CAST: A `u32` fits in a `u64`.
        match u32::MAX.checked_div(SLOT_PAGES[self.number()]) {
            Some(quotient) => (quotient as u64).wrapping_add(1),
            None => 0,
        }
    }

    /// Returns whether groups of CPUs share the blocks that they allocate from.
    #[inline(always)]
    pub(crate) const fn is_shared(self) -> bool {
        self.number() > number_for(MOST_OWN - 1)
    }
}

/// Asserts when the crate is built what the functions of [`Class`] take for granted.
const fn assert_sound() {
    let mut last = 0;
    while last < MOST_PAGES {
        // INVARIANT: It is the class of a size.
        // CAST: A class is a small number, and numbers of pages fit in a `u64`.
        let class = Class(number_for(last) as u8);
        assert!(class.slot_pages() % (1 << (last + 1).trailing_zeros()) == 0);
        let excess = class.slot_pages() as u64 * class.reciprocal() - (1 << 32);
        assert!((class.block_pages() as u64 - 1) * excess < 1 << 32);
        last += 1;
    }
}

const _: () = assert_sound();

/// A set of classes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassSet(u64);

const _: () = assert!(CLASSES <= 64);

impl ClassSet {
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) fn all() -> Self {
        Self::ALL
    }

    const ALL: Self = {
        let (mut set, mut last) = (0, 0);
        while last < MOST_PAGES {
            set |= 1 << number_for(last);
            last += 1;
        }
        Self(set)
    };

    pub(crate) fn insert(&mut self, class: Class) {
        self.0 |= 1 << class.number();
    }

    pub(crate) fn remove(&mut self, class: Class) {
        self.0 &= !(1 << class.number());
    }

    pub(crate) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(crate) fn contains(self, class: Class) -> bool {
        self.0 & 1 << class.number() != 0
    }
}

impl Iterator for ClassSet {
    type Item = Class;

    fn next(&mut self) -> Option<Class> {
        // INVARIANT: Only classes were inserted.
        // CAST: A class is a small number.
        let class = (self.0 != 0).then(|| Class(self.0.trailing_zeros() as u8))?;
        self.remove(class);
        Some(class)
    }
}

/// One `T` for each class, in a box.
pub(crate) struct ByClass<T>(KBox<[T; PLACES]>);

impl<T> ByClass<T> {
    /// Puts what `make` returns into a box on `node`.
    pub(crate) fn new(node: Node, make: impl FnMut() -> T) -> Result<Self> {
        Ok(Self(node.new_array(make, GFP_NOWAIT)?))
    }

    #[inline(always)]
    pub(crate) fn of(&self, class: Class) -> &T {
        &self.0[class.number()]
    }

    #[inline(always)]
    pub(crate) fn of_mut(&mut self, class: Class) -> &mut T {
        &mut self.0[class.number()]
    }

    pub(crate) fn iter(&self) -> core::slice::Iter<'_, T> {
        self.0.iter()
    }
}
