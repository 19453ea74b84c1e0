// SPDX-License-Identifier: GPL-2.0

//! KUnit cases of cached ranges: where a range is found, which locks a search takes, and what a sweep takes.

#[kernel::prelude::kunit_tests(vmap_rust_cache)]
mod tests {
    use crate::{
        base::{
            cpu::CpuNumber,
            range::{
                Span,
                PAGE_SIZE, //
            }, //
        },
        check::random::Random,
        policy::{
            cache::{
                Place,
                RangeCache,
                Sweep,
                MAX_PARTS,
                MAX_TRIES, //
            },
            cache_part::SIZES, //
        },
        state::{
            area::{
                Area,
                Attributes,
                Cached,
                NeverMapped, //
            },
            pins::Pins,
            table::Table, //
        },
        sys::{
            grace::Guard,
            maple::StoreError,
            mm, //
        }, //
    };
    use kernel::{
        prelude::*,
        static_lock_class, //
    };

    /// An index to make cached ranges in, one above the other.
    struct Ranges {
        table: Table,
        pins: Pins,
        next: usize,
    }

    impl Ranges {
        fn new() -> Result<Self> {
            Ok(Self {
                table: Table::new(c"vmap_rust test index", static_lock_class!())?,
                pins: Pins::new()?,
                next: 1 << 30,
            })
        }

        fn make(&mut self, pages: usize) -> Result<Area<Cached>> {
            let span = Span::with_size(self.next, pages * PAGE_SIZE).ok_or(EINVAL)?;
            self.next = span.end();
            let mut area = Area::alloc(mm::Gfp::KERNEL, -1).ok_or(ENOMEM)?;
            let mut table = self.table.lock();
            loop {
                use crate::base::fit::Gaps;
                table.gap_around(span.first()).ok_or(EINVAL)?;
                area = match table.publish(area, span, &Attributes::NONE) {
                    Ok(_) => break,
                    Err((_, StoreError::Mismatch)) => return Err(EINVAL),
                    Err((area, StoreError::NoMemory)) => area,
                };
                if !table.nomem(mm::Gfp::KERNEL) {
                    return Err(ENOMEM);
                }
            }
            drop(table);
            let area = self.table.unlink(span.first(), &Guard::new());
            let area = self.pins.wait_for_readers(area.ok_or(EINVAL)?);
            Ok(area.never_mapped(NeverMapped::in_test()).cached())
        }

        /// Frees a range, and returns its size.
        fn free(&self, mut area: Area<Cached>) -> Result<usize> {
            let pages = area.pages();
            let mut table = self.table.lock();
            loop {
                area = match table.give_back(area) {
                    Ok(_) => return Ok(pages),
                    Err((_, StoreError::Mismatch)) => return Err(EINVAL),
                    Err((area, StoreError::NoMemory)) => area,
                };
                if !table.nomem(mm::Gfp::KERNEL) {
                    return Err(ENOMEM);
                }
            }
        }

        fn free_all(&self, cache: &RangeCache) -> Result<usize> {
            let mut sweep = Sweep::default();
            let mut freed = 0;
            while let Some(area) = cache.sweep(&mut sweep) {
                self.free(area)?;
                freed += 1;
            }
            assert_eq!(cache.validate()?, 0);
            Ok(freed)
        }
    }

    /// The sizes that a CPU looks for, and on which CPU they are.
    #[test]
    fn a_range_is_found_among_many_others_of_any_size() -> Result {
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(8)?;
        // The second row is of the groups of the first: 1025, 2049 and 4097 modulo 61 are 49, 36 and 10.
        let wanted = [1025, 2049, 4097];
        let others = [49, 110, 171, 232, 36, 97, 10, 71, 132];
        for cpu in [2, 5] {
            for round in 0..6 {
                for &pages in Iterator::chain(others.iter(), &wanted) {
                    if round == 3 || !wanted.contains(&pages) {
                        cache.put(ranges.make(pages)?, Some(CpuNumber::new(cpu)));
                    }
                }
            }
        }
        assert_eq!(cache.validate()?, 2 * (6 * others.len() + wanted.len()));
        for pages in wanted {
            for (cpu, place) in [(5, Place::Here), (5, Place::Elsewhere)] {
                let (area, found) = cache
                    .take_at(CpuNumber::new(cpu), pages, |_| true)
                    .ok_or(EINVAL)?;
                assert_eq!((area.pages(), found), (pages, place));
                ranges.free(area)?;
            }
            assert!(cache.take_at(CpuNumber::new(0), pages, |_| true).is_none());
        }
        assert_eq!(ranges.free_all(&cache)?, 12 * others.len());
        Ok(())
    }

