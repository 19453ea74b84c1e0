// SPDX-License-Identifier: GPL-2.0

//! Stand-ins of the bindings.

#[forbid(unsafe_code)]
#[path = "../../../sys/compat.rs"]
pub(crate) mod compat;
#[path = "../../../sys/grace.rs"]
pub(crate) mod grace;
pub(crate) mod lock;
#[cfg_attr(c_maple, path = "../../../sys/maple.rs")]
pub(crate) mod maple;
pub(crate) mod mm;
#[forbid(unsafe_code)]
#[path = "../../../sys/per_cpu.rs"]
pub(crate) mod per_cpu;
/// To compare the maple tree with its stand-in.
#[cfg(all(test, c_maple))]
#[path = "maple.rs"]
pub(crate) mod stand_in;
#[path = "../../../sys/trace.rs"]
pub(crate) mod trace;
