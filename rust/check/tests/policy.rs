// SPDX-License-Identifier: GPL-2.0

//! Current blocks, the pool, and blocks that return to the tree. A module of `policy`, whose private items it uses.

#[kernel::prelude::kunit_tests(vmap_rust_blocks_lazy)]
mod counts {
    use crate::{
        check::fixtures::World,
        policy::prelude::*, //
    };

    /// Another task may have refilled it since the caller found no room there.
    #[test]
    fn a_refill_keeps_a_current_block_with_room() -> Result {
        mm::stay_on_this_cpu()?;
        let home = Span::with_size(32 * SIZE, 8 * SIZE).ok_or(EINVAL)?;
        let space = World::new(home).blocks(8).space()?;
        let area = space.alloc_bare(Request::bytes(home, PAGE_SIZE))?.span();
        let class = Class::SMALLEST;
        assert!(space.blocks.refill_from_pool(class, Source::Pool));
        assert_eq!((space.blocks().live, space.blocks().partial), (1, 0));
        space.retire(space.unlink(area.first()).ok_or(EINVAL)?);
        space.purge(None, true);
        Ok(())
    }
}

#[kernel::prelude::kunit_tests(vmap_rust_pool)]
mod places {
    use crate::{
        check::fixtures::World,
        policy::prelude::*, //
    };

    /// A slot may be claimed in vain, and become free again when its block has left its seat as a full one.
    #[test]
    fn a_block_that_gets_a_slot_back_is_in_a_list() -> Result {
        const PAGES: usize = 32;
        mm::stay_on_this_cpu()?;
        let home = Span::with_size(1 << 28, 128 * SIZE).ok_or(EINVAL)?;
        let space = World::new(home).space()?;
        let class = space.blocks.class_of(PAGES * PAGE_SIZE, 1).ok_or(EINVAL)?;
        assert!(space.refill(class, Source::Pool, Gfp::KERNEL));
        let mut req = Request::bytes(home, PAGES * PAGE_SIZE);
        req.gfp = Gfp::NOWAIT;
        let others = |_: Claimed<'_>| -> Option<Busy> {
            while space.blocks().live == 1 {
                space.alloc_bare(req).ok()?;
            }
            None
        };
        assert!(space.blocks.claim(class, req.size, others).is_none());
        let blocks = space.blocks();
        assert_eq!((blocks.live, blocks.partial), (2, 1));
        while let Some(area) = space.get(0, usize::MAX).map(|pinned| pinned.area().span()) {
            space.retire(space.unlink(area.first()).ok_or(EINVAL)?);
        }
        space.purge(None, true);
        Ok(())
    }

    /// Who has just freed a slot may come before it is put back.
    #[test]
    fn a_block_that_is_put_back_is_in_one_list() -> Result {
        let home = Span::with_size(1 << 28, 128 * SIZE).ok_or(EINVAL)?;
        let space = World::new(home).space()?;
        let blocks = &space.blocks;
        let class = Class::SMALLEST;
        assert!(space.refill(class, Source::Pool, Gfp::KERNEL));
        blocks.return_current(true, &Block::is_empty);
        let removed = blocks.pool().remove_empty(true).ok_or(EINVAL)?;
        let number = blocks.dir.insert(removed).map_err(|_| EINVAL)?;
        let rcu = Guard::new();
        let block = blocks.dir.block(number, &rcu).ok_or(EINVAL)?;
        let mut pool = blocks.pool();
        pool.pool.count(class);
        pool.update(block);
        assert_eq!(block.links().place(), Place::Held);
        pool.put(block);
        assert_eq!(block.links().place(), Place::Empty);
        drop(pool);
        assert_eq!(space.validate()?.blocks, 1);
        Ok(())
    }
}

#[kernel::prelude::kunit_tests(vmap_rust_tree)]
mod runs {
    use crate::{
        check::fixtures::World,
        policy::prelude::*, //
    };

    /// Opens `count` blocks side by side, of which none is current. Returns how often a range became free until then.
    fn open(space: &Space<impl Tlb>, count: usize) -> Result<usize> {
        for _ in 0..count {
            assert!(space.blocks.reserve(Class::SMALLEST, 0));
            let block = space.new_block(Class::SMALLEST, Gfp::KERNEL);
            let block = block.map_err(|_| ENOMEM)?;
            assert!(space.blocks.adopt(block));
        }
        let blocks = &space.blocks;
        blocks.return_current(true, &Block::is_empty);
        Ok(space.tree.times_freed())
    }

    /// Each store copies nodes of the tree, and RCU frees the old ones in a softirq.
    #[test]
    fn blocks_side_by_side_are_freed_with_one_store() -> Result {
        let home = Span::with_size(1 << 28, 128 * SIZE).ok_or(EINVAL)?;
        let count = 2 * MOST_AT_ONCE + 1;
        let space = World::new(home).blocks(count).space()?;
        let before = open(&space, count)?;
        let free = |most| space.free_blocks(most, Gfp::KERNEL, Cause::Purge);
        assert_eq!(free(1), 1);
        assert_eq!(free(usize::MAX), count - 1);
        assert_eq!(space.tree.times_freed() - before, 3);
        assert_eq!((space.blocks().live, space.validate()?.blocks), (0, 0));
        Ok(())
    }
}
