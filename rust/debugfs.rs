// SPDX-License-Identifier: GPL-2.0

//! /sys/kernel/debug/vmap_rust: the name of the active allocator, and the counters of the one in Rust.
//!
//! - `allocator`: `rust` or `rbtree`
//! - `stats`: a line for each counter, with its value and meaning
//! - `counters`: the same values for programs: a line of name and value for each, as in /proc/vmstat
//! - `map`: a line for each reserved range, with the slots of blocks; empty if the allocator is not in use
//!
//! [`crate::debug`] has more files.

use crate::{
    base::stats::line,
    ffi::{
        self,
        KernelSpace, //
    },
    policy::prelude::*, //
};
use kernel::{
    debugfs::{
        BinaryWriter,
        Dir,
        File, //
    },
    fmt,
    fs::file,
    uaccess::UserSliceWriter, //
};

/// The files, which remain until shutdown.
pub(crate) struct DebugFs {
    _files: [Pin<KBox<File<()>>>; 3],
    _map: Pin<KBox<File<Map>>>,
    #[cfg(CONFIG_VMAP_RUST_DEBUG)]
    _debug: crate::debug::Files,
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

/// Calls `what` for each counter, and for each number of what there is now, with its name, value and meaning. Does
/// nothing if the allocator is not in use.
fn each_value(mut what: impl FnMut(&str, usize, &str) -> fmt::Result) -> fmt::Result {
    let Some(space) = ffi::running().map(KernelSpace::space) else {
        return Ok(());
    };
    let blocks = space.blocks();
    let now = [
        ("stuck", space.stuck(), "areas kept for lack of memory now"),
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
    // By its full name: `pin_init::Init` has a method of this name for every type.
    Iterator::chain(space.counters().all().iter(), &now)
        .try_for_each(|&(name, value, meaning)| what(name, value, meaning))
}

fn stats(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    if ffi::running().is_none() {
        return writeln!(out, "the allocator is not in use");
    }
    each_value(|name, value, meaning| line(out, name, value, meaning))
}

fn counters(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    each_value(|name, value, _| writeln!(out, "{name} {value}"))
}

/// The file `map`. It may be long, so each read gets the next lines: a `seq_file` that is written at once would need
/// memory for all of it, from the very space that it shows.
struct Map;

impl BinaryWriter for Map {
    fn write_to_slice(
        &self,
        writer: &mut UserSliceWriter,
        offset: &mut file::Offset,
    ) -> Result<usize> {
        let Some(space) = ffi::running().map(KernelSpace::space) else {
            return Ok(0);
        };
        let mut position = u64::try_from(*offset)?;
        let room = writer.len();
        let written = space.read_list(&mut position, room, |text| writer.write_slice(text))?;
        *offset = file::Offset::try_from(position)?;
        Ok(written)
    }
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
                KBox::pin_init(
                    dir.read_callback_file(c"counters", (), &counters),
                    GFP_KERNEL,
                )?,
            ],
            _map: KBox::pin_init(dir.read_binary_file(c"map", Map), GFP_KERNEL)?,
            #[cfg(CONFIG_VMAP_RUST_DEBUG)]
            _debug: crate::debug::Files::new(&dir)?,
        })
    }
}
