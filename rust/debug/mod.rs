// SPDX-License-Identifier: GPL-2.0

//! What only `CONFIG_VMAP_RUST_DEBUG` has: a kernel space whose answers can be compared, and files that check it.

use crate::{
    check::{
        checked::{
            CheckedSpace,
            CheckedTlb, //
        },
        checker::Checker, //
    },
    kernel_space,
    policy::prelude::*,
    sys::mm::KernelTlb, //
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

/// The kernel's own space.
pub(crate) type KernelSpace = CheckedSpace<KernelTlb>;

/// Makes the space of the kernel for `home`, unless it is to fail. `ENOMEM` without memory.
pub(crate) fn start(home: Span, options: Options) -> Result<KernelSpace> {
    if crate::module_parameters::fail_init.value() != 0 {
        return Err(ENOMEM);
    }
    let watch = if crate::module_parameters::check.value() != 0 {
        Some(Checker::new(true, GFP_NOWAIT)?)
    } else {
        None
    };
    let tlb = KernelTlb;
    KernelSpace::new(home, CheckedTlb { tlb, watch }, options)
}

fn validate(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(space) = kernel_space::space().map(KernelSpace::space) else {
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

fn checker(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kernel_space::space().and_then(KernelSpace::checker) {
        Some(checker) => checker.write(out),
        None => writeln!(out, "the checker is off; boot with vmap_rust.check=1"),
    }
}

/// The file `map`: a line for each reserved range. It may be long, so each read gets the next lines: a `seq_file` that is
/// written at once would need memory for all of it, from the very space that it shows.
struct Map;

impl BinaryWriter for Map {
    fn write_to_slice(
        &self,
        writer: &mut UserSliceWriter,
        offset: &mut file::Offset,
    ) -> Result<usize> {
        let Some(space) = kernel_space::space().map(KernelSpace::space) else {
            return Ok(0);
        };
        let mut position = u64::try_from(*offset)?;
        let room = writer.len();
        let written = space.read_list(&mut position, room, |text| writer.write_slice(text))?;
        *offset = file::Offset::try_from(position)?;
        Ok(written)
    }
}

/// The files, which remain until shutdown.
pub(crate) struct Files {
    _files: [Pin<KBox<File<()>>>; 2],
    _map: Pin<KBox<File<Map>>>,
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
                KBox::pin_init(dir.read_callback_file(c"checker", (), &checker), GFP_KERNEL)?,
            ],
            _map: KBox::pin_init(dir.read_binary_file(c"map", Map), GFP_KERNEL)?,
        })
    }
}
