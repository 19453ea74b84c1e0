// SPDX-License-Identifier: GPL-2.0

//! What this layer and the one below offer.

pub(crate) use super::{
    grace::{
        GraceBox,
        GraceList,
        Guard,
        Unpublished, //
    },
    lock::{
        LockGuard,
        Locked, //
    },
    maple::{
        self,
        StoreError, //
    },
    mm::{
        self,
        Gfp,
        Node, //
    },
    per_cpu::{
        CacheAligned,
        Counter,
        Counters,
        CpuNumber,
        PerCpu, //
    },
    tlb::Tlb,
    trace::{
        self,
        Cause,
        Event, //
    }, //
};
pub(crate) use crate::base::prelude::*;
