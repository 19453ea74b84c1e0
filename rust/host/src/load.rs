// SPDX-License-Identifier: GPL-2.0

//! A space that threads share: those of the machine (`threads`), or those of a scheduler (rust/explore). The
//! checker compares all answers, so a thread only has to use the space.

use crate::{
    check::{
        checked::{CheckedSpace, CheckedTlb},
        fixtures::{FlushLog, World},
    },
    cpu::Mutex,
    policy::{validate::Census, Request, Space},
    state::objects::{AreaPtr, Busy},
};
use std::collections::HashMap;

/// A shared space.
pub(crate) struct Load {
    checked: CheckedSpace<FlushLog>,
    /// Stands for `vmap_purge_lock`.
    purging: Mutex<()>,
    /// Number of readers that have the area with this first address pinned. No scheduler switches threads at this lock.
    readers: std::sync::Mutex<HashMap<usize, usize>>,
}

/// An area of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Mine {
    pub(crate) span: crate::base::range::Span,
    pub(crate) area: AreaPtr,
}

impl Load {
    pub(crate) fn new(world: World) -> Self {
        Self {
            checked: world.checked().expect("memory"),
            purging: Mutex::new(()),
            readers: std::sync::Mutex::default(),
        }
    }

    /// Returns the space, for what the checker does not compare.
    pub(crate) fn space(&self) -> &Space<CheckedTlb<FlushLog>> {
        self.checked.space()
    }

    /// Allocates an area, if there is room.
    pub(crate) fn alloc(&self, request: &Request) -> Option<Mine> {
        let busy = self.checked.alloc_bare(*request).ok()?;
        let (span, area) = (busy.span(), busy.area());
        let mine = Mine { span, area };
        self.find(&mine, span.last());
        Some(mine)
    }

    /// Looks up an address of an own area, which finds it whatever others do meanwhile.
    pub(crate) fn find(&self, mine: &Mine, addr: usize) {
        let found = self.checked.find(addr);
        assert_eq!(
            found.map(Busy::area),
            Some(mine.area),
            "{:x?} at {addr:x}",
            mine.span
        );
    }

    /// Unlinks an area by an address in it, and retires it. Purges if `purge`, so that its range is free at once.
    pub(crate) fn free(&self, mine: Mine, addr: usize, purge: bool) {
        let area = self.checked.unlink(addr).expect("mine to unlink");
        assert_eq!(area.span(), Some(mine.span));
        // The object has no other user before the area is retired.
        assert_ne!(
            self.checked.find(addr).map(Busy::area),
            Some(mine.area),
            "found after unlink"
        );
        self.count_readers(mine.span.first(), |readers| {
            assert_eq!(*readers, 0, "{:x?} is read", mine.span);
        });
        self.checked.retire(area);
        if purge {
            self.purge(false);
        }
    }

    pub(crate) fn purge(&self, drain: bool) -> usize {
        let _purging = self.purging.lock().expect("nobody panics with it");
        self.checked.purge(None, drain)
    }

    /// Looks up an area of any thread.
    pub(crate) fn look(&self, addr: usize) {
        self.checked.find(addr);
    }

    /// Pins the area at `addr`, or unless `try_only` the next one above. Checks that it does not change, nor those behind it
    /// that are pinned, too.
    pub(crate) fn read(&self, addr: usize, try_only: bool) {
        let got = match try_only {
            true => self.checked.try_get(addr),
            false => self.checked.get(addr, usize::MAX),
        };
        let Some(pinned) = got else {
            return;
        };
        assert!(!try_only || pinned.area().span().first() <= addr);
        for area in pinned.areas() {
            let start = area.span().first();
            self.count_readers(start, |readers| *readers += 1);
            // The owner may try to unlink the area during this call.
            self.checked.find(addr);
            // SAFETY: The area is pinned, so it is valid and does not change.
            assert_eq!(unsafe { area.area().seen() }.start, start);
            self.count_readers(start, |readers| *readers -= 1);
        }
        drop(pinned);
    }

    fn count_readers(&self, start: usize, what: impl FnOnce(&mut usize)) {
        let mut readers = self.readers.lock().unwrap_or_else(|err| err.into_inner());
        what(readers.entry(start).or_default());
    }

    /// Purges after all threads, and checks that nothing is left.
    pub(crate) fn end(&self) {
        self.purge(false);
        assert_eq!(self.space().lazy_pages(), 0);
        let checker = self.checked.checker().expect("a test has one");
        assert!(checker.agrees());
        let left = checker.with(|record| record.areas().count());
        assert_eq!(left, 0, "areas were not flushed");
        self.space().validate().expect("invariants hold");
        self.purge(true);
        assert_eq!(self.space().validate().ok(), Some(Census::default()));
        assert_eq!(self.space().blocks(), Default::default());
    }
}
