// SPDX-License-Identifier: GPL-2.0

//! The index of the whole space: all reserved ranges, each with its area or block. What is in no range of it is free.
//!
//! An entry is a pointer to an area object, or marks the range of a block. The object stores the state of
//! the area, so the tree changes only when a range is reserved or freed.
//!
//! Each function here changes an entry and the token of its area together, under the lock of the tree.
//! This upholds the invariants of [`Area`]. An object is freed only after its entry was erased, and its
//! memory remains an area object until an RCU grace period has passed.
//!
//! A block that has a range and is in no directory, new or removed, is [`Placed`]. Only such a block can be inserted there, and
//! only the range of such a block is freed.

pub(crate) use super::page_map::PART;
use super::{
    page_map::PageMap,
    prelude::*, //
};
use kernel::types::ForeignOwnable;

/// An entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// An area.
    Area(AreaPtr),
    /// A block that starts at this address.
    Block(usize),
}

/// The low bits of a block entry. The tree reserves `0b10` in the lowest two.
const BLOCK_TAG: usize = 0b101;
const TAG_BITS: u32 = 3;
const TAG_MASK: usize = (1 << TAG_BITS) - 1;

const _: () = assert!(core::mem::align_of::<bindings::vmap_area>() > 0b11);

// SAFETY: Neither a pointer to an area nor a tagged number is null, and any alignment is a multiple of 1.
unsafe impl ForeignOwnable for Entry {
    const FOREIGN_ALIGN: usize = 1;
    type Borrowed<'a> = Self;
    type BorrowedMut<'a> = Self;

    // A pointer to an area has its two low bits clear (asserted above), so it ends neither in the tag of a block nor
    // in `0b10`, which the tree reserves.
    fn into_foreign(self) -> *mut c_void {
        match self {
            Entry::Area(area) => area.as_raw().cast(),
            // Shifted: the address itself would be a reference to the first area for kmemleak.
            Entry::Block(start) => {
                core::ptr::without_provenance_mut((start / PAGE_SIZE) << TAG_BITS | BLOCK_TAG)
            }
        }
    }

    unsafe fn from_foreign(raw: *mut c_void) -> Self {
        // SAFETY: By the safety requirements.
        unsafe { Self::decode(raw) }
    }

    unsafe fn borrow<'a>(raw: *mut c_void) -> Self::Borrowed<'a> {
        // SAFETY: By the safety requirements.
        unsafe { Self::decode(raw) }
    }

    unsafe fn borrow_mut<'a>(raw: *mut c_void) -> Self::BorrowedMut<'a> {
        // SAFETY: By the safety requirements.
        unsafe { Self::decode(raw) }
    }
}

impl Entry {
    /// Returns the entry that a pointer stands for. It is a copy: there may be others.
    ///
    /// # Safety
    ///
    /// `raw` came from `into_foreign()`.
    unsafe fn decode(raw: *mut c_void) -> Self {
        if raw.addr() & TAG_MASK == BLOCK_TAG {
            return Entry::Block((raw.addr() >> TAG_BITS).wrapping_mul(PAGE_SIZE));
        }
        // SAFETY: By the safety requirements, `raw` is what `into_foreign()` made of an `AreaPtr`, which is not null.
        Entry::Area(unsafe { AreaPtr::new(raw.cast()).unwrap_unchecked() })
    }
}

impl maple::Entry for Entry {}

/// What a reserved range is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    /// An area in this state.
    Area(Stage),
    /// A block.
    Block,
}

/// The index.
///
/// # Invariants
///
/// - An [`Entry::Area`] points to an area object, which is freed only after the entry was erased under the lock. Its memory
///   remains an area object for a grace period after that.
/// - An area that is found busy here has an entry here until it is unlinked, so its unlink waits for `pins`: no other index
///   has areas at the same addresses at the same time.
pub(crate) struct Index {
    /// In a box because its lock must not move.
    tree: Pin<KBox<maple::Tree<Entry>>>,
    /// Finds areas without a walk down the tree.
    map: PageMap,
    /// Bytes of all areas in `home` with an entry of their own.
    bytes: CacheAligned<Atomic<usize>>,
    home: Span,
    /// The pins of all areas with an entry of their own.
    pins: Pins,
}

