// SPDX-License-Identifier: GPL-2.0

//! The record: a plain list of all areas, which says what answers the allocator may give. All tests of whole spaces,
//! and the checker of a running kernel, compare with it.
//!
//! It shares only the requests and the answers with the allocator: it is an rb-tree of ranges, without blocks, caches
//! or bitmaps. Its users lock it.

use crate::base::range::{
    Span,
    PAGE_SIZE, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    }, //
};

/// The address of an area object, which identifies the area. The record never accesses the object.
pub(crate) type Identity = usize;

/// The state of an area in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Busy,
    Unlinked,
    /// Freed and not yet flushed: the times at which its retire began and ended.
    Lazy {
        began: usize,
        ended: Option<usize>,
    },
}

/// An area in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Number of the first page: the address would be a reference to the memory of the area for kmemleak.
    first_page: usize,
    identity: Identity,
    pub(super) state: State,
}

/// Memory for an area in the record.
pub(super) type Node = RBTreeNode<usize, Entry>;

/// What became of a change of an area.
pub(super) struct Changed {
    /// Whether the record allows it.
    pub(super) is_right: bool,
    /// What the record had.
    pub(super) known: Option<Entry>,
    /// Memory to be freed without a lock.
    pub(super) removed: Option<Node>,
}

/// All areas.
pub(crate) struct Record {
    /// Keyed by the last address: a lower bound search for an address finds the area that contains it.
    areas: RBTree<usize, Entry>,
    /// The time: number of flushes and purges that have begun.
    now: usize,
    /// Number of areas without an entry because there was no memory for it.
    pub(super) untracked: usize,
}

/// Returns the range of an entry with the last address `last`.
fn span_of(last: usize, entry: &Entry) -> Option<Span> {
    Span::new(entry.first_page.checked_mul(PAGE_SIZE)?, last)
}

impl Record {
    /// Creates an empty record.
    pub(super) fn new() -> Self {
        Self {
            areas: RBTree::new(),
            now: 0,
            untracked: 0,
        }
    }

    /// Allocates memory for a busy area.
    pub(super) fn node(
        span: Span,
        identity: Identity,
        flags: kernel::alloc::Flags,
    ) -> Result<Node> {
        let entry = Entry {
            first_page: span.in_pages().first(),
            identity,
            state: State::Busy,
        };
        RBTreeNode::new(span.last(), entry, flags)
    }

    /// Returns the area that contains `addr`, or the next one above it.
    pub(super) fn at_or_above(&self, addr: usize) -> Option<(Span, Entry)> {
        let cursor = self.areas.cursor_lower_bound(&addr)?;
        let (&last, &entry) = cursor.current();
        Some((span_of(last, &entry)?, entry))
    }

    /// Returns the lowest area that has addresses of `span`.
    pub(super) fn overlapping(&self, span: Span) -> Option<(Span, Entry)> {
        let next = self.at_or_above(span.first());
        next.filter(|(other, _)| other.first() <= span.last())
    }

    /// Returns the busy area that contains `addr`.
    pub(super) fn busy_at(&self, addr: usize) -> Option<(Span, Identity)> {
        let (span, entry) = self.at_or_above(addr)?;
        (span.contains(addr) && entry.state == State::Busy).then_some((span, entry.identity))
    }

    /// Returns the lowest busy area that ends above `addr`.
    pub(super) fn busy_at_or_above(&self, addr: usize) -> Option<(Span, Identity)> {
        let mut addr = addr;
        loop {
            let (span, entry) = self.at_or_above(addr)?;
            if entry.state == State::Busy {
                return Some((span, entry.identity));
            }
            addr = span.next_addr()?;
        }
    }

    /// Adds a busy area. Returns the node that it replaces.
    pub(super) fn add(&mut self, node: Result<Node>) -> Option<Node> {
        match node {
            Ok(node) => self.areas.insert(node),
            Err(_) => {
                self.untracked = self.untracked.wrapping_add(1);
                None
            }
        }
    }

    /// Returns the entry of the area `identity` if its bounds are exactly `span`.
    fn entry_mut(&mut self, span: Span, identity: Identity) -> Option<&mut Entry> {
        let entry = self.areas.get_mut(&span.last())?;
        let first_page = span.in_pages().first();
        (entry.first_page == first_page && entry.identity == identity).then_some(entry)
    }

