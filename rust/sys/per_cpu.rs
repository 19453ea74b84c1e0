// SPDX-License-Identifier: GPL-2.0

//! A value for each CPU, on cache lines of its own and on the NUMA node of the CPU.
//!
//! The CPU number is only a hint: a task that moves to another CPU after reading it uses the value of the
//! old CPU. All users tolerate that, so preemption stays enabled, and a CPU that goes offline needs no
//! cleanup.
//!
//! The kernel's per-CPU allocator cannot serve these values: it takes its memory from this allocator.

#[cfg(CONFIG_VMAP_RUST)]
use crate::sys::layout::elements;
use crate::{
    base::cpu::CpuNumber,
    sys::mm::{
        self,
        Node, //
    }, //
};
use core::{
    mem::offset_of,
    num::NonZero,
    ops::Deref, //
};
use kernel::prelude::*;

/// A value that shares no cache line with other data.
///
/// The alignment is at least `L1_CACHE_BYTES` of the architecture.
#[cfg_attr(CONFIG_S390, repr(align(256)))]
#[cfg_attr(
    any(
        CONFIG_ARM_L1_CACHE_SHIFT = "7",
        CONFIG_L1_CACHE_SHIFT = "7",
        CONFIG_X86_L1_CACHE_SHIFT = "7"
    ),
    repr(align(128))
)]
#[cfg_attr(
    not(any(
        CONFIG_S390,
        CONFIG_ARM_L1_CACHE_SHIFT = "7",
        CONFIG_L1_CACHE_SHIFT = "7",
        CONFIG_X86_L1_CACHE_SHIFT = "7"
    )),
    repr(align(64))
)]
pub(crate) struct CacheAligned<T>(T);

impl<T> CacheAligned<T> {
    /// Where the value is, in bytes.
    pub(crate) const VALUE: usize = offset_of!(Self, 0);

    /// Wraps `value`.
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

/// One `T` for each possible CPU.
///
/// With fewer values than CPUs, a CPU uses the value of its number modulo the number of values, which may be on
/// another node.
pub(crate) struct PerCpu<T> {
    /// The first value is apart, so that there always is one.
    first: KBox<CacheAligned<T>>,
    others: KVec<KBox<CacheAligned<T>>>,
}

impl<T> PerCpu<T> {
    /// Where the pointer to the value of CPU 0 is, in bytes.
    pub(crate) const FIRST: usize = offset_of!(Self, first);

    /// Where the pointer to the array of pointers to the values of the other CPUs is, in bytes.
    #[cfg(CONFIG_VMAP_RUST)]
    pub(crate) const OTHERS: usize = offset_of!(Self, others) + elements::<KBox<CacheAligned<T>>>();

    /// Creates a value for each possible CPU. `make` allocates what the value points to on the given node.
    pub(crate) fn new(make: impl FnMut(Node) -> Result<T>) -> Result<Self> {
        Self::with_len(mm::cpu_count(), make)
    }

    /// Creates `len` values, but at least one.
    pub(crate) fn with_len(len: usize, mut make: impl FnMut(Node) -> Result<T>) -> Result<Self> {
        let count = len.saturating_sub(1);
        let mut slot = |cpu| {
            let node = Node::of_cpu(CpuNumber::new(cpu));
            node.new_box(CacheAligned::new(make(node)?), GFP_NOWAIT)
        };
        let first = slot(0)?;
        let mut others = KVec::with_capacity(count, GFP_NOWAIT)?;
        for cpu in 1..=count {
            others.push(slot(cpu)?, GFP_NOWAIT)?;
        }
        Ok(Self { first, others })
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> NonZero<usize> {
        // The vector has fewer than `isize::MAX` elements, so nothing saturates.
        NonZero::<usize>::MIN.saturating_add(self.others.len())
    }

    /// Returns the value of the CPU on which this runs, or ran a moment ago.
    pub(crate) fn here(&self) -> &T {
        self.get(mm::cpu_hint())
    }

    /// Returns the value of CPU `cpu`.
    pub(crate) fn get(&self, cpu: CpuNumber) -> &T {
        let Some(other) = cpu.number().checked_sub(1) else {
            return &self.first;
        };
        match self.others.get(other) {
            Some(slot) => slot,
            // Only CPUs that share a value come here, and only once: fast paths do not divide.
            None => self.get(self.sharer(cpu)),
        }
    }

    /// Returns the first CPU with the same value as CPU `cpu`, which is the number of this value.
    pub(crate) fn sharer(&self, cpu: CpuNumber) -> CpuNumber {
        CpuNumber::new(cpu.number() % self.len())
    }

    /// Returns all values, in the order of the CPUs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        // By its full name: `pin_init::Init` has a method of this name for every type.
        let slots = Iterator::chain(core::iter::once(&self.first), self.others.iter());
        slots.map(|slot| &***slot)
    }
}

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[kernel::prelude::kunit_tests(vmap_rust_per_cpu)]
mod tests {
    use super::*;

    /// Returns `len` values that are their own numbers.
    fn numbers(len: usize) -> Result<PerCpu<usize>> {
        let mut next = 0;
        PerCpu::with_len(len, |_| {
            next += 1;
            Ok(next - 1)
        })
    }

    #[test]
    fn each_cpu_has_a_value_on_lines_of_its_own() -> Result {
        let values = numbers(5)?;
        assert_eq!(values.len().get(), 5);
        assert!(values.iter().copied().eq(0..5));
        let align = align_of::<CacheAligned<usize>>();
        assert!(align >= 64);
        assert_eq!(size_of::<CacheAligned<usize>>(), align);
        for cpu in 0..5 {
            let value = values.get(CpuNumber::new(cpu));
            assert_eq!(*value, cpu);
            assert_eq!(core::ptr::from_ref(value).addr() % align, 0);
        }
        Ok(())
    }

    #[test]
    fn cpus_share_if_there_are_fewer_values() -> Result {
        let values = numbers(3)?;
        for cpu in 0..20 {
            let number = CpuNumber::new(cpu);
            assert_eq!(*values.get(number), cpu % 3);
            assert_eq!(values.sharer(number).number(), cpu % 3);
        }
        assert_eq!(*values.get(CpuNumber::new(usize::MAX)), usize::MAX % 3);
        // There is always one.
        let one = numbers(0)?;
        let [first, other] = [0, 7].map(|cpu| *one.get(CpuNumber::new(cpu)));
        assert_eq!((one.len().get(), first, other, *one.here()), (1, 0, 0, 0));
        Ok(())
    }

    #[test]
    fn this_cpu_has_a_value() -> Result {
        let values = PerCpu::new(|_| Ok(1_usize))?;
        assert_eq!(values.len().get(), mm::cpu_count());
        assert_eq!(values.iter().sum::<usize>(), mm::cpu_count());
        assert_eq!(*values.here(), 1);
        Ok(())
    }
}
