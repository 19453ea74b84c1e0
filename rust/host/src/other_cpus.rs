// SPDX-License-Identifier: GPL-2.0

//! What a CPU counts and has by itself: other CPUs miss nothing of it.

use crate::{
    policy::Options,
    prelude::*,
    state::watched::{Done, Unmapped, Watch, Watched},
    sys::per_cpu::CpuNumber,
};
use std::{cell::Cell, collections::HashSet};

/// A CPU counts small numbers of pages of blocks for itself. The exact number includes them, and a purge counts all.
#[test]
fn lazy_pages_that_are_not_yet_counted_are_not_lost() {
    const CPUS: usize = 4;
    // A CPU adds 128 pages or more to the common count, and then asks for it.
    const BATCH: usize = 128;
    cpu::be_on(0, CPUS);
    let space = without_shadow(home_of(400))
        .blocks(400)
        .space()
        .expect("memory");
    for pages in [8, 32] {
        let each = BATCH / pages - 1;
        for round in 0..=each {
            for cpu in 0..CPUS {
                cpu::be_on(cpu, CPUS);
                let known = retire(&space, alloc(&space, &request(&space, pages * PAGE_SIZE)));
                // The first CPUs have added theirs.
                let expected = if round == each { (cpu + 1) * BATCH } else { 0 };
                assert_eq!(known, expected, "{pages} pages, round {round}, CPU {cpu}");
            }
        }
        // Another area in the tree: it is asked for at once, and all that is common.
        let large = retire(&space, alloc(&space, &request(&space, 400 * SIZE / 2)));
        assert_eq!(large, CPUS * BATCH + 200 * SIZE / PAGE_SIZE);
        assert_eq!(space.lazy_pages(), large);
        retire(&space, alloc(&space, &request(&space, pages * PAGE_SIZE)));
        assert_eq!(space.lazy_pages(), large + pages);
        assert_eq!(space.purge(None, false), CPUS * (each + 1) + 2);
        assert_eq!(space.lazy_pages(), 0);
        // A purge begins to count again, except what CPUs count for themselves.
        let alone = retire(&space, alloc(&space, &request(&space, 400 * SIZE / 2)));
        assert_eq!(alone, 200 * SIZE / PAGE_SIZE);
        space.purge(None, true);
        // So does the last CPU, which has one area.
        for _ in 0..each {
            retire(&space, alloc(&space, &request(&space, pages * PAGE_SIZE)));
        }
        space.purge(None, true);
    }
    free_everything(&space);
}

/// Reads the number of lazy pages while a purge flushes.
#[derive(Default)]
struct Reader {
    space: Cell<Option<&'static Space<Watched<Unmapped, Reader>>>>,
    lazy: Cell<usize>,
}

impl Watch for Reader {
    fn flush(&self, _: Span, _: usize, flush: impl FnOnce() -> Done) -> Done {
        let space = self.space.get().expect("set by the test");
        self.lazy.set(space.lazy_pages());
        flush()
    }
}

/// If a purge hangs, users see what it has taken: areas in blocks and in the tree.
#[test]
fn pages_that_a_purge_flushes_are_lazy() {
    let tlb = Watched {
        tlb: Unmapped { has_shadow: false },
        watch: Reader::default(),
    };
    let options = Options {
        limit: Some(4),
        ..Options::default()
    };
    let space = Space::new(home_of(19), tlb, options).expect("memory");
    let space = &*Box::leak(Box::new(space));
    space.tlb().watch.space.set(Some(space));
    for sizes in [&[8, 200, 8][..], &[200], &[8]] {
        for pages in sizes {
            retire(space, alloc(space, &request(space, pages * PAGE_SIZE)));
        }
        let lazy = space.lazy_pages();
        assert_eq!(lazy, sizes.iter().sum());
        space.purge(None, false);
        assert_eq!(
            (space.tlb().watch.lazy.get(), space.lazy_pages()),
            (lazy, 0)
        );
    }
    free_everything(space);
}

/// Once a quarter of the pages that blocks may have are lazy, the answer exceeds any limit of C.
#[test]
fn lazy_pages_of_blocks_begin_a_purge_before_all_blocks_are_lazy() {
    const BLOCKS: usize = 4;
    const PAGES: usize = 32;
    const BATCH: usize = 128;
    cpu::be_on(0, 4);
    let space = space_of(home_of(20 * BLOCKS), BLOCKS);
    let most = BLOCKS * SIZE / PAGE_SIZE / 4;
    // A purge resets the count. Readers of the exact number do not put it off.
    for is_read in [false, true] {
        for lazy in (PAGES..=most).step_by(PAGES) {
            let area = space.unlink(alloc(&space, &request(&space, PAGES * PAGE_SIZE)));
            let area = area.expect("busy");
            // SAFETY: The area is unlinked, so its object is valid.
            assert!(unsafe { area.ptr().seen() }.is_in_block());
            let estimate = space.retire(area);
            if is_read {
                assert_eq!(space.lazy_pages(), lazy);
            }
            match lazy {
                _ if lazy == most => assert!(estimate > 1 << 19, "{estimate} pages"),
                _ if lazy % BATCH == 0 => assert_eq!(estimate, lazy),
                _ => assert_eq!(estimate, 0),
            }
        }
        space.purge(None, false);
    }
    free_everything(&space);
}

#[test]
fn each_cpu_has_memory_of_its_own() {
    const CPUS: usize = 10;
    cpu::be_on(0, CPUS);
    let space = World::new(home_of(20)).space().expect("memory");
    let memory = (0..CPUS).flat_map(|cpu| space.memory_of_cpu(CpuNumber::new(cpu)));
    let memory: Vec<_> = memory.collect();
    assert!(memory.iter().all(|address| !address.is_null()));
    assert_eq!(memory.iter().collect::<HashSet<_>>().len(), memory.len());
    assert!(memory.len() >= CPUS);
}
