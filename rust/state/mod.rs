// SPDX-License-Identifier: GPL-2.0

//! What there is: area objects and their states, blocks, the index, the directory of blocks, pins. Its unsafe
//! code argues from the invariants of these types. Nothing here decides which range a request gets.

pub(crate) mod area;
#[forbid(unsafe_code)]
pub(crate) mod block;
#[forbid(unsafe_code)]
pub(crate) mod block_view;
#[forbid(unsafe_code)]
pub(crate) mod class;
pub(crate) mod dir;
#[forbid(unsafe_code)]
pub(crate) mod flags;
pub(crate) mod flush;
pub(crate) mod found;
pub(crate) mod index;
pub(crate) mod list;
mod objects;
mod page_map;
pub(crate) mod pins;
pub(crate) mod seat;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[path = "../check/tests/state.rs"]
mod tests;
pub(crate) mod view;

/// What the modules of this layer and of those below offer.
pub(crate) mod prelude {
    pub(crate) use super::{
        area::*,
        block::*,
        class::*,
        dir::*,
        flags::*,
        flush::*,
        found::*,
        index::*,
        list::*,
        pins::*,
        seat::*,
        view::*, //
    };
    pub(crate) use crate::sys::prelude::*;
}
