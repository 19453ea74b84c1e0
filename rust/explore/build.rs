// SPDX-License-Identifier: GPL-2.0

//! Builds the crate rust/host with the CPUs and locks of a scheduler.

fn main() {
    println!("cargo:rustc-cfg=CONFIG_VMAP_RUST_KUNIT_TEST");
    println!("cargo:rustc-cfg=explore");
    println!("cargo:rerun-if-changed=build.rs");
}
