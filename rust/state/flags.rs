// SPDX-License-Identifier: GPL-2.0

//! `vmap_area::flags`: bits of C, the state of the area, and how many users its object had. [`crate::state::area`] says which
//! state follows which.
//!
//! The states are types. Those with one code differ only at compile time. Busy is no type, since a busy area has no token:
//! [`Busy`](crate::state::view::Busy) is what a reader saw.
//!
//! | bits | |
//! |---|---|
//! | 0 to 15 | belong to C |
//! | 16 to 18 | state: a [`State::CODE`], or one of the codes without a token |
//! | 19 | the object is part of a block |
//! | from 20 on | generation: counts the users of the object, and wraps around |

/// The state of an area.
pub(crate) trait State {
    /// Value in `vmap_area::flags`.
    const CODE: usize;
    /// Whether the range of the area is reserved in the tree.
    const RESERVED: bool;
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $code:literal, reserved: $reserved:literal;)*) => {$(
        $(#[$doc])*
        // A name only: it has no values.
        pub(crate) enum $name {}
        impl State for $name {
            const CODE: usize = $code;
            const RESERVED: bool = $reserved;
        }
    )*};
}

states! {
    /// An object without a range.
    New = 2, reserved: false;
    /// The range is reserved: the area can be made busy.
    Reserved = 2, reserved: true;
    /// New lookups do not find it; earlier readers may still have it pinned.
    Leaving = 3, reserved: true;
    /// Out of use, perhaps still mapped.
    Unlinked = 3, reserved: true;
    /// Unmapped, perhaps still in some TLB.
    Lazy = 4, reserved: true;
    /// In no TLB. Only [`Area::cancel`](crate::state::area::Area::cancel) stores the code: what a purge has flushed keeps that
    /// of [`Lazy`].
    Flushed = 5, reserved: true;
}

/// `vmap_area::flags`: the low bits belong to C.
pub(super) const C_MASK: usize = (1 << STATE_SHIFT) - 1;
/// `vmap_area::flags`: the state is above the bits of C.
pub(super) const STATE_SHIFT: u32 = 16;
pub(super) const STATE_MASK: usize = 0x7 << STATE_SHIFT;
/// `vmap_area::flags`: the object is part of a block, not of the slab cache of area objects.
pub(super) const IN_BLOCK: usize = 1 << 19;
/// `vmap_area::flags`: the bits from this one on count the users of the object. The count wraps around.
pub(super) const GENERATION: usize = 1 << 20;

pub(super) const fn code_of(flags: usize) -> usize {
    (flags & STATE_MASK) >> STATE_SHIFT
}

/// [`State::CODE`] of an unused object of a block. Zeroed memory has this code.
pub(super) const VACANT_CODE: usize = 0;
/// [`State::CODE`] of a busy area.
pub(super) const BUSY_CODE: usize = 1;
/// [`State::CODE`] of an area whose token was dropped.
pub(super) const LEAKED_CODE: usize = 7;
