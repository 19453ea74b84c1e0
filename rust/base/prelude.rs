// SPDX-License-Identifier: GPL-2.0

//! What almost every module of the layers above uses.

pub(crate) use super::{
    cpu::CpuNumber,
    map::{
        self,
        Bit,
        Map,
        Words,
        BITS,
        MAP_BITS,
        WORDS, //
    },
    range::{
        align_up,
        is_aligned,
        Span,
        PAGE_SIZE, //
    },
};
pub(crate) use core::ptr;
pub(crate) use kernel::{
    alloc::Flags,
    bindings,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed,
        Release, //
    },
};
