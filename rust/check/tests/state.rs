// SPDX-License-Identifier: GPL-2.0

//! Values of CPUs, classes of sizes, and the slots of a block. A module of `state`, whose private items it uses.

#[kernel::prelude::kunit_tests(vmap_rust_per_cpu)]
mod per_cpu {
    use crate::state::prelude::*;

    #[test]
    fn each_cpu_has_a_value_on_lines_of_its_own() -> Result {
        let mut next = 0;
        let values = PerCpu::new(|_| {
            next += 1;
            Ok(next - 1)
        })?;
        let count = mm::cpu_count();
        assert!(values.iter().copied().eq(0..count));
        let align = align_of::<CacheAligned<usize>>();
        assert!(align >= 64);
        assert_eq!(size_of::<CacheAligned<usize>>(), align);
        for cpu in 0..count {
            let value = values.get(CpuNumber::new(cpu));
            assert_eq!(*value, cpu);
            assert_eq!(core::ptr::from_ref(value).addr() % align, 0);
        }
        let [behind, last] = [count, usize::MAX].map(|cpu| *values.get(CpuNumber::new(cpu)));
        assert_eq!([behind, last], [0, 0]);
        assert!(*values.here() < count);
        Ok(())
    }
}

#[kernel::prelude::kunit_tests(vmap_rust_batch)]
mod batches {
    use crate::state::{
        batch::*,
        prelude::*, //
    };

    /// Adds a slot to the batch of this CPU. Returns whether the batch is due then; [`None`] without room.
    fn add(batches: &PerCpu<Batch>, page: usize, pages: usize) -> Option<bool> {
        // SAFETY: No directory has the batch, so nobody looks for the block of the slot.
        let slot = unsafe { LazySlot::new(page) };
        match batches.with_own(|batch| batch.add(slot, pages)).1 {
            Added::Waits => Some(false),
            Added::IsDue | Added::Alone(_) => Some(true),
            Added::NoRoom(slot) => {
                assert_eq!(slot.start(), page * PAGE_SIZE);
                None
            }
        }
    }

    /// Takes up to `count` slots out. Returns whether these are the pages from `first` on, and how many were there.
    fn take(batch: &Batch, first: usize, count: usize) -> (bool, usize) {
        let (mut is_right, mut taken) = (true, 0);
        for slot in batch.take().take(count) {
            is_right &= slot.start() == (first + taken) * PAGE_SIZE;
            taken += 1;
        }
        (is_right, taken)
    }

    /// Also where the ring begins again, and after only some were taken.
    #[test]
    fn a_batch_gives_back_each_slot_once_and_in_order() -> Result {
        mm::stay_on_this_cpu()?;
        let batches = PerCpu::new(|_| Batch::new(usize::MAX))?;
        let batch = batches.here();
        let mut added = 0;
        for some in [1, LEN - 1, LEN, 7] {
            assert!(!batch.is_waiting());
            let first = added;
            while added - first < LEN {
                let is_last = added - first == LEN - 1;
                assert_eq!(add(&batches, added, 1), Some(is_last));
                added += 1;
            }
            assert_eq!(add(&batches, added, 1), None);
            assert!(batch.is_waiting());
            assert_eq!(take(batch, first, some), (true, some));
            assert_eq!(take(batch, first + some, LEN), (true, LEN - some));
            assert_eq!(batch.retired(), added);
        }
        Ok(())
    }

    #[test]
    fn a_batch_is_due_with_so_many_pages() -> Result {
        mm::stay_on_this_cpu()?;
        let batches = PerCpu::new(|_| Batch::new(7))?;
        // Who else notes it does not put off the next time.
        let due = [3, 3, 1, 0, 6].map(|pages| add(&batches, 0, pages));
        assert_eq!(due, [false, false, true, false, false].map(Some));
        let pages = [(); 2].map(|()| batches.here().take().pages());
        assert_eq!(pages, [13, 0]);
        let due = [1, 6, 6].map(|pages| add(&batches, 0, pages));
        assert_eq!(due, [true, false, true].map(Some));
        assert_eq!(batches.here().take().pages(), 13);
        // Areas that are as large as a batch are not in it, but they count.
        let due = [7, 8].map(|pages| add(&batches, 0, pages));
        assert_eq!(due, [Some(true); 2]);
        assert_eq!(batches.here().retired(), 10);
        assert_eq!(batches.here().take().count(), 8);
        for most in 0..2 {
            let batches = PerCpu::new(|_| Batch::new(most))?;
            assert_eq!(add(&batches, 0, 1), Some(true));
        }
        Ok(())
    }

    /// With pages of any size, and any number of possible CPUs, of which any number is online.
    #[test]
    fn uncounted_pages_stay_below_a_quarter_of_the_limit() {
        for page_size in [4 << 10, 16 << 10, 64 << 10] {
            for possible in 1_usize..=8192 {
                // `fls()` grows after these numbers, so between them the last one is the worst.
                for online in (1..=14).map(|log| possible.min((1 << log) - 1)) {
                    // CAST: A logarithm fits in a `usize`.
                    let fls = online.ilog2() as usize + 1;
                    let limit = fls * ((32 << 20) / page_size);
                    assert!(online * lazy_batch(possible, page_size) <= limit / 4);
                }
            }
        }
        assert_eq!(lazy_batch(1, PAGE_SIZE), 128);
        assert_eq!(lazy_batch(256, 4 << 10), 64);
        assert_eq!(lazy_batch(0, PAGE_SIZE), lazy_batch(1, PAGE_SIZE));
    }
}

