// SPDX-License-Identifier: GPL-2.0

//! Counts every byte in a process of its own: whichever allocation fails, dropping a space frees all memory.

use crate::check::tests::memory::each_case;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Counts the allocated bytes of the process.
struct Counting;

/// Bytes allocated and not freed.
static LIVE: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: All calls are passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: By the safety requirements of this function, which are those of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: By the safety requirements of this function, which are those of this call.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// The environment variable of the process that runs only this test.
const ALONE: &str = "VMAP_RUST_ALONE";

#[test]
fn failed_allocations_leak_no_byte() {
    if std::env::var_os(ALONE).is_some() {
        return count_alone();
    }
    let tests = std::env::current_exe().expect("the tests");
    let output = { std::process::Command::new(tests) }
        .args(["--exact", "leaks::failed_allocations_leak_no_byte"])
        .args(["--test-threads=1", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let has_run = output.status.success() && text.contains("allocations failed");
    assert!(has_run, "{text}{errors}");
    print!("{text}");
}

/// The test itself, in a process without other tests.
fn count_alone() {
    let failed = each_case(|case| {
        let mut result = Ok(false);
        // A run may be the first that needs permanent memory of the libraries, but a leak is in each run.
        let is_clean = (0..3).any(|_| {
            let before = LIVE.load(Ordering::Relaxed);
            result = case.run();
            LIVE.load(Ordering::Relaxed) == before
        });
        assert!(is_clean, "bytes leak: {case:?}");
        result
    });
    println!("{} allocations failed", failed.expect("no error"));
}
