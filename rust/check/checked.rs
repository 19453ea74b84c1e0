// SPDX-License-Identifier: GPL-2.0

//! A space whose answers a [`Checker`] compares: those of tests, and the kernel's own if `vmap_rust.check=1` asks for it.
//!
//! Without `CONFIG_VMAP_RUST_DEBUG` the kernel's space is a plain [`Space`].

use crate::{
    check::{
        checker::Checker,
        record::Identity, //
    },
    policy::prelude::*,
    state::watched::{
        Done,
        Watch,
        Watched, //
    }, //
};

/// A TLB, with the checker that records its flushes, if it is on.
pub(crate) type CheckedTlb<T> = Watched<T, Option<Checker>>;

impl Watch for Option<Checker> {
    fn flush(&self, span: Span, _areas: usize, flush: impl FnOnce() -> Done) -> Done {
        match self {
            Some(checker) => checker.flush(span, flush),
            None => flush(),
        }
    }
}

/// Returns the identity of an area for the checker.
fn identity(area: AreaPtr) -> Identity {
    area.as_raw().addr()
}

/// A space with the operations of [`Space`], each of which is compared.
pub(crate) struct CheckedSpace<T: Tlb>(Space<CheckedTlb<T>>);

impl<T: Tlb> CheckedSpace<T> {
    /// Creates an empty space; the arguments are those of [`Space::new`]. `ENOMEM` without memory.
    pub(crate) fn new(home: Span, tlb: CheckedTlb<T>, options: Options) -> Result<Self> {
        Ok(Self(Space::new(home, tlb, options)?))
    }

    /// Returns the space, for operations that are not compared.
    #[inline(always)]
    pub(crate) fn space(&self) -> &Space<CheckedTlb<T>> {
        &self.0
    }

    /// Returns the checker, if it is on.
    #[inline(always)]
    pub(crate) fn checker(&self) -> Option<&Checker> {
        self.0.tlb().watch.as_ref()
    }

    /// Records a new area; `fits_request` checks its size and place.
    fn allocated(checker: &Checker, area: Busy, fits_request: impl FnOnce(Span) -> bool) {
        checker.allocated(
            area.span(),
            identity(area.area()),
            fits_request(area.span()),
        );
    }

    /// See [`Space::alloc`].
    #[inline(always)]
    pub(crate) fn alloc(&self, req: &Request, attributes: Attributes) -> Result<Busy> {
        let Some(checker) = self.checker() else {
            return self.0.alloc(req, attributes);
        };
        checker.change(|| {
            let area = self.0.alloc(req, attributes)?;
            Self::allocated(checker, area, |span| {
                span.size() == req.size
                    && req.window.covers(span)
                    && is_aligned(span.first(), req.align)
            });
            Ok(area)
        })
    }

    /// See [`Space::alloc_current`].
    #[inline(always)]
    pub(crate) fn alloc_current(
        &self,
        size: usize,
        align: usize,
        attributes: Attributes,
    ) -> Option<Busy> {
        self.current(size, align, || {
            self.0.alloc_current(size, align, attributes)
        })
    }

    /// See [`Space::reuse_current`].
    #[inline(always)]
    pub(crate) fn reuse_current(&self, size: usize, align: usize, new: VmFields) -> Option<Busy> {
        self.current(size, align, || self.0.reuse_current(size, align, new))
    }

    #[inline(always)]
    fn current(
        &self,
        size: usize,
        align: usize,
        alloc: impl FnOnce() -> Option<Busy>,
    ) -> Option<Busy> {
        let Some(checker) = self.checker() else {
            return alloc();
        };
        checker.change(|| {
            let area = alloc()?;
            Self::allocated(checker, area, |span| {
                span.size() == size && is_aligned(span.first(), align.max(1))
            });
            Some(area)
        })
    }

