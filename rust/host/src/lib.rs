// SPDX-License-Identifier: GPL-2.0

//! The allocator on the build host: the unchanged modules of the kernel on stand-ins of the bindings. The
//! KUnit tests of these modules run here in a second.
//!
//! The stand-ins are [`sys`] with [`runs`] and [`cpu`] here, and the stand-in kernel crate. If `VMAP_RUST_TREE` names a kernel
//! tree, `sys::maple` is the binding of the kernel, on lib/maple_tree.c of that tree.
//! rust/explore builds this crate with `cfg(explore)`, and has CPUs, locks and tests of its own.

#![allow(dead_code, reason = "functions for C have no caller here")]

#[forbid(unsafe_code)]
#[path = "../../base/mod.rs"]
mod base;
mod check;
#[cfg_attr(explore, path = "../../explore/src/cpu.rs")]
mod cpu;
#[forbid(unsafe_code)]
#[path = "../../policy/mod.rs"]
mod policy;
mod runs;
#[path = "../../state/mod.rs"]
mod state;
mod sys;

#[cfg(all(test, not(explore)))]
mod bitmaps;
#[cfg(all(test, not(explore)))]
#[path = "../../debug/callers.rs"]
mod callers;
#[cfg(all(test, not(explore)))]
mod capacity;
#[cfg(all(test, not(explore)))]
mod drains;
#[cfg(all(test, explore))]
#[path = "../../explore/src/explore.rs"]
mod explore;
#[cfg(all(test, not(explore)))]
mod gaps;
#[cfg(all(test, not(explore)))]
mod growth;
#[cfg(all(test, not(explore)))]
mod kasan;
#[cfg(all(test, not(explore)))]
mod leaks;
#[cfg(not(explore))]
mod listings;
#[cfg(test)]
mod load;
#[cfg(all(test, not(explore)))]
mod one_block;
#[cfg(all(test, not(explore)))]
mod other_cpus;
#[cfg(all(test, not(explore)))]
mod places;
#[cfg(all(test, not(explore)))]
mod pool;
#[cfg(all(test, not(explore)))]
mod refills;
#[cfg(all(doctest, not(explore)))]
mod refusals;
#[cfg(all(test, not(explore)))]
mod seats;
#[cfg(all(test, not(explore)))]
mod sets;
#[cfg(all(test, not(explore)))]
mod spaces;
#[cfg(all(test, not(explore)))]
mod stale;
#[cfg(all(test, not(explore)))]
mod threads;
#[cfg(all(test, c_maple))]
mod trees;

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

/// Serves the areas of `boot`, the text of a /proc/vmallocinfo, `copies` times on 64 CPUs in `gib` GiB of space, and
/// frees half of them. Returns the text of the file `map` of debugfs, and of /proc/vmallocinfo. Fails if `boot` has no
/// areas.
#[cfg(not(explore))]
pub fn large_system(boot: &str, copies: usize, gib: usize) -> Result<(String, String), String> {
    listings::large(boot, copies, gib)
}
