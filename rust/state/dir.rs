// SPDX-License-Identifier: GPL-2.0

//! Where blocks are: the directory finds the block at an address without a lock, and a seat leads to the block from which a CPU
//! allocates.
//!
//! Areas in a block that was found are in `pins.rs`. The directory is [`Parts`] with an entry for each [`SIZE`] bytes, so a
//! lookup takes a few loads. A larger block has several entries, and one that fills a part is in a pointer of its own. Blocks
//! can be anywhere, but not in two parts with the same place.
//!
//! A part has a bitmap of *dirty* blocks, and the directory one of parts with such blocks, which lead a purge to them. Parts
//! are never freed, so who retires an area need not keep its block. A block that was removed from the directory is freed after
//! an RCU grace period.
//!
//! A block knows whether it is in a [`Seat`], or was removed from the directory: both begin with an exchange of the same word,
//! so no block is in two seats, and none in a seat is removed.

use super::{
    batch::{
        lazy_batch,
        Added,
        Batch,
        LazySlot,
        Taken, //
    },
    parts::{
        self,
        Parts,
        Pointer, //
    },
    prelude::*, //
};

/// Bytes of a part: the most that a block has.
const MOST_SIZE: usize = MOST_BLOCK_PAGES * PAGE_SIZE;

/// Bytes at the start of the space without blocks, for requests with a window there.
const HEADROOM: usize = 64 * PAGE_SIZE;

/// What the directory has for a part, besides its entries.
struct PartBlocks {
    /// A block that fills the part.
    whole: Pointer,
    /// Blocks that may have lazy slots which no purge has taken. The bit of a block is that of its first entry.
    dirty: Map,
}

type Part = parts::Part<PartBlocks>;

/// All blocks by address.
///
/// # Invariants
///
/// - An entry, and the pointer to a block that fills a part, is null or came from [`GraceBox::into_raw`] of a [`Block`] at
///   its address.
/// - Each block was inserted as a [`Placed`] one, so its range is reserved for it in the index.
/// - The first pointer of a block owns its box. The block is freed only when it is in no entry and no seat, after a
///   grace period.
pub(crate) struct Directory {
    /// Where blocks can be.
    window: Option<Span>,
    parts: Parts<PartBlocks>,
    /// The places of the parts that have dirty blocks.
    dirty_parts: Map,
    /// Who changes these, or the dirty blocks of a part, holds this lock. Without it, a purge could clear the bit of a part
    /// after a retire has set it, and before that sets the bit of the block.
    marks: Locked<()>,
    /// The pins of all areas in blocks of this directory.
    pub(super) pins: Pins,
    /// Lazy slots of its blocks that were not noted there yet.
    batches: PerCpu<Batch>,
}

impl Directory {
    /// Creates an empty directory, for blocks in `home`.
    pub(crate) fn new(home: Span) -> Result<Self> {
        let start = home.first().saturating_add(HEADROOM);
        let window = align_up(start, SIZE).and_then(|start| {
            let bytes = home.last().checked_sub(start)?.saturating_add(1);
            Span::with_size(start, align_down(bytes, SIZE))
        });
        // INVARIANT: There is no part.
        Ok(Self {
            window,
            parts: Parts::new()?,
            dirty_parts: Map::new(),
            marks: Locked::new((), c"vmap_rust marks", static_lock_class!())?,
            pins: Pins::new()?,
            batches: {
                let most = lazy_batch(mm::cpu_count(), PAGE_SIZE);
                PerCpu::new(|_| Batch::new(most))?
            },
        })
    }

    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    pub(crate) fn window(&self) -> Option<Span> {
        self.window
    }

    #[inline(always)]
    fn part_at(&self, addr: usize) -> Option<&Part> {
        self.parts.part_of(addr / SIZE)
    }

    /// Returns whether there is a part for a block at `addr`.
    pub(crate) fn is_prepared(&self, addr: usize) -> bool {
        self.part_at(addr).is_some()
    }

    /// Makes sure that there is a part for a block at `addr`. Fails with `EBUSY` if another part has its place. Sleeps if
    /// `flags` allow it.
    pub(crate) fn prepare(&self, addr: usize, flags: Flags) -> Result {
        let more = || PartBlocks {
            whole: Atomic::new(ptr::null_mut()),
            dirty: Map::new(),
        };
        // INVARIANT: All its pointers are null.
        self.parts.prepare(addr / SIZE, more, flags).map(|_| ())
    }

