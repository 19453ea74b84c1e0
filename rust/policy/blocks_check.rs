// SPDX-License-Identifier: GPL-2.0

//! Counts of the blocks for users, and a check of the pool against the blocks for tests and debugging.

use crate::{
    base::bits::{
        self,
        Bit, //
    },
    policy::{
        blocks::Blocks,
        percpu::Cpus, //
    },
    state::{
        block::{
            Block,
            Contents, //
        },
        by_band::ByBand, //
    },
    sys::{
        grace::Guard,
        mm, //
    }, //
};
use kernel::prelude::*;

/// Numbers of blocks by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockCensus {
    pub(crate) live: usize,
    /// Blocks in the pool with room.
    pub(crate) partial: usize,
    pub(crate) empty: usize,
}

impl Blocks {
    /// Returns how many blocks exist, are partial, and are empty.
    pub(crate) fn census(&self) -> BlockCensus {
        let pool = self.pool.lock();
        BlockCensus {
            live: pool.live,
            partial: pool.bands.iter().map(|band| band.partial).sum(),
            empty: self.empty(),
        }
    }

    /// Checks the block at `addr` and returns its contents; [`None`] if no block is there.
    pub(crate) fn validate_block(&self, addr: usize, quiet: bool) -> Option<Result<Contents>> {
        let rcu = Guard::new();
        Some(self.dir.block_at(addr, &rcu)?.validate(quiet))
    }

    /// Checks the pool against the blocks. Holds the pool lock during the whole walk: for tests and
    /// debugging. `quiet` means that nobody is inserting or removing a block.
    pub(crate) fn validate(&self, cpus: &Cpus, quiet: bool) -> Result {
        let pool = self.pool.lock();
        let rcu = Guard::new();
        let mut empty = 0_usize;
        let mut held = 0_usize;
        let mut partials = ByBand::new(|_| 0_usize);
        let (mut live, mut bytes) = (0_usize, 0_usize);
        for part in self.dir.all_maps() {
            let maps = part.maps.pool(&pool.locked);
            for (count, map) in partials.iter_mut().zip(maps.partial.iter()) {
                *count = count.wrapping_add(bits::weight(&map.words()));
            }
            for bit in Bit::all() {
                let number = part.entry(bit).number;
                let partial = maps.partial.iter().any(|map| map.has(bit));
                let known = partial || maps.empty.has(bit) || maps.held.has(bit);
                let block = self.dir.block(number, &rcu);
                live = live.wrapping_add(usize::from(block.is_some()));
                bytes = bytes.wrapping_add(block.map_or(0, Block::size));
                // An entry inside a coarse block must have no bits set either.
                if known && block.is_none() {
                    let number = number.entry();
                    mm::refuse!("the pool knows block {}, which is not there", number);
                    return Err(EINVAL);
                }
                if maps.held.has(bit) && (partial || maps.empty.has(bit)) {
                    mm::refuse!("block {} is held and in the pool", number.entry());
                    return Err(EINVAL);
                }
                empty = empty.wrapping_add(usize::from(maps.empty.has(bit)));
                held = held.wrapping_add(usize::from(maps.held.has(bit)));
            }
        }
        let mut current = 0_usize;
        for cpu in cpus.iter() {
            for block in cpu.current.iter() {
                current = current.wrapping_add(usize::from(block.get().is_some()));
            }
        }
        if quiet && (live, bytes) != (pool.live, pool.bytes) {
            mm::refuse!(
                "{} blocks of {} bytes, counted {} of {}",
                live,
                bytes,
                pool.live,
                pool.bytes
            );
            return Err(EINVAL);
        }
        let counted = ByBand::new(|band| pool.bands.of(band).partial);
        if partials != counted {
            mm::refuse!("{:?} partial blocks, counted {:?}", partials, counted);
            return Err(EINVAL);
        }
        let counted: usize = pool.bands.iter().map(|band| band.empty).sum();
        if empty != counted || empty != self.empty() || held != current {
            mm::refuse!(
                "{} empty blocks, counted {}; {} held, {} current",
                empty,
                counted,
                held,
                current
            );
            return Err(EINVAL);
        }
        Ok(())
    }
}
