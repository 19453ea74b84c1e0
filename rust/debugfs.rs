// SPDX-License-Identifier: GPL-2.0

//! /sys/kernel/debug/vmap_rust: the name of the active allocator, and the counters of the one in Rust.
//!
//! - `allocator`: `rust` or `rbtree`
//! - `stats`: a line of name and value for each counter, as in /proc/vmstat; empty if the allocator is not in use
//!
//! [`crate::debug`] has more files.

use crate::{
    kernel_space::{
        self,
        KernelSpace, //
    },
    policy::prelude::*, //
};
use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt, //
};

/// The files, which remain until shutdown.
pub(crate) struct DebugFs {
    _files: [Pin<KBox<File<()>>>; 2],
    #[cfg(CONFIG_VMAP_RUST_DEBUG)]
    _debug: crate::debug::Files,
}

fn allocator(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    // A start that failed half way leaves a space that is not in use, so ask for the active allocator.
    let running = if kernel_space::space().is_some() {
        "rust"
    } else {
        "rbtree"
    };
    writeln!(out, "{running}")
}

fn stats(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(space) = kernel_space::space().map(KernelSpace::space) else {
        return Ok(());
    };
    let blocks = space.blocks();
    let now = [
        ("stuck", space.stuck()),
        ("lazy_pages", space.lazy_pages()),
        ("blocks", blocks.live),
        ("blocks_partial", blocks.partial),
        ("blocks_empty", blocks.empty),
    ];
    for (name, value) in Iterator::chain(space.counters().all().into_iter(), now) {
        writeln!(out, "{name} {value}")?;
    }
    Ok(())
}

impl DebugFs {
    /// Creates the files. Sleepable context.
    pub(crate) fn new() -> Result<Self> {
        let dir = Dir::new(c"vmap_rust");
        Ok(Self {
            _files: [
                KBox::pin_init(
                    dir.read_callback_file(c"allocator", (), &allocator),
                    GFP_KERNEL,
                )?,
                KBox::pin_init(dir.read_callback_file(c"stats", (), &stats), GFP_KERNEL)?,
            ],
            #[cfg(CONFIG_VMAP_RUST_DEBUG)]
            _debug: crate::debug::Files::new(&dir)?,
        })
    }
}
