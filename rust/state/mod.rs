// SPDX-License-Identifier: GPL-2.0

//! What there is: area objects and their states, blocks, the index, the directory of blocks, pins. Nothing here decides
//! which range a request gets.
//!
//! Its unsafe code argues from the invariants of these types, and relies on nothing that `policy` does: not on the lock of the
//! pool, and not on `vmap_purge_lock`. So some checks here refuse, with a report, what these locks already rule out. They close
//! no race: they are the status of a block ([`dir::Seat`]), [`Links::is_in_plan`](block::Links), the state of the object of
//! a claimed slot ([`block::Claimed`]), and the directory of a block that was found ([`pins::Found`]).

pub(crate) mod area;
mod batch;
#[forbid(unsafe_code)]
pub(crate) mod block;
#[forbid(unsafe_code)]
pub(crate) mod class;
pub(crate) mod dir;
pub(crate) mod flush;
pub(crate) mod index;
pub(crate) mod objects;
mod page_map;
mod parts;
pub(crate) mod pins;
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
#[forbid(unsafe_code)]
#[path = "../check/slots.rs"]
mod slots;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[path = "../check/tests/state.rs"]
mod tests;
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
#[path = "../check/watched.rs"]
pub(crate) mod watched;

/// What the modules of this layer and of those below offer.
pub(crate) mod prelude {
    pub(crate) use super::{
        area::*,
        block::*,
        class::*,
        dir::*,
        flush::*,
        index::*,
        objects::*,
        pins::*, //
    };
    pub(crate) use crate::{
        base::prelude::*,
        sys::{
            grace::{
                GraceBox,
                GraceList,
                Guard,
                Unpublished, //
            },
            maple::{
                self,
                StoreError, //
            },
            mm::{
                self,
                Gfp,
                LockGuard,
                Locked,
                Node, //
            },
            per_cpu::{
                CacheAligned,
                Counter,
                Counters,
                CpuNumber,
                PerCpu, //
            },
            trace::{
                self,
                Cause,
                Event, //
            }, //
        }, //
    };
}
