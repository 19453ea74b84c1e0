// SPDX-License-Identifier: GPL-2.0

//! Bitmaps of the units of a block, which several CPUs change concurrently.
//!
//! A CPU claims bits by compare-exchange. It is then their only writer and knows their values. So it can set
//! clear bits by an addition, and clear set bits by a subtraction: there is no carry into other bits.

use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// Bits in a word.
// CAST: A number of bits fits in a `usize`.
pub(crate) const BITS: usize = usize::BITS as usize;

/// Bits in a map: units in a block.
pub(crate) const UNITS: usize = 512;

/// Words in a map.
pub(crate) const WORDS: usize = UNITS / BITS;

/// Attempts to claim bits in several words while other CPUs claim them, too.
const MAX_TRIES: usize = 4;

/// A snapshot of a map, read word by word.
pub(crate) type Words = [usize; WORDS];

/// Returns a mask of bits `first` to `first + len - 1`, cut off at the end of the word. `first` is below
/// [`BITS`].
const fn mask(first: usize, len: usize) -> usize {
    let bits = if len >= BITS {
        usize::MAX
    } else {
        (1 << len) - 1
    };
    // CAST: Both are below the number of bits.
    bits.wrapping_shl(first as u32)
}

/// Calls `what` for each word that holds some of bits `first` to `first + len - 1`, with the index of the
/// word and a mask of these bits, until it returns false. Returns whether it never did.
#[inline(always)]
fn each_word(first: usize, len: usize, mut what: impl FnMut(usize, usize) -> bool) -> bool {
    let mut word = first / BITS;
    let mut bit = first % BITS;
    let mut rest = len;
    loop {
        let here = BITS.wrapping_sub(bit);
        if rest <= here {
            // Most runs are within one word.
            return what(word, mask(bit, rest));
        }
        if !what(word, mask(bit, here)) {
            return false;
        }
        rest = rest.wrapping_sub(here);
        word = word.wrapping_add(1);
        bit = 0;
    }
}

/// For each `align` below the size of a word, a mask of the bits that are multiples of `1 << align`.
const ALIGNED: [usize; 6] = [
    usize::MAX,
    usize::MAX / 0x3,
    usize::MAX / 0xf,
    usize::MAX / 0xff,
    usize::MAX / 0xffff,
    // Two bits in a 64-bit word, one in a 32-bit word.
    (usize::MAX / 2 + 1) >> 31 | 1,
];

/// Returns the first bit of the lowest run of `len` set bits in `word` that starts at a multiple of
/// `1 << align`. Neither `len` nor `1 << align` exceeds a word.
#[inline(always)]
pub(super) fn run_in_word(word: usize, len: usize, align: u32) -> Option<usize> {
    // After this loop a bit is set if it and the `len - 1` bits above it were set.
    let mut starts = word;
    let mut have = 1;
    while have < len {
        let step = have.min(len.wrapping_sub(have));
        // CAST: At most half of the number of bits.
        starts &= starts.wrapping_shr(step as u32);
        have = have.wrapping_add(step);
    }
    // CAST: An alignment fits in a `usize`.
    starts &= ALIGNED.get(align as usize).copied().unwrap_or(1);
    // CAST: A number of bits fits in a `usize`.
    (starts != 0).then(|| starts.trailing_zeros() as usize)
}

/// Returns the first bit of the lowest run of `len` set bits that starts at a multiple of `1 << align`.
pub(crate) fn find_run(words: &Words, len: usize, align: u32) -> Option<usize> {
    let step = 1_usize.checked_shl(align)?;
    let mut first = 0;
    loop {
        first = next_set(words, first)?.checked_next_multiple_of(step)?;
        if first.checked_add(len)? > UNITS {
            return None;
        }
        match last_clear(words, first, len) {
            None => return Some(first),
            // No run contains this bit.
            Some(clear) => first = clear.saturating_add(1),
        }
    }
}

/// Returns the highest clear bit of `first` to `first + len - 1`.
fn last_clear(words: &Words, first: usize, len: usize) -> Option<usize> {
    let mut found = None;
    each_word(first, len, |index, mask| {
        let clear = !words.get(index).copied().unwrap_or(0) & mask;
        if clear != 0 {
            found = Some(highest(index, clear));
        }
        true
    });
    found
}

/// Returns the number in the map of the lowest set bit of `word`, the word at `index`, which is not 0.
#[inline(always)]
fn lowest(index: usize, word: usize) -> usize {
    // CAST: A number of bits fits in a `usize`.
    index.wrapping_mul(BITS) | word.trailing_zeros() as usize
}

/// Returns the number in the map of the highest set bit of `word`, the word at `index`, which is not 0.
#[inline(always)]
fn highest(index: usize, word: usize) -> usize {
    // CAST: A number of bits fits in a `usize`.
    index.wrapping_mul(BITS) | word.checked_ilog2().unwrap_or(0) as usize
}

