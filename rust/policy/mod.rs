// SPDX-License-Identifier: GPL-2.0

//! What serves a request, and what becomes of a freed range. No unsafe code: `vmap_rust.rs` forbids it for this folder.

pub(crate) mod blocks;
mod congruent;
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
#[path = "../check/listing.rs"]
pub(crate) mod listing;
mod lookup;
pub(crate) mod pool;
pub(crate) mod space;
mod supply;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[path = "../check/tests/policy.rs"]
mod tests;
mod tree;
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
#[path = "../check/validate.rs"]
pub(crate) mod validate;

/// What the modules of this layer and of those below offer.
pub(crate) mod prelude {
    pub(crate) use super::{
        blocks::*,
        pool::*,
        space::*,
        tree::*, //
    };
    pub(crate) use crate::state::prelude::*;
}
