// SPDX-License-Identifier: GPL-2.0

//! Bitmaps that several CPUs change concurrently: of the slots of a block, and of the entries and parts of a directory.
//!
//! A CPU that claims a bit is its only writer then, and knows its value. So it can set a clear bit by an addition, without
//! a carry into other bits: `kernel::sync::atomic` has no `fetch_or()`, and a loop with `cmpxchg()` may have to try again.

use super::prelude::*;

/// Bits in a word.
// CAST: A number of bits fits in a `usize`.
pub(crate) const BITS: usize = usize::BITS as usize;

/// Bits in a map: the most slots in a block.
pub(crate) const MAP_BITS: usize = 512;

/// Words in a map.
pub(crate) const WORDS: usize = MAP_BITS / BITS;

/// A snapshot of a map, read word by word.
pub(crate) type Words = [usize; WORDS];

/// The number of a bit in a map.
///
/// # Invariants
///
/// It is below [`MAP_BITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct Bit(usize);

impl Bit {
    /// Returns the bit for `number` in a row of maps, of which each begins where the one before ends.
    #[inline(always)]
    pub(crate) const fn in_row(number: usize) -> Self {
        // INVARIANT: A remainder is below the divisor.
        Self(number % MAP_BITS)
    }

    #[inline(always)]
    pub(crate) const fn number(self) -> usize {
        self.0
    }

    /// Returns the number of the word that has the bit. The remainder costs nothing, and shows the compiler that it
    /// is below [`WORDS`], so that no check remains.
    #[inline(always)]
    pub(crate) const fn word(self) -> usize {
        self.0 / BITS % WORDS
    }

    #[inline(always)]
    pub(crate) const fn in_word(self) -> usize {
        self.0 % BITS
    }

    #[inline(always)]
    pub(crate) const fn mask(self) -> usize {
        1 << self.in_word()
    }

    /// Returns the lowest bit of `word`, the word at `index`; [`None`] if it has none.
    #[inline(always)]
    fn lowest(index: usize, word: usize) -> Option<Self> {
        // CAST: A number of bits fits in a `usize`.
        (word != 0).then(|| Self::in_row(index.wrapping_mul(BITS) | word.trailing_zeros() as usize))
    }
}

/// Returns a map in which only the bits below `count` are set.
#[inline(never)]
pub(crate) fn first(count: usize) -> Words {
    core::array::from_fn(|index| word_of_first(count, index))
}

/// Returns the word at `index` of [`first`].
#[inline(always)]
fn word_of_first(count: usize, index: usize) -> usize {
    match count.saturating_sub(index.wrapping_mul(BITS)) {
        BITS.. => usize::MAX,
        rest => (1_usize << rest).wrapping_sub(1),
    }
}

#[inline(always)]
pub(crate) fn has(words: &Words, bit: Bit) -> bool {
    words[bit.word()] & bit.mask() != 0
}

#[inline(never)]
pub(crate) fn weight(words: &Words) -> usize {
    // Most words are 0, and to count bits takes a dozen instructions.
    let used = words.iter().filter(|&&word| word != 0);
    // CAST: A number of bits fits in a `usize`.
    used.fold(0, |sum, word| sum.wrapping_add(word.count_ones() as usize))
}

/// Returns the lowest bit at or above `from` that is set in the words that `word` returns.
#[inline(always)]
fn next_in(word: impl Fn(usize) -> usize, from: usize) -> Option<Bit> {
    let mut mask = usize::MAX << (from % BITS);
    for index in from / BITS..WORDS {
        let bit = Bit::lowest(index, word(index) & mask);
        if bit.is_some() {
            return bit;
        }
        mask = usize::MAX;
    }
    None
}

/// Returns the lowest set bit at or above `from`.
pub(crate) fn next_set(words: &Words, from: usize) -> Option<Bit> {
    next_in(|index| words[index], from)
}

