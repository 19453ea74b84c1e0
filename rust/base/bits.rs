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

/// The number of a bit in a map.
///
/// # Invariants
///
/// It is below [`UNITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct Bit(usize);

impl Bit {
    /// Returns bit `number`; [`None`] if a map has fewer bits.
    #[inline(always)]
    pub(crate) const fn new(number: usize) -> Option<Self> {
        if number < UNITS {
            // INVARIANT: Just checked.
            Some(Self(number))
        } else {
            None
        }
    }

    /// Returns the bit for `number` in a row of maps, of which each begins where the one before ends.
    #[inline(always)]
    pub(crate) const fn in_row(number: usize) -> Self {
        // INVARIANT: A remainder is below the divisor.
        Self(number % UNITS)
    }

    /// Returns bit `bit`, below [`BITS`], of word `index`, below [`WORDS`].
    #[inline(always)]
    const fn in_word(index: usize, bit: usize) -> Self {
        // INVARIANT: A map has no other words, and they have no other bits.
        Self(index.wrapping_mul(BITS) | bit)
    }

    /// Returns all bits in ascending order.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        // INVARIANT: Each is below the end of the range.
        (0..UNITS).map(Self)
    }

    /// Returns the number of the bit, which is below [`UNITS`].
    #[inline(always)]
    pub(crate) const fn number(self) -> usize {
        self.0
    }

    /// Returns the number of the word that has the bit. The remainder costs nothing, and shows the compiler that it
    /// is below [`WORDS`], so that no check remains.
    #[inline(always)]
    const fn word(self) -> usize {
        self.0 / BITS % WORDS
    }

    /// Returns the mask of the bit in its word.
    #[inline(always)]
    const fn mask(self) -> usize {
        1 << (self.0 % BITS)
    }
}

/// A run of bits.
///
/// # Invariants
///
/// All of them are in a map: the run ends at [`UNITS`] or below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    first: Bit,
    len: usize,
}

impl Run {
    /// All bits of a map.
    pub(crate) const ALL: Self = Self {
        // INVARIANT: It ends at `UNITS`.
        first: Bit(0),
        len: UNITS,
    };

    /// Returns the run of `len` bits from `first` on; [`None`] if a map has fewer bits.
    #[inline(always)]
    pub(crate) const fn new(first: Bit, len: usize) -> Option<Self> {
        // By the invariants of `first`, this does not wrap.
        if len <= UNITS.wrapping_sub(first.0) {
            // INVARIANT: Just checked.
            Some(Self { first, len })
        } else {
            None
        }
    }

    /// Returns the first bit, or the one behind an empty run.
    pub(crate) const fn first(self) -> Bit {
        self.first
    }

    /// Returns the number of bits.
    pub(crate) const fn len(self) -> usize {
        self.len
    }
}

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