/// Returns the lowest set bit at or above `from`.
pub(crate) fn next_set(words: &Words, from: usize) -> Option<usize> {
    let mut index = from / BITS;
    // CAST: Below the number of bits.
    let mut mask = usize::MAX.wrapping_shl((from % BITS) as u32);
    loop {
        let set = words.get(index)? & mask;
        if set != 0 {
            return Some(lowest(index, set));
        }
        index = index.wrapping_add(1);
        mask = usize::MAX;
    }
}

/// Returns whether bit `bit` is set.
pub(crate) fn has(words: &Words, bit: usize) -> bool {
    words
        .get(bit / BITS)
        .is_some_and(|word| word >> (bit % BITS) & 1 == 1)
}

/// Returns the highest set bit.
pub(crate) fn last_set(words: &Words) -> Option<usize> {
    let index = words.iter().rposition(|&word| word != 0)?;
    Some(highest(index, *words.get(index)?))
}

/// Iterates over the set bits in ascending order.
pub(crate) fn set_bits(words: &Words) -> impl Iterator<Item = usize> + '_ {
    let mut from = 0;
    core::iter::from_fn(move || {
        let bit = next_set(words, from)?;
        from = bit.saturating_add(1);
        Some(bit)
    })
}

/// Iterates over the runs of set bits in ascending order, as first bit and length.
pub(crate) fn runs(words: &Words) -> impl Iterator<Item = (usize, usize)> + '_ {
    let clear = words.map(|word| !word);
    let mut from = 0;
    core::iter::from_fn(move || {
        let first = next_set(words, from)?;
        from = next_set(&clear, first).unwrap_or(UNITS);
        Some((first, from.saturating_sub(first)))
    })
}

/// Returns the bits that are set in both.
pub(crate) fn and(a: &Words, b: &Words) -> Words {
    let mut both = *a;
    for (word, other) in both.iter_mut().zip(b) {
        *word &= other;
    }
    both
}

/// Returns the bits that are set in one or both.
pub(crate) fn or(a: &Words, b: &Words) -> Words {
    let mut either = *a;
    for (word, other) in either.iter_mut().zip(b) {
        *word |= other;
    }
    either
}

/// Returns a map in which only the `len` bits from `first` on are set.
pub(crate) fn run_at(first: usize, len: usize) -> Words {
    let mut words = [0; WORDS];
    each_word(first, len, |index, mask| {
        if let Some(word) = words.get_mut(index) {
            *word = mask;
        }
        true
    });
    words
}

/// Returns the number of set bits.
pub(crate) fn weight(words: &Words) -> usize {
    // CAST: A number of bits fits in a `usize`.
    words.iter().map(|word| word.count_ones() as usize).sum()
}

/// A bitmap of [`UNITS`] bits, on a cache line of its own.
#[repr(align(64))]
pub(crate) struct Map([Atomic<usize>; WORDS]);

impl Map {
    /// Creates a map with all bits set or all clear.
    pub(crate) fn new(set: bool) -> Self {
        let word = if set { usize::MAX } else { 0 };
        Self(core::array::from_fn(|_| Atomic::new(word)))
    }

    /// Reads all words, each at some time during the call.
    pub(crate) fn words(&self) -> Words {
        // Relaxed: only a hint; a claim reads the word again.
        core::array::from_fn(|index| self.0.get(index).map_or(0, |word| word.load(Relaxed)))
    }

    /// Claims (clears) a run of `len` set bits that starts at a multiple of `1 << align`. Returns its first
    /// bit. The search starts at word `hint`, which advances when its word has no run of `least` bits.
    #[inline(always)]
    pub(crate) fn claim(
        &self,
        len: usize,
        align: u32,
        least: usize,
        hint: &Atomic<usize>,
    ) -> Option<usize> {
        if len <= BITS && align <= BITS.ilog2() {
            let mut index = hint.load(Relaxed);
            while let Some(word) = self.0.get(index) {
                let mut old = word.load(Relaxed);
                while let Some(bit) = run_in_word(old, len, align) {
                    // Acquire: pairs with the release in `set()`, which made the bits free.
                    match word.cmpxchg(old, old & !mask(bit, len), Acquire) {
                        Ok(_) => return Some(index.wrapping_mul(BITS) | bit),
                        Err(now) => old = now,
                    }
                }
                let next = index.wrapping_add(1);
                if hint.load(Relaxed) == index && run_in_word(old, least, 0).is_none() {
                    hint.store(next, Relaxed);
                }
                index = next;
            }
        }
        self.claim_across_words(len, align)
    }