/// Returns the lowest bit at or above `from` that is set in one of the maps.
pub(crate) fn next_set_in(maps: [&Map; 2], from: usize) -> Option<Bit> {
    // Relaxed: as in `Map::words()`.
    let word = |map: &Map, index: usize| map.0[index].read_once();
    let [one, other] = maps;
    next_in(|index| word(one, index) | word(other, index), from)
}

pub(crate) fn last_set(words: &Words) -> Option<Bit> {
    let index = words.iter().rposition(|&word| word != 0)?;
    // CAST: A number of bits fits in a `usize`.
    let bit = words[index].checked_ilog2()? as usize;
    Some(Bit::in_row(index.wrapping_mul(BITS) | bit))
}

/// Iterates over the set bits in ascending order.
pub(crate) fn set_bits(mut words: Words) -> impl Iterator<Item = Bit> {
    let mut index = 0_usize;
    core::iter::from_fn(move || loop {
        let left = words.get_mut(index)?;
        let bit = Bit::lowest(index, *left);
        if bit.is_some() {
            *left &= left.wrapping_sub(1);
            return bit;
        }
        index = index.wrapping_add(1);
    })
}

/// Iterates over the runs of set bits in ascending order: the first bit and the number of bits of each.
pub(crate) fn runs(words: &Words) -> impl Iterator<Item = (Bit, usize)> + '_ {
    let clear = words.map(|word| !word);
    let mut from = 0;
    core::iter::from_fn(move || {
        let first = next_set(words, from)?;
        from = next_set(&clear, first.0).map_or(MAP_BITS, Bit::number);
        Some((first, from.wrapping_sub(first.0)))
    })
}

/// Claims (clears) the bits of `word` if they are exactly `bits`. Returns those that it claimed: all or none.
#[inline(never)]
fn take_word(word: &Atomic<usize>, bits: usize) -> usize {
    if bits == 0 {
        return 0;
    }
    // Acquire: as in `Map::claim()`.
    word.cmpxchg(bits, 0, Acquire).unwrap_or_default()
}

/// A bitmap of [`MAP_BITS`] bits, aligned to its size, 64 bytes: a cache line of most machines.
#[repr(align(64))]
pub(crate) struct Map([Atomic<usize>; WORDS]);