/// Calls `what` for each word that holds some of the bits of `run`, with the index of the word, which is below
/// [`WORDS`], and a mask of these bits, until it returns false. Returns whether it never did.
#[inline(always)]
fn each_word(run: Run, mut what: impl FnMut(usize, usize) -> bool) -> bool {
    let mut word = run.first.word();
    let mut bit = run.first.0 % BITS;
    let mut rest = run.len;
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
        // By the invariants of the run, the remainder changes nothing. No check of the index remains.
        word = word.wrapping_add(1) % WORDS;
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
pub(crate) fn find_run(words: &Words, len: usize, align: u32) -> Option<Run> {
    let step = 1_usize.checked_shl(align)?;
    let mut from = 0;
    loop {
        let first = next_set(words, from)?.0.checked_next_multiple_of(step)?;
        let run = Run::new(Bit::new(first)?, len)?;
        match last_clear(words, run) {
            None => return Some(run),
            // No run contains this bit.
            Some(clear) => from = clear.0.wrapping_add(1),
        }
    }
}

/// Returns the highest clear bit of `run`.
fn last_clear(words: &Words, run: Run) -> Option<Bit> {
    let mut found = None;
    each_word(run, |index, mask| {
        let clear = !words[index] & mask;
        if clear != 0 {
            found = Some(highest(index, clear));
        }
        true
    });
    found
}

/// Returns the number in the map of the lowest set bit of `word`, the word at `index`, which is not 0.
#[inline(always)]
fn lowest(index: usize, word: usize) -> Bit {
    // CAST: A number of bits fits in a `usize`.
    Bit::in_word(index, word.trailing_zeros() as usize)
}

/// Returns the number in the map of the highest set bit of `word`, the word at `index`, which is not 0.
#[inline(always)]
fn highest(index: usize, word: usize) -> Bit {
    // CAST: A number of bits fits in a `usize`.
    Bit::in_word(index, word.checked_ilog2().unwrap_or(0) as usize)
}

/// Returns the lowest set bit at or above `from`.
pub(crate) fn next_set(words: &Words, from: usize) -> Option<Bit> {
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
pub(crate) fn has(words: &Words, bit: Bit) -> bool {
    words[bit.word()] & bit.mask() != 0
}

/// Returns the highest set bit.
pub(crate) fn last_set(words: &Words) -> Option<Bit> {
    let index = words.iter().rposition(|&word| word != 0)?;
    Some(highest(index, *words.get(index)?))
}

/// Iterates over the set bits in ascending order.
pub(crate) fn set_bits(words: &Words) -> impl Iterator<Item = Bit> + '_ {
    let mut from = 0;
    core::iter::from_fn(move || {
        let bit = next_set(words, from)?;
        from = bit.number().wrapping_add(1);
        Some(bit)
    })
}

/// Iterates over the runs of set bits in ascending order.
pub(crate) fn runs(words: &Words) -> impl Iterator<Item = Run> + '_ {
    let clear = words.map(|word| !word);
    let mut from = 0;
    core::iter::from_fn(move || {
        let first = next_set(words, from)?;
        from = next_set(&clear, first.0).map_or(UNITS, Bit::number);
        Run::new(first, from.wrapping_sub(first.0))
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

/// Returns a map in which only the bits of `run` are set.
pub(crate) fn run_at(run: Run) -> Words {
    let mut words = [0; WORDS];
    each_word(run, |index, mask| {
        words[index] = mask;
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

    /// Returns the word that has `bit`.
    #[inline(always)]
    fn word(&self, bit: Bit) -> &Atomic<usize> {
        &self.0[bit.word()]
    }

    /// Reads all words, each at some time during the call.
    pub(crate) fn words(&self) -> Words {
        // Relaxed: only a hint; a claim reads the word again.
        self.0.each_ref().map(|word| word.load(Relaxed))
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
    ) -> Option<Bit> {
        if len <= BITS && align <= BITS.ilog2() {
            let mut index = hint.load(Relaxed);
            while let Some(word) = self.0.get(index) {
                let mut old = word.load(Relaxed);
                while let Some(bit) = run_in_word(old, len, align) {
                    // Acquire: pairs with the release in `set()`, which made the bits free.
                    match word.cmpxchg(old, old & !mask(bit, len), Acquire) {
                        Ok(_) => return Some(Bit::in_word(index, bit)),
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
    pub(crate) fn claim_near(&self, len: usize, align: u32, near: Bit) -> Option<Bit> {
        if len > BITS || align > BITS.ilog2() {
            return None;
        }
        let above = mask(near.0 % BITS, BITS);
        for step in 0..WORDS {
            let index = near.word().wrapping_add(step) % WORDS;
            let word = &self.0[index];
            let mut old = word.load(Relaxed);
            while let Some(bit) =
                run_in_word(old & above, len, align).or_else(|| run_in_word(old, len, align))
            {
                // Acquire: pairs with the release in `set()`, which made the bits free.
                match word.cmpxchg(old, old & !mask(bit, len), Acquire) {
                    Ok(_) => return Some(Bit::in_word(index, bit)),
                    Err(now) => old = now,
                }
            }
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn claim_across_words(&self, len: usize, align: u32) -> Option<Bit> {
        for _ in 0..MAX_TRIES {
            let run = find_run(&self.words(), len, align)?;
            if self.claim_at(run) {
                return Some(run.first);
            }
        }
        None
    }

    /// Claims (clears) the bits of `run` if all of them are set. Returns whether it did.
    pub(crate) fn claim_at(&self, run: Run) -> bool {
        let mut done = 0_usize;
        let ok = each_word(run, |index, mask| {
            let ok = Self::claim_in_word(&self.0[index], mask);
            if ok {
                // CAST: A number of bits fits in a `usize`.
                done = done.saturating_add(mask.count_ones() as usize);
            }
            ok
        });
        if !ok && done > 0 {
            // INVARIANT: It is a part of `run`.
            self.set(Run { len: done, ..run });
        }
        ok
    }

    fn claim_in_word(word: &Atomic<usize>, mask: usize) -> bool {
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

    /// Sets the bits of `run`, which are clear and owned by the caller.
    pub(crate) fn set(&self, run: Run) {
        each_word(run, |index, mask| {
            // Release: the caller's use of the pages comes before the next claim of the bits.
            self.0[index].fetch_add(mask, Release);
            true
        });
    }

    /// Sets the bits of `run`, which are clear and owned by the caller; a full barrier.
    #[inline(always)]
    pub(crate) fn set_and_fence(&self, run: Run) {
        each_word(run, |index, mask| {
            self.0[index].fetch_add(mask, Full);
            true
        });
    }

    /// Sets one bit, which is clear and owned by the caller. Orders nothing.
    pub(crate) fn set_bit(&self, bit: Bit) {
        self.word(bit).add(bit.mask(), Relaxed);
    }

    /// Clears one bit, which is set and owned by the caller. Orders nothing.
    pub(crate) fn clear_bit(&self, bit: Bit) {
        self.word(bit).fetch_sub(bit.mask(), Relaxed);
    }

    /// Returns whether the bit is set.
    pub(crate) fn has(&self, bit: Bit) -> bool {
        // Relaxed: the caller provides the ordering.
        self.word(bit).load(Relaxed) & bit.mask() != 0
    }

    /// Sets one bit, which other CPUs may set concurrently.
    pub(crate) fn insert(&self, bit: Bit) {
        let (word, mask) = (self.word(bit), bit.mask());
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
    pub(crate) fn remove_and_fence(&self, bit: Bit) {
        let (word, mask) = (self.word(bit), bit.mask());
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
        self.0.each_ref().map(|word| {
            // Most words are 0: skip the exchange.
            // Full: ordered after the writers of the bits and before the caller's next access.
            match word.load(Relaxed) {
                0 => 0,
                _ => word.xchg(0, Full),
            }
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
