// SPDX-License-Identifier: GPL-2.0

//! Those of the kernel's checks that need no kernel.

#[forbid(unsafe_code)]
#[path = "../../../check/fixtures.rs"]
pub(crate) mod fixtures;
#[forbid(unsafe_code)]
#[path = "../../../check/model.rs"]
pub(crate) mod model;
#[cfg(all(test, not(explore)))]
#[path = "../../../check/tests/mod.rs"]
mod tests;
#[forbid(unsafe_code)]
#[path = "../../../check/trace.rs"]
pub(crate) mod trace;
#[forbid(unsafe_code)]
#[path = "../../../check/trace_steps.rs"]
mod trace_steps;
