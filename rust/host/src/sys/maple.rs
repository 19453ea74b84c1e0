// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `maple`: a sorted map under a mutex, with the rules of the maple tree. Each store or erase makes one
//! allocation, which may fail; the maple tree makes none or several.

use crate::{
    base::range::{Gaps, Span},
    cpu::{Mutex, MutexGuard},
    runs::FreeRuns,
    sys::mm::Gfp,
};
use kernel::{
    bindings, fault, hooks,
    prelude::*,
    sync::{rcu, LockClassKey},
    types::ForeignOwnable,
};
use std::collections::BTreeMap;

pub(crate) trait Entry:
    'static + Copy + PartialEq + for<'a> ForeignOwnable<Borrowed<'a> = Self>
{
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

struct Inner {
    map: Map,
    /// The gaps between all entries.
    gaps: FreeRuns,
}

fn take(mutex: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    mutex.lock().expect("no test panics with the lock held")
}

pub(crate) struct Tree<E: Entry> {
    inner: Mutex<Inner>,
    /// Makes the tree `Send` and `Sync` if `E` is `Send`.
    _entries: core::marker::PhantomData<Mutex<E>>,
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
    pub(crate) fn new(_: &'static CStr, _: Pin<&'static LockClassKey>) -> Result<Self> {
        Ok(Self {
            inner: Mutex::new(Inner {
                map: Map::new(),
                gaps: FreeRuns::new(Span::new(0, usize::MAX).expect("not empty")),
            }),
            _entries: core::marker::PhantomData,
        })
    }

    pub(crate) fn lock(&self) -> Guard<'_, E> {
        hooks::before_lock();
        self.guard()
    }

    fn guard(&self) -> Guard<'_, E> {
        Guard {
            mutex: &self.inner,
            held: Some(take(&self.inner)),
            gap: None,
            memory: false,
            nomem: false,
            _entries: core::marker::PhantomData,
        }
    }

    pub(crate) fn load(&self, addr: usize, _: &rcu::Guard) -> Option<E> {
        // In the kernel, this takes no lock.
        let mut guard = self.guard();
        guard.entry_at(addr).map(|(_, entry)| entry)
    }
}

pub(crate) struct Guard<'tree, E: Entry> {
    mutex: &'tree Mutex<Inner>,
    /// [`None`] only while the lock is released for a moment.
    held: Option<MutexGuard<'tree, Inner>>,
    gap: Option<Span>,
    /// `nomem()` has allocated for one store.
    memory: bool,
    /// The last store had no memory.
    nomem: bool,
    _entries: core::marker::PhantomData<E>,
}

impl<E: Entry> Guard<'_, E> {
    fn inner(&mut self) -> &mut Inner {
        self.held.as_mut().expect("held")
    }

    fn entry_at(&mut self, addr: usize) -> Option<(Span, E)> {
        self.entry_from(addr)
            .filter(|(span, _)| span.first() <= addr)
    }

    pub(crate) fn entry_from(&mut self, addr: usize) -> Option<(Span, E)> {
        let (span, raw) = at_or_above(&self.inner().map, addr).next()?;
        // SAFETY: The map stores only values that `into_foreign()` returned.
        Some((span, unsafe { E::borrow(raw) }))
    }

    fn memory_for_store(&mut self) -> Result<(), StoreError> {
        self.gap = None;
        self.nomem = !core::mem::take(&mut self.memory) && fault::strikes();
        (!self.nomem).then_some(()).ok_or(StoreError::NoMemory)
    }

    pub(crate) fn insert(&mut self, span: Span, entry: E) -> Result<(), StoreError> {
        if !self.gap.is_some_and(|gap| gap.covers(span)) {
            return Err(StoreError::Mismatch);
        }
        // The gap was free when it was found, and nobody can have changed that.
        let above = at_or_above(&self.inner().map, span.first()).next();
        assert!(above.is_none_or(|(other, _)| other.first() > span.last()));
        self.memory_for_store()?;
        let value = (span.last(), Raw(entry.into_foreign()));
        self.inner().map.insert(span.first(), value);
        self.inner().gaps.take(span);
        Ok(())
    }

    pub(crate) fn erase(&mut self, span: Span, old: E) -> Result<(), StoreError> {
        if self.entry_at(span.first()) != Some((span, old)) {
            return Err(StoreError::Mismatch);
        }
        self.memory_for_store()?;
        self.inner().map.remove(&span.first());
        self.inner().gaps.give(span);
        Ok(())
    }

    pub(crate) fn erase_all(&mut self, span: Span) -> Result<(), StoreError> {
        let mut found = Vec::new();
        let mut from = Some(span.first());
        while let Some((entry, _)) = from.and_then(|from| self.entry_from(from)) {
            if entry.first() > span.last() {
                break;
            }
            if !span.covers(entry) {
                return Err(StoreError::Mismatch);
            }
            found.push(entry);
            from = entry.next_addr();
        }
        self.memory_for_store()?;
        for entry in found {
            self.inner().map.remove(&entry.first());
            self.inner().gaps.give(entry);
        }
        Ok(())
    }

    pub(crate) fn spare_reserves(&mut self) {}

    pub(crate) fn nomem(&mut self, gfp: Gfp) -> bool {
        self.gap = None;
        let may_sleep = gfp.as_raw() == bindings::GFP_KERNEL;
        let retry = self.nomem && (may_sleep || !fault::strikes());
        if retry && may_sleep {
            self.relock();
        }
        self.memory = retry;
        retry
    }

    pub(crate) fn relock(&mut self) {
        self.gap = None;
        self.held = None;
        hooks::before_lock();
        self.held = Some(take(self.mutex));
    }
}

impl<E: Entry> Drop for Guard<'_, E> {
    fn drop(&mut self) {
        self.held = None;
        hooks::after_unlock();
    }
}

impl<E: Entry> Gaps for Guard<'_, E> {
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        hooks::search();
        self.gap = self.inner().gaps.lowest(window, bytes);
        self.gap
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        hooks::search();
        self.gap = self.inner().gaps.highest(window, bytes);
        self.gap
    }

    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        self.gap = self.inner().gaps.around(addr);
        self.gap
    }

    fn pause(&mut self) {
        self.gap = None;
    }
}
