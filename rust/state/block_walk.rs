// SPDX-License-Identifier: GPL-2.0

//! The areas of a block in the order of addresses, for the readers of all areas: those that are busy, and those that
//! are neither busy nor free. A step costs about the same however many areas the block has: it looks at no object
//! whose units are free.

use crate::{
    base::{
        bits::Bit,
        range::Span, //
    },
    state::{
        area::{
            AreaPtr,
            Seen, //
        },
        block::Block, //
    },
};

impl Block {
    /// Returns the objects from number `object` on that may have an area: each has a unit that is not free.
    fn objects_from(&self, mut object: usize) -> impl Iterator<Item = usize> + '_ {
        core::iter::from_fn(move || {
            // An area may begin at any unit of its object, and this may be free: begin with the first one.
            let unit = self.free.next_clear(object.wrapping_mul(self.grain()))?;
            let found = self.object_of(unit);
            object = found.wrapping_add(1);
            Some(found)
        })
    }

    /// Returns the lowest busy area that ends above `addr`.
    pub(crate) fn next_busy(&self, addr: usize) -> Option<(AreaPtr, Seen)> {
        let unit = self.unit_of(addr.max(self.start()))?;
        self.objects_from(self.first_object_for(unit))
            .filter_map(|object| self.objects.look(object))
            .find(|(_, seen)| seen.span().last() >= addr)
    }

    /// Returns the lowest area that is neither busy nor free and lies behind `last`, which this has returned, or
    /// anywhere if that is not in the block.
    ///
    /// If others have used the units of `last` since, bounds that an object kept may be taken for those of an area.
    pub(crate) fn next_lazy(&self, last: Option<Span>) -> Option<Span> {
        let is_waiting = |unit| self.lazy.has(unit) || self.flushing.has(unit);
        let last = last.filter(|last| self.span().is_some_and(|block| block.covers(*last)));
        let end = last.map_or(self.start(), |last| self.end_of(last));
        let first = self.object_of(self.unit_of(end)?);
        self.objects_from(first)
            .filter_map(|object| self.not_busy(object, is_waiting, end))
            .find(|span| span.first() >= end)
    }

    /// Returns the end of the units of an area.
    pub(super) fn end_of(&self, span: Span) -> usize {
        let units = self.units_for(span.size());
        span.first()
            .wrapping_add(units.wrapping_shl(self.unit_shift))
    }

    /// Returns the area of an object if it is neither busy nor free. `is_waiting` tells whether a unit waits for
    /// a flush; `end` is the end of the units of the last such area before it.
    ///
    /// Objects keep their bounds after their units became free, and the first unit may then wait for a flush
    /// as a part of another area. That one starts before it, or it would have this object: so `end` tells.
    pub(super) fn not_busy(
        &self,
        object: usize,
        is_waiting: impl Fn(Bit) -> bool,
        end: usize,
    ) -> Option<Span> {
        let (span, is_unlinked) = self.objects.not_busy(object)?;
        let unit = self.unit_of(span.first())?;
        let inside = self.span().is_some_and(|block| block.covers(span));
        let is_lazy = is_waiting(unit) && span.first() >= end;
        (inside && self.object_of(unit) == object && (is_unlinked || is_lazy)).then_some(span)
    }
}