    #[test]
    fn a_size_that_nobody_has_cached_takes_no_lock() -> Result {
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(8)?;
        cache.put(ranges.make(1025)?, Some(CpuNumber::new(3)));
        cache.put(ranges.make(2049)?, Some(CpuNumber::new(6)));
        let locked = cache.parts.get(CpuNumber::new(3)).lists.lock();
        // These would spin for ever, or lockdep would report them.
        for cpu in 0..8 {
            assert!(cache.take_at(CpuNumber::new(cpu), 4097, |_| true).is_none());
        }
        drop(locked);
        assert_eq!(cache.candidates(4097), 0);
        // Only the lock of one part.
        assert_eq!(cache.candidates(2049), 1 << 6);
        assert!(cache.take_at(CpuNumber::new(0), 2049, |_| false).is_none());
        assert_eq!(cache.candidates(1025), 1 << 3);
        assert_eq!(ranges.free_all(&cache)?, 2);
        assert_eq!((cache.candidates(1025), cache.candidates(2049)), (0, 0));
        Ok(())
    }

    #[test]
    fn cpus_share_parts_if_there_are_many() -> Result {
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(3 * MAX_PARTS)?;
        assert_eq!(cache.parts.len().get(), MAX_PARTS);
        for cpu in 0..3 * MAX_PARTS {
            cache.put(ranges.make(2000)?, Some(CpuNumber::new(cpu)));
        }
        assert_eq!(cache.candidates(2000), (1 << MAX_PARTS) - 1);
        for cpu in (0..3 * MAX_PARTS).rev() {
            let (area, place) = cache
                .take_at(CpuNumber::new(cpu), 2000, |_| true)
                .ok_or(EINVAL)?;
            assert_eq!(place, Place::Here);
            ranges.free(area)?;
        }
        cache.put(ranges.make(2000)?, Some(CpuNumber::new(MAX_PARTS + 1)));
        assert_eq!(cache.candidates(2000), 2);
        let (area, place) = cache
            .take_at(CpuNumber::new(0), 2000, |_| true)
            .ok_or(EINVAL)?;
        assert_eq!(place, Place::Elsewhere);
        ranges.free(area)?;
        assert_eq!(cache.validate()?, 0);
        Ok(())
    }

    /// A request with an alignment skips ranges of its size, but not for ever.
    #[test]
    fn ranges_that_do_not_fit_are_skipped() -> Result {
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(2)?;
        let mut last = 0;
        for _ in 0..2 * MAX_TRIES {
            let area = ranges.make(3)?;
            last = area.span().ok_or(EINVAL)?.first();
            cache.put(area, Some(CpuNumber::new(1)));
        }
        let is_last = |area: &Area<Cached>| area.span().is_some_and(|span| span.first() == last);
        assert!(cache.take_at(CpuNumber::new(0), 3, is_last).is_none());
        // The next request sees the others.
        let (area, _) = cache.take_at(CpuNumber::new(0), 3, is_last).ok_or(EINVAL)?;
        ranges.free(area)?;
        assert_eq!(ranges.free_all(&cache)?, 2 * MAX_TRIES - 1);
        Ok(())
    }

