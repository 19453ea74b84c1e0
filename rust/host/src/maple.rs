// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `maple`: a sorted map under a mutex, with the same rules as the maple tree. Storing
//! and erasing need memory, which may fail; replacing an entry in place does not.

use crate::{
    fit::Gaps,
    mm::Gfp,
    range::Span, //
};
use kernel::{
    bindings,
    fault,
    prelude::*,
    sync::LockClassKey, //
};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        MutexGuard, //
    },
};

/// # Safety
///
/// As in the kernel.
pub(crate) unsafe trait Entry: Copy + PartialEq {
    fn into_raw(self) -> *mut c_void;
    /// # Safety
    ///
    /// As in the kernel.
    unsafe fn from_raw(raw: *mut c_void) -> Self;
}

#[derive(Debug, PartialEq)]
pub(crate) enum StoreError {
    NoMemory,
    Mismatch,
}

struct Raw(*mut c_void);
// SAFETY: A value; the code under test says what may be done with it.
unsafe impl Send for Raw {}

struct Inner<D> {
    /// First address to last address and entry.
    map: BTreeMap<usize, (usize, Raw)>,
    data: D,
}

pub(crate) struct Tree<E: Entry, D> {
    inner: Mutex<Inner<D>>,
    _entries: core::marker::PhantomData<fn(E)>,
}

fn at_or_above<D>(inner: &Inner<D>, addr: usize) -> impl Iterator<Item = (Span, *mut c_void)> + '_ {
    let below = inner.map.range(..addr).next_back();
    let below = below.filter(move |(_, (last, _))| *last >= addr);
    below
        .into_iter()
        .chain(inner.map.range(addr..))
        .filter_map(|(&first, (last, raw))| Some((Span::new(first, *last)?, raw.0)))
}

impl<E: Entry, D> Tree<E, D> {
    pub(crate) fn new(
        data: D,
        _: &'static CStr,
        _: Pin<&'static LockClassKey>,
    ) -> core::result::Result<Self, Error> {
        Ok(Self {
            inner: Mutex::new(Inner {
                map: BTreeMap::new(),
                data,
            }),
            _entries: core::marker::PhantomData,
        })
    }

    pub(crate) fn lock(&self) -> Guard<'_, E, D> {
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

    pub(crate) fn load(&self, addr: usize) -> Option<E> {
        let mut guard = self.lock();
        guard.entry_at(addr).map(|(_, entry)| entry)
    }

    pub(crate) fn at(&self, addr: usize) -> Option<(Span, E)> {
        self.lock().entry_at(addr)
    }

    pub(crate) fn next(&self, addr: usize, wanted: impl Fn(E) -> bool) -> Option<(Span, E)> {
        let guard = self.lock();
        let found = at_or_above(&guard.inner, addr)
            // SAFETY: Only what `into_raw()` returned is stored.
            .map(|(span, raw)| (span, unsafe { E::from_raw(raw) }))
            .find(|&(_, entry)| wanted(entry));
        found
    }
}

pub(crate) struct Guard<'tree, E: Entry, D> {
    inner: MutexGuard<'tree, Inner<D>>,
    gap: Option<Span>,
    /// There is memory for one store that needs it.
    memory: bool,
    /// The last store had no memory.
    nomem: bool,
    _entries: core::marker::PhantomData<E>,
}

impl<E: Entry, D> Guard<'_, E, D> {
    pub(crate) fn data(&mut self) -> &mut D {
        &mut self.inner.data
    }

    pub(crate) fn entry_at(&mut self, addr: usize) -> Option<(Span, E)> {
        self.entry_from(addr)
            .filter(|(span, _)| span.first() <= addr)
    }

    pub(crate) fn entry_from(&mut self, addr: usize) -> Option<(Span, E)> {
        let (span, raw) = at_or_above(&self.inner, addr).next()?;
        // SAFETY: Only what `into_raw()` returned is stored.
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
        self.inner.map.insert(span.first(), value);
        Ok(())
    }

    pub(crate) fn replace_at(
        &mut self,
        addr: usize,
        new: impl FnOnce(Span, E) -> Option<E>,
    ) -> Option<(Span, E)> {
        let (span, old) = self.entry_at(addr)?;
        let new = new(span, old)?;
        self.gap = None;
        let value = (span.last(), Raw(new.into_raw()));
        self.inner.map.insert(span.first(), value);
        Some((span, old))
    }

    pub(crate) fn erase(&mut self, span: Span, old: E) -> core::result::Result<(), StoreError> {
        if self.entry_at(span.first()) != Some((span, old)) {
            return Err(StoreError::Mismatch);
        }
        self.memory_for_store()?;
        self.inner.map.remove(&span.first());
        Ok(())
    }

    pub(crate) fn nomem(&mut self, gfp: Gfp) -> bool {
        self.gap = None;
        let retry = self.nomem && (gfp.as_raw() == bindings::GFP_KERNEL || !fault::strikes());
        self.memory = retry;
        retry
    }

    fn gaps(&self) -> Vec<Span> {
        let mut from = Some(0);
        let mut gaps = Vec::new();
        for (&first, &(last, _)) in &self.inner.map {
            gaps.extend(from.and_then(|from| Span::from_bounds(from, first)));
            from = last.checked_add(1);
        }
        gaps.extend(from.and_then(|from| Span::new(from, usize::MAX)));
        gaps
    }
}

impl<E: Entry, D> Gaps for Guard<'_, E, D> {
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
}
