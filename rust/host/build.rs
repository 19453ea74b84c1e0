// SPDX-License-Identifier: GPL-2.0

//! Enables the tests of the allocator's modules, here and in rust/explore.

fn main() {
    println!("cargo:rustc-cfg=CONFIG_VMAP_RUST_KUNIT_TEST");
    // All accesses are those of the stand-in `Atomic`.
    println!("cargo:rustc-cfg=CONFIG_RUST_INLINE_HELPERS");
    println!("cargo:rerun-if-changed=build.rs");
}
