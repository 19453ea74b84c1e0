// SPDX-License-Identifier: GPL-2.0

//! A value for each band. Each band has one, so finding it cannot fail, and no caller has to say what happens then.

use crate::state::band::{
    Band,
    BANDS, //
};

/// One `T` for each band.
///
/// It has an element for each variant of [`Band`], so finding one needs no check.
#[derive(Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct ByBand<T>([T; BANDS]);

impl<T> ByBand<T> {
    /// Calls `make` for each band.
    pub(crate) fn new(make: impl FnMut(Band) -> T) -> Self {
        Self(Band::ALL.map(make))
    }

    /// Calls `make` for each band. Ends with its first error.
    pub(crate) fn try_new<E>(mut make: impl FnMut(Band) -> Result<T, E>) -> Result<Self, E> {
        Ok(Self([
            make(Band::Fine2)?,
            make(Band::Fine4)?,
            make(Band::Fine8)?,
            make(Band::Fine16)?,
            make(Band::Fine32)?,
            make(Band::Coarse2)?,
            make(Band::Coarse4)?,
            make(Band::Coarse8)?,
            make(Band::Coarse16)?,
            make(Band::Coarse32)?,
            make(Band::Aligned)?,
        ]))
    }

    /// Returns the value of `band`.
    #[inline(always)]
    pub(crate) fn of(&self, band: Band) -> &T {
        // The compiler knows the values of the enumeration, so no check remains.
        &self.0[band.number()]
    }

    /// Returns the value of `band`.
    #[inline(always)]
    pub(crate) fn of_mut(&mut self, band: Band) -> &mut T {
        // As in `of()`, no check remains.
        &mut self.0[band.number()]
    }

    /// Returns all values, in the order of the bands.
    pub(crate) fn iter(&self) -> core::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// Returns all values, in the order of the bands.
    pub(crate) fn iter_mut(&mut self) -> core::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }
}
