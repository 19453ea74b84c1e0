// SPDX-License-Identifier: GPL-2.0

//! Values and searches that know nothing of the kernel: addresses, gaps, bitmaps, counters.

pub(crate) mod bits;
pub(crate) mod fit;
pub(crate) mod range;
pub(crate) mod stats;
