// SPDX-License-Identifier: GPL-2.0

//! Which block of the pool a CPU takes next, and which searches for one are not repeated.

use crate::{
    base::{
        bits::UNITS,
        cpu::CpuNumber,
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    cpu,
    policy::blocks::{
        Room,
        IDLE_EPOCHS, //
    },
    pool::Pool,
    state::{
        area::{
            Attributes,
            NeverMapped, //
        },
        block::{
            Small,
            SIZE, //
        }, //
    },
    sys::{
        mm,
        trace, //
    }, //
};

/// A refill searches at most eight blocks, and the next refill continues behind them. After a success, the
/// lowest block comes first again. What was searched for in vain is remembered until there is new room.
#[test]
fn a_refill_continues_where_the_last_one_stopped() {
    const ALMOST_FULL: usize = 20;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    pool.add(&pool.cpus, 700, 1);
    pool.blocks.return_current(&pool.cpus);
    assert_eq!(pool.census(), (ALMOST_FULL + 1, ALMOST_FULL + 1, 0));
    // An area of the same band, but larger than the room in each block.
    assert!(!pool.alloc(3));
    for _ in 0..3 {
        assert!(!pool.refill(3));
    }
    assert!(pool.refill(3));
    assert_eq!(pool.census(), (ALMOST_FULL + 1, ALMOST_FULL, 0));
    pool.blocks.return_current(&pool.cpus);
    pool.blocks.release(
        &pool.cpus,
        pool.unlink(pool.start_of(0)),
        NeverMapped::in_test(),
    );
    // The freed area is the lowest of the lowest block, so it is used first.
    assert!(pool.refill(1));
    assert!(pool.has_busy(0));
    let block = Span::with_size(pool.start_of(0), SIZE).expect("not empty");
    let (_, seen) = pool.blocks.next_busy(block, 0).expect("busy");
    assert_eq!(seen.span().first(), pool.start_of(0));
    pool.empty_all(0..701);
}

/// A block in which a refill found no room is searched again for less, and for as much only
/// once there is new room in it.
#[test]
fn a_lack_of_room_is_forgotten_when_there_is_room() {
    let pool = Pool::new(100);
    pool.add_almost_full(0..1);
    assert!(!pool.refill(3));
    assert!(!pool.refill(3));
    // Two pages less: with the last one, there is room for three.
    let before_last = pool.start_of(1) - 4 * PAGE_SIZE;
    pool.blocks
        .release(&pool.cpus, pool.unlink(before_last), NeverMapped::in_test());
    assert!(pool.refill(3));
    pool.blocks.return_current(&pool.cpus);
    assert!(!pool.refill(3));
    pool.empty_all(0..1);
    assert!(pool.refill(3));
    pool.empty_all(0..1);
}

#[test]
fn a_steal_tries_all_blocks() {
    const ALMOST_FULL: usize = 20;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    let other = pool
        .cpus
        .iter()
        .find(|cpu| !core::ptr::eq(*cpu, pool.here()));
    let other = other.expect("two CPUs");
    pool.add(&pool.cpus, ALMOST_FULL, 1);
    // The current block of another CPU.
    for (here, there) in pool.here().current.iter().zip(other.current.iter()) {
        there.set(here.replace(None));
    }
    let small = pool.small(3);
    let stolen = pool.blocks.steal(&pool.cpus, small, &Attributes::NONE);
    assert!(stolen.is_some());
    assert_eq!(pool.census(), (ALMOST_FULL + 1, ALMOST_FULL, 0));
    pool.empty_all(0..ALMOST_FULL + 1);
}

/// A search that other requests have begun goes on where it was: it ends with the remaining blocks.
#[test]
fn a_steal_leaves_the_searches_of_others() {
    // One request looks at 16 at most.
    const ALMOST_FULL: usize = 20;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    let small = pool.small(3);
    let room = || pool.blocks.may_have_room(small);
    search_in_vain(&pool, small, room().expect("not remembered"));
    let stolen = pool.blocks.steal(&pool.cpus, small, &Attributes::NONE);
    assert!(stolen.is_none());
    search_in_vain(&pool, small, room().expect("not at the end"));
    assert!(room().is_none());
    pool.empty_all(0..ALMOST_FULL);
}

/// Calls `what` on another CPU.
fn on_another_cpu(what: impl Fn() + Sync) {
    let here = mm::cpu_hint();
    let try_once = || {
        let is_elsewhere = mm::cpu_hint() != here;
        if is_elsewhere {
            what();
        }
        is_elsewhere
    };
    // Each new thread is on the next CPU.
    std::thread::scope(|scope| while !scope.spawn(try_once).join().expect("no panic") {});
}

/// Also if a refill before has passed over all of them, because their owner used them lately.
#[test]
fn blocks_of_other_cpus_are_taken_if_there_is_no_other_room() {
    // As many as a refill tries.
    const ALMOST_FULL: usize = 8;
    let pool = Pool::new(100);
    on_another_cpu(|| pool.add_almost_full(0..ALMOST_FULL));
    assert!(!pool.refill(1));
    let small = pool.small(1);
    let taken = pool
        .blocks
        .take_anyones(&pool.cpus, small, &Attributes::NONE, None);
    assert!(taken.is_some());
    assert_eq!(pool.census(), (ALMOST_FULL, ALMOST_FULL - 1, 0));
    pool.empty_all(0..ALMOST_FULL);
}

/// A CPU takes its own former blocks, lowest first, and not one that another CPU has taken since, or that was
/// freed.
#[test]
fn a_cpu_takes_its_former_blocks_again() {
    const ALMOST_FULL: usize = 6;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    let take = || {
        let small = pool.small(1);
        let taken = pool
            .blocks
            .take_anyones(&pool.cpus, small, &Attributes::NONE, None);
        assert!(taken.is_some());
    };
    // Block 0 becomes the current block of another CPU, and block 1 another block.
    on_another_cpu(take);
    let first = pool.start_of(1);
    for unit in (0..UNITS - 2).step_by(2) {
        pool.blocks.release(
            &pool.cpus,
            pool.unlink(first + unit * PAGE_SIZE),
            NeverMapped::in_test(),
        );
    }
    assert_eq!(pool.take_empty(true), [1]);
    pool.add(&pool.cpus, 1, 9);
    assert!(pool.refill(1));
    assert!(pool
        .here()
        .current
        .iter()
        .any(|current| current.get().is_some_and(|block| block.entry() == 2)));
    assert!(pool.is_sound(&pool.cpus, true));
    pool.empty_all(0..ALMOST_FULL);
}

/// Searches all blocks of a band in vain, for lack of room for a new one.
fn search_in_vain(pool: &Pool, small: Small, room: Room) {
    let found = pool
        .blocks
        .take_anyones(&pool.cpus, small, &Attributes::NONE, Some(room));
    assert!(found.is_none());
}

/// A search that found no room is not repeated before there may be room for it.
#[test]
fn a_search_without_room_is_remembered_for_its_band() {
    let pool = Pool::new(1);
    let [small, other] = [1, 9].map(|pages| pool.small(pages));
    let may_have_room = |small| pool.blocks.may_have_room(small).is_some();
    let search = |small| {
        let room = pool
            .blocks
            .may_have_room(small)
            .expect("not remembered yet");
        search_in_vain(&pool, small, room);
    };
    search(small);
    assert!(!may_have_room(small) && may_have_room(other));
    // What made room after the request began is not forgotten.
    let before = pool
        .blocks
        .may_have_room(other)
        .expect("not remembered yet");
    pool.blocks.note_room();
    search_in_vain(&pool, other, before);
    assert!(may_have_room(small) && may_have_room(other));

    // A block that was reserved and not made, while another request was refused.
    assert!(pool.blocks.reserve(SIZE, 0) && !pool.blocks.reserve(SIZE, 0));
    search(small);
    pool.blocks.unreserve(SIZE);
    assert!(may_have_room(small));
    // The request that undoes its own reservation may note that there is no room.
    assert!(pool.blocks.reserve(SIZE, 0));
    search(small);
    pool.blocks.unreserve(SIZE);
    assert!(!may_have_room(small));

    // A block with room, an empty block, and one that is freed.
    pool.blocks.note_room();
    pool.add(&pool.cpus, 0, 1);
    search(small);
    pool.blocks.return_current(&pool.cpus);
    assert!(may_have_room(small));
    search(other);
    pool.empty_all(0..1);
    assert!(may_have_room(other));
    search(other);
    assert_eq!(pool.take_empty(true), [0]);
    assert!(may_have_room(other));
}

/// Creates a pool of blocks with room for four pages each, and more of them than one request searches.
fn pool_with_room_for_four() -> Pool {
    let pool = Pool::new(100);
    for index in 0..10 {
        pool.add(&pool.cpus, index, 4);
        while pool.alloc(4) {}
        let first = pool.unlink(pool.start_of(index));
        pool.blocks
            .release(&pool.cpus, first, NeverMapped::in_test());
    }
    pool.blocks.return_current(&pool.cpus);
    pool
}

/// What a request lacked is no lack for one that needs less, or no alignment, but it is for the same one. A search that
/// several requests continue has found only what all of them lack.
#[test]
fn a_lack_of_room_is_that_of_a_size() {
    // In pages, with the alignment: all are of one band.
    let (five, seven, aligned) = ((5, 1), (7, 1), (5, 4));
    for (requests, lacking) in [
        ([seven, seven], [false, true, false]),
        ([seven, five], [false, true, false]),
        ([five, seven], [false, true, false]),
        ([aligned, aligned], [false, false, true]),
        ([aligned, five], [false, false, true]),
        ([seven, aligned], [false, false, false]),
        ([five, five], [true, true, true]),
    ] {
        let pool = pool_with_room_for_four();
        let small = |(pages, align)| {
            let small = pool.blocks.small(pages * PAGE_SIZE, align * PAGE_SIZE);
            small.expect("small")
        };
        let room = |request| pool.blocks.may_have_room(small(request));
        let late = [seven, seven].map(|request| room(request).expect("a new pool"));
        for request in requests {
            let room = room(request).expect("not at the end");
            search_in_vain(&pool, small(request), room);
        }
        let lacks = || [five, seven, aligned].map(|request| room(request).is_none());
        assert_eq!(lacks(), lacking);
        // Requests for more, which have asked before, do not undo it.
        for room in late {
            search_in_vain(&pool, small(seven), room);
        }
        assert_eq!(lacks()[..2], [lacking[0], true]);
        pool.empty_all(0..10);
    }
}

/// A search over many blocks goes on in several requests. Room that was made behind it is not hidden.
#[test]
fn room_behind_a_search_is_found_later() {
    const ALMOST_FULL: usize = 10;
    let pool = Pool::new(100);
    pool.add_almost_full(0..ALMOST_FULL);
    // An area of the same band, but larger than the room in each block.
    let small = pool.small(3);
    let room = || pool.blocks.may_have_room(small).expect("not remembered");
    search_in_vain(&pool, small, room());
    let start = pool.start_of(0);
    for addr in [start, start + 2 * PAGE_SIZE] {
        pool.blocks
            .release(&pool.cpus, pool.unlink(addr), NeverMapped::in_test());
    }
    search_in_vain(&pool, small, room());
    let found = pool
        .blocks
        .take_anyones(&pool.cpus, small, &Attributes::NONE, Some(room()));
    assert!(found.is_some());
    // Without new room, the end of the search is remembered.
    search_in_vain(&pool, small, room());
    assert!(pool.blocks.may_have_room(small).is_none());
    pool.empty_all(0..ALMOST_FULL);
}

/// CPUs take idle blocks of their NUMA node, and those of another only for lack of room for a new one.
#[test]
fn idle_blocks_stay_on_their_node() {
    const CPUS: usize = 4;
    mm::set_cpus_per_node(CPUS / 2);
    cpu::be_on(1, CPUS);
    let pool = Pool::new(100);
    pool.add(&pool.cpus, 0, 1);
    pool.blocks.return_current(&pool.cpus);
    // Not yet idle: not even for the other CPU of the node.
    cpu::be_on(0, CPUS);
    assert!(!pool.refill(1));
    for _ in 0..IDLE_EPOCHS {
        pool.blocks.end_purge(true);
        assert!(!pool.refill(1));
    }
    pool.blocks.end_purge(true);
    for other in [2, 3] {
        cpu::be_on(other, CPUS);
        assert!(!pool.refill(1), "CPU {other} took a block of another node");
    }
    cpu::be_on(0, CPUS);
    assert!(pool.refill(1));
    pool.blocks.return_current(&pool.cpus);
    cpu::be_on(3, CPUS);
    let (small, none) = (pool.small(1), &Attributes::NONE);
    assert!(!pool.refill(1));
    let area = pool.blocks.take_anyones(&pool.cpus, small, none, None);
    assert!(area.is_some());
    pool.empty_all(0..1);
}

/// A CPU keeps its current block, unless it is idle when the limit of blocks is reached.
#[test]
fn current_blocks_that_are_idle_go_back_to_the_pool() {
    let pool = Pool::new(100);
    pool.add(&pool.cpus, 0, 1);
    for _ in 0..IDLE_EPOCHS {
        pool.blocks.return_idle(&pool.cpus);
        pool.blocks.end_purge(true);
    }
    pool.blocks.return_idle(&pool.cpus);
    assert_eq!(pool.census(), (1, 0, 0));
    pool.blocks.end_purge(true);
    pool.add(&pool.cpus, 1, 9);
    pool.blocks.return_idle(&pool.cpus);
    assert_eq!(pool.census(), (2, 1, 0));
    assert!(pool.has_busy(0) && pool.refill(1));
    pool.empty_all(0..2);
}

/// A refill looks at 16 blocks at most, also if it may take none of them. After a purge, the first one comes first again.
#[test]
fn a_refill_passes_over_blocks_in_steps() {
    const CPUS: usize = 3;
    const LOOKS: usize = 16;
    cpu::be_on(1, CPUS);
    let pool = Pool::new(100);
    pool.add(&pool.cpus, LOOKS, 1);
    pool.blocks.return_current(&pool.cpus);
    for _ in 0..=IDLE_EPOCHS {
        pool.blocks.end_purge(true);
    }
    for index in 0..LOOKS {
        // Each remembers half of them.
        cpu::be_on(1 + index % 2, CPUS);
        pool.add(&pool.cpus, index, 1);
    }
    pool.blocks.return_current(&pool.cpus);
    cpu::be_on(0, CPUS);
    assert!(!pool.refill(1));
    pool.blocks.end_purge(false);
    assert!(!pool.refill(1));
    assert!(pool.refill(1));
    pool.empty_all(0..LOOKS + 1);
}

/// The tracepoint says whose the block was before: of the CPU that makes it, if it is new.
#[test]
fn a_trace_of_a_block_has_its_former_owner() {
    const CPUS: usize = 3;
    cpu::be_on(1, CPUS);
    let pool = Pool::new(100);
    let owner = || trace::last_owner().map(CpuNumber::number);
    pool.add(&pool.cpus, 0, 1);
    assert_eq!(owner(), Some(1));
    pool.blocks.return_current(&pool.cpus);
    cpu::be_on(2, CPUS);
    let (small, none) = (pool.small(1), &Attributes::NONE);
    let area = pool.blocks.take_anyones(&pool.cpus, small, none, None);
    assert!(area.is_some());
    assert_eq!(owner(), Some(1));
    pool.blocks.return_current(&pool.cpus);
    assert!(pool.refill(1));
    assert_eq!(owner(), Some(2));
    pool.empty_all(0..1);
}

/// A CPU remembers 16 former blocks of a band. Another CPU of its node may take a further one at once.
#[test]
fn a_block_that_its_cpu_does_not_remember_is_idle() {
    const CPUS: usize = 2;
    const REMEMBERED: usize = 16;
    mm::set_cpus_per_node(CPUS);
    cpu::be_on(1, CPUS);
    let pool = Pool::new(100);
    // Later than any block could become idle by its age.
    for _ in 0..=IDLE_EPOCHS {
        pool.blocks.end_purge(true);
    }
    for index in 0..=REMEMBERED {
        pool.add(&pool.cpus, index, 1);
    }
    // The last one is still current.
    cpu::be_on(0, CPUS);
    assert!(!pool.refill(1));
    cpu::be_on(1, CPUS);
    pool.blocks.return_current(&pool.cpus);
    cpu::be_on(0, CPUS);
    // A search passes over eight that are remembered, and the next one goes on behind them.
    assert!((0..=REMEMBERED / 8).any(|_| pool.refill(1)));
    assert!(pool.here().current.iter().any(|current| current
        .get()
        .is_some_and(|block| block.entry() == REMEMBERED)));
    pool.empty_all(0..REMEMBERED + 1);
}

/// What a CPU remembers of a block that it takes again is forgotten, so there is always room.
#[test]
fn a_block_that_its_cpu_takes_again_and_again_is_remembered_once() {
    const CPUS: usize = 2;
    cpu::be_on(1, CPUS);
    let pool = Pool::new(100);
    pool.add(&pool.cpus, 0, 1);
    for _ in 0..20 {
        pool.blocks.return_current(&pool.cpus);
        assert!(pool.refill(1));
    }
    pool.blocks.return_current(&pool.cpus);
    cpu::be_on(0, CPUS);
    assert!(!pool.refill(1));
    pool.empty_all(0..1);
}