    /// Returns the first address of the lowest part above that of `addr` which exists or has a free place.
    pub(crate) fn next_usable(&self, addr: usize) -> Option<usize> {
        let window = self.window?;
        let next = |addr: &usize| (addr / MOST_SIZE).checked_add(1)?.checked_mul(MOST_SIZE);
        let starts = core::iter::successors(next(&addr), next).take(MAP_BITS);
        let mut starts = starts.take_while(|&start| window.contains(start));
        starts.find(|&start| self.is_prepared(start) || self.parts.is_free(start / SIZE))
    }

    /// Returns the block at `addr`, as long as `rcu` is held. Any context in which RCU is watching.
    #[inline(always)]
    pub(crate) fn block_at<'a>(&'a self, addr: usize, _rcu: &'a Guard) -> Option<&'a Block> {
        let raw = self.part_at(addr)?.raw_at(addr)?;
        // SAFETY: `raw` was in the directory after the RCU read lock was taken, so by the type invariants, the grace
        // period before the block is freed cannot end while it is held.
        Some(unsafe { GraceBox::<Block>::peek(raw.as_ptr()) })
    }

    /// Returns block `number`; [`None`] if there is none by now.
    // Lists of blocks call it: no request that a current block serves does.
    #[inline(never)]
    pub(crate) fn block<'a>(&'a self, number: BlockNumber, rcu: &'a Guard) -> Option<&'a Block> {
        let block = self.block_at(number.start(), rcu)?;
        (block.number() == Some(number)).then_some(block)
    }

    /// Makes an unmapped area of a block lazy, and adds its slot to the batch of this CPU. Notes the batch if that is due then,
    /// and returns how many pages were noted. Takes locks only for that.
    ///
    /// # Safety
    ///
    /// The area is in a block of this directory.
    #[inline(always)]
    pub(super) unsafe fn retire(&self, area: Area<Unlinked>) -> Option<usize> {
        let Some(span) = area.span() else {
            // Cannot happen: a span is not empty. The drop of the area reports the leak.
            return None;
        };
        area.vacate();
        // SAFETY: By the safety requirements, the area was in a block of this directory, and was just vacated.
        let slot = unsafe { LazySlot::new(span.first() / PAGE_SIZE) };
        let pages = span.size() / PAGE_SIZE;
        match self.batches.with_own(|batch| batch.add(slot, pages)) {
            (_, Added::Waits) => None,
            (_, Added::Alone(slot)) => {
                self.note_word(slot, None);
                Some(pages)
            }
            (batch, added) => Some(self.note_due(batch, added, pages)),
        }
    }

    /// Notes a batch that is due, or had no room for the slot of an area of `pages` pages. Returns how many pages were noted.
    #[inline(never)]
    fn note_due(&self, batch: &Batch, mut added: Added, pages: usize) -> usize {
        let mut noted = self.note(batch);
        // Without room: a task that has filled the batch was preempted before it came here.
        while let Added::NoRoom(slot) = added {
            let (batch, again) = self.batches.with_own(|batch| batch.add(slot, pages));
            added = again;
            if !matches!(added, Added::Waits) {
                noted = noted.wrapping_add(self.note(batch));
            }
        }
        noted
    }

    /// Notes all slots that were retired before the call, of all CPUs. Returns how many pages were noted. Sleepable context.
    pub(crate) fn note_batches(&self) -> usize {
        let mut pages = 0_usize;
        for batch in self.batches.iter().filter(|batch| batch.is_waiting()) {
            pages = pages.wrapping_add(self.note(batch));
            mm::cond_resched();
        }
        pages
    }

    /// Returns how many areas were retired, ever.
    pub(crate) fn retired(&self) -> usize {
        let counts = self.batches.iter().map(Batch::retired);
        counts.fold(0, usize::wrapping_add)
    }

    /// Notes the slots of a batch in their blocks. Returns how many pages their areas have. Takes the lock of the batch, and one
    /// more for each block that is clean.
    #[inline(never)]
    fn note(&self, batch: &Batch) -> usize {
        let mut slots = batch.take();
        let pages = slots.pages();
        let mut next = slots.next();
        while let Some(first) = next {
            next = self.note_word(first, Some(&mut slots));
        }
        pages
    }

