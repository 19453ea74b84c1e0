// SPDX-License-Identifier: GPL-2.0

//! A value for each CPU, on cache lines of its own and on the NUMA node of the CPU, and counters for such a value. The kernel's
//! per-CPU allocator cannot serve them: it takes its memory from this allocator.
//!
//! A task that moves to another CPU uses the value of the old one. Nearly all users tolerate that, so preemption stays enabled;
//! for the others, see [`PerCpu::with_own`]. A CPU that goes offline needs no cleanup.

use super::mm::{
    self,
    Node,
    OneCpu, //
};
use crate::base::prelude::*;

/// The number of a CPU, not to be mistaken for a count of CPUs or a NUMA node. It needs no bound: [`PerCpu`] has a value for
/// any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct CpuNumber(usize);

impl CpuNumber {
    #[inline(always)]
    pub(crate) const fn new(number: usize) -> Self {
        Self(number)
    }

    #[inline(always)]
    pub(crate) const fn number(self) -> usize {
        self.0
    }

    /// Returns the first CPU of its group of `1 << shift` CPUs.
    #[inline(always)]
    pub(crate) const fn first_of_group(self, shift: u32) -> Self {
        Self(self.0.wrapping_shr(shift).wrapping_shl(shift))
    }
}

/// A value that shares no cache line with other data: its alignment is at least `L1_CACHE_BYTES`.
#[cfg_attr(CONFIG_S390, repr(align(256)))]
#[cfg_attr(
    any(
        CONFIG_ARM_L1_CACHE_SHIFT = "7",
        CONFIG_L1_CACHE_SHIFT = "7",
        CONFIG_PPC64,
        CONFIG_X86_L1_CACHE_SHIFT = "7"
    ),
    repr(align(128))
)]
#[cfg_attr(
    not(any(
        CONFIG_S390,
        CONFIG_ARM_L1_CACHE_SHIFT = "7",
        CONFIG_L1_CACHE_SHIFT = "7",
        CONFIG_PPC64,
        CONFIG_X86_L1_CACHE_SHIFT = "7"
    )),
    repr(align(64))
)]
pub(crate) struct CacheAligned<T>(T);

impl<T> CacheAligned<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CacheAligned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The value of the CPU on which this runs: no other task has this of the same CPU at the same time. An interrupt could.
///
/// # Invariants
///
/// A task has it as long as it stays on that CPU, with preemption disabled.
pub(crate) struct Own<'a, T>(&'a T);

impl<T> Deref for Own<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

/// One `T` for each possible CPU.
pub(crate) struct PerCpu<T> {
    /// The first value is apart, so that there always is one.
    first: KBox<CacheAligned<T>>,
    others: KVec<KBox<CacheAligned<T>>>,
}

impl<T> PerCpu<T> {
    /// Creates a value for each possible CPU. `make` allocates what the value points to on the given node.
    pub(crate) fn new(mut make: impl FnMut(Node) -> Result<T>) -> Result<Self> {
        let count = mm::cpu_count().saturating_sub(1);
        let mut slot = |cpu| {
            let node = Node::of_cpu(CpuNumber::new(cpu));
            node.new_box(CacheAligned::new(make(node)?), GFP_NOWAIT)
        };
        let first = slot(0)?;
        let mut others = KVec::with_capacity(count, GFP_NOWAIT)?;
        for cpu in 1..=count {
            others.push_within_capacity(slot(cpu)?)?;
        }
        Ok(Self { first, others })
    }

    /// Returns the value of the CPU on which this runs, or ran a moment ago.
    #[inline(always)]
    pub(crate) fn here(&self) -> &T {
        self.get(mm::cpu_hint())
    }

    /// Calls `what` with the value of the CPU on which this runs, without preemption. Returns the value, which is that of another
    /// CPU perhaps by now, and what `what` returns.
    #[inline(always)]
    pub(crate) fn with_own<R>(&self, what: impl FnOnce(Own<'_, T>) -> R) -> (&T, R) {
        let cpu = OneCpu::new();
        let value = self.here();
        // INVARIANT: The task stays on this CPU until `what` returns, which cannot keep it any longer. There is a value for each
        // CPU, so this is that of no other.
        let result = what(Own(value));
        drop(cpu);
        (value, result)
    }

    /// Returns the value of CPU `cpu`, or of CPU 0 if there is no such CPU.
    #[inline(always)]
    pub(crate) fn get(&self, cpu: CpuNumber) -> &T {
        // For CPU 0 this wraps around, and there are not as many others.
        let other = cpu.number().wrapping_sub(1);
        self.others.get(other).unwrap_or(&self.first)
    }

    pub(crate) fn count(&self) -> usize {
        self.others.len().wrapping_add(1)
    }

    /// Returns all values, in the order of the CPUs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        // By its full name: `pin_init::Init` has a method of this name for every type.
        let slots = Iterator::chain(core::iter::once(&self.first), self.others.iter());
        // Through the reference, the box, and what aligns the value.
        slots.map(|slot| &***slot)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// One value for each thing that is counted. docs/administration.md says what each means to a user.
        #[derive(Clone, Copy, Default)]
        pub(crate) struct Counters<T> {
            $($(#[doc = $doc])* pub(crate) $name: T,)*
        }

        impl Counters<Counter> {
            pub(crate) const fn new() -> Self {
                Self { $($name: Counter(Atomic::new(0)),)* }
            }
        }

        impl Counters<usize> {
            /// Adds the counters of one CPU.
            pub(crate) fn add(&mut self, cpu: &Counters<Counter>) {
                $(self.$name = self.$name.wrapping_add(cpu.$name.get());)*
            }

            /// Returns the name and the value of each counter.
            pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// areas handed out by blocks
    hit,
    /// blocks that became current because a CPU's current block had no room
    refill,
    /// of these, new blocks reserved in the tree
    block_new,
    /// blocks returned to the tree
    block_freed,
    /// blocks of a larger class or another CPU that became current because there could be no new one
    steal,
    /// areas handed out from a gap of the tree, or kept there
    alloc_tree,
    /// areas handed out at a common base (percpu)
    alloc_congruent,
    /// requests without room
    no_room,
    /// requests without memory for metadata
    no_memory,
    /// areas of blocks retired
    retire_block,
    /// lone areas retired
    retire_tree,
    /// purges that flushed the TLB
    purge,
    /// areas purged
    purge_areas,
    /// page tables freed by purges and drains
    tables_freed,
    /// ranges returned to the tree
    give_back,
    /// ranges, and runs of blocks, that could not be returned for lack of memory, once for each attempt
    give_back_nomem,
}

/// A counter of one CPU, which wraps around. A task that is preempted or migrated while it counts may lose the counts of
/// others in between: an exact counter would cost twice as much.
pub(crate) struct Counter(Atomic<usize>);

impl Counter {
    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, more: usize) {
        // Relaxed: a statistic orders nothing.
        self.0.write_once(self.get().wrapping_add(more));
    }

    fn get(&self) -> usize {
        // Relaxed: a statistic orders nothing.
        self.0.read_once()
    }
}
