// SPDX-License-Identifier: GPL-2.0

//! Traces as proptest makes them: it finds those that make the allocator differ from the model, and then
//! leaves out steps and lowers numbers as long as they still do.
//!
//! `VMAP_RUST_TRACES` says how many of each kind, 500 by default.

#[cfg(test)]
mod tests {
    use proptest::{
        array::uniform10,
        collection::vec,
        prelude::*,
        test_runner::TestRunner, //
    };

    /// Traces of up to so many steps, with that many blocks; fails with the smallest trace that does.
    fn traces(steps: usize, blocks: impl Strategy<Value = usize>) {
        let number = std::env::var("VMAP_RUST_TRACES").map_or(500, |number| {
            number.parse().expect("VMAP_RUST_TRACES is a number")
        });
        let config = ProptestConfig {
            cases: number,
            failure_persistence: None,
            max_shrink_iters: 20_000,
            ..ProptestConfig::default()
        };
        let trace = (vec(uniform10(any::<u16>()), 0..steps), blocks);
        let result = TestRunner::new(config).run(&trace, |(steps, blocks)| {
            vmap_rust_host::replay(&steps, blocks).map_err(TestCaseError::fail)
        });
        if let Err(failure) = result {
            panic!("{failure}");
        }
    }

    #[test]
    fn without_blocks() {
        traces(300, Just(0));
    }

    #[test]
    fn with_fine_blocks() {
        traces(300, 1..10_usize);
    }

    #[test]
    fn with_coarse_blocks() {
        traces(300, 32..200_usize);
    }
}
