// SPDX-License-Identifier: GPL-2.0

//! The crate next to this one, with other CPUs and locks.

fn main() {
    println!("cargo:rustc-cfg=CONFIG_VMAP_RUST_KUNIT_TEST");
    println!("cargo:rustc-cfg=explore");
    println!("cargo:rerun-if-changed=build.rs");
}
