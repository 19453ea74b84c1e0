// SPDX-License-Identifier: GPL-2.0

//! The kernel's own space, watched by a [`Shadow`] if that was asked for at boot.
//!
//! Without `CONFIG_VMAP_RUST_DEBUG` nothing watches, and only what is asked for with `vmap_rust.scatter` is
//! left.

use crate::{
    area::{
        Area,
        AreaPtr,
        Unlinked, //
    },
    fit::Member,
    mm::{
        Gfp,
        KernelTlb,
        Tlb, //
    },
    pins::PinGuard,
    range::{
        is_aligned,
        Span, //
    },
    shadow::{
        Identity,
        Shadow, //
    },
    space::{
        Request,
        Space, //
    },
};
use kernel::prelude::*;

/// The TLB of the kernel, whose flushes are noted.
pub(crate) struct WatchedTlb {
    shadow: Option<Shadow>,
    is_scattered: bool,
}

impl WatchedTlb {
    /// What watches, if anything does.
    #[inline(always)]
    fn shadow(&self) -> Option<&Shadow> {
        match cfg!(CONFIG_VMAP_RUST_DEBUG) {
            true => self.shadow.as_ref(),
            false => None,
        }
    }
}

impl Tlb for WatchedTlb {
    fn has_shadow(&self) -> bool {
        KernelTlb.has_shadow()
    }

    fn flush(&self, span: Span, areas: usize) {
        match self.shadow() {
            Some(shadow) => shadow.flush(span, || KernelTlb.flush(span, areas)),
            None => KernelTlb.flush(span, areas),
        }
    }

    fn is_scattered(&self) -> bool {
        self.is_scattered
    }

    fn release_shadow(&self, span: Span) {
        KernelTlb.release_shadow(span);
    }

    fn flush_shadow(&self, span: Span) {
        KernelTlb.flush_shadow(span);
    }
}

/// What the book calls an area.
fn identity(area: AreaPtr) -> Identity {
    area.as_raw().addr()
}

/// The kernel's own space of addresses. The operations are those of [`Space`].
pub(crate) struct KernelSpace(Space<WatchedTlb>);

impl KernelSpace {
    /// An empty space; watched, and with areas at places by chance, if that is wanted.
    pub(crate) fn new(home: Span, watched: bool, is_scattered: bool) -> Result<Self> {
        let shadow = match watched {
            true => Some(Shadow::new(true)?),
            false => None,
        };
        let tlb = WatchedTlb {
            shadow,
            is_scattered,
        };
        Ok(Self(Space::new(home, tlb)?))
    }

    /// The space, for what is not compared.
    #[inline(always)]
    pub(crate) fn space(&self) -> &Space<WatchedTlb> {
        &self.0
    }

    /// What watches the space, if anything does.
    #[inline(always)]
    pub(crate) fn shadow(&self) -> Option<&Shadow> {
        self.0.tlb().shadow()
    }

    /// Enters a new area, of which `is_asked_for` says whether it is what was asked for.
    fn gained(&self, shadow: &Shadow, area: AreaPtr, is_asked_for: impl FnOnce(Span) -> bool) {
        if let Some(span) = self.0.span_of_busy(area) {
            shadow.gained(span, identity(area), is_asked_for(span));
        }
    }

    /// See [`Space::alloc`].
    #[inline(always)]
    pub(crate) fn alloc(&self, req: &Request) -> Result<AreaPtr> {
        let Some(shadow) = self.shadow() else {
            return self.0.alloc(req);
        };
        shadow.change(|| {
            let area = self.0.alloc(req)?;
            self.gained(shadow, area, |span| {
                span.size() == req.size
                    && req.window.covers(span)
                    && is_aligned(span.first(), req.align)
            });
            Ok(area)
        })
    }

