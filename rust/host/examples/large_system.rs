// SPDX-License-Identifier: GPL-2.0

//! Writes a snapshot of a large system for tools/vmap-map: the areas of a real boot, many times on 64 CPUs, served by the
//! allocator on the build host.
//!
//! usage: large_system VMALLOCINFO COPIES GIB FOLDER

use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let args = env::args().skip(1).collect::<Vec<_>>();
    let [boot, copies, gib, folder] = &args[..] else {
        return Err("usage: large_system VMALLOCINFO COPIES GIB FOLDER".into());
    };
    let boot = fs::read_to_string(boot)?;
    let (map, info) = vmap_rust_host::large_system(&boot, copies.parse()?, gib.parse()?)?;
    fs::create_dir_all(folder)?;
    fs::write(format!("{folder}/map"), map)?;
    fs::write(format!("{folder}/vmallocinfo"), info)?;
    fs::write(format!("{folder}/allocator"), "rust\n")?;
    Ok(())
}