/// The locked index: entries change only together with the tokens of their areas, and with the page map.
pub(crate) struct IndexGuard<'index> {
    tree: maple::Guard<'index, Entry>,
    map: &'index PageMap,
    bytes: &'index Atomic<usize>,
    home: Span,
}

// What is out of line: a call costs little beside a walk down the tree.
impl Gaps for IndexGuard<'_> {
    #[inline(never)]
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        self.tree.lowest_gap(window, bytes)
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        self.tree.highest_gap(window, bytes)
    }

    #[inline(never)]
    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        self.tree.gap_around(addr)
    }

    #[inline(never)]
    fn pause(&mut self) {
        self.tree.pause();
    }
}

impl IndexGuard<'_> {
    /// Lets changes fail rather than take memory from the reserves, see [`maple::Guard::spare_reserves`].
    pub(crate) fn spare_reserves(&mut self) {
        self.tree.spare_reserves();
    }

    /// Allocates nodes after [`StoreError::NoMemory`], see [`maple::Guard::nomem`].
    pub(crate) fn nomem(&mut self, gfp: mm::Gfp) -> bool {
        self.tree.nomem(gfp)
    }

    /// Returns whether [`Index::prepare`] can help lookups in an area at `span`; if `all`, at each of its pages.
    pub(crate) fn lacks(&self, span: Span, all: bool) -> bool {
        self.map.lacks(span, all)
    }

    /// Returns the lowest reserved range that ends above `addr`, and what it is for.
    #[inline(never)]
    pub(crate) fn next_range(&mut self, addr: usize) -> Option<(Span, Range)> {
        let (span, slot) = self.tree.entry_from(addr)?;
        let range = match slot {
            // SAFETY: The area is in the tree, whose lock is held.
            Entry::Area(area) => Range::Area(unsafe { area.stage(span) }),
            Entry::Block(_) => Range::Block,
        };
        Some((span, range))
    }

    /// Adds `bytes`, which wraps around if it is negative, to the count if the area at `span` is in `home`.
    fn count(&self, span: Span, bytes: usize) {
        if self.home.covers(span) {
            // Relaxed: written under the lock.
            let bytes = self.bytes.read_once().wrapping_add(bytes);
            self.bytes.write_once(bytes);
        }
    }

    /// Reserves `span`, which is in the gap found last, for `area`. Nobody finds the area until it is busy.
    pub(crate) fn reserve(
        &mut self,
        area: Area<New>,
        span: Span,
    ) -> Result<Area<Reserved>, (Area<New>, StoreError)> {
        match self.tree.insert(span, Entry::Area(area.ptr())) {
            Ok(()) => {
                // SAFETY: The lock is held, and `insert()` has stored the object at exactly `span`.
                unsafe { self.map.set(span, area.ptr()) };
                self.count(span, span.size());
                // SAFETY: `insert()` has stored the object at exactly `span`, and only `give_back()` erases it.
                Ok(unsafe { area.inserted(span) })
            }
            Err(err) => Err((area, err)),
        }
    }

    /// Frees the range of `area`. Returns the area if there is no memory for that.
    pub(crate) fn give_back(
        &mut self,
        area: Area<Flushed>,
    ) -> Result<Area<New>, (Area<Flushed>, StoreError)> {
        let Some(span) = area.span() else {
            return Err((area, StoreError::Mismatch));
        };
        match self.tree.erase(span, Entry::Area(area.ptr())) {
            Ok(()) => {
                // SAFETY: The lock is held, `erase()` has removed the entry, and the object is freed no sooner than the token.
                unsafe { self.map.unset(span, area.ptr()) };
                self.count(span, span.size().wrapping_neg());
                // SAFETY: `erase()` has removed the entry.
                Ok(unsafe { area.erased() })
            }
            Err(err) => Err((area, err)),
        }
    }

    /// Reserves the range at `start`, which is in the gap found last, for a new block. Returns the block if that fails.
    pub(crate) fn reserve_block(
        &mut self,
        mut block: Unpublished<Block>,
        start: usize,
    ) -> Result<Placed, (Unpublished<Block>, StoreError)> {
        let span = Span::with_size(start, block.class().block_size());
        let Some(span) = span.filter(|_| is_aligned(start, SIZE)) else {
            return Err((block, StoreError::Mismatch));
        };
        match self.tree.insert(span, Entry::Block(start)) {
            Ok(()) => {
                block.place_at(start);
                // SAFETY: `insert()` has stored the entry at exactly the range of the block, and only `free_blocks()` erases
                // it. A new block is closed. What was there before was flushed before its range became free.
                Ok(unsafe { Placed::new(block.into()) })
            }
            Err(err) => Err((block, err)),
        }
    }

    /// Frees the ranges of blocks with one store. Takes the blocks out of the run, to be freed as well, unless there is no
    /// memory for that.
    pub(crate) fn free_blocks(&mut self, run: &mut Run) -> Result<Freed, StoreError> {
        let span = run.span().ok_or(StoreError::Mismatch)?;
        // By the invariants of the run, the span has the entries of its blocks and no others.
        self.tree.erase_all(span)?;
        Ok(run.take_freed())
    }
}

