// SPDX-License-Identifier: GPL-2.0

//! Stand-in of the macros of the kernel crate.

use proc_macro::TokenStream;

/// `kernel::macros::kunit_tests`: the tests of the module are tests of the host's harness.
#[proc_macro_attribute]
pub fn kunit_tests(_suite: TokenStream, module: TokenStream) -> TokenStream {
    let mut gated: TokenStream = "#[cfg(test)]".parse().expect("an attribute");
    gated.extend(module);
    gated
}
