// SPDX-License-Identifier: GPL-2.0

//! The kernel's own space, if its answers can be compared.

use crate::{
    check::{
        checked::{
            CheckedSpace,
            CheckedTlb, //
        },
        checker::Checker, //
    },
    policy::prelude::*,
    sys::{
        compat::is_on,
        mm::KernelTlb, //
    }, //
};

/// The kernel's own space.
pub(crate) type KernelSpace = CheckedSpace<KernelTlb>;

/// Makes the space of the kernel for `home`, unless it is to fail. `ENOMEM` without memory.
pub(crate) fn start(home: Span, tlb: KernelTlb) -> Result<KernelSpace> {
    if is_on(crate::module_parameters::fail_init.value()) {
        return Err(ENOMEM);
    }
    let checker = match is_on(crate::module_parameters::check.value()) {
        true => Some(Checker::new(true, GFP_NOWAIT)?),
        false => None,
    };
    let watch = checker;
    KernelSpace::new(home, CheckedTlb { tlb, watch }, None)
}
