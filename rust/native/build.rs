// SPDX-License-Identifier: GPL-2.0

//! The configuration: the allocator, and the function that checks all invariants.

fn main() {
    println!("cargo:rustc-cfg=CONFIG_VMAP_RUST");
    println!("cargo:rustc-cfg=CONFIG_VMAP_RUST_KUNIT_TEST");
    if std::env::var_os("CARGO_FEATURE_CALLS").is_none() {
        println!("cargo:rustc-cfg=CONFIG_RUST_INLINE_HELPERS");
    }
    // Other options are off.
    println!("cargo:rustc-check-cfg=cfg(any())");
    println!("cargo:rerun-if-changed=build.rs");
}
