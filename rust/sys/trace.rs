// SPDX-License-Identifier: GPL-2.0

//! Tracepoints, events that users can record: what is rare, and explains a slow request. None is where an area is taken from a
//! current block, or looked up.
//!
//! C header: [`mm/vmap_rust/rust/vmap_rust_events.h`](srctree/mm/vmap_rust/rust/vmap_rust_events.h)

use super::{
    mm::Gfp,
    per_cpu::CpuNumber, //
};
use crate::base::prelude::*;
use kernel::tracepoint::declare_trace;

declare_trace! {
    /// # Safety
    ///
    /// For all of them: RCU is watching, and the code may be instrumented (it is not `noinstr`). That is so in task context,
    /// and in an interrupt that may take spinlocks: where C calls operations that emit events.
    unsafe fn vmap_rust_block(event: c_uint, start: usize, size: usize, class: c_uint, owner: c_uint);
    unsafe fn vmap_rust_purge(start: usize, end: usize, areas: usize, ranges: usize, pages: usize, ns: u64);
    unsafe fn vmap_rust_tables(tables: usize);
    unsafe fn vmap_rust_drain(cause: c_uint, blocks: usize);
    unsafe fn vmap_rust_refuse(size: usize, align: usize, start: usize, end: usize, gfp: bindings::gfp_t, error: c_int);
}

/// What happens to a block. The values are those of `enum vmap_rust_block_event`.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    /// A CPU has made it.
    Open,
    /// It was freed, and its range erased from the tree.
    Close,
    /// A CPU takes it from the pool.
    Refill,
    /// A CPU takes it although it is another one's, or for larger areas, for lack of room.
    Steal,
}

/// Why empty blocks are freed. The values are those of `enum vmap_rust_drain_cause`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A request found no room.
    Request,
    /// A purge that has to make room.
    Purge,
    /// A purge found more than is needed.
    Trim,
    /// Memory is short.
    Reclaim,
}

#[cfg(CONFIG_TRACEPOINTS)]
const _: () = {
    use bindings::*;
    // CAST: Small numbers, here and below.
    assert!(Event::Open as c_uint == vmap_rust_block_event_VMAP_RUST_BLOCK_OPEN);
    assert!(Event::Close as c_uint == vmap_rust_block_event_VMAP_RUST_BLOCK_CLOSE);
    assert!(Event::Refill as c_uint == vmap_rust_block_event_VMAP_RUST_BLOCK_REFILL);
    assert!(Event::Steal as c_uint == vmap_rust_block_event_VMAP_RUST_BLOCK_STEAL);
    assert!(Cause::Request as c_uint == vmap_rust_drain_cause_VMAP_RUST_DRAIN_REQUEST);
    assert!(Cause::Purge as c_uint == vmap_rust_drain_cause_VMAP_RUST_DRAIN_PURGE);
    assert!(Cause::Trim as c_uint == vmap_rust_drain_cause_VMAP_RUST_DRAIN_TRIM);
    assert!(Cause::Reclaim as c_uint == vmap_rust_drain_cause_VMAP_RUST_DRAIN_RECLAIM);
};

/// Traces what happens to a block of `size` bytes that CPU `owner` allocates from, or did last.
#[inline(always)]
pub(crate) fn block(event: Event, start: usize, size: usize, class: usize, owner: CpuNumber) {
    // CAST: Small numbers.
    let (event, class, owner) = (event as c_uint, class as c_uint, owner.number() as c_uint);
    // SAFETY: RCU is watching where blocks are opened, taken and freed: in code that takes spinlocks.
    unsafe { vmap_rust_block(event, start, size, class, owner) };
}

/// Returns the time in nanoseconds if purges are traced, else 0.
#[inline(always)]
pub(crate) fn purge_clock() -> u64 {
    #[cfg(CONFIG_TRACEPOINTS)]
    {
        // SAFETY: The key of a tracepoint may be read at any time.
        let is_traced = unsafe {
            kernel::jump_label::static_branch_unlikely!(
                bindings::__tracepoint_vmap_rust_purge,
                bindings::tracepoint,
                key
            )
        };
        if is_traced {
            // `ktime_get()` would warn while timekeeping is suspended.
            // SAFETY: It may be called in any context.
            return unsafe { bindings::ktime_get_mono_fast_ns() };
        }
    }
    0
}

/// Traces a purge that began at `began` by [`purge_clock`]: it has flushed `cover` for `areas` areas, `ranges` of them with an
/// entry of their own, and freed their `pages` pages.
#[inline(always)]
pub(crate) fn purge(began: u64, cover: Option<Span>, areas: usize, ranges: usize, pages: usize) {
    let (start, end) = cover.map_or((0, 0), |cover| (cover.first(), cover.end()));
    let ns = match began {
        0 => 0,
        began => purge_clock().saturating_sub(began),
    };
    // SAFETY: RCU is watching: a purge runs in sleepable context.
    unsafe { vmap_rust_purge(start, end, areas, ranges, pages, ns) };
}

/// Traces that `tables` page tables were taken and flushed, and are freed after a grace period.
#[inline(always)]
pub(crate) fn tables(tables: usize) {
    // SAFETY: RCU is watching in a purge and in a drain, which take spinlocks.
    unsafe { vmap_rust_tables(tables) };
}

/// Traces a drain that has freed `blocks` empty blocks, if any.
#[inline(always)]
pub(crate) fn drain(cause: Cause, blocks: usize) {
    if blocks != 0 {
        // CAST: A small number.
        let cause = cause as c_uint;
        // SAFETY: RCU is watching in a drain, which takes spinlocks.
        unsafe { vmap_rust_drain(cause, blocks) };
    }
}

/// Traces a request for `size` bytes at a multiple of `align` in `window` that gets no area.
#[inline(always)]
pub(crate) fn refuse(size: usize, align: usize, window: Span, gfp: Gfp, error: Error) {
    let (start, end) = (window.first(), window.end());
    // SAFETY: RCU is watching in a request, which takes spinlocks.
    unsafe { vmap_rust_refuse(size, align, start, end, gfp.as_raw(), error.to_errno()) };
}
