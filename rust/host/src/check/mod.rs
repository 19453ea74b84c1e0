// SPDX-License-Identifier: GPL-2.0

//! The checks of the kernel, under the same names.

#[forbid(unsafe_code)]
#[path = "../../../check/checked.rs"]
pub(crate) mod checked;
#[forbid(unsafe_code)]
#[path = "../../../check/checker.rs"]
pub(crate) mod checker;
#[forbid(unsafe_code)]
#[path = "../../../check/fixtures.rs"]
pub(crate) mod fixtures;
#[forbid(unsafe_code)]
#[path = "../../../check/random.rs"]
pub(crate) mod random;
#[forbid(unsafe_code)]
#[path = "../../../check/record.rs"]
mod record;
#[cfg(test)]
#[path = "../../../check/tests/mod.rs"]
pub(crate) mod tests;
#[forbid(unsafe_code)]
#[path = "../../../check/trace.rs"]
pub(crate) mod trace;