impl Index {
    /// Creates an empty index with a lock of class `key`.
    pub(crate) fn new(
        home: Span,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> Result<Self> {
        let tree = maple::Tree::new(name, key);
        // INVARIANT: There is no entry. The kernel makes one index. Of those that tests make for the same addresses, only one
        // is in use at a time.
        Ok(Self {
            tree: KBox::pin_init(tree, GFP_NOWAIT)?,
            map: PageMap::new()?,
            bytes: CacheAligned::new(Atomic::new(0)),
            home,
            pins: Pins::new()?,
        })
    }

    /// Takes the tree lock, for searches and changes; any context that may take spinlocks.
    #[inline(never)]
    pub(crate) fn lock(&self) -> IndexGuard<'_> {
        IndexGuard {
            tree: self.tree.lock(),
            map: &self.map,
            bytes: &self.bytes,
            home: self.home,
        }
    }

    /// Returns the bytes of all areas in the home of the space with an entry of their own: an estimate.
    pub(crate) fn bytes(&self) -> usize {
        // Relaxed: written under the lock.
        self.bytes.read_once()
    }

    /// Allocates memory for the page map to find an area at `span` that is about to be published; if `all`, at each of
    /// its pages. Sleeps if `flags` allow it.
    pub(crate) fn prepare(&self, span: Span, all: bool, flags: Flags) {
        // Without the memory, lookups walk down the tree.
        // SAFETY: `lock()` takes the lock.
        let _ = unsafe { self.map.prepare(span, all, flags, || self.lock()) };
    }

    /// Returns the only area that may be at `addr` and have an entry of its own, without the lock. Its object was not
    /// freed before the RCU read lock was taken, which `rcu` shows.
    #[inline(always)]
    fn area_at(&self, addr: usize, rcu: &Guard) -> Option<AreaPtr> {
        let mapped = self.map.get(addr, rcu);
        mapped.or_else(|| self.area_elsewhere(addr, rcu))
    }

    /// [`Index::area_at`] for what no page or region of the page map points to.
    #[inline(never)]
    fn area_elsewhere(&self, addr: usize, rcu: &Guard) -> Option<AreaPtr> {
        self.large_at(addr, rcu)
            .or_else(|| match self.tree.load(addr, rcu)? {
                Entry::Area(area) => Some(area),
                Entry::Block(_) => None,
            })
    }

    /// Returns the only area that the page map has for `addr`, if any. It may not contain `addr` any more.
    fn mapped_at(&self, addr: usize, rcu: &Guard) -> Option<AreaPtr> {
        let mapped = self.map.get(addr, rcu);
        mapped.or_else(|| self.large_at(addr, rcu))
    }

