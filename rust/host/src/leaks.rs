// SPDX-License-Identifier: GPL-2.0

//! Counts every byte in a process of its own: whichever allocation fails, dropping a space frees all memory.

use crate::{
    base::{
        fit::Member,
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    check::fixtures::{
        Failing,
        World, //
    },
    policy::space::Request,
    spaces::free_everything,
    state::{
        area::NeverMapped,
        band::{
            COARSE_PAGES,
            MAX_UNITS, //
        },
        block::{
            self,
            COARSE_SIZE, //
        }, //
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
        Ordering::Relaxed, //
    },
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
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: By the safety requirements of this function, which are those of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: By the safety requirements of this function, which are those of this call.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// The operation during which allocations fail.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Allocate the first area of its size, which needs a new block if blocks serve it.
    Alloc,
    Congruent,
    Release,
    Retire,
    Purge,
    /// A purge that drains all cached ranges and empty blocks.
    Drain,
    /// A request for the whole space, which drains all cached ranges and empty blocks.
    Room,
}

const OPERATIONS: [Operation; 7] = [
    Operation::Alloc,
    Operation::Congruent,
    Operation::Release,
    Operation::Retire,
    Operation::Purge,
    Operation::Drain,
    Operation::Room,
];

/// Runs `operation` in a new space with areas of `pages` pages, frees all areas and drops the space. Returns
/// whether an allocation failed.
fn run_without_memory(operation: Operation, pages: usize, gfp: Gfp, fails: Failing) -> bool {
    let home = Span::with_size(31 * block::SIZE + PAGE_SIZE, 66 * COARSE_SIZE).expect("not empty");
    let world = World::new(home).blocks(2 * COARSE_PAGES);
    let space = world.space().expect("memory");
    let request = Request {
        gfp,
        ..Request::bytes(home, pages * PAGE_SIZE)
    };
    let mut areas = Vec::new();
    if !matches!(operation, Operation::Alloc | Operation::Congruent) {
        for _ in 0..5 {
            let area = space.alloc(&request).expect("room");
            let start = space.start_of_busy(area).expect("busy");
            areas.push(space.unlink(start).expect("busy"));
        }
        // Holes first, then the areas between them.
        areas.swap(0, 1);
        areas.swap(2, 3);
    }
    if matches!(
        operation,
        Operation::Purge | Operation::Drain | Operation::Room
    ) {
        areas.drain(..).for_each(|area| {
            space.retire(area);
        });
    }
    if matches!(operation, Operation::Room) {
        space.purge(None, false);
    }
    let operate = || match operation {
        Operation::Alloc => {
            let _ = space.alloc(&request);
        }
        Operation::Congruent => {
            let members = [0, 40, 99].map(|page| Member {
                offset: page * pages * PAGE_SIZE,
                size: pages * PAGE_SIZE,
            });
            let members = members.into_iter();
            let _ = space.alloc_congruent(home, members, PAGE_SIZE, gfp, |_, _| ());
        }
        Operation::Release => areas
            .drain(..)
            .for_each(|area| space.release(area, NeverMapped::in_test())),
        Operation::Retire => areas.drain(..).for_each(|area| {
            space.retire(area);
        }),
        Operation::Purge => {
            space.purge(None, false);
        }
        Operation::Drain => {
            space.purge(None, true);
        }
        Operation::Room => {
            let size = home.size();
            let _ = space.alloc(&Request { size, ..request });
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
    // The stand-in of the slab cache keeps an object for the next allocation from now on.
    let large = (MAX_UNITS + 1) * COARSE_PAGES;
    run_without_memory(Operation::Alloc, large, Gfp::KERNEL, Failing::Only(1000));
    for operation in OPERATIONS {
        for pages in [1, 8 * COARSE_PAGES, (MAX_UNITS + 1) * COARSE_PAGES] {
            for gfp in [Gfp::KERNEL, Gfp::NOWAIT] {
                for fails in [Failing::Only as fn(u32) -> Failing, Failing::From] {
                    // The first run makes permanent allocations of the libraries, which are not leaks.
                    run_without_memory(operation, pages, gfp, fails(1000));
                    for nth in 1..1000 {
                        let fails = fails(nth);
                        let before = LIVE.load(Relaxed);
                        let has_failed = run_without_memory(operation, pages, gfp, fails);
                        let after = LIVE.load(Relaxed);
                        assert_eq!(
                            after, before,
                            "bytes: {operation:?}, {pages} pages, {fails:?}"
                        );
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