    /// Notes a lazy slot, and those of `others` up to the first one in another word of a bitmap, which it returns. Takes a lock if
    /// the block is clean.
    fn note_word(&self, first: LazySlot, others: Option<&mut Taken<'_>>) -> Option<LazySlot> {
        let part = self.part_at(first.start());
        let place = part.and_then(|part| Some((part, part.raw_at(first.start())?)));
        let Some((part, raw)) = place else {
            // Cannot happen: a block with such a slot stays. The slot leaks.
            mm::refuse("a lazy slot is in no block", &[first.start()], &[]);
            return others?.next();
        };
        // SAFETY: The pointer is one of a block, by the type invariants.
        let block = unsafe { GraceBox::<Block>::value_at(raw.as_ptr()) };
        let (slot, mask, bit, next) = {
            // No RCU read lock is needed. Before the bits below are set, the slots keep the block; after it, only `part` is used,
            // which is never freed.
            // SAFETY: By the invariants of `LazySlot`, the slot is in this block, and not free before its bit is set below. So the
            // block cannot be closed, and stays in the directory. The reference is gone by then.
            let block = unsafe { block.as_ref() };
            let slot = block.slot_at(first.start());
            let mut mask = slot.mask();
            // Those that were retired one after the other are mostly in one word.
            let next = others.and_then(|others| {
                others.find(|other| {
                    let other = block
                        .has(other.start())
                        .then(|| block.slot_at(other.start()));
                    let joins = other.filter(|other| other.word() == slot.word());
                    mask |= joins.map_or(0, Bit::mask);
                    joins.is_none()
                })
            });
            (slot, mask, block.bit_in_part(), next)
        };
        // SAFETY: The block stays until the bits are set. Then others may free it before the call returns. All bytes of a map are
        // in `UnsafeCell`s: a reference to such bytes need not be valid any longer than it is used.
        let lazy = unsafe { &(*block.as_ptr()).lazy };
        // A full barrier: see `mark()`.
        lazy.set_and_fence(slot, mask);
        self.mark(part, bit);
        next
    }

    /// Marks a block of `part` as dirty. The caller has made a slot lazy, and executed a full barrier.
    ///
    /// A purge that clears the bit takes the lazy slots afterwards, so either this sees the bit clear, or the purge takes the
    /// slot.
    #[inline(always)]
    fn mark(&self, part: &Part, bit: Bit) {
        // Acquire: a purge that notes a batch looks for the bit of the part next.
        if !part.more.dirty.has_acquire(bit) {
            self.mark_clean(part, bit);
        }
    }

    /// [`Directory::mark`] for a block that was clean. Takes a lock.
    #[inline(never)]
    fn mark_clean(&self, part: &Part, bit: Bit) {
        let _lock = self.marks.lock();
        // The bit of the part first: who sees that of the block leaves both alone.
        self.dirty_parts.insert(part.place());
        part.more.dirty.insert(bit);
    }