    /// Returns the area at `addr` if it is busy, and noted for a part that it covers. What is noted may be another area, whose
    /// object may be new with old bounds: so the whole look.
    fn large_at(&self, addr: usize, rcu: &Guard) -> Option<AreaPtr> {
        let area = self.map.get_large(addr, rcu)?;
        // SAFETY: By the type invariants, it stays an area object as long as the RCU read lock is held.
        let found = unsafe { area.look() }?;
        found.contains(addr).then_some(area)
    }

    /// Notes an area that was reserved before and is used again, if others have been noted in its places. Mostly takes no
    /// lock.
    pub(crate) fn note_again(&self, area: &Area<Reserved>) {
        let Some(span) = area.span() else { return };
        if self.map.has_large(span, area.ptr()) {
            return;
        }
        let mut index = self.lock();
        if index.tree.entry_from(span.first()) == Some((span, Entry::Area(area.ptr()))) {
            // SAFETY: The lock is held, and the area is in the tree at exactly `span`.
            unsafe { self.map.note_large(span, area.ptr()) };
        }
    }

    /// Returns whether the page map has an area for `addr`.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn is_mapped(&self, addr: usize) -> bool {
        self.mapped_at(addr, &Guard::new()).is_some()
    }

    /// Returns the busy area that contains `addr` and has an entry of its own, without the lock. Any
    /// context in which RCU is watching.
    #[inline(always)]
    pub(crate) fn find(&self, addr: usize, rcu: &Guard) -> Option<Busy> {
        // SAFETY: By the type invariants, it stays an area object as long as the RCU read lock is held.
        unsafe { self.area_at(addr, rcu)?.look() }.filter(|area| area.contains(addr))
    }

    /// Unlinks the busy area that contains `addr` and has an entry of its own, without the lock of the tree. Waits for the
    /// pin if a reader has it.
    #[inline(never)]
    pub(crate) fn unlink(&self, addr: usize, rcu: &Guard) -> Option<UnlinkedArea<'_>> {
        let area = self.area_at(addr, rcu)?;
        // SAFETY: It was found here under the RCU read lock. By the type invariants, it stays an area object, and a busy area
        // that contains `addr` is one of this index.
        let area = unsafe { self.pins.unlink(area, addr) }?;
        Some(UnlinkedArea::lone(area))
    }

    /// Pins the busy area that contains `addr` and has an entry of its own. Waits for the pin, unless `try_`: then [`None`]
    /// if that means waiting, and any context in which a lock may be tried.
    #[inline(always)]
    pub(crate) fn pin_at(&self, addr: usize, try_: bool, rcu: &Guard) -> Option<Pinned<'_>> {
        let found = self.find(addr, rcu)?;
        // SAFETY: By the type invariants, it is an area of this index, found under the RCU read lock.
        unsafe { self.pins.pin(found, try_) }
    }

    /// As [`Index::pin_at`], but waits for the pin, and only if the page map knows `addr`: without a walk down the tree. Task
    /// context.
    pub(crate) fn pin_mapped(&self, addr: usize, rcu: &Guard) -> Option<Pinned<'_>> {
        // SAFETY: By the type invariants, it stays an area object as long as the RCU read lock is held.
        let found = unsafe { self.mapped_at(addr, rcu)?.look() };
        let found = found.filter(|area| area.contains(addr))?;
        // SAFETY: By the type invariants, it is an area of this index, found under the RCU read lock.
        unsafe { self.pins.pin(found, false) }
    }

    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }
}

/// Maximum number of blocks that are freed with one store, which goes over all of them with the lock held. Fewer would leave
/// RCU more nodes of the tree to free.
pub(crate) const MOST_AT_ONCE: usize = 16;