    /// Claims (clears) a run of `len` set bits within one word that starts at a multiple of `1 << align`.
    /// Returns its first bit.
    ///
    /// The search starts at the word of bit `near` and wraps around; within a word it prefers runs at or
    /// above the position of `near`. Returns [`None`] if no word has such a run.
    pub(crate) fn claim_near(&self, len: usize, align: u32, near: usize) -> Option<usize> {
        if len > BITS || align > BITS.ilog2() {
            return None;
        }
        let above = mask(near % BITS, BITS);
        for step in 0..WORDS {
            let index = (near / BITS).wrapping_add(step) % WORDS;
            let word = self.0.get(index)?;
            let mut old = word.load(Relaxed);
            while let Some(bit) =
                run_in_word(old & above, len, align).or_else(|| run_in_word(old, len, align))
            {
                // Acquire: pairs with the release in `set()`, which made the bits free.
                match word.cmpxchg(old, old & !mask(bit, len), Acquire) {
                    Ok(_) => return Some(index.wrapping_mul(BITS) | bit),
                    Err(now) => old = now,
                }
            }
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn claim_across_words(&self, len: usize, align: u32) -> Option<usize> {
        for _ in 0..MAX_TRIES {
            let first = find_run(&self.words(), len, align)?;
            if self.claim_at(first, len) {
                return Some(first);
            }
        }
        None
    }

    /// Claims (clears) the `len` bits from `first` on if all of them are set. Returns whether it did.
    pub(crate) fn claim_at(&self, first: usize, len: usize) -> bool {
        let mut done = 0_usize;
        let ok = each_word(first, len, |index, mask| {
            let ok = self.claim_in_word(index, mask);
            if ok {
                // CAST: A number of bits fits in a `usize`.
                done = done.saturating_add(mask.count_ones() as usize);
            }
            ok
        });
        if !ok && done > 0 {
            self.set(first, done);
        }
        ok
    }

    fn claim_in_word(&self, index: usize, mask: usize) -> bool {
        let Some(word) = self.0.get(index) else {
            return false;
        };
        let mut old = word.load(Relaxed);
        while old & mask == mask {
            // Acquire: pairs with the release in `set()`, which made the bits free.
            match word.cmpxchg(old, old & !mask, Acquire) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Sets the `len` bits from `first` on, which are clear and owned by the caller.
    pub(crate) fn set(&self, first: usize, len: usize) {
        each_word(first, len, |index, mask| {
            if let Some(word) = self.0.get(index) {
                // Release: the caller's use of the pages comes before the next claim of the bits.
                word.fetch_add(mask, Release);
            }
            true
        });
    }

    /// Sets the `len` bits from `first` on, which are clear and owned by the caller; a full barrier.
    #[inline(always)]
    pub(crate) fn set_and_fence(&self, first: usize, len: usize) {
        each_word(first, len, |index, mask| {
            if let Some(word) = self.0.get(index) {
                word.fetch_add(mask, Full);
            }
            true
        });
    }

    /// Sets one bit, which is clear and owned by the caller. Orders nothing.
    pub(crate) fn set_bit(&self, bit: usize) {
        if let Some(word) = self.0.get(bit / BITS) {
            word.add(1 << (bit % BITS), Relaxed);
        }
    }

    /// Clears one bit, which is set and owned by the caller. Orders nothing.
    pub(crate) fn clear_bit(&self, bit: usize) {
        if let Some(word) = self.0.get(bit / BITS) {
            word.fetch_sub(1 << (bit % BITS), Relaxed);
        }
    }

    /// Returns whether the bit is set.
    pub(crate) fn has(&self, bit: usize) -> bool {
        // Relaxed: the caller provides the ordering.
        let word = self.0.get(bit / BITS).map_or(0, |word| word.load(Relaxed));
        word >> (bit % BITS) & 1 == 1
    }

    /// Sets one bit, which other CPUs may set concurrently.
    pub(crate) fn insert(&self, bit: usize) {
        let Some(word) = self.0.get(bit / BITS) else {
            return;
        };
        let mask = 1 << (bit % BITS);
        let mut old = word.load(Relaxed);
        while old & mask == 0 {
            // Release: the state that the bit announces is written before it.
            match word.cmpxchg(old, old | mask, Release) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Clears one bit, which other CPUs may set concurrently; a full barrier.
    pub(crate) fn remove_and_fence(&self, bit: usize) {
        let Some(word) = self.0.get(bit / BITS) else {
            return;
        };
        let mask = 1 << (bit % BITS);
        let mut old = word.load(Relaxed);
        loop {
            // A failed exchange orders nothing, so exchange also if the bit is clear already.
            match word.cmpxchg(old, old & !mask, Full) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Clears all bits and returns those that were set.
    pub(crate) fn take(&self) -> Words {
        core::array::from_fn(|index| {
            self.0.get(index).map_or(0, |word| {
                // Most words are 0: skip the exchange.
                // Full: ordered after the writers of the bits and before the caller's next access.
                match word.load(Relaxed) {
                    0 => 0,
                    _ => word.xchg(0, Full),
                }
            })
        })
    }

    /// Stores all words of a map that only the caller changes.
    pub(crate) fn store(&self, words: &Words) {
        for (word, &new) in self.0.iter().zip(words) {
            // Relaxed: only the caller depends on the value.
            word.store(new, Relaxed);
        }
    }

    /// Sets the bits of `words`, which are clear and owned by the caller.
    pub(crate) fn set_words(&self, words: &Words) {
        for (word, &bits) in self.0.iter().zip(words) {
            if bits != 0 {
                // Release: the caller's use of the pages comes before the next claim of the bits.
                word.fetch_add(bits, Release);
            }
        }
    }
}
