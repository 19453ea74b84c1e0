// SPDX-License-Identifier: GPL-2.0

//! Random numbers that a seed repeats.

/// A small pseudo-random number generator: xorshift64*. The seed determines all numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator with `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        // A state of zero would remain zero.
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // CAST: A 32-bit word keeps the low half, which avoids a 64-bit division there.
        self.next() as usize % bound
    }
}