impl Map {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| Atomic::new(0)))
    }

    #[inline(always)]
    fn word(&self, bit: Bit) -> &Atomic<usize> {
        &self.0[bit.word()]
    }

    /// Reads all words, each at some time during the call.
    pub(crate) fn words(&self) -> Words {
        // Relaxed: a claim reads the word again. A purge sees the bits of all that was retired before it began, by coherence, as
        // that happens before it. Only the purge that reads `flushing` writes it.
        self.0.each_ref().map(|word| word.read_once())
    }

    #[inline(always)]
    pub(crate) fn has(&self, bit: Bit) -> bool {
        // Relaxed: the caller provides the ordering.
        self.word(bit).read_once() & bit.mask() != 0
    }

    /// As [`Map::has`]. Who sees the bit sees what was done before [`Map::insert`] set it.
    #[inline(always)]
    pub(crate) fn has_acquire(&self, bit: Bit) -> bool {
        // Acquire: pairs with the release in `insert()`.
        self.word(bit).load(Acquire) & bit.mask() != 0
    }

    /// Returns the lowest clear bit at or above `from`.
    pub(crate) fn next_clear(&self, from: usize) -> Option<Bit> {
        // Relaxed: as in `words()`.
        next_in(|index| !self.0[index].read_once(), from)
    }

    pub(crate) fn is_clear(&self) -> bool {
        // Relaxed: as in `words()`. Mostly all words are 0, so there is no branch for each.
        self.0.iter().fold(0, |all, word| all | word.read_once()) == 0
    }

    /// Returns whether the bits below `count` are set, and no others.
    pub(crate) fn is_first(&self, count: usize) -> bool {
        let mut words = self.0.iter().enumerate();
        // Relaxed: as in `words()`.
        words.all(|(index, word)| word.read_once() == word_of_first(count, index))
    }

    /// Claims (clears) the lowest set bit.
    #[inline(always)]
    pub(crate) fn claim(&self) -> Option<Bit> {
        loop {
            // Relaxed: the exchange reads it again.
            let mut words = self.0.iter().map(|word| word.read_once()).enumerate();
            let (index, old) = words.find(|&(_, word)| word != 0)?;
            let bit = Bit::lowest(index, old)?;
            // Acquire: pairs with the release in `set()` and `set_words()`, which made the bit free.
            let claimed = self.word(bit).cmpxchg(old, old & !bit.mask(), Acquire);
            if claimed.is_ok() {
                return Some(bit);
            }
        }
    }

    /// Claims (clears) a bit if it is set. Returns whether it was.
    pub(crate) fn claim_bit(&self, bit: Bit) -> bool {
        let word = self.word(bit);
        // Relaxed: the exchange reads it again.
        let mut old = word.read_once();
        while old & bit.mask() != 0 {
            // Acquire: as in `claim()`.
            match word.cmpxchg(old, old & !bit.mask(), Acquire) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Claims (clears) a set bit: the lowest one at or above `near` in its word, or else in the words behind, the first
    /// ones included.
    pub(crate) fn claim_near(&self, near: Bit) -> Option<Bit> {
        let above = usize::MAX << near.in_word();
        for step in 0..=WORDS {
            let index = near.word().wrapping_add(step) % WORDS;
            let word = &self.0[index];
            // Relaxed: the exchange reads it again.
            let mut old = word.read_once();
            let mask = if step == 0 { above } else { usize::MAX };
            while let Some(bit) = Bit::lowest(index, old & mask) {
                // Acquire: as in `claim()`.
                match word.cmpxchg(old, old & !bit.mask(), Acquire) {
                    Ok(_) => return Some(bit),
                    Err(now) => old = now,
                }
            }
        }
        None
    }

    /// Claims (clears) all bits of `all` if they are all the map has, and all of them are set. Returns whether it did.
    pub(crate) fn claim_all(&self, all: &Words) -> bool {
        let mut claimed = [0; WORDS];
        let mut words = self.0.iter().zip(all).zip(&mut claimed);
        let is_all = words.all(|((word, &want), claimed)| {
            *claimed = take_word(word, want);
            *claimed == want
        });
        if !is_all {
            self.set_words(&claimed);
        }
        is_all
    }

    /// Sets one bit, which is clear and owned by the caller.
    pub(crate) fn set(&self, bit: Bit) {
        // Release: the caller's use of what the bit stands for comes before the next claim.
        self.word(bit).fetch_add(bit.mask(), Release);
    }

    /// Sets bits of the word that has `bit`, which are clear and owned by the caller; a full barrier.
    #[inline(always)]
    pub(crate) fn set_and_fence(&self, bit: Bit, mask: usize) {
        self.word(bit).fetch_add(mask, Full);
    }

    /// Sets the bits of `words`, which are clear and owned by the caller.
    pub(crate) fn set_words(&self, words: &Words) {
        for (word, &bits) in self.0.iter().zip(words) {
            if bits != 0 {
                // Release: as in `set()`.
                word.fetch_add(bits, Release);
            }
        }
    }

    /// Clears all bits and returns those that were set.
    pub(crate) fn take(&self) -> Words {
        self.0.each_ref().map(|word| {
            // Most words are 0: skip the exchange.
            // Full: ordered after the writers of the bits and before the caller's next access.
            match word.read_once() {
                0 => 0,
                _ => word.xchg(0, Full),
            }
        })
    }

    /// Sets one bit unless it is set. The caller holds a lock without which nobody changes the map.
    pub(crate) fn insert(&self, bit: Bit) {
        if !self.has(bit) {
            // The release is for those who read the map without the lock.
            self.set(bit);
        }
    }
}