    /// Returns whether a purge would come to a block.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    pub(crate) fn is_marked(&self, block: &Block) -> bool {
        self.part_at(block.start()).is_some_and(|part| {
            part.more.dirty.has(block.bit_in_part()) && self.dirty_parts.has(part.place())
        })
    }

    /// Takes the dirty blocks of a part, with a full barrier for each word that has one. Takes a lock.
    fn take_dirty(&self, part: &Part) -> Words {
        let _lock = self.marks.lock();
        self.dirty_parts.claim_bit(part.place());
        part.more.dirty.take()
    }

    /// Makes slots of a block of this directory lazy again that a purge has taken. Takes a lock if the block is clean.
    pub(super) fn make_lazy(&self, block: &Block, slots: &Words) {
        // A full barrier: see `mark()`.
        map::set_bits(*slots).for_each(|slot| block.lazy.set_and_fence(slot, slot.mask()));
        if let Some(part) = self.part_at(block.start()) {
            self.mark(part, block.bit_in_part());
        }
    }

    /// Calls `what` for each dirty block. If `clear`, the blocks are clean before `what` is called: only for a purge, of which
    /// there is one at a time. Sleepable context.
    #[inline(never)]
    pub(crate) fn each_dirty(&self, clear: bool, what: &mut dyn FnMut(&Block)) {
        // Without the lock: a purge sees the bits of all that was retired before it began, unless an earlier one has cleared
        // them, which has taken the slots, too.
        for place in map::set_bits(self.dirty_parts.words()) {
            // There is one, as the bit was set after it was made.
            let Some(part) = self.parts.in_place(place.number()) else {
                continue;
            };
            let dirty = if clear {
                self.take_dirty(part)
            } else {
                part.more.dirty.words()
            };
            for bit in map::set_bits(dirty) {
                let rcu = Guard::new();
                if let Some(block) = part.block(bit, &rcu) {
                    what(block);
                }
                drop(rcu);
                mm::cond_resched();
            }
        }
    }

    /// Calls `what` for each block until it returns an error.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    pub(crate) fn try_each(&self, mut what: impl FnMut(&Block) -> Result) -> Result {
        for part in self.parts.parts() {
            for entry in 0..MAP_BITS {
                let rcu = Guard::new();
                if let Some(block) = part.block(Bit::in_row(entry), &rcu) {
                    what(block)?;
                }
            }
        }
        Ok(())
    }

    /// Inserts a block at its address, and opens it. Returns the block if there is no part for it.
    pub(crate) fn insert(&self, block: Placed) -> Result<BlockNumber, Placed> {
        let place = block.span().and_then(|span| {
            let part = self.part_at(span.first())?;
            let (first, others) = part.pointers(span)?;
            Some((block.number()?, first, others))
        });
        let Some((number, first, others)) = place else {
            return Err(block);
        };
        let rcu = Guard::new();
        let raw = block.into_block().into_raw();
        // INVARIANT: The pointer came from `into_raw()`, and the first entry owns the box. By the invariants of `Placed`, the
        // range is reserved for this block alone, so its entries are null, and no other block fills the part or is in it.
        // Full: a CPU that finds the block here, or in an entry that is stored below, finds it initialized.
        first.xchg(raw, Full);
        for other in others {
            // Relaxed: ordered by the full barrier above. The release of the slots that `open()` frees comes later.
            other.write_once(raw);
        }
        // SAFETY: As in `block_at()`: it is in the directory, under the RCU read lock.
        let block = unsafe { GraceBox::<Block>::peek(raw) };
        // Only now: areas in it must be found at each of their addresses.
        block.return_to_directory();
        block.open();
        drop(rcu);
        Ok(number)
    }

    /// Removes block `number` if all its slots are free and it is in no seat. It is closed then. `policy` calls this with the
    /// lock of the pool held.
    pub(crate) fn remove(&self, number: BlockNumber) -> Option<Placed> {
        let rcu = Guard::new();
        let part = self.part_at(number.start())?;
        let block = self.block(number, &rcu)?;
        let (first, others) = part.pointers(block.span()?)?;
        if !block.leave_directory() {
            return None;
        }
        if !block.close() {
            block.return_to_directory();
            return None;
        }
        // Release: the entries stay until the block is closed. Who uses the range next is ordered by the lock of the tree.
        let raw = first.xchg(ptr::null_mut(), Release);
        for other in others {
            other.store(ptr::null_mut(), Release);
        }
        // SAFETY: By the type invariants, the pointer came from `into_raw()`, and the first entry owned the box: only one
        // caller marks a block as removed. No entry holds it any more, so nobody finds it. Its range stays reserved, and it was
        // closed when all slots were free, so they were flushed.
        Some(unsafe { Placed::new(GraceBox::from_raw(raw)) })
    }
}

/// The directory of the kernel lives until shutdown, or has no block yet if the start fails.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
impl Drop for Directory {
    fn drop(&mut self) {
        for part in self.parts.parts() {
            for bit in (0..MAP_BITS).map(Bit::in_row) {
                let rcu = Guard::new();
                let Some(block) = part
                    .block(bit, &rcu)
                    .filter(|block| block.leave_directory())
                else {
                    // One that is still in a seat leaks.
                    continue;
                };
                let raw = part.raw_at(block.start());
                // Relaxed: nobody else looks at the directory. This loop does, and must not see the block again.
                if let Some((first, others)) = block.span().and_then(|span| part.pointers(span)) {
                    for entry in Iterator::chain(core::iter::once(first), others) {
                        entry.write_once(ptr::null_mut());
                    }
                }
                drop(rcu);
                if let Some(raw) = raw {
                    // SAFETY: By the type invariants, the pointer came from `into_raw()`. It is dropped once, as one
                    // caller marks a block as removed. No entry holds it any more.
                    drop(unsafe { GraceBox::<Block>::from_raw(raw.as_ptr()) });
                }
            }
        }
    }
}

/// All CPUs share a directory, so blocks must be `Send` and `Sync`. [`Parts`] ask for it of what a part has.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Block>();
};

