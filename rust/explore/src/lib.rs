// SPDX-License-Identifier: GPL-2.0

//! The allocator on the host, as in the crate next to this one, with CPUs and locks that a scheduler has in
//! its hands: [`cpu`]. The tests are in `explore.rs`.

#![allow(dead_code, reason = "what only C calls has no caller here")]

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
mod cpu;
#[path = "../../dir.rs"]
mod dir;
#[forbid(unsafe_code)]
#[path = "../../fit.rs"]
mod fit;
#[forbid(unsafe_code)]
#[path = "../../flush.rs"]
mod flush;
#[path = "../../host/src/grace.rs"]
mod grace;
#[forbid(unsafe_code)]
#[path = "../../lazy.rs"]
mod lazy;
#[path = "../../host/src/lock.rs"]
mod lock;
#[path = "../../host/src/maple.rs"]
mod maple;
#[path = "../../host/src/mm.rs"]
mod mm;
#[cfg(test)]
#[path = "../../model.rs"]
mod model;
#[path = "../../objects.rs"]
mod objects;
#[forbid(unsafe_code)]
#[path = "../../percpu.rs"]
mod percpu;
#[path = "../../pins.rs"]
mod pins;
#[forbid(unsafe_code)]
#[path = "../../range.rs"]
mod range;
#[forbid(unsafe_code)]
#[path = "../../space.rs"]
mod space;
#[forbid(unsafe_code)]
#[path = "../../stats.rs"]
mod stats;
#[path = "../../table.rs"]
mod table;

#[cfg(test)]
mod explore;
