// SPDX-License-Identifier: GPL-2.0

//! Sums of all busy areas by their owner, as text for debugfs: who has most of vmalloc space.
//!
//! ```text
//!            bytes    areas      pages caller
//!         16273408        4          0 __ioremap_prot+0x88/0x10c
//!          7024640      343       1372 copy_process+0x1e8/0xd20
//! ```
//!
//! Memory for the sums is allocated between two areas, when nothing is pinned. There is one sum for each place of
//! the kernel that asks for areas, so it needs no limit.

use crate::sys::mm::{
    self,
    Symbol, //
};
use core::{
    cmp::Reverse,
    fmt::{
        self,
        Write, //
    }, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    }, //
};

/// Who has an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// The address in the code that asked for it, as its `vm_struct` has it; 0 if that has none, or there is no `vm_struct`.
    Caller(usize),
    /// vm_map_ram(), whose areas have no `vm_struct`.
    MapRam,
}

/// A busy area as its owner has described it.
#[derive(Clone, Copy)]
pub(crate) struct Owned {
    /// The lowest address behind the area, 0 for none.
    pub(crate) end: usize,
    pub(crate) bytes: usize,
    /// Pages that the owner has given to the area: those of vmalloc(), and of vmap() if vfree() frees them.
    pub(crate) pages: usize,
    pub(crate) owner: Owner,
}

/// What all areas of an owner have together. Each saturates.
#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: usize,
    areas: usize,
    pages: usize,
}

/// The sums, the one with most bytes first.
pub(crate) struct Callers(RBTree<(Reverse<usize>, Owner), Sum>);

impl Callers {
    /// Adds up all areas: `next` returns the lowest busy one that ends above an address. Sleeps. `ENOMEM` without
    /// memory.
    ///
    /// Each area was there at some time, but not all at the same time.
    pub(crate) fn new(mut next: impl FnMut(usize) -> Option<Owned>) -> Result<Self> {
        let mut sums: RBTree<Owner, Sum> = RBTree::new();
        let mut addr = 0;
        while let Some(area) = next(addr) {
            if sums.get(&area.owner).is_none() {
                sums.insert(RBTreeNode::new(area.owner, Sum::default(), GFP_KERNEL)?);
            }
            if let Some(sum) = sums.get_mut(&area.owner) {
                sum.bytes = sum.bytes.saturating_add(area.bytes);
                sum.areas = sum.areas.saturating_add(1);
                sum.pages = sum.pages.saturating_add(area.pages);
            }
            mm::cond_resched();
            addr = area.end;
            if addr == 0 {
                break;
            }
        }
        let mut sorted = RBTree::new();
        for (&owner, &sum) in sums.iter() {
            sorted.insert(RBTreeNode::new(
                (Reverse(sum.bytes), owner),
                sum,
                GFP_KERNEL,
            )?);
        }
        Ok(Self(sorted))
    }

    /// Writes a line for each owner, below a head.
    pub(crate) fn write(&self, out: &mut dyn Write) -> fmt::Result {
        writeln!(out, "{:>16} {:>8} {:>10} caller", "bytes", "areas", "pages")?;
        for (&(_, owner), sum) in self.0.iter() {
            write!(out, "{:>16} {:>8} {:>10} ", sum.bytes, sum.areas, sum.pages)?;
            match owner {
                Owner::Caller(0) => writeln!(out, "unknown")?,
                Owner::Caller(caller) => writeln!(out, "{}", Symbol(caller))?,
                Owner::MapRam => writeln!(out, "vm_map_ram")?,
            }
        }
        Ok(())
    }
}

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[kernel::prelude::kunit_tests(vmap_rust_callers)]
mod tests {
    use super::*;
    use crate::{
        base::line::Line,
        check::fixtures::Failing, //
    };

    /// Areas of two pages each, one above the other; the last one ends with the address space.
    const OWNERS: [Owner; 7] = [
        Owner::MapRam,
        Owner::Caller(0x30),
        Owner::Caller(0x10),
        Owner::Caller(0x30),
        Owner::Caller(0),
        Owner::Caller(0x20),
        Owner::Caller(0x30),
    ];
    const BYTES: usize = 0x2000;

    /// Returns the lowest of these areas that ends above `addr`. Area 2 has twice as many bytes.
    fn next(addr: usize) -> Option<Owned> {
        let from_top = usize::MAX.wrapping_sub(addr) / BYTES;
        let nth = (OWNERS.len() - 1).saturating_sub(from_top);
        let owner = *OWNERS.get(nth)?;
        Some(Owned {
            end: 0_usize.wrapping_sub((OWNERS.len() - 1 - nth) * BYTES),
            bytes: BYTES * if nth == 2 { 2 } else { 1 },
            pages: nth,
            owner,
        })
    }

    #[test]
    fn the_largest_owner_comes_first() -> Result {
        let mut line = Line::new();
        Callers::new(next)?.write(&mut line).map_err(|_| EINVAL)?;
        // The text compares as text if it differs: a failed assertion prints both.
        assert_eq!(
            core::str::from_utf8(line.bytes()).ok(),
            Some(concat!(
                "           bytes    areas      pages caller\n",
                "           24576        3         10 0x30\n",
                "           16384        1          2 0x10\n",
                "            8192        1          4 unknown\n",
                "            8192        1          5 0x20\n",
                "            8192        1          0 vm_map_ram\n",
            ))
        );
        Ok(())
    }

    #[test]
    fn without_areas_there_is_only_the_head() -> Result {
        let mut line = Line::new();
        Callers::new(|_| None)?
            .write(&mut line)
            .map_err(|_| EINVAL)?;
        assert!(line.bytes().ends_with(b"pages caller\n"));
        Ok(())
    }

    #[test]
    fn a_lack_of_memory_is_an_error() -> Result {
        // A node for each of five owners, in each of two trees.
        for nth in 1..=11 {
            let (sums, failed) = Failing::Only(nth).run(|| Callers::new(next));
            assert!(failed || sums.is_ok());
            // In the kernel, allocations that may reclaim do not fail on demand, and what failed may be a sheaf, which
            // slab can do without when a node is freed.
            assert!(!mm::CAN_FAIL_ALL || (failed, sums.is_err()) == (nth <= 10, nth <= 10));
        }
        Ok(())
    }
}
