// SPDX-License-Identifier: GPL-2.0

//! The fuzz target: libFuzzer calls it with each input. A trace on which allocator and record disagree panics,
//! which libFuzzer records as a crash.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (steps, blocks) = vmap_rust_fuzz::decode(input);
    if let Err(difference) = vmap_rust_host::replay(&steps, blocks) {
        panic!("{difference}");
    }
});
