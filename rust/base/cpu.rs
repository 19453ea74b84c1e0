// SPDX-License-Identifier: GPL-2.0

//! The number of a CPU, so that it is not mistaken for a count of CPUs, a NUMA node, or the number of something else.

/// The number of a CPU.
///
/// It needs no bound: [`crate::sys::per_cpu::PerCpu`] has a value for any number, and C has no NUMA node for a CPU that
/// does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct CpuNumber(usize);

impl CpuNumber {
    /// Wraps a number.
    #[inline(always)]
    pub(crate) const fn new(number: usize) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[inline(always)]
    pub(crate) const fn number(self) -> usize {
        self.0
    }

    /// Returns the first CPU of its group of `1 << shift` CPUs.
    #[inline(always)]
    pub(crate) const fn first_of_group(self, shift: u32) -> Self {
        Self(self.0.wrapping_shr(shift).wrapping_shl(shift))
    }
}
