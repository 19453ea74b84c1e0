// SPDX-License-Identifier: GPL-2.0

//! /sys/kernel/debug/vmap_rust: which allocator is active, what it has counted, and, for debugging, all that it has. Each file
//! is text for users.
//!
//! - `allocator`: the active allocator, `rust` or `rbtree`
//! - `stats`: a line of name and value for each counter, as in /proc/vmstat; empty if the allocator is not in use
//! - `validate`, `checker`, `map`: with `CONFIG_VMAP_RUST_DEBUG`: checks all invariants; state of the checker; all ranges

use crate::{
    kernel_space::{
        self,
        KernelSpace, //
    },
    policy::prelude::*, //
};
use kernel::{
    debugfs::Scope,
    fmt, //
};

/// The files.
pub(crate) struct Files;

fn allocator(_: &Files, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    // A start that failed half way leaves a space that is not in use, so ask for the active allocator.
    let running = if kernel_space::space().is_some() {
        "rust"
    } else {
        "rbtree"
    };
    writeln!(out, "{running}")
}

fn stats(_: &Files, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(space) = kernel_space::space().map(KernelSpace::space) else {
        return Ok(());
    };
    let blocks = space.blocks();
    let now = [
        ("stuck", space.stuck()),
        ("kept", space.kept()),
        ("lazy_pages", space.lazy_pages()),
        ("blocks", blocks.live),
        ("blocks_partial", blocks.partial),
        ("blocks_empty", blocks.empty),
        ("tables", kernel_space::count_tables()),
        ("inline_helpers", cfg!(CONFIG_RUST_INLINE_HELPERS).into()),
    ];
    for (name, value) in Iterator::chain(space.counters().all(), now) {
        writeln!(out, "{name} {value}")?;
    }
    Ok(())
}

#[cfg(CONFIG_VMAP_RUST_DEBUG)]
fn validate(_: &Files, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kernel_space::space().map(|space| space.space().validate()) {
        None => writeln!(out, "the allocator is not in use"),
        Some(Ok(census)) => writeln!(
            out,
            "ok: {} busy, {} unlinked, {} blocks",
            census.busy, census.unlinked, census.blocks,
        ),
        Some(Err(_)) => writeln!(out, "broken: see the kernel log"),
    }
}

#[cfg(CONFIG_VMAP_RUST_DEBUG)]
fn checker(_: &Files, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kernel_space::space().and_then(KernelSpace::checker) {
        Some(checker) => checker.write(out),
        None => writeln!(out, "the checker is off; boot with vmap_rust.check=1"),
    }
}

/// The file `map`: a line for each reserved range. It may be long, so each read gets the next lines: a `seq_file` that is
/// written at once would need memory for all of it, from the very space that it shows.
#[cfg(CONFIG_VMAP_RUST_DEBUG)]
impl kernel::debugfs::BinaryWriter for Files {
    fn write_to_slice(
        &self,
        writer: &mut kernel::uaccess::UserSliceWriter,
        offset: &mut kernel::fs::file::Offset,
    ) -> Result<usize> {
        let Some(space) = kernel_space::space().map(KernelSpace::space) else {
            return Ok(0);
        };
        let mut position = u64::try_from(*offset)?;
        let room = writer.len();
        let written = space.read_list(&mut position, room, |text| writer.write_slice(text))?;
        *offset = position.try_into()?;
        Ok(written)
    }
}

/// Creates the files, which remain as long as what this returns. Sleepable context. `ENOMEM` without memory.
pub(crate) fn new() -> Result<Pin<KBox<Scope<Files>>>> {
    let files = Scope::dir(Files, c"vmap_rust", |files, dir| {
        dir.read_callback_file(c"allocator", files, &allocator);
        dir.read_callback_file(c"stats", files, &stats);
        #[cfg(CONFIG_VMAP_RUST_DEBUG)]
        {
            dir.read_callback_file(c"validate", files, &validate);
            dir.read_callback_file(c"checker", files, &checker);
            dir.read_binary_file(c"map", files);
        }
    });
    KBox::pin_init(files, GFP_KERNEL)
}
