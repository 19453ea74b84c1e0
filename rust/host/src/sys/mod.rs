// SPDX-License-Identifier: GPL-2.0

//! Stand-ins of the bindings.

#[path = "../../../sys/grace.rs"]
pub(crate) mod grace;
pub(crate) mod maple;
pub(crate) mod mm;
#[forbid(unsafe_code)]
#[path = "../../../sys/per_cpu.rs"]
pub(crate) mod per_cpu;
#[path = "../../../sys/trace.rs"]
pub(crate) mod trace;
