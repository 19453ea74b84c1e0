// SPDX-License-Identifier: GPL-2.0

// The layers of the allocator up to `state`, which each example in refusals.rs includes. An included file cannot begin
// with `//!`.

#[path = "../../base/mod.rs"]
mod base;
mod check {
    #[path = "../../../check/random.rs"]
    pub(crate) mod random;
}
mod cpu;
mod runs;
#[path = "../../state/mod.rs"]
mod state;
mod sys;

use state::prelude::*;