    /// See [`Space::alloc_congruent`].
    pub(crate) fn alloc_congruent(
        &self,
        window: Span,
        members: impl ExactSizeIterator<Item = Member> + Clone,
        align: usize,
        gfp: Gfp,
        mut give: impl FnMut(usize, AreaPtr),
    ) -> Result {
        let Some(shadow) = self.shadow() else {
            return self.0.alloc_congruent(window, members, align, gfp, give);
        };
        // Some may be undone, and others be given instead of them.
        let mut given = KVec::from_elem(None, members.len(), gfp.flags())?;
        let asked = members.clone();
        shadow.change(|| {
            self.0
                .alloc_congruent(window, members, align, gfp, |index, area| {
                    if let Some(slot) = given.get_mut(index) {
                        *slot = Some(area);
                    }
                    give(index, area);
                })?;
            let mut base = None;
            for (member, area) in asked.zip(given.iter().flatten()) {
                self.gained(shadow, *area, |span| {
                    let here = span.first().wrapping_sub(member.offset);
                    span.size() == member.size
                        && window.covers(span)
                        && is_aligned(here, align)
                        && *base.get_or_insert(here) == here
                });
            }
            Ok(())
        })
    }

    /// See [`Space::find`].
    #[inline(always)]
    pub(crate) fn find(&self, addr: usize) -> Option<AreaPtr> {
        let Some(shadow) = self.shadow() else {
            return self.0.find(addr);
        };
        let moment = shadow.moment();
        let found = self.0.find(addr);
        shadow.found(&moment, addr, found.map(identity));
        found
    }

    /// See [`Space::unlink`].
    #[inline(always)]
    pub(crate) fn unlink(&self, addr: usize) -> Option<Area<Unlinked>> {
        let Some(shadow) = self.shadow() else {
            return self.0.unlink(addr);
        };
        let moment = shadow.moment();
        let area = shadow.change(|| {
            let area = self.0.unlink(addr)?;
            if let Some(span) = area.span() {
                shadow.unlinked(span, identity(area.ptr()));
            }
            Some(area)
        });
        if area.is_none() {
            shadow.found(&moment.and_own_change(), addr, None);
        }
        area
    }

    /// See [`Space::get`].
    pub(crate) fn get(&self, addr: usize) -> Option<(AreaPtr, PinGuard<'_>)> {
        let Some(shadow) = self.shadow() else {
            return self.0.get(addr);
        };
        let moment = shadow.moment();
        let got = self.0.get(addr);
        shadow.found_next(&moment, addr, got.as_ref().map(|got| identity(got.0)));
        got
    }

    /// See [`Space::try_get`].
    pub(crate) fn try_get(&self, addr: usize) -> Option<(AreaPtr, PinGuard<'_>)> {
        let Some(shadow) = self.shadow() else {
            return self.0.try_get(addr);
        };
        let moment = shadow.moment();
        let got = self.0.try_get(addr)?;
        shadow.found(&moment, addr, Some(identity(got.0)));
        Some(got)
    }

    /// See [`Space::retire`].
    #[inline(always)]
    pub(crate) fn retire(&self, area: Area<Unlinked>) -> usize {
        let Some((shadow, span)) = self.shadow().zip(area.span()) else {
            return self.0.retire(area);
        };
        let identity = identity(area.ptr());
        shadow.change(|| {
            let given = shadow.retiring(span, identity);
            let pages = self.0.retire(area);
            shadow.retired(span, identity, given);
            pages
        })
    }

    /// See [`Space::release`].
    pub(crate) fn release(&self, area: Area<Unlinked>) {
        let Some((shadow, span)) = self.shadow().zip(area.span()) else {
            return self.0.release(area);
        };
        shadow.change(|| {
            shadow.releasing(span, identity(area.ptr()));
            self.0.release(area);
        });
    }

    /// See [`Space::purge`].
    pub(crate) fn purge(&self, also: Option<Span>, drain: bool) -> usize {
        let Some(shadow) = self.shadow() else {
            return self.0.purge(also, drain);
        };
        shadow.purge(|| self.0.purge(also, drain))
    }
}
