// SPDX-License-Identifier: GPL-2.0

//! Bits of a bitmap, runs of them, and snapshots of bitmaps: [`crate::base::map`] has the bitmaps that CPUs share.

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
    pub(super) const fn in_word(index: usize, bit: usize) -> Self {
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
    pub(super) const fn word(self) -> usize {
        self.0 / BITS % WORDS
    }

    /// Returns the mask of the bit in its word.
    #[inline(always)]
    pub(super) const fn mask(self) -> usize {
        1 << (self.0 % BITS)
    }
}

/// A run of bits, perhaps an empty one.
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

    /// Returns the first bit; of an empty run, that at which it would begin.
    pub(crate) const fn first(self) -> Bit {
        self.first
    }

    /// Returns the number of bits.
    pub(crate) const fn len(self) -> usize {
        self.len
    }
}

/// A snapshot of a map, read word by word.
pub(crate) type Words = [usize; WORDS];

/// Returns a mask of bits `first` to `first + len - 1`, cut off at the end of the word. `first` is below
/// [`BITS`].
pub(super) const fn mask(first: usize, len: usize) -> usize {
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
pub(super) fn each_word(run: Run, mut what: impl FnMut(usize, usize) -> bool) -> bool {
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