#[kernel::prelude::kunit_tests(vmap_rust_class)]
mod classes {
    use crate::state::prelude::*;

    #[test]
    fn each_size_gets_the_smallest_slot() {
        let mut before = 0;
        for pages in 1..=MOST_PAGES {
            let class = Class::for_request(pages * PAGE_SIZE, 1, MOST_PAGES);
            let slot = class.map_or(0, Class::slot_pages);
            assert!(slot >= pages && slot >= before);
            // A quarter, or less than a table of PTEs, is lost at most.
            assert!(
                pages <= EXACT && slot == pages || slot - pages <= (pages / 4).max(TABLE_PAGES - 1)
            );
            assert!(slot <= TABLE_PAGES || slot % TABLE_PAGES == 0);
            before = slot;
        }
        assert_eq!(
            Class::for_request((MOST_PAGES + 1) * PAGE_SIZE, 1, MOST_PAGES),
            None
        );
        assert_eq!(Class::for_request(0, 1, MOST_PAGES), None);
        for size in [
            1,
            PAGE_SIZE - 1,
            PAGE_SIZE + 1,
            9 * PAGE_SIZE - 8,
            usize::MAX,
        ] {
            assert_eq!(Class::for_request(size, 1, MOST_PAGES), None);
        }
    }

    #[test]
    fn an_aligned_request_gets_aligned_slots() {
        for shift in 0..15 {
            for pages in [1, 2, 5, 9, 33, 513, 4097, 16384] {
                let align = PAGE_SIZE << shift;
                let Some(class) = Class::for_request(pages * PAGE_SIZE, align, MOST_PAGES) else {
                    assert!(pages.max(1 << shift) > MOST_PAGES / 2);
                    continue;
                };
                assert!(class.slot_pages() >= pages);
                assert_eq!(class.slot_pages() % (1 << shift), 0);
                assert!(class.block_pages() >= 1 << shift);
            }
        }
    }

    #[test]
    fn smaller_classes_have_smaller_blocks() {
        for class in Class::all() {
            let least = least_slot(class.block_size());
            let smallest = Class::for_request(least, 1, MOST_PAGES);
            assert!(smallest.is_some_and(|found| found.slot_pages() <= class.slot_pages()));
            for smaller in Class::all().take_while(|class| class.slot_pages() * PAGE_SIZE < least) {
                assert!(smaller.block_size() < class.block_size());
            }
        }
        assert!(least_slot(usize::MAX) > MOST_PAGES);
    }

    #[test]
    fn slots_fill_blocks_that_are_powers_of_two() {
        for class in Class::all() {
            assert!(class.block_pages().is_power_of_two());
            assert!((TABLE_PAGES..=MOST_BLOCK_PAGES).contains(&class.block_pages()));
            assert!((12..=MAP_BITS).contains(&class.slots()));
        }
    }
}

#[kernel::prelude::kunit_tests(vmap_rust_block)]
mod slots {
    use crate::state::prelude::*;

    #[test]
    fn each_page_leads_to_its_slot() -> Result {
        for class in Class::all() {
            let mut block = Block::new(class, false, GFP_KERNEL)?;
            let start = class.block_size();
            block.place_at(start);
            for slot in 0..class.slots() {
                let first = start + slot * class.slot_pages() * PAGE_SIZE;
                let last = first + class.slot_pages() * PAGE_SIZE - 1;
                let found =
                    [first, first.midpoint(last), last].map(|addr| block.slot_at(addr).number());
                assert_eq!(found, [slot; 3]);
                assert_eq!(block.slots(Bit::in_row(slot), 1), Span::new(first, last));
            }
            let behind = block.slot_at(start + class.block_size() - 1).number();
            let has_rest = class.block_pages() % class.slot_pages() != 0;
            let is_behind = behind >= class.slots();
            assert_eq!(is_behind, has_rest);
        }
        Ok(())
    }
}

#[kernel::prelude::kunit_tests(vmap_rust_index)]
mod index {
    use crate::state::prelude::*;

    /// Also where the range ends with the address space.
    #[test]
    fn the_range_of_a_block_is_free_again() -> Result {
        let home = Span::new(0_usize.wrapping_sub(2 * SIZE), usize::MAX).ok_or(EINVAL)?;
        let top = Span::new(0_usize.wrapping_sub(SIZE), usize::MAX).ok_or(EINVAL)?;
        let index = Index::new(home, c"vmap_rust test index", static_lock_class!())?;
        let mut index = index.lock();
        assert!(index.gap_around(top.first()).is_some());
        let block = Block::new(Class::SMALLEST, false, GFP_NOWAIT)?;
        // No block can begin there.
        let Err((block, _)) = index.reserve_block(block, home.first() + PAGE_SIZE) else {
            return Err(EINVAL);
        };
        let block = index.reserve_block(block, top.first()).map_err(|_| EBUSY)?;
        let reserved = Some((top, Range::Block));
        assert_eq!((index.next_range(0), block.span()), (reserved, Some(top)));
        let mut run = Run::new();
        assert!(run.try_add(block).is_ok());
        let freed = index.free_blocks(&mut run).map_err(|_| ENOMEM)?;
        assert_eq!(freed.iter().flatten().count(), 1);
        assert!(index.next_range(0).is_none());
        Ok(())
    }
}
