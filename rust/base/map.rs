// SPDX-License-Identifier: GPL-2.0

//! Bitmaps of the units of a block, which several CPUs change concurrently.
//!
//! A CPU claims bits by compare-exchange. It is then their only writer and knows their values. So it can set
//! clear bits by an addition, and clear set bits by a subtraction: there is no carry into other bits.

use crate::base::bits::{
    each_word,
    find_run,
    mask,
    run_in_word,
    Bit,
    Run,
    Words,
    BITS,
    WORDS, //
};
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// Attempts to claim bits in several words while other CPUs claim them, too.
const MAX_TRIES: usize = 4;

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

    /// Returns the lowest clear bit at or above number `from`.
    pub(crate) fn next_clear(&self, from: usize) -> Option<Bit> {
        let mut index = from / BITS;
        let mut above = mask(from % BITS, BITS);
        while let Some(word) = self.0.get(index) {
            // Relaxed: only a hint; what owns the bit says more.
            let clear = !word.load(Relaxed) & above;
            if clear != 0 {
                // CAST: A number of bits fits in a `usize`.
                return Some(Bit::in_word(index, clear.trailing_zeros() as usize));
            }
            (index, above) = (index.wrapping_add(1), usize::MAX);
        }
        None
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
        let above = mask(near.number() % BITS, BITS);
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
                return Some(run.first());
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
        if let Some(claimed) = Run::new(run.first(), done).filter(|_| !ok) {
            self.set(claimed);
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
