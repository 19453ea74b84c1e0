// SPDX-License-Identifier: GPL-2.0

//! The states of an area, as types: [`crate::state::area`] says which one follows which.

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
    /// In no TLB.
    Flushed = 5, reserved: true;
}
