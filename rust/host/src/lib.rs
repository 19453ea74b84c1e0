// SPDX-License-Identifier: GPL-2.0

//! The allocator on the build host: the unchanged modules of the kernel on stand-ins of the bindings. The
//! KUnit tests of these modules run here in a second.
//!
//! The stand-ins are [`sys`] with [`runs`] and [`cpu`] here, and the stand-in kernel crate. rust/explore takes the stand-ins, and
//! has CPUs, locks and tests of its own.

#![allow(dead_code, reason = "functions for C have no caller here")]

#[path = "../../base/mod.rs"]
mod base;
mod check;
mod cpu;
#[forbid(unsafe_code)]
#[path = "../../policy/mod.rs"]
mod policy;
mod runs;
#[path = "../../state/mod.rs"]
mod state;
mod sys;

#[cfg(test)]
mod capacity;
#[cfg(test)]
mod drains;
#[cfg(test)]
mod gaps;
#[cfg(test)]
mod growth;
#[cfg(test)]
mod kasan;
#[cfg(test)]
mod leaks;
#[cfg(test)]
mod load;
#[cfg(test)]
mod model;
#[cfg(test)]
mod one_block;
#[cfg(test)]
mod other_cpus;
#[cfg(test)]
mod places;
#[cfg(test)]
mod prelude;
#[cfg(test)]
mod refills;
#[cfg(doctest)]
mod refusals;
#[cfg(test)]
mod seats;
#[cfg(test)]
mod sets;
#[cfg(test)]
mod stale;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod threads;
#[cfg(test)]
mod two_spaces;
#[cfg(test)]
mod windows;

/// Runs a trace of the given steps on the allocator and its record. Returns the first difference as an error, or panics
/// if the checker finds it.
///
/// `blocks` limits the total size of blocks, in blocks of the smallest size.
pub fn replay(steps: &[[u16; 10]], blocks: usize) -> Result<(), String> {
    match check::trace::replay(steps, blocks) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(difference)) => Err(difference.to_string()),
        Err(err) => Err(format!("{err:?}")),
    }
}
