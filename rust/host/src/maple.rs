// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `maple`: a sorted map under a mutex, with the rules of the maple tree. Stores and erases
//! allocate, and may fail.

use crate::{
    cpu::{
        Mutex,
        MutexGuard, //
    },
    fit::Gaps,
    mm::Gfp,
    range::Span, //
};
use kernel::{
    bindings,
    fault,
    prelude::*,
    sync::{
        rcu,
        LockClassKey, //
    }, // //
};
use std::collections::BTreeMap;

/// # Safety
///
/// Those of the kernel's trait.
pub(crate) unsafe trait Entry: Copy + PartialEq {
    fn into_raw(self) -> *mut c_void;
    /// # Safety
    ///
    /// Those of the kernel's trait.
    unsafe fn from_raw(raw: *mut c_void) -> Self;
}

#[derive(Debug, PartialEq)]
pub(crate) enum StoreError {
    NoMemory,
    Mismatch,
}

struct Raw(*mut c_void);
// SAFETY: It is only a value; the code under test guards what it points to.
unsafe impl Send for Raw {}

/// Maps a first address to the last address and the entry.
type Map = BTreeMap<usize, (usize, Raw)>;

pub(crate) struct Tree<E: Entry> {
    inner: Mutex<Map>,
    _entries: core::marker::PhantomData<fn(E)>,
}

fn at_or_above(map: &Map, addr: usize) -> impl Iterator<Item = (Span, *mut c_void)> + '_ {
    let below = map.range(..addr).next_back();
    let below = below.filter(move |(_, (last, _))| *last >= addr);
    below
        .into_iter()
        .chain(map.range(addr..))
        .filter_map(|(&first, (last, raw))| Some((Span::new(first, *last)?, raw.0)))
}

impl<E: Entry> Tree<E> {
    pub(crate) fn new(
        _: &'static CStr,
        _: Pin<&'static LockClassKey>,
    ) -> core::result::Result<Self, Error> {
        Ok(Self {
            inner: Mutex::new(Map::new()),
            _entries: core::marker::PhantomData,
        })
    }

    pub(crate) fn lock(&self) -> Guard<'_, E> {
        Guard {
            inner: self
                .inner
                .lock()
                .expect("no test panics with the lock held"),
            gap: None,
            memory: false,
            nomem: false,
            _entries: core::marker::PhantomData,
        }
    }

    pub(crate) fn load(&self, addr: usize, _: &rcu::Guard) -> Option<E> {
        let mut guard = self.lock();
        guard.entry_at(addr).map(|(_, entry)| entry)
    }

    pub(crate) fn next<T>(&self, addr: usize, wanted: impl Fn(Span, E) -> Option<T>) -> Option<T> {
        let _rcu = rcu::Guard::new();
        let guard = self.lock();
        let found = at_or_above(&guard.inner, addr)
            // SAFETY: The map stores only values that `into_raw()` returned.
            .find_map(|(span, raw)| wanted(span, unsafe { E::from_raw(raw) }));
        found
    }
}

pub(crate) struct Guard<'tree, E: Entry> {
    inner: MutexGuard<'tree, Map>,
    gap: Option<Span>,
    /// `nomem()` has allocated for one store.
    memory: bool,
    /// The last store had no memory.
    nomem: bool,
    _entries: core::marker::PhantomData<E>,
}

impl<E: Entry> Guard<'_, E> {
    pub(crate) fn entry_at(&mut self, addr: usize) -> Option<(Span, E)> {
        self.entry_from(addr)
            .filter(|(span, _)| span.first() <= addr)
    }

    pub(crate) fn entry_from(&mut self, addr: usize) -> Option<(Span, E)> {
        let (span, raw) = at_or_above(&self.inner, addr).next()?;
        // SAFETY: The map stores only values that `into_raw()` returned.
        Some((span, unsafe { E::from_raw(raw) }))
    }

    fn memory_for_store(&mut self) -> core::result::Result<(), StoreError> {
        self.gap = None;
        self.nomem = !core::mem::take(&mut self.memory) && fault::strikes();
        if self.nomem {
            Err(StoreError::NoMemory)
        } else {
            Ok(())
        }
    }

    pub(crate) fn insert(&mut self, span: Span, entry: E) -> core::result::Result<(), StoreError> {
        if !self.gap.is_some_and(|gap| gap.covers(span)) {
            return Err(StoreError::Mismatch);
        }
        assert!(
            at_or_above(&self.inner, span.first()).all(|(other, _)| other.first() > span.last())
        );
        self.memory_for_store()?;
        let value = (span.last(), Raw(entry.into_raw()));
        self.inner.insert(span.first(), value);
        Ok(())
    }

    pub(crate) fn erase(&mut self, span: Span, old: E) -> core::result::Result<(), StoreError> {
        if self.entry_at(span.first()) != Some((span, old)) {
            return Err(StoreError::Mismatch);
        }
        self.memory_for_store()?;
        self.inner.remove(&span.first());
        Ok(())
    }

    pub(crate) fn spare_reserves(&mut self) {}

    pub(crate) fn nomem(&mut self, gfp: Gfp) -> bool {
        self.gap = None;
        let retry = self.nomem && (gfp.as_raw() == bindings::GFP_KERNEL || !fault::strikes());
        self.memory = retry;
        retry
    }

    fn gaps(&self) -> Vec<Span> {
        let mut from = Some(0);
        let mut gaps = Vec::new();
        for (&first, &(last, _)) in self.inner.iter() {
            gaps.extend(from.and_then(|from| Span::from_bounds(from, first)));
            from = last.checked_add(1);
        }
        gaps.extend(from.and_then(|from| Span::new(from, usize::MAX)));
        gaps
    }
}

impl<E: Entry> Gaps for Guard<'_, E> {
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        self.gap = self
            .gaps()
            .iter()
            .filter_map(|gap| gap.clip(window))
            .find(|gap| gap.has_room(bytes))
            .and_then(|gap| Span::with_size(gap.first(), bytes));
        self.gap
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        self.gap = self
            .gaps()
            .iter()
            .rev()
            .filter_map(|gap| gap.clip(window))
            .find(|gap| gap.has_room(bytes))
            .and_then(|gap| Span::new(gap.last() - (bytes - 1), gap.last()));
        self.gap
    }

    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        self.gap = self
            .gaps()
            .into_iter()
            .find(|gap| gap.first() <= addr && addr <= gap.last());
        self.gap
    }
    fn pause(&mut self) {
        self.gap = None;
    }
}
