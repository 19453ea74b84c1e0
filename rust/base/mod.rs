// SPDX-License-Identifier: GPL-2.0

//! Values and searches that know nothing of the kernel: addresses, gaps, bitmaps, counters, text.

pub(crate) mod cpu;
pub(crate) mod fit;
pub(crate) mod line;
pub(crate) mod map;
pub(crate) mod prelude;
pub(crate) mod range;
pub(crate) mod stats;
