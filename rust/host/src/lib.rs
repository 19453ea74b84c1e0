// SPDX-License-Identifier: GPL-2.0

//! The allocator on the build host: the unchanged modules of the kernel on stand-ins of the bindings. The
//! KUnit tests of these modules run here in a second.
//!
//! The stand-ins are [`maple`] with [`runs`], [`grace`], [`lock`], [`mm`] and [`cpu`] here, and the stand-in kernel crate.
//! rust/explore builds this crate with `cfg(explore)`, and has CPUs, locks and tests of its own.

#![allow(dead_code, reason = "functions for C have no caller here")]

#[path = "../../area.rs"]
mod area;
#[forbid(unsafe_code)]
#[path = "../../bits.rs"]
mod bits;
#[forbid(unsafe_code)]
#[path = "../../block.rs"]
mod block;
#[forbid(unsafe_code)]
#[path = "../../blocks.rs"]
mod blocks;
#[forbid(unsafe_code)]
#[path = "../../cache.rs"]
mod cache;
#[cfg_attr(explore, path = "../../explore/src/cpu.rs")]
mod cpu;
#[path = "../../dir.rs"]
mod dir;
#[forbid(unsafe_code)]
#[path = "../../fit.rs"]
mod fit;
#[forbid(unsafe_code)]
#[path = "../../flush.rs"]
mod flush;
mod grace;
#[forbid(unsafe_code)]
#[path = "../../lazy.rs"]
mod lazy;
mod lock;
mod maple;
mod mm;
#[forbid(unsafe_code)]
#[path = "../../model.rs"]
mod model;
#[path = "../../objects.rs"]
mod objects;
#[forbid(unsafe_code)]
#[path = "../../per_cpu.rs"]
mod per_cpu;
#[forbid(unsafe_code)]
#[path = "../../percpu.rs"]
mod percpu;
#[path = "../../pins.rs"]
mod pins;
#[forbid(unsafe_code)]
#[path = "../../range.rs"]
mod range;
mod runs;
#[forbid(unsafe_code)]
#[path = "../../space.rs"]
mod space;
#[forbid(unsafe_code)]
#[path = "../../stats.rs"]
mod stats;
#[path = "../../table.rs"]
mod table;
#[cfg(all(test, not(explore)))]
#[path = "../../tests.rs"]
mod tests;
#[forbid(unsafe_code)]
#[path = "../../trace.rs"]
mod trace;

#[cfg(all(test, not(explore)))]
mod bitmaps;
#[cfg(all(test, not(explore)))]
mod capacity;
#[cfg(all(test, explore))]
#[path = "../../explore/src/explore.rs"]
mod explore;
#[cfg(all(test, not(explore)))]
mod leaks;
#[cfg(all(test, not(explore)))]
mod one_block;
#[cfg(all(test, not(explore)))]
mod paths;
#[cfg(all(test, not(explore)))]
mod pool;
#[cfg(all(test, not(explore)))]
mod threads;

/// Runs a trace of the given steps on the allocator and the model. Returns the first difference as an error.
///
/// `blocks` limits the total size of blocks, in fine blocks.
pub fn replay(steps: &[[u16; 10]], blocks: usize) -> Result<(), String> {
    match trace::replay(steps, blocks) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(difference)) => Err(difference.to_string()),
        Err(err) => Err(format!("{err:?}")),
    }
}