    /// Changes the state of an area from `from` to the state that `to` returns for the time now; [`None`] removes
    /// the area.
    pub(super) fn change(
        &mut self,
        span: Span,
        identity: Identity,
        from: State,
        to: impl FnOnce(usize) -> Option<State>,
    ) -> Changed {
        let known = self.areas.get(&span.last()).copied();
        let to = to(self.now);
        let mut removed = None;
        let entry = self.entry_mut(span, identity);
        let is_right = match (entry.filter(|entry| entry.state == from), to) {
            (Some(entry), Some(to)) => {
                entry.state = to;
                true
            }
            (Some(_), None) => {
                removed = self.areas.remove_node(&span.last());
                true
            }
            // Right if the area may be one of those without an entry.
            (None, _) => known.is_none() && self.untracked > 0,
        };
        if is_right && known.is_none() && from == State::Unlinked {
            self.untracked = self.untracked.saturating_sub(1);
        }
        Changed {
            is_right,
            known,
            removed,
        }
    }

    /// Ends the retire of an area that `began` at that time.
    pub(super) fn end_retire(&mut self, span: Span, identity: Identity, began: usize) {
        let ended = Some(self.now);
        // The range may have been flushed and reused meanwhile; then the entry has another state or time.
        if let Some(entry) = self.entry_mut(span, identity) {
            if entry.state == (State::Lazy { began, ended: None }) {
                entry.state = State::Lazy { began, ended };
            }
        }
    }

    /// Removes an area.
    pub(super) fn remove(&mut self, area: Span) -> Option<Node> {
        self.areas.remove_node(&area.last())
    }

    /// Advances the time for a flush or a purge, and returns it.
    pub(super) fn advance(&mut self) -> usize {
        self.now = self.now.wrapping_add(1);
        self.now
    }
}

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
mod room {
    use super::*;
    use crate::base::range::{
        align_down,
        align_up, //
    };

    /// What only tests ask: which areas there are, and where there is room for others.
    impl Record {
        /// Iterates over the areas by address.
        pub(crate) fn areas(&self) -> impl Iterator<Item = (Span, State)> + '_ {
            let areas = self.areas.iter();
            areas.filter_map(|(&last, entry)| Some((span_of(last, entry)?, entry.state)))
        }

        /// Iterates over the busy areas by address.
        pub(crate) fn busy(&self) -> impl Iterator<Item = Span> + '_ {
            let areas = self.areas();
            areas.filter_map(|(span, state)| (state == State::Busy).then_some(span))
        }

        /// Iterates over the areas that are freed and not yet flushed, by address.
        pub(crate) fn lazy(&self) -> impl Iterator<Item = Span> + '_ {
            let areas = self.areas();
            areas.filter_map(|(span, state)| matches!(state, State::Lazy { .. }).then_some(span))
        }

        /// Returns the lowest free span of `size` bytes aligned to `align` in `window`.
        pub(crate) fn lowest_fit(&self, window: Span, size: usize, align: usize) -> Option<Span> {
            let align = align.max(PAGE_SIZE);
            let mut from = window.first().max(PAGE_SIZE);
            loop {
                let fit = Span::with_size(align_up(from, align)?, size)?;
                if !window.covers(fit) {
                    return None;
                }
                match self.overlapping(fit) {
                    Some((taken, _)) => from = taken.next_addr()?,
                    None => return Some(fit),
                }
            }
        }

        /// Returns the highest base at which all `members` (offset, size) are free in `window`.
        pub(crate) fn highest_base(
            &self,
            window: Span,
            members: &[(usize, usize)],
            align: usize,
        ) -> Option<usize> {
            let mut base = align_down(window.last(), align);
            loop {
                let free = members.iter().all(|&(offset, size)| {
                    base.checked_add(offset)
                        .and_then(|first| Span::with_size(first, size))
                        .is_some_and(|span| window.covers(span) && self.overlapping(span).is_none())
                });
                if free {
                    return Some(base);
                }
                base = base
                    .checked_sub(align)
                    .filter(|&base| base >= window.first())?;
            }
        }
    }
}
