// SPDX-License-Identifier: GPL-2.0

//! Bindings to the rest of the kernel, in this order: flags for memory, and memory on a NUMA node; CPUs and the scheduler;
//! spinlocks; addresses for users, and reports.
//!
//! C header: [`include/linux/vmap_rust.h`](srctree/include/linux/vmap_rust.h)

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) use super::for_tests::*;
use super::per_cpu::{
    CacheAligned,
    CpuNumber, //
};
use crate::base::prelude::*;
use core::{
    alloc::Layout,
    fmt,
    mem::MaybeUninit, //
};
use kernel::{
    alloc::{
        self,
        allocator::Kmalloc,
        Allocator,
        NumaNode, //
    },
    sync::{
        lock::spinlock::SpinLockGuard,
        SpinLock, //
    },
    types::NotThreadSafe, //
};

/// Allocation flags from C.
#[derive(Clone, Copy)]
pub(crate) struct Gfp(bindings::gfp_t);

impl Gfp {
    /// Neither wait for memory nor warn.
    pub(crate) const NOWAIT: Self = Self(bindings::GFP_NOWAIT);

    /// Neither wait for memory nor take it from the reserves, which a task that reclaims memory may.
    pub(crate) const RECLAIM: Self =
        Self(bindings::GFP_NOWAIT | 1 << bindings::___GFP_NOMEMALLOC_BIT);

    /// Allow sleeping.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) const KERNEL: Self = Self(bindings::GFP_KERNEL);

    pub(crate) fn from_raw(raw: bindings::gfp_t) -> Self {
        Self(raw)
    }

    pub(crate) fn as_raw(self) -> bindings::gfp_t {
        self.0
    }

    /// Returns the flags for metadata: with the restrictions of the request (`GFP_NOFS`, `__GFP_NORETRY`), but it may fail
    /// without a warning, as the request can be served without it.
    pub(crate) fn flags(self) -> alloc::Flags {
        const NOFAIL: bindings::gfp_t = 1 << bindings::___GFP_NOFAIL_BIT;
        alloc::Flags::from_raw(self.0 & !NOFAIL) | alloc::flags::__GFP_NOWARN
    }

    /// Returns the flags for nodes of the maple tree, without which a request fails.
    pub(crate) fn node_flags(self) -> alloc::Flags {
        alloc::Flags::from_raw(self.0)
    }

    pub(crate) fn may_block(self) -> bool {
        self.0 & (1 << bindings::___GFP_DIRECT_RECLAIM_BIT) != 0
    }
}

/// A NUMA node, as a preference: memory comes from another node if this one has none.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Node(NumaNode);

impl Node {
    /// No preference.
    pub(crate) const ANY: Self = Self(NumaNode::NO_NODE);

    /// Returns the node of CPU `cpu`, or [`Node::ANY`] if there is no such CPU.
    pub(crate) fn of_cpu(cpu: CpuNumber) -> Self {
        if !cfg!(CONFIG_NUMA) {
            return Self::ANY;
        }
        let cpu = u32::try_from(cpu.number()).unwrap_or(u32::MAX);
        // SAFETY: Any number is allowed, and `vmalloc_init()` has begun.
        let node = unsafe { bindings::vmap_area_cpu_node(cpu) };
        NumaNode::new(node).map_or(Self::ANY, Self)
    }

    /// Returns the node of the CPU on which this runs: a hint, as in [`cpu_hint`].
    pub(crate) fn here() -> Self {
        Self::of_cpu(cpu_hint())
    }

    /// Allocates a box whose value is not initialized. Sleeps if `flags` allow it.
    pub(crate) fn new_uninit<T>(self, flags: Flags) -> Result<KBox<MaybeUninit<T>>> {
        let memory = Kmalloc::alloc(Layout::new::<T>(), flags, self.0)?;
        // SAFETY: The memory came from the allocator of `KBox` with the layout of `T`, nobody else has it, and it
        // may be uninitialized. Without bytes, the pointer is dangling and aligned.
        Ok(unsafe { KBox::from_raw(memory.cast().as_ptr()) })
    }