    /// With more sizes than lists, the rest shares a list. Emptied lists serve new sizes.
    #[test]
    fn there_may_be_more_sizes_than_lists() -> Result {
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(1)?;
        for _ in 0..3 {
            for pages in 1..=SIZES + MAX_TRIES {
                cache.put(ranges.make(pages)?, Some(CpuNumber::new(0)));
            }
            assert_eq!(cache.validate()?, SIZES + MAX_TRIES);
            for pages in (1..=SIZES + MAX_TRIES).rev() {
                let (area, _) = cache
                    .take_at(CpuNumber::new(0), pages, |_| true)
                    .ok_or(EINVAL)?;
                assert_eq!(ranges.free(area)?, pages);
                assert!(cache.take_at(CpuNumber::new(0), pages, |_| true).is_none());
                cache.validate()?;
            }
        }
        Ok(())
    }

    /// Also if all are added again: to the first CPU, or to one that the sweep has not reached.
    #[test]
    fn a_sweep_takes_each_range_and_ends() -> Result {
        for (again, expected) in [(0, [1, 1, 1, 1]), (2, [2, 2, 1, 1])] {
            let mut ranges = Ranges::new()?;
            let cache = RangeCache::for_cpus(4)?;
            let mut starts = KVec::new();
            for cpu in 0..4 {
                for pages in [7, 7, 8, 9] {
                    starts.push((cpu, ranges.next), GFP_KERNEL)?;
                    cache.put(ranges.make(pages + cpu)?, Some(CpuNumber::new(cpu)));
                }
            }
            let mut seen = KVec::new();
            let mut sweep = Sweep::default();
            while let Some(area) = cache.sweep(&mut sweep) {
                seen.push(area.span().ok_or(EINVAL)?.first(), GFP_KERNEL)?;
                cache.put(area, Some(CpuNumber::new(again)));
                assert!(seen.len() <= 2 * starts.len());
            }
            for &(cpu, start) in starts.iter() {
                let times = seen.iter().filter(|&&seen| seen == start).count();
                assert_eq!(times, expected[cpu]);
            }
            assert_eq!(cache.validate()?, starts.len());
            assert_eq!(ranges.free_all(&cache)?, starts.len());
        }
        Ok(())
    }

    #[test]
    fn random_steps_agree_with_a_list() -> Result {
        const CPUS: usize = 5;
        // Each range has addresses of its own, which 32 bits do not have for more.
        const ROUNDS: usize = if usize::BITS == 32 { 1000 } else { 3000 };
        let seed = mm::random_seed();
        pr_info!("random steps of the range cache: seed {:#x}\n", seed);
        let mut random = Random::new(seed);
        let mut ranges = Ranges::new()?;
        let cache = RangeCache::for_cpus(CPUS)?;
        // Of each cached range the CPU and the size.
        let mut model: KVec<(usize, usize)> = KVec::new();
        for _ in 0..ROUNDS {
            let cpu = random.below(CPUS);
            let pages = [1025, 49, 110, 2049, 36, 4097, 1][random.below(7)];
            let has = |cpu| model.contains(&(cpu, pages));
            let word = (0..CPUS).fold(0, |word, cpu| word | usize::from(has(cpu)) << cpu);
            assert_eq!(cache.candidates(pages) & word, word);
            if random.below(2) == 0 && model.len() < 60 {
                model.push((cpu, pages), GFP_KERNEL)?;
                cache.put(ranges.make(pages)?, Some(CpuNumber::new(cpu)));
                continue;
            }
            let expected = if word & 1 << cpu != 0 {
                Some(Place::Here)
            } else if word != 0 {
                Some(Place::Elsewhere)
            } else {
                None
            };
            let found = cache.take_at(CpuNumber::new(cpu), pages, |_| true);
            let place = found.as_ref().map(|&(_, place)| place);
            assert_eq!(place, expected);
            if let Some((area, _)) = found {
                assert_eq!(ranges.free(area)?, pages);
                // The next CPU with a range of this size.
                let from = (0..CPUS).map(|step| (cpu + step) % CPUS);
                let from = from.clone().find(|&cpu| has(cpu)).ok_or(EINVAL)?;
                let mut left = 1;
                model.retain(|&mut known| {
                    let take = left == 1 && known == (from, pages);
                    left -= usize::from(take);
                    !take
                });
            }
            assert_eq!(cache.len(), model.len());
            assert_eq!(cache.validate()?, model.len());
        }
        assert_eq!(ranges.free_all(&cache)?, model.len());
        Ok(())
    }
}
