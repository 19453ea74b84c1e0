// SPDX-License-Identifier: GPL-2.0

//! What only `CONFIG_VMAP_RUST_DEBUG` has: a kernel space whose answers can be compared, and files that check it.

#[forbid(unsafe_code)]
pub(crate) mod callers;
mod owned;
#[forbid(unsafe_code)]
pub(crate) mod start;

use crate::{
    ffi,
    policy::prelude::*, //
};
use callers::Callers;
use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt, //
};
use start::KernelSpace;

fn validate(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(space) = ffi::running().map(KernelSpace::space) else {
        return writeln!(out, "the allocator is not in use");
    };
    match space.validate() {
        Ok(census) => writeln!(
            out,
            "ok: {} busy, {} unlinked, {} blocks",
            census.busy, census.unlinked, census.blocks,
        ),
        Err(_) => writeln!(out, "broken: see the kernel log"),
    }
}

fn callers(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(space) = ffi::running() else {
        return writeln!(out, "the allocator is not in use");
    };
    match Callers::new(|addr| owned::next(space, addr)) {
        Ok(callers) => callers.write(out),
        Err(_) => writeln!(out, "no memory"),
    }
}

fn checker(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match ffi::running().and_then(KernelSpace::checker) {
        Some(checker) => checker.write(out),
        None => writeln!(out, "the checker is off; boot with vmap_rust.check=1"),
    }
}

/// The files, which remain until shutdown.
pub(crate) struct Files {
    _files: [Pin<KBox<File<()>>>; 3],
}

impl Files {
    /// Creates the files in `dir`. Sleepable context.
    pub(crate) fn new(dir: &Dir) -> Result<Self> {
        Ok(Self {
            _files: [
                KBox::pin_init(
                    dir.read_callback_file(c"validate", (), &validate),
                    GFP_KERNEL,
                )?,
                KBox::pin_init(dir.read_callback_file(c"callers", (), &callers), GFP_KERNEL)?,
                KBox::pin_init(dir.read_callback_file(c"checker", (), &checker), GFP_KERNEL)?,
            ],
        })
    }
}