    /// See [`Space::alloc_congruent`].
    pub(crate) fn alloc_congruent(
        &self,
        window: Span,
        members: impl ExactSizeIterator<Item = Member> + Clone,
        align: usize,
        gfp: Gfp,
        mut publish: impl FnMut(usize, Area<Reserved>) -> Option<Busy>,
    ) -> Result {
        let Some(checker) = self.checker() else {
            return self.0.alloc_congruent(window, members, align, gfp, publish);
        };
        // The allocator may undo areas and report others in their place: record only the last ones.
        let mut areas = KVec::from_elem(None, members.len(), gfp.flags())?;
        let asked = members.clone();
        checker.change(|| {
            self.0
                .alloc_congruent(window, members, align, gfp, |index, area| {
                    let area = publish(index, area)?;
                    match areas.get_mut(index) {
                        Some(slot) => *slot = Some(area),
                        None => checker.lost(identity(area.area())),
                    }
                    Some(area)
                })?;
            Self::allocated_congruent(checker, window, asked.zip(areas.iter().copied()), align);
            Ok(())
        })
    }

    /// Records new areas at a common base, one for each member that was asked for. A member without one is wrong.
    pub(super) fn allocated_congruent(
        checker: &Checker,
        window: Span,
        members: impl Iterator<Item = (Member, Option<Busy>)>,
        align: usize,
    ) {
        let mut base = None;
        for (member, area) in members {
            let Some(area) = area else {
                checker.lost(0);
                continue;
            };
            Self::allocated(checker, area, |span| {
                let here = span.first().wrapping_sub(member.offset);
                span.size() == member.size
                    && window.covers(span)
                    && is_aligned(here, align)
                    && *base.get_or_insert(here) == here
            });
        }
    }

    /// See [`Space::find`].
    #[inline(always)]
    pub(crate) fn find(&self, addr: usize) -> Option<Busy> {
        let Some(checker) = self.checker() else {
            return self.0.find(addr);
        };
        let moment = checker.moment();
        let found = self.0.find(addr);
        checker.found(&moment, addr, found.map(|found| identity(found.area())));
        found
    }

    /// See [`Space::unlink`].
    #[inline(always)]
    pub(crate) fn unlink(&self, addr: usize) -> Option<UnlinkedArea<'_>> {
        let Some(checker) = self.checker() else {
            return self.0.unlink(addr);
        };
        let moment = checker.moment();
        let area = checker.change(|| {
            let area = self.0.unlink(addr)?;
            checker.unlinked_at(addr, area.span(), identity(area.ptr()));
            Some(area)
        });
        if area.is_none() {
            checker.found(&moment.and_own_change(), addr, None);
        }
        area
    }

    /// See [`Space::get`].
    pub(crate) fn get(&self, addr: usize, last: usize) -> Option<Pinned<'_>> {
        let Some(checker) = self.checker() else {
            return self.0.get(addr, last);
        };
        let moment = checker.moment();
        let got = self.0.get(addr, last);
        checker.found_next(
            &moment,
            addr,
            last,
            got.as_ref().map(|got| identity(got.area().area())),
        );
        got
    }

    /// See [`Space::try_get`].
    pub(crate) fn try_get(&self, addr: usize) -> Option<Pinned<'_>> {
        let Some(checker) = self.checker() else {
            return self.0.try_get(addr);
        };
        let moment = checker.moment();
        let got = self.0.try_get(addr)?;
        checker.found(&moment, addr, Some(identity(got.area().area())));
        Some(got)
    }

    /// See [`Space::retire`].
    #[inline(always)]
    pub(crate) fn retire(&self, area: UnlinkedArea<'_>) -> usize {
        let Some((checker, span)) = self.checker().zip(area.span()) else {
            return self.0.retire(area);
        };
        let identity = identity(area.ptr());
        checker.change(|| {
            let began = checker.retiring(span, identity);
            let pages = self.0.retire(area);
            checker.retired(span, identity, began);
            pages
        })
    }

    /// See [`Space::purge`].
    pub(crate) fn purge(&self, also: Option<Span>, drain: bool) -> usize {
        let Some(checker) = self.checker() else {
            return self.0.purge(also, drain);
        };
        checker.purge(|| self.0.purge(also, drain))
    }
}
