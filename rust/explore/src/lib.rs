// SPDX-License-Identifier: GPL-2.0

//! The allocator under a scheduler: its modules on the stand-ins of rust/host, with CPUs and locks of the scheduler.

#![allow(dead_code, reason = "only the tests in `explore` run here")]

#[path = "../../base/mod.rs"]
mod base;
#[path = "../../host/src/check/mod.rs"]
mod check;
mod cpu;
#[cfg(test)]
mod explore;
#[cfg(test)]
#[path = "../../host/src/load.rs"]
mod load;
#[forbid(unsafe_code)]
#[path = "../../policy/mod.rs"]
mod policy;
#[path = "../../host/src/runs.rs"]
mod runs;
#[path = "../../state/mod.rs"]
mod state;
#[path = "../../host/src/sys/mod.rs"]
mod sys;
