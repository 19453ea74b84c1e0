// SPDX-License-Identifier: GPL-2.0

//! Lists of areas in one state, which need no memory: they are linked through `vmap_area::vm` of the area objects.

use super::prelude::*;

/// States of areas that can be in a list: nobody else reads `vmap_area::vm` of such an area. Readers that have pinned an
/// area that is leaving may.
pub(crate) trait Listed: State {}
impl Listed for New {}
impl Listed for Reserved {}
impl Listed for Lazy {}
impl Listed for Flushed {}

/// A list of areas in state `S`, linked through the area objects.
///
/// # Invariants
///
/// - `first` and `last` are both [`Some`] or both [`None`]. If [`Some`], `vmap_area::vm` links `len` areas
///   from `first` to `last`, and is null in `last`.
/// - The list owns the tokens of all its areas.
pub(crate) struct AreaList<S: Listed> {
    first: Option<AreaPtr>,
    last: Option<AreaPtr>,
    len: usize,
    _state: PhantomData<Area<S>>,
}

impl<S: Listed> Default for AreaList<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Listed> AreaList<S> {
    pub(crate) const fn new() -> Self {
        // INVARIANT: Both ends are `None`.
        Self {
            first: None,
            last: None,
            len: 0,
            _state: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Appends the `len` areas that are linked from `first` to `last`.
    fn link(&mut self, first: AreaPtr, last: AreaPtr, len: usize) {
        match self.last {
            // SAFETY: By the type invariants, the list owns the area.
            Some(end) => unsafe { (*end.as_raw()).__bindgen_anon_1.vm = first.as_raw().cast() },
            None => self.first = Some(first),
        }
        // INVARIANT: The previous last area links to `first`.
        self.last = Some(last);
        self.len = self.len.wrapping_add(len);
    }

    /// Appends an area.
    pub(crate) fn push(&mut self, area: Area<S>) {
        area.set_vm(ptr::null_mut());
        let ptr = area.into_ptr();
        self.link(ptr, ptr, 1);
    }

    /// Appends the areas of another list: one step, however many there are.
    pub(crate) fn append(&mut self, mut other: Self) {
        // INVARIANT: The other list is empty, and this one owns its areas.
        if let (Some(first), Some(last)) = (other.first.take(), other.last.take()) {
            self.link(first, last, other.len);
            other.len = 0;
        }
    }

    /// Inserts an area before the others. Leaves their objects alone, which other CPUs may have written last.
    pub(crate) fn push_first(&mut self, area: Area<S>) {
        let next = self.first.map(|next| next.as_raw().cast());
        area.set_vm(next.unwrap_or(ptr::null_mut()));
        let ptr = area.into_ptr();
        // INVARIANT: The area links to the former first one, or is the only one.
        self.first = Some(ptr);
        self.last.get_or_insert(ptr);
        self.len = self.len.wrapping_add(1);
    }

    /// Fetches the object of the first area for writing: [`AreaList::pop`] reads it, and its caller changes it.
    pub(crate) fn prefetch(&self) {
        if let Some(first) = self.first {
            first.prefetch_for_write();
        }
    }

    /// Removes the first area.
    pub(crate) fn pop(&mut self) -> Option<Area<S>> {
        let first = self.first?;
        // SAFETY: By the type invariants, the list owns the area.
        let next = unsafe { (*first.as_raw()).__bindgen_anon_1.vm };
        // INVARIANT: The next area becomes the first; without one, the list is empty.
        // SAFETY: By the type invariants, it is null or links an area of the list.
        self.first = unsafe { AreaPtr::new(next.cast()) };
        if self.first.is_none() {
            self.last = None;
        }
        self.len = self.len.wrapping_sub(1);
        // SAFETY: By the type invariants, the list owned the token, and it gives it up.
        let area = unsafe { Area::take_back(first) };
        area.set_vm(ptr::null_mut());
        Some(area)
    }
}

impl AreaList<Lazy> {
    /// Turns the areas of a plan that was flushed into flushed ones: the only way from [`Lazy`] to
    /// [`Flushed`]. The caller has taken the list out of the plan that `_proof` belongs to.
    pub(super) fn flushed(mut self, _proof: &TlbFlushed) -> AreaList<Flushed> {
        // INVARIANT: The links are unchanged. The objects keep the code of `Lazy` until their next
        // change of state; others only read from it that the areas are not busy.
        let flushed = AreaList {
            first: self.first.take(),
            last: self.last.take(),
            len: self.len,
            _state: PhantomData,
        };
        self.len = 0;
        flushed
    }
}

impl<S: Listed> Iterator for AreaList<S> {
    type Item = Area<S>;

    fn next(&mut self) -> Option<Area<S>> {
        self.pop()
    }
}

impl<S: Listed> Drop for AreaList<S> {
    fn drop(&mut self) {
        while let Some(area) = self.pop() {
            // Frees a new area, and leaks any other with a report.
            drop(area);
        }
    }
}

/// A list of lazy areas, and a span that covers them.
///
/// # Invariants
///
/// All pages of the areas are in `cover`.
#[derive(Default)]
pub(crate) struct LazyList {
    areas: AreaList<Lazy>,
    /// In pages: kmemleak would take an address for a reference to the area that starts there.
    cover: Option<Span>,
}

impl LazyList {
    /// Inserts an area before the others, and returns its pages. Leaves their objects alone, which other CPUs may have
    /// written last.
    pub(crate) fn push_first(&mut self, area: Area<Lazy>) -> usize {
        let Some(span) = area.span() else {
            // Cannot happen: a span is not empty. The drop of the area reports the leak.
            return 0;
        };
        let pages = span.in_pages();
        // INVARIANT: It covers the pages of the area.
        self.cover = Some(self.cover.map_or(pages, |cover| cover.join(pages)));
        self.areas.push_first(area);
        pages.size()
    }

    /// Returns the areas, and a span that covers them if there are some.
    pub(super) fn into_parts(self) -> (AreaList<Lazy>, Option<Span>) {
        (self.areas, self.cover.and_then(Span::from_pages))
    }
}
