// SPDX-License-Identifier: GPL-2.0

//! The list of all ranges: read while threads allocate and free, and for a large system that is made of the areas
//! of a small one.

use crate::{
    base::range::{Span, PAGE_SIZE},
    check::{
        fixtures::{FlushLog, World},
        random::Random,
    },
    cpu,
    policy::space::{Request, Space},
};
use std::fmt::Write;

/// Reads the whole list with buffers of `room` bytes.
pub(super) fn read_all(space: &Space<FlushLog>, room: usize) -> String {
    let mut text = Vec::new();
    let mut position = 0;
    while space
        .read_list(&mut position, room, |part| {
            text.extend_from_slice(part);
            Ok(())
        })
        .expect("a reader that takes everything")
        > 0
    {}
    String::from_utf8(text).expect("letters")
}

/// Returns the address after the `0x` of `text`.
fn address(text: &str) -> Option<usize> {
    usize::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Serves the areas of `boot`, the text of a /proc/vmallocinfo, `copies` times on 64 CPUs in `gib` GiB of space, and
/// frees half of them in random order, with purges between. Returns the list and the /proc/vmallocinfo of that
/// system, without lazy areas.
pub(crate) fn large(boot: &str, copies: usize, gib: usize) -> Result<(String, String), String> {
    const CPUS: usize = 64;
    let areas = boot.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let owner = rest.trim_start().split_once(' ')?.1;
        (owner != "unpurged vm_area")
            .then_some((address(end)?.checked_sub(address(start)?)?, owner))
    });
    let areas = areas.collect::<Vec<_>>();
    if areas.is_empty() {
        return Err("no area in the text".into());
    }
    cpu::be_on(0, CPUS);
    let home = Span::with_size(0xffff_8000_8000_0000, gib << 30).ok_or("too large")?;
    let space = World::new(home).space().map_err(|err| format!("{err:?}"))?;
    let mut random = Random::new(1);
    let mut live = Vec::new();
    for number in 0..copies * areas.len() {
        cpu::be_on(random.below(CPUS), CPUS);
        let (size, owner) = areas[random.below(areas.len())];
        let request = Request {
            size,
            align: PAGE_SIZE,
            ..Request::any_page(home)
        };
        if let Ok(area) = space.alloc(request) {
            live.push((area.span().first(), size, owner));
        }
        if random.below(2) == 0 && !live.is_empty() {
            let (start, ..) = live.swap_remove(random.below(live.len()));
            space.retire(space.unlink(start).ok_or("an area is lost")?);
        }
        if number % 2048 == 2047 {
            space.purge(None, false);
        }
    }
    live.sort();
    let mut info = String::new();
    for (start, size, owner) in &live {
        let end = start + size;
        writeln!(info, "{start:#x}-{end:#x} {size:7} {owner}").map_err(|err| err.to_string())?;
    }
    let list = read_all(&space, 1 << 16);
    for (start, ..) in live {
        space.retire(space.unlink(start).ok_or("an area is lost")?);
    }
    space.purge(None, true);
    Ok((list, info))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::{span_of, SIZE};
    use std::{
        panic::AssertUnwindSafe,
        sync::atomic::{AtomicUsize, Ordering},
    };

    const THREADS: usize = 8;

    /// Checks the form of a list and the order of its lines. Returns how many busy areas it has, how many other
    /// areas, and how many slots that are neither free nor busy.
    fn judge(text: &str) -> (usize, usize, usize) {
        let (mut busy, mut others, mut restless) = (0, 0, 0);
        let mut at = 0;
        let (head, rest) = text.split_once('\n').expect("a head");
        assert!(head.starts_with("vmap_rust map 1 page 4096 home 0x"));
        for line in rest.lines() {
            let words = line.split(' ').collect::<Vec<_>>();
            let (start, end) = words[0].split_once('-').expect("a range");
            let (start, end) = (address(start).expect("hex"), address(end).expect("hex"));
            assert!(start >= at && end > start, "{line}");
            at = end;
            match &words[1..] {
                ["area", "busy"] => busy += 1,
                ["area", _] => others += 1,
                ["block", "changing"] => (),
                ["block", "cpu", cpu, "current" | "pool", "slot", pages, slots] => {
                    let [cpu, pages] = [cpu, pages].map(|word| word.parse::<usize>());
                    assert!(cpu.expect("a number") < THREADS);
                    let rest =
                        (end - start) / PAGE_SIZE - slots.len() * pages.clone().expect("a number");
                    assert!(rest < pages.expect("a number"), "{line}");
                    assert!(slots.chars().all(|slot| ".Bulf?".contains(slot)), "{line}");
                    busy += slots.matches('B').count();
                    restless += slots.chars().filter(|slot| "ulf?".contains(*slot)).count();
                }
                _ => panic!("a line of unknown form: {line}"),
            }
        }
        (busy, others, restless)
    }

    /// Each thread keeps some areas, and the last list has exactly these.
    #[test]
    fn lists_are_whole_while_eight_threads_allocate() {
        const LISTS: usize = 20;
        // Steps of a thread for each list: with more, lists get longer and longer on a machine that is busy.
        const STEPS: usize = 150;
        cpu::be_on(0, THREADS);
        let home = span_of(37 << 30, 16 << 30);
        let space = World::new(home).space().expect("memory");
        let lists = AtomicUsize::new(0);
        let mut kept = Vec::new();
        let work = |thread: usize| {
            cpu::be_on(thread, THREADS);
            let mut random = Random::new(thread as u64);
            let mut mine = Vec::new();
            for step in 0..LISTS * STEPS {
                while step / STEPS > lists.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                let pages = 1 << random.below(13);
                let request = Request::bytes(home, (pages + random.below(pages)) * PAGE_SIZE);
                if let Ok(area) = space.alloc(request) {
                    mine.push(area.span().first());
                }
                if mine.len() > 20 {
                    let start = mine.swap_remove(random.below(mine.len()));
                    space.retire(space.unlink(start).expect("mine"));
                }
            }
            mine
        };
        let work = &work;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || work(thread)))
                .collect();
            cpu::be_on(0, THREADS);
            let read = std::panic::catch_unwind(AssertUnwindSafe(|| {
                for list in 1..=LISTS {
                    judge(&read_all(&space, 4096));
                    space.purge(None, false);
                    lists.store(list, Ordering::Relaxed);
                }
            }));
            // The threads must end after a failure, too.
            lists.store(LISTS, Ordering::Relaxed);
            read.expect("lists are whole");
            for thread in threads {
                kept.extend(thread.join().expect("a thread"));
            }
        });
        space.purge(None, true);
        assert_eq!(judge(&read_all(&space, 4096)), (kept.len(), 0, 0));
        for start in kept {
            space.retire(space.unlink(start).expect("kept"));
        }
        space.purge(None, true);
        assert_eq!(judge(&read_all(&space, 4096)), (0, 0, 0));
    }

    /// What a reader has listed last may be a part of a larger lazy area by now, which it must not list then: lists go up.
    #[test]
    fn a_lazy_area_that_begins_before_is_not_listed() {
        cpu::be_on(0, 1);
        let home = span_of(SIZE, 8 * SIZE);
        let space = World::new(home).space().expect("memory");
        let request = Request::bytes(home, 4 * PAGE_SIZE);
        let area = space.alloc(request).expect("room").span();
        space.retire(space.unlink(area.first()).expect("there"));
        assert_eq!(space.next_lazy(None), Some(area));
        assert_eq!(
            space.next_lazy(Some(span_of(area.first(), PAGE_SIZE))),
            None
        );
        space.purge(None, true);
        assert_eq!(space.next_lazy(None), None);
    }

    #[test]
    fn a_large_system_has_the_areas_of_its_boot() {
        let boot = "0xffff800080000000-0xffff800080005000   20480 kernel_clone+0x1/0x2 pages=4 vmalloc\n\
                    0xffff800080005000-0xffff800080007000    8192 ioremap_a+0x1/0x2 phys=0x9000000 ioremap\n\
                    0xffff800090000000-0xffff800090801000 8392704 alloc_large_system_hash+0x1/0x2 pages=2048 vmalloc\n";
        let (list, info) = large(boot, 300, 128).expect("room");
        let sizes = |text: &str| {
            let ranges = text
                .lines()
                .filter_map(|line| line.split_once(' ')?.0.split_once('-'));
            ranges
                .map(|(start, end)| address(end).expect("hex") - address(start).expect("hex"))
                .sum::<usize>()
        };
        let areas = info.lines().count();
        assert!(areas > 100 && areas < 800);
        assert!(sizes(&info) > 0 && sizes(&list) >= sizes(&info));
        let cpus: std::collections::BTreeSet<_> = list
            .lines()
            .filter_map(|line| line.split(' ').nth(3))
            .collect();
        assert!(cpus.len() > 32);
        assert!(large("", 1, 128).is_err());
    }
}
