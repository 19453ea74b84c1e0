// SPDX-License-Identifier: GPL-2.0

//! What a CPU counts, caches and allocates from by itself: other CPUs miss nothing of it.

use crate::{
    base::{
        cpu::CpuNumber,
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    check::fixtures::{
        FlushLog,
        World, //
    },
    cpu,
    policy::{
        lazy::MAX_PARTS,
        space::Space, //
    },
    spaces::{
        free_everything,
        home_of,
        request,
        retire,
        without_shadow, //
    },
    state::block::{
        self,
        BANDS, //
    },
    sys::mm, //
};
use std::collections::HashSet;

/// Allocates an area of each size for each CPU, and retires them on that CPU.
fn retire_everywhere<const N: usize>(space: &Space<FlushLog>, sizes: [usize; N]) {
    for cpu in 0..mm::cpu_count() {
        let mut left = Some(sizes.map(|size| {
            let area = space.alloc(&request(space, size)).expect("room");
            let start = space.start_of_busy(area).expect("busy");
            space.unlink(start).expect("busy")
        }));
        // Each new thread is on the next CPU.
        while let Some(areas) = left.take() {
            let retire = move || {
                if mm::cpu_hint().number() != cpu {
                    return Some(areas);
                }
                for area in areas {
                    space.retire(area);
                }
                None
            };
            left = std::thread::scope(|scope| scope.spawn(retire).join().expect("no panic"));
        }
    }
}

/// A CPU counts small numbers of pages for itself. The exact number includes them, and a purge counts all.
#[test]
fn lazy_pages_that_are_not_yet_counted_are_not_lost() {
    let cpus = mm::cpu_count();
    let home = Span::with_size(64 << 20, 64 << 20).expect("not empty");
    let space = without_shadow(home).blocks(0).space().expect("memory");
    // Below and above what a CPU counts for itself: 1,024 pages with 4 CPUs.
    for size in [3, 1100].map(|pages| pages * PAGE_SIZE) {
        retire_everywhere(&space, [size]);
        assert_eq!(space.lazy_pages(), cpus * size / PAGE_SIZE);
        let area = space.alloc(&request(&space, PAGE_SIZE)).expect("room");
        let start = space.start_of_busy(area).expect("busy");
        let estimate = space.retire(space.unlink(start).expect("busy"));
        let hidden = if size == 3 * PAGE_SIZE {
            estimate == 0
        } else {
            estimate == cpus * 1100
        };
        assert!(hidden, "{estimate} pages");
        assert_eq!(space.purge(None, true), cpus + 1);
        assert_eq!(space.lazy_pages(), 0);
    }
    free_everything(&space);
}

/// A CPU adds its count to the common one when that is worth the move of a cache line. Once half of the pages that blocks may
/// have are lazy, the answer exceeds any limit of C.
#[test]
fn lazy_pages_of_blocks_begin_a_purge_before_all_blocks_are_lazy() {
    const BLOCKS: usize = 4;
    const PAGES: usize = 32;
    const BATCH: usize = 128;
    let home = home_of(20 * BLOCKS);
    let space = World::new(home).blocks(BLOCKS).space().expect("memory");
    let most = BLOCKS * block::SIZE / PAGE_SIZE / 2;
    // A purge resets the count.
    for _ in 0..2 {
        for lazy in (PAGES..=most).step_by(PAGES) {
            let area = space.alloc(&request(&space, PAGES * PAGE_SIZE));
            let start = space.start_of_busy(area.expect("room")).expect("busy");
            let area = space.unlink(start).expect("busy");
            assert!(area.is_in_block());
            let estimate = space.retire(area);
            match lazy {
                _ if lazy == most => assert!(estimate > 1 << 62, "{estimate} pages"),
                _ if lazy % BATCH == 0 => assert_eq!(estimate, lazy),
                _ => assert_eq!(estimate, 0),
            }
        }
        space.purge(None, false);
    }
    free_everything(&space);
}

#[test]
fn a_range_cached_by_another_cpu_is_reused() {
    let cpus = mm::cpu_count();
    // They include sizes of the first and the last list of a CPU.
    let sizes = [1, 31, 32].map(|pages| pages * PAGE_SIZE);
    let count = sizes.len() * cpus;
    let home = Span::with_size(64 << 20, sizes.iter().sum::<usize>() * cpus).expect("not empty");
    // With KASAN shadow, the purging CPU would cache all ranges.
    let space = without_shadow(home).space().expect("memory");
    retire_everywhere(&space, sizes);
    assert_eq!(space.purge(None, false), count);
    assert_eq!(space.cached(), count);
    for size in sizes {
        for _ in 0..cpus {
            space.alloc(&request(&space, size)).expect("room");
        }
    }
    let counters = space.counters();
    assert_eq!(counters.alloc_cached, count);
    assert_eq!(counters.cached_elsewhere, count - sizes.len());
    free_everything(&space);
}

/// A request looks at those of its CPU only once, and then at those of others.
#[test]
fn cached_ranges_that_are_not_aligned_do_not_hide_those_of_other_cpus() {
    const SIZE: usize = 5 * PAGE_SIZE;
    const ALIGNED: usize = 8;
    const CPUS: usize = 2;
    // Those of this CPU are more than half of the ranges that a request looks at.
    const LAST: usize = 11;
    cpu::be_on(0, CPUS);
    let home = Span::with_size(64 << 20, (LAST + 1) * SIZE).expect("not empty");
    let space = without_shadow(home).blocks(0).space().expect("memory");
    for _ in 0..=LAST {
        space.alloc(&request(&space, SIZE)).expect("room");
    }
    // The first one is aligned, too: it stays.
    for index in 1..=LAST {
        cpu::be_on(usize::from(index == ALIGNED), CPUS);
        retire(&space, home.first() + index * SIZE);
    }
    space.purge(None, false);
    cpu::be_on(0, CPUS);
    let mut aligned = request(&space, SIZE);
    aligned.align = ALIGNED * PAGE_SIZE;
    space.alloc(&aligned).expect("room");
    let counters = space.counters();
    assert_eq!((counters.alloc_cached, counters.cached_elsewhere), (1, 1));
    assert_eq!(space.cached(), LAST - 1);
    free_everything(&space);
}

/// CPUs share parts of the cache and of the lazy areas if there are more of them than parts.
#[test]
fn each_cpu_has_memory_of_its_own() {
    const CPUS: usize = MAX_PARTS + 2;
    cpu::be_on(0, CPUS);
    let space = World::new(home_of(20)).space().expect("memory");
    let mut all = HashSet::new();
    for cpu in 0..CPUS {
        let memory: Vec<_> = space.memory_of_cpu(CpuNumber::new(cpu)).collect();
        // Its state, with what each band remembers, and its parts of lazy areas and of the cache.
        let parts = if cpu < MAX_PARTS { 2 + 3 } else { 0 };
        assert_eq!(memory.len(), 1 + BANDS + parts, "CPU {cpu}");
        for address in memory {
            assert!(!address.is_null() && all.insert(address));
        }
    }
    free_everything(&space);
}

/// A request without room drains all lists of all CPUs, from the first to the last.
#[test]
fn ranges_cached_by_other_cpus_are_drained_for_a_request() {
    let cpus = mm::cpu_count();
    let sizes = [31, 32, 32].map(|pages| pages * PAGE_SIZE);
    let home = Span::with_size(64 << 20, sizes.iter().sum::<usize>() * cpus).expect("not empty");
    let space = without_shadow(home).space().expect("memory");
    retire_everywhere(&space, sizes);
    space.purge(None, false);
    assert_eq!(space.cached(), sizes.len() * cpus);
    assert!(space.alloc(&request(&space, home.size())).is_ok());
    assert_eq!(space.cached(), 0);
    free_everything(&space);
}

#[test]
fn a_cached_range_is_found_among_those_of_other_sizes() {
    const SIZES: usize = 10;
    let home = Span::with_size(64 << 20, 64 * PAGE_SIZE).expect("not empty");
    let space = World::new(home).space().expect("memory");
    for pages in 1..=SIZES {
        let area = space.alloc(&request(&space, pages * PAGE_SIZE));
        let start = space.start_of_busy(area.expect("room")).expect("busy");
        space.retire(space.unlink(start).expect("busy"));
    }
    space.purge(None, false);
    assert_eq!(space.cached(), SIZES);
    // Start with a size in the middle.
    for pages in (SIZES / 2..=SIZES).chain(1..SIZES / 2) {
        assert!(space.alloc(&request(&space, pages * PAGE_SIZE)).is_ok());
    }
    assert_eq!(space.counters().alloc_cached, SIZES);
    free_everything(&space);
}

/// So a test that counts blocks must stay on one CPU.
#[test]
fn a_cpu_without_a_block_starts_one_although_others_have_room() {
    let home = Span::with_size(32 * block::SIZE, 128 * block::SIZE).expect("not empty");
    let space = World::new(home).blocks(128).space().expect("memory");
    let here = mm::cpu_hint();
    space.alloc(&request(&space, PAGE_SIZE)).expect("room");
    assert_eq!(space.counters().block_new, 1);
    let is_elsewhere = || {
        let elsewhere = mm::cpu_hint() != here;
        if elsewhere {
            space.alloc(&request(&space, PAGE_SIZE)).expect("room");
        }
        elsewhere
    };
    std::thread::scope(|scope| while !scope.spawn(is_elsewhere).join().expect("no panic") {});
    assert_eq!(space.counters().block_new, 2);
    free_everything(&space);
}
