// SPDX-License-Identifier: GPL-2.0

//! Compiles the maple tree of a kernel tree for user space, if `VMAP_RUST_TREE` names one, and makes its bindings. The crates that use
//! this one see that by `DEP_MAPLE_LINKED`.

use std::{env, fs, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=VMAP_RUST_TREE");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=maple");
    let tree = env::var_os("VMAP_RUST_TREE").unwrap_or_default();
    if tree.is_empty() {
        return;
    }
    let tree = Path::new(&tree);
    println!(
        "cargo:rerun-if-changed={}",
        tree.join("lib/maple_tree.c").display()
    );
    let target = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let arch = match target.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => other,
    };
    // Before those of the kernel tree: what it expects of other libraries, and of its configuration.
    let includes = [
        Path::new("maple").to_owned(),
        tree.join("tools/testing/shared"),
        tree.join("tools/include"),
        tree.join("tools/arch").join(arch).join("include"),
        tree.join("lib"),
    ];

    cc::Build::new()
        .files(["maple/tree.c", "maple/slab.c"])
        .includes(&includes)
        .define("_GNU_SOURCE", None)
        .extra_warnings(false)
        .compile("maple");

    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    let made = Command::new("bindgen")
        .args(["maple/maple.h", "--use-core", "--with-derive-default"])
        .args(["--ctypes-prefix", "super::ffi"])
        .args(["--allowlist-type", "maple_tree|ma_state"])
        .args(["--allowlist-type", "maple_status|store_type|rcu_head"])
        .args([
            "--allowlist-function",
            "mas_(walk|find|pause|destroy|nomem)",
        ])
        .args(["--allowlist-function", "mas_(store|store_prealloc)"])
        .args(["--allowlist-function", "mas_preallocate|mtree_load"])
        .args(["--allowlist-function", "mas_empty_area(_rev)?"])
        .args(["--allowlist-function", "mtree_destroy|vmap_rust_.*"])
        .args(["--allowlist-function", "mtree_(insert|alloc)_range"])
        .args(["--allowlist-function", "mtree_erase"])
        .args(["--blocklist-function", "vmap_rust_(alloc|free)"])
        .args([
            "--allowlist-var",
            "MT_FLAGS_(ALLOC_RANGE|USE_RCU)|VMAP_RUST_ALIGN|MAPLE_RESERVED_RANGE",
        ])
        .args(["--allowlist-var", "___GFP_(DIRECT_RECLAIM|NOFAIL)_BIT"])
        .args(["--opaque-type", "maple_node|slab_sheaf"])
        .arg("--output")
        .arg(Path::new(&out).join("maple.rs"))
        .args(["--", "-D_GNU_SOURCE"])
        .args(includes.iter().flat_map(|dir| [Path::new("-I"), dir]))
        .status()
        .expect("bindgen is installed");
    assert!(made.success(), "bindgen makes the bindings");

    println!("cargo::rustc-check-cfg=cfg(CONFIG_RUST_MAPLE_TREE_KUNIT_TEST)");
    // Its `bindings` is a crate of its own in the kernel.
    let source = tree.join("rust/kernel/maple_tree.rs");
    println!("cargo:rerun-if-changed={}", source.display());
    let text = fs::read_to_string(&source).expect("the tree has rust/kernel/maple_tree.rs");
    let copy = Path::new(&out).join("maple_tree.rs");
    let text = text.replacen("\nuse ", "\nuse crate::bindings;\nuse ", 1);
    fs::write(&copy, text).expect("the build folder can be written");
    let module = format!("#[path = {copy:?}]\npub mod maple_tree;\n");
    fs::write(Path::new(&out).join("kernel_maple.rs"), module)
        .expect("the build folder can be written");

    println!("cargo:rustc-cfg=c_maple");
    println!("cargo:linked=1");
}
