// SPDX-License-Identifier: GPL-2.0

//! Enables the tests of the allocator's modules and its tracepoints, and the binding of the maple tree if the stand-in
//! kernel crate has linked that of a kernel tree.

fn main() {
    println!("cargo:rustc-cfg=CONFIG_VMAP_RUST_KUNIT_TEST");
    println!("cargo:rustc-cfg=CONFIG_VMAP_RUST_TRACE");
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("DEP_MAPLE_LINKED").is_some() {
        println!("cargo:rustc-cfg=c_maple");
    }
}