    /// Puts `value` into a box. Sleeps if `flags` allow it.
    pub(crate) fn new_box<T>(self, value: T, flags: Flags) -> Result<KBox<T>> {
        Ok(self.new_uninit(flags)?.write(value))
    }

    /// Puts an array, each element of which `make` returns, into a box, in place: the stack might have no room for it. Sleeps
    /// if `flags` allow it.
    pub(crate) fn new_array<T, const N: usize>(
        self,
        mut make: impl FnMut() -> T,
        flags: Flags,
    ) -> Result<KBox<[T; N]>> {
        let mut array = self.new_uninit::<[MaybeUninit<T>; N]>(flags)?;
        let elements: *mut MaybeUninit<T> = array.as_mut_ptr().cast();
        for index in 0..N {
            // SAFETY: The box has room for `N` elements.
            unsafe { elements.add(index).write(MaybeUninit::new(make())) };
        }
        // SAFETY: Each element was just initialized, and an array of them has the layout of one of `T`.
        Ok(unsafe { KBox::from_raw(KBox::into_raw(array).cast()) })
    }
}

/// Makes kmemleak look for references only in `part` of an allocation, and in other parts that were named so. Without
/// memory, it looks in all of it. Sleeps if `flags` allow it.
#[cfg(CONFIG_DEBUG_KMEMLEAK)]
pub(crate) fn scan_only<T>(part: *const T, flags: Flags) {
    // SAFETY: kmemleak only uses the address.
    unsafe { bindings::kmemleak_scan_area(part.cast(), size_of::<T>(), flags.as_raw()) };
}

/// Lets other tasks run between two steps of long work. Sleepable context, without an RCU read lock. No type says so, as with
/// all functions of the kernel crate that may sleep: `CONFIG_DEBUG_ATOMIC_SLEEP` reports another context.
pub(crate) fn cond_resched() {
    // SAFETY: It has no requirements but the context.
    unsafe { bindings::vmap_area_cond_resched() };
}

/// Keeps the task on its CPU, and others off it, while this lives: preemption is disabled. Interrupts still come. Any context.
pub(crate) struct OneCpu(NotThreadSafe);

impl OneCpu {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        // SAFETY: The drop enables preemption again, on the same CPU: this cannot be sent to another task.
        unsafe { bindings::preempt_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for OneCpu {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `new()` has disabled it.
        unsafe { bindings::preempt_enable() };
    }
}

/// Returns the CPU number: a hint, since the task may move to another CPU at once.
pub(crate) fn cpu_hint() -> CpuNumber {
    // CAST: A `u32` fits in a `usize` on all platforms of Linux.
    CpuNumber::new(kernel::cpu::CpuId::current().as_u32() as usize)
}

/// Returns the number of possible CPUs, at least one.
pub(crate) fn cpu_count() -> usize {
    // CAST: A `u32` fits in a `usize` on all platforms of Linux.
    (kernel::cpu::nr_cpu_ids() as usize).max(1)
}

/// Fetches the cache line at `at` for a write that follows soon. Any address, any context.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(at: *const T) {
    // SAFETY: A prefetch changes no memory, and faults at no address.
    unsafe { bindings::prefetchw(at.cast()) };
}

/// Returns an unpredictable number. Not in NMIs, nor in interrupts with PREEMPT_RT.
pub(crate) fn random() -> u32 {
    // SAFETY: It has no requirements but the context.
    unsafe { bindings::get_random_u32() }
}

/// Proof that a lock is held.
pub(crate) type LockGuard<'a, T> = SpinLockGuard<'a, T>;

/// A lock on cache lines of its own: CPUs that take another lock, or use other data, do not slow it down.
#[pin_data]
struct Aligned<T> {
    #[pin]
    lock: SpinLock<T>,
    _align: CacheAligned<()>,
}

/// `T` under a spinlock, in a box, as a lock must not move. On the build host a mutex has this interface.
pub(crate) struct Locked<T>(Pin<KBox<Aligned<T>>>);

/// A lock of those who watch the allocator. On the build host, no scheduler switches threads at it.
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
pub(crate) type Quiet<T> = Locked<T>;

