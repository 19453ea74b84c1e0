// SPDX-License-Identifier: GPL-2.0

//! The tests of the allocator are what this crate is for.

fn main() {
    println!("cargo:rustc-cfg=CONFIG_VMAP_RUST_KUNIT_TEST");
    println!("cargo:rerun-if-changed=build.rs");
}
