// SPDX-License-Identifier: GPL-2.0

//! Every byte is counted, in a process of its own: whichever allocation fails in whatever is done, nothing is
//! left when the space is gone.

use crate::{
    area::Attributes,
    block::{
        self,
        COARSE_PAGES,
        COARSE_SIZE,
        MAX_UNITS, //
    },
    fit::Member,
    mm::{
        self,
        Gfp, //
    },
    range::{
        Span,
        PAGE_SIZE, //
    },
    space::{
        Census,
        Request,
        Space, //
    },
    trace::FlushLog,
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

/// Counts what the process has.
struct Counting;

/// Bytes that were allocated and not freed.
static LIVE: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: The system's allocator does all of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: As the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: As the caller says.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// What is done while memory fails.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// The first area of its size: with a new block, if blocks serve it.
    Alloc,
    Congruent,
    Release,
    Retire,
    Purge,
    /// A purge that gives back all that is kept.
    Drain,
    /// A request for all there is, for which the rest has to be given back.
    Room,
}

const DEEDS: [Deed; 7] = [
    Deed::Alloc,
    Deed::Congruent,
    Deed::Release,
    Deed::Retire,
    Deed::Purge,
    Deed::Drain,
    Deed::Room,
];

/// Which allocations fail.
#[derive(Clone, Copy, Debug)]
enum Fails {
    /// The n-th one.
    Only(u32),
    /// The n-th one and all that follow.
    From(u32),
}

/// Does `deed` in a new space with areas of `pages` pages, frees all and drops the space. Returns whether an
/// allocation failed.
fn done_without_memory(deed: Deed, pages: usize, gfp: Gfp, fails: Fails) -> bool {
    let home = Span::with_size(31 * block::SIZE + PAGE_SIZE, 66 * COARSE_SIZE).expect("not empty");
    let log = FlushLog::new().expect("memory");
    let space = Space::with_blocks(home, log, Some(2 * COARSE_PAGES)).expect("memory");
    let request = Request {
        window: space.home(),
        size: pages * PAGE_SIZE,
        align: 1,
        attributes: Attributes::NONE,
        gfp,
        node: -1,
    };
    let mut areas = Vec::new();
    if !matches!(deed, Deed::Alloc | Deed::Congruent) {
        for _ in 0..5 {
            let area = space.alloc(&request).expect("room");
            let start = space.start_of_busy(area).expect("busy");
            areas.push(space.unlink(start).expect("busy"));
        }
        // Holes first, which are closed then.
        areas.swap(0, 1);
        areas.swap(2, 3);
    }
    if matches!(deed, Deed::Purge | Deed::Drain | Deed::Room) {
        areas.drain(..).for_each(|area| {
            space.retire(area);
        });
    }
    if matches!(deed, Deed::Room) {
        space.purge(None, false);
    }
    match fails {
        Fails::Only(nth) => {
            mm::fail_nth(nth);
        }
        Fails::From(nth) => assert!(mm::fail_from(nth)),
    }
    match deed {
        Deed::Alloc => {
            let _ = space.alloc(&request);
        }
        Deed::Congruent => {
            let members = [0, 40, 99].map(|page| Member {
                offset: page * pages * PAGE_SIZE,
                size: pages * PAGE_SIZE,
            });
            let members = members.into_iter();
            let _ = space.alloc_congruent(home, members, PAGE_SIZE, gfp, |_, _| ());
        }
        Deed::Release => areas.drain(..).for_each(|area| space.release(area)),
        Deed::Retire => areas.drain(..).for_each(|area| {
            space.retire(area);
        }),
        Deed::Purge => {
            space.purge(None, false);
        }
        Deed::Drain => {
            space.purge(None, true);
        }
        Deed::Room => {
            let size = home.size();
            let _ = space.alloc(&Request { size, ..request });
        }
    }
    let has_failed = match fails {
        Fails::Only(_) => mm::fail_nth(0) == 0,
        Fails::From(_) => has_reached(),
    };
    mm::fail_from(0);
    while let Some((area, pin)) = space.get(0) {
        let start = space.start_of_busy(area).expect("busy");
        drop(pin);
        space.retire(space.unlink(start).expect("busy"));
    }
    space.purge(None, true);
    assert_eq!(space.validate().ok(), Some(Census::default()));
    has_failed
}

/// Do all allocations fail by now, that is, was one asked for?
fn has_reached() -> bool {
    kernel::fault::FROM.with(|from| from.get()) == 1
}

/// The variable that tells the process which runs this test alone.
const ALONE: &str = "VMAP_RUST_ALONE";

#[test]
fn no_byte_is_lost_without_memory() {
    if std::env::var_os(ALONE).is_some() {
        return count_alone();
    }
    let tests = std::env::current_exe().expect("the tests");
    let mut alone = std::process::Command::new(tests);
    alone.args(["--exact", "leaks::no_byte_is_lost_without_memory"]);
    alone
        .args(["--test-threads=1", "--nocapture"])
        .env(ALONE, "1");
    let output = alone.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("times without memory"), "{said}");
    print!("{said}");
}

/// With nobody else in the process.
fn count_alone() {
    let mut failed = 0;
    for deed in DEEDS {
        for pages in [1, 8 * COARSE_PAGES, (MAX_UNITS + 1) * COARSE_PAGES] {
            for gfp in [Gfp::KERNEL, Gfp::NOWAIT] {
                for fails in [Fails::Only as fn(u32) -> Fails, Fails::From] {
                    // What the first one allocates for good is not a leak.
                    done_without_memory(deed, pages, gfp, fails(1000));
                    for nth in 1..1000 {
                        let fails = fails(nth);
                        let before = LIVE.load(Relaxed);
                        let has_failed = done_without_memory(deed, pages, gfp, fails);
                        let after = LIVE.load(Relaxed);
                        assert_eq!(after, before, "bytes: {deed:?}, {pages} pages, {fails:?}");
                        if !has_failed {
                            break;
                        }
                        failed += 1;
                    }
                }
            }
        }
    }
    println!("{failed} times without memory");
    assert!(failed > 200);
}