/// A block that has a range and is in no directory.
///
/// # Invariants
///
/// - The index has an entry for exactly the range of the block, which is erased only with this token.
/// - The block is closed and holds no area: nobody uses an address in its range, and no TLB has a translation of one.
#[must_use = "dropping a block leaks its range"]
pub(crate) struct Placed(ManuallyDrop<GraceBox<Block>>);

impl Placed {
    /// Wraps a block.
    ///
    /// # Safety
    ///
    /// The type invariants hold.
    pub(super) unsafe fn new(block: GraceBox<Block>) -> Self {
        // INVARIANT: By the safety requirements.
        Self(ManuallyDrop::new(block))
    }

    /// Gives up the token.
    pub(super) fn into_block(self) -> GraceBox<Block> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: The token is neither used nor dropped afterwards.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl Deref for Placed {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.0
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // The range stays reserved: a leak is safe, reuse would not be.
        mm::refuse("a block was leaked", &[self.start()], &[]);
    }
}

/// Blocks without a range, for the drop of which lockless readers are waited for.
pub(crate) type Freed = [Option<GraceBox<Block>>; MOST_AT_ONCE];

/// Blocks side by side, to be freed with one store.
///
/// # Invariants
///
/// The ranges of the blocks fill `span`.
pub(crate) struct Run {
    span: Option<Span>,
    blocks: [Option<Placed>; MOST_AT_ONCE],
}

impl Run {
    pub(crate) const fn new() -> Self {
        // INVARIANT: There is no block.
        Self {
            span: None,
            blocks: [const { None }; MOST_AT_ONCE],
        }
    }

    /// Adds a block. Fails and returns it if it is not beside the others, or if there are too many.
    pub(crate) fn try_add(&mut self, block: Placed) -> Result<(), Placed> {
        let place = self.blocks.iter_mut().find(|place| place.is_none());
        let (Some(place), Some(span)) = (place, block.span()) else {
            return Err(block);
        };
        let is_below = |low: Span, high: Span| low.next_addr() == Some(high.first());
        let run = self.span.unwrap_or(span);
        if self.span.is_some() && !is_below(run, span) && !is_below(span, run) {
            return Err(block);
        }
        // INVARIANT: The block is beside the others, or the only one.
        self.span = Some(run.join(span));
        *place = Some(block);
        Ok(())
    }

    /// Returns the range of all blocks; [`None`] if there is none.
    pub(crate) fn span(&self) -> Option<Span> {
        self.span
    }

    /// Takes out the blocks, and gives up their tokens.
    fn take_freed(&mut self) -> Freed {
        // INVARIANT: No block is left.
        self.span = None;
        self.blocks
            .each_mut()
            .map(|block| block.take().map(Placed::into_block))
    }

    /// Returns the blocks.
    pub(crate) fn into_blocks(self) -> impl Iterator<Item = Placed> {
        self.blocks.into_iter().flatten()
    }
}

/// Blocks that were removed from their directory, before their ranges are freed.
///
/// # Invariants
///
/// Each was a [`Placed`] one, of which the list owns the token.
#[must_use = "dropping a block leaks its range"]
pub(crate) struct Removed(GraceList<Block>);

impl Removed {
    pub(crate) const fn new() -> Self {
        // INVARIANT: There is no block.
        Self(GraceList::new())
    }

    pub(crate) fn push(&mut self, block: Placed) {
        // INVARIANT: The list gets the token.
        self.0.push(block.into_block());
    }

    /// Takes out the block that was added last.
    pub(crate) fn pop(&mut self) -> Option<Placed> {
        // SAFETY: By the type invariants, it was a `Placed` one. The list gives up the token.
        self.0.pop().map(|block| unsafe { Placed::new(block) })
    }

    /// Takes out blocks that are side by side, from the last one on.
    pub(crate) fn pop_run(&mut self) -> Run {
        let mut run = Run::new();
        while let Some(block) = self.pop() {
            if let Err(block) = run.try_add(block) {
                self.push(block);
                break;
            }
        }
        run
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        while let Some(block) = self.pop() {
            // Reports the leak.
            drop(block);
        }
    }
}
