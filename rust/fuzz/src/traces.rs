// SPDX-License-Identifier: GPL-2.0

//! What libFuzzer calls with each input: a trace that makes the allocator differ from the model is a
//! crash, and so is a panic.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (steps, blocks) = vmap_rust_fuzz::decode(input);
    if let Err(difference) = vmap_rust_host::replay(&steps, blocks) {
        panic!("{difference}");
    }
});