impl Part {
    /// Returns the bit of this part in [`Directory::dirty_parts`].
    fn place(&self) -> Bit {
        Bit::in_row(self.number)
    }

    /// Returns the pointer to the box of the block at `addr`, which is in this part.
    #[inline(always)]
    fn raw_at(&self, addr: usize) -> Option<NonNull<c_void>> {
        // Relaxed: all reads of the block depend on the address, see `insert()`.
        NonNull::new(self.entry(addr / SIZE).read_once())
            .or_else(|| NonNull::new(self.more.whole.read_once()))
    }

    /// Returns the block whose first entry has bit `bit`.
    fn block<'a>(&'a self, bit: Bit, _rcu: &'a Guard) -> Option<&'a Block> {
        let first = self.number.wrapping_mul(MAP_BITS);
        let addr = first.wrapping_add(bit.number()).wrapping_mul(SIZE);
        let raw = self.raw_at(addr)?;
        // SAFETY: As in `Directory::block_at()`.
        let block = unsafe { GraceBox::<Block>::peek(raw.as_ptr()) };
        (block.start() == addr).then_some(block)
    }

    /// Returns the pointers of a block at `span`, which is in this part: the one that owns it, and the others.
    fn pointers(&self, span: Span) -> Option<(&Pointer, &[Pointer])> {
        let first = span.first() / SIZE % MAP_BITS;
        let end = first.checked_add(span.size() / SIZE)?;
        match (first, end) {
            (0, MAP_BITS) => Some((&self.more.whole, &[])),
            _ => self.entries.get(first..end)?.split_first(),
        }
    }
}

/// The place for a current block: it leads there with one load, under RCU.
///
/// # Invariants
///
/// It is null, or points to a block that is marked as seated for this seat. Such a block is not freed: only
/// [`Block::leave_directory`] lets it be, and a grace period passes then.
#[repr(transparent)]
pub(crate) struct Seat(Atomic<*mut Block>);

impl Seat {
    pub(crate) const fn new() -> Self {
        // INVARIANT: It is null.
        Self(Atomic::new(ptr::null_mut()))
    }

    /// Returns the block, as long as `_rcu` is held.
    #[inline(always)]
    pub(crate) fn get<'a>(&'a self, _rcu: &'a Guard) -> Option<&'a Block> {
        // Relaxed: all reads of the block depend on the address, see `replace()`.
        let block = self.0.read_once();
        // SAFETY: By the type invariants, it is null, or a block that was not freed when it was loaded. A block that
        // leaves the seat is freed a grace period later, so not while the RCU read lock is held.
        unsafe { block.as_ref() }
    }

    /// Puts `block` into the seat, or nothing. Returns the block that was there, as long as `_rcu` is held. A block that
    /// is in a seat already, or removed, is refused: the seat is empty then. `policy` calls this with the lock of the pool
    /// held.
    pub(crate) fn replace<'a>(&self, block: Option<&Block>, _rcu: &'a Guard) -> Option<&'a Block> {
        let block = block.filter(|block| {
            // Acquire: pairs with the release below.
            let seated = block.status.cmpxchg(UNSEATED, SEATED, Acquire).is_ok();
            if !seated {
                mm::refuse("a block cannot be current", &[block.start()], &[]);
            }
            seated
        });
        let new = block.map_or(ptr::null_mut(), |block| ptr::from_ref(block).cast_mut());
        // INVARIANT: It was just marked as seated.
        // Full: a release is needed, so that a CPU that finds the block finds it initialized.
        let old = self.0.xchg(new, Full);
        // SAFETY: By the type invariants, it is null or a seated block. It is freed a grace period after the store below.
        let old = unsafe { old.as_ref() }?;
        // Release: the seat is left before.
        old.status.store(UNSEATED, Release);
        Some(old)
    }
}

/// The seats of the kernel are there until shutdown, or have no block yet if the start fails.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
impl Drop for Seat {
    fn drop(&mut self) {
        self.replace(None, &Guard::new());
    }
}

impl Block {
    /// Marks the block as removed from the directory, unless it is in a seat.
    fn leave_directory(&self) -> bool {
        // Acquire: pairs with the release in `Seat::replace()`.
        self.status.cmpxchg(UNSEATED, REMOVED, Acquire).is_ok()
    }

    /// Undoes [`Block::leave_directory`].
    fn return_to_directory(&self) {
        // Release: as in `Seat::replace()`.
        let _ = self.status.cmpxchg(REMOVED, UNSEATED, Release);
    }
}