impl<T> Locked<T> {
    /// Puts `value` under a new lock of class `key`.
    pub(crate) fn new(
        value: T,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> Result<Self> {
        Ok(Self(KBox::pin_init(
            pin_init!(Aligned {
                lock <- SpinLock::new(value, name, key),
                _align: CacheAligned::new(()),
            }),
            GFP_NOWAIT,
        )?))
    }

    /// Takes the lock; any context that may take spinlocks.
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        self.0.lock.lock()
    }

    /// Takes the lock unless that means waiting; any context, with PREEMPT_RT except interrupts (`rt_mutex_trylock()`).
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        self.0.lock.try_lock()
    }

    /// Releases the lock of a guard that was forgotten.
    ///
    /// # Safety
    ///
    /// For each call, this task has called [`core::mem::forget`] once on a guard of it.
    pub(crate) unsafe fn unlock_forgotten(&self) {
        // SAFETY: By the safety requirements, this task owns the lock.
        drop(unsafe { SpinLockGuard::new(&self.0.lock, ()) });
    }
}

/// Prints an address as `%pK` does if `is_restricted`, else as `%p`. Not by the `HashedPtr` of the kernel crate, whose index of a
/// slice could panic.
fn print_address(addr: usize, is_restricted: bool, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let format = if is_restricted { c"0x%pK" } else { c"0x%p" };
    let mut text = [0_u8; 32];
    let (to, size, format) = (text.as_mut_ptr().cast(), text.len(), format.as_char_ptr());
    let addr = ptr::without_provenance::<c_void>(addr);
    // SAFETY: It writes at most `size` bytes, the last of which is 0. The formats read one pointer, and not what it leads to.
    unsafe { bindings::snprintf(to, size, format, addr) };
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    out.write_str(core::str::from_utf8(text).unwrap_or("?"))
}

/// An address as users see it in /proc/vmallocinfo: `kernel.kptr_restrict` says who does (`%pK`). Task context.
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
pub(crate) struct Restricted(pub(crate) usize);

#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
impl fmt::Display for Restricted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_address(self.0, true, out)
    }
}

/// Addresses for the kernel log, hashed as `%p` does: equal ones print equal.
pub(super) struct Hashed<'a>(pub(super) &'a [usize]);

impl fmt::Debug for Hashed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, &addr) in self.0.iter().enumerate() {
            out.write_str(if index == 0 { "[" } else { ", " })?;
            print_address(addr, false, out)?;
        }
        out.write_str(if self.0.is_empty() { "[]" } else { "]" })
    }
}

/// Limits how many reports are printed: the first ones, and then one in about each second.
pub(super) struct Limit {
    count: Atomic<u32>,
    /// When the last one came behind the first ones, in units of 2^30 nanoseconds.
    last: Atomic<usize>,
}

impl Limit {
    /// Reports that are printed without a limit.
    pub(super) const FIRST: u32 = 16;

    pub(super) const fn new() -> Self {
        Self {
            count: Atomic::new(0),
            last: Atomic::new(0),
        }
    }

    /// Counts a report. Returns whether it is to be printed.
    pub(super) fn allows(&self) -> bool {
        // Relaxed: the count and the time order nothing.
        if self.count.fetch_add(1, Relaxed) < Self::FIRST {
            return true;
        }
        // SAFETY: It may be called in any context.
        let now = (unsafe { bindings::ktime_get_mono_fast_ns() } >> 30) as usize;
        self.last.xchg(now, Relaxed) != now
    }
}

/// Reports an invalid request or state: with some addresses and numbers, once with a backtrace, and seldom if there are many.
/// The caller refuses it and continues.
#[cold]
#[inline(never)]
pub(crate) fn refuse(what: &str, addresses: &[usize], numbers: &[usize]) {
    static WARNED: Atomic<u32> = Atomic::new(0);
    static LIMIT: Limit = Limit::new();

    if LIMIT.allows() {
        let addresses = Hashed(addresses);
        kernel::pr_err!("refused: {what} {addresses:?} {numbers:x?}\n");
    }
    // Relaxed: the flag orders nothing.
    if WARNED.xchg(1, Relaxed) == 0 {
        kernel::warn_on!(true);
    }
}
