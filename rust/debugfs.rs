// SPDX-License-Identifier: GPL-2.0

//! /sys/kernel/debug/vmap_rust: the name of the active allocator, and the counters of the one in Rust.
//!
//! - `allocator`: `rust` or `rbtree`
//! - `stats`: a line for each counter, with its value and meaning
//! - `validate` (`CONFIG_VMAP_RUST_DEBUG`): a read checks all invariants
//! - `checker` (`CONFIG_VMAP_RUST_DEBUG`): how many answers the checker has compared, and how many were wrong

use crate::{
    base::stats::line,
    check::checked::KernelSpace,
    ffi, //
};
use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*, //
};

/// The files, which remain until shutdown.
pub(crate) struct DebugFs {
    _files: KVec<Pin<KBox<File<()>>>>,
}

fn allocator(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    // A start that failed half way leaves a space that is not in use, so ask for the active allocator.
    let running = if crate::is_running() {
        "rust"
    } else {
        "rbtree"
    };
    writeln!(out, "{running}")
}

fn stats(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(space) = ffi::running().map(KernelSpace::space) else {
        return writeln!(out, "the allocator is not in use");
    };
    let blocks = space.blocks();
    let now = [
        ("cached", space.cached(), "ranges cached now"),
        (
            "lazy_pages",
            space.lazy_pages(),
            "pages waiting for a purge now",
        ),
        ("blocks", blocks.live, "blocks now"),
        (
            "blocks_partial",
            blocks.partial,
            "of these, no CPU's current block, with room",
        ),
        ("blocks_empty", blocks.empty, "of these, empty"),
    ];
    space.counters().write(out)?;
    now.iter()
        .try_for_each(|&(name, value, meaning)| line(out, name, value, meaning))
}

fn validate(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(space) = ffi::running().map(KernelSpace::space) else {
        return writeln!(out, "the allocator is not in use");
    };
    match space.validate() {
        Ok(census) => writeln!(
            out,
            "ok: {} busy, {} unlinked, {} cached, {} blocks",
            census.busy, census.unlinked, census.cached, census.blocks,
        ),
        Err(_) => writeln!(out, "broken: see the kernel log"),
    }
}

fn checker(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match ffi::running().and_then(KernelSpace::checker) {
        Some(checker) => checker.write(out),
        None => writeln!(out, "the checker is off; boot with vmap_rust.check=1"),
    }
}

impl DebugFs {
    /// Creates the files. Sleepable context.
    pub(crate) fn new() -> Result<Self> {
        let dir = Dir::new(c"vmap_rust");
        let mut files = KVec::new();
        files.push(
            KBox::pin_init(
                dir.read_callback_file(c"allocator", (), &allocator),
                GFP_KERNEL,
            )?,
            GFP_KERNEL,
        )?;
        files.push(
            KBox::pin_init(dir.read_callback_file(c"stats", (), &stats), GFP_KERNEL)?,
            GFP_KERNEL,
        )?;
        if cfg!(CONFIG_VMAP_RUST_DEBUG) {
            files.push(
                KBox::pin_init(
                    dir.read_callback_file(c"validate", (), &validate),
                    GFP_KERNEL,
                )?,
                GFP_KERNEL,
            )?;
            files.push(
                KBox::pin_init(dir.read_callback_file(c"checker", (), &checker), GFP_KERNEL)?,
                GFP_KERNEL,
            )?;
        }
        Ok(Self { _files: files })
    }
}
