// SPDX-License-Identifier: GPL-2.0

//! Counts every byte in a process of its own: whichever allocation fails, dropping a space frees all memory.

use crate::{
    base::{
        fit::Member,
        prelude::*, //
    },
    check::fixtures::{
        publish,
        Failing,
        World, //
    },
    policy::space::Request,
    spaces::{
        alloc,
        free_everything,
        home_of, //
    },
    state::{
        class::MOST_PAGES, //
    },
    sys::mm::Gfp, //
};
use std::{
    alloc::{
        GlobalAlloc,
        Layout,
        System, //
    },
    sync::atomic::{
        AtomicUsize,
        Ordering, //
    }, //
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

/// The operation during which allocations fail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    /// Allocate the first area of its size, which needs a new block if blocks serve it.
    Alloc,
    Congruent,
    Retire,
    Purge,
    /// A purge that drains all empty blocks.
    Drain,
    /// A request for the whole space, which drains all empty blocks.
    Room,
}

use Operation::{
    Alloc,
    Congruent,
    Drain,
    Purge,
    Retire,
    Room, //
};

/// Runs `operation` in a new space with areas of `pages` pages, frees all areas and drops the space. Returns
/// whether an allocation failed.
fn run_without_memory(operation: Operation, pages: usize, gfp: Gfp, fails: Failing) -> bool {
    // The largest blocks have 512 times the size of the smallest ones.
    let home = home_of(40 * 512);
    let space = World::new(home).blocks(10 * 512).space().expect("memory");
    let request = Request {
        gfp,
        ..Request::bytes(home, pages * PAGE_SIZE)
    };
    let mut areas = Vec::new();
    if ![Alloc, Congruent].contains(&operation) {
        for _ in 0..5 {
            areas.push(space.unlink(alloc(&space, &request)).expect("busy"));
        }
        // Holes first, then the areas between them.
        areas.swap(0, 1);
        areas.swap(2, 3);
    }
    if [Purge, Drain, Room].contains(&operation) {
        areas.drain(..).for_each(|area| {
            space.retire(area);
        });
    }
    if operation == Room {
        space.purge(None, false);
    }
    let operate = || match operation {
        Alloc => {
            let _ = space.alloc(request.again());
        }
        Congruent => {
            let members = [0, 40, 99].map(|page| Member {
                offset: page * pages * PAGE_SIZE,
                size: pages * PAGE_SIZE,
            });
            let members = members.into_iter();
            let _ = space.alloc_congruent(home, members, PAGE_SIZE, gfp, publish);
        }
        Retire => areas.drain(..).for_each(|area| {
            space.retire(area);
        }),
        Purge => {
            space.purge(None, false);
        }
        Drain => {
            space.purge(None, true);
        }
        Room => {
            let size = home.size();
            let _ = space.alloc(Request {
                size,
                ..request.again()
            });
        }
    };
    let ((), has_failed) = fails.run(operate);
    free_everything(&space);
    has_failed
}

/// The environment variable of the process that runs only this test.
const ALONE: &str = "VMAP_RUST_ALONE";

#[test]
fn failed_allocations_leak_no_byte() {
    if std::env::var_os(ALONE).is_some() {
        return count_alone();
    }
    let tests = std::env::current_exe().expect("the tests");
    let mut alone = std::process::Command::new(tests);
    alone.args(["--exact", "leaks::failed_allocations_leak_no_byte"]);
    alone
        .args(["--test-threads=1", "--nocapture"])
        .env(ALONE, "1");
    let output = alone.output().expect("it runs");
    let output_text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output_text}{errors}");
    assert!(output_text.contains("allocations failed"), "{output_text}");
    print!("{output_text}");
}

/// The test itself, in a process without other tests.
fn count_alone() {
    let mut failed = 0;
    let large = MOST_PAGES + 1;
    // The stand-in of the slab cache keeps an object for the next allocation from now on.
    run_without_memory(Purge, large, Gfp::KERNEL, Failing::Only(0));
    for operation in [Alloc, Congruent, Retire, Purge, Drain, Room] {
        // Areas of small blocks, of large ones, and of the tree.
        for pages in [1, 1000, MOST_PAGES, large] {
            for gfp in [Gfp::KERNEL, Gfp::NOWAIT] {
                for fails in [Failing::Only, Failing::From] {
                    // The first run makes permanent allocations of the libraries, which are not leaks.
                    run_without_memory(operation, pages, gfp, fails(1000));
                    for nth in 1.. {
                        let fails = fails(nth);
                        let before = LIVE.load(Ordering::Relaxed);
                        let has_failed = run_without_memory(operation, pages, gfp, fails);
                        let after = LIVE.load(Ordering::Relaxed);
                        let what = format_args!("bytes: {operation:?}, {pages} pages, {fails:?}");
                        assert_eq!(after, before, "{what}");
                        if !has_failed {
                            break;
                        }
                        failed += 1;
                    }
                }
            }
        }
    }
    println!("{failed} allocations failed");
    assert!(failed > 200);
}
