// SPDX-License-Identifier: GPL-2.0

//! Property tests: proptest searches for traces on which allocator and record disagree, and shrinks them.
//!
//! `VMAP_RUST_TRACES` is the number of traces of each kind, 500 by default.

#[cfg(test)]
mod tests {
    use proptest::{array::uniform10, collection::vec, prelude::*, test_runner::TestRunner};

    /// Runs traces of up to 300 steps with `blocks` blocks. Panics with the smallest trace that fails.
    fn traces(blocks: impl Strategy<Value = usize>) {
        let number = std::env::var("VMAP_RUST_TRACES").map_or(500, |number| {
            number.parse().expect("VMAP_RUST_TRACES is a number")
        });
        let config = ProptestConfig {
            cases: number,
            failure_persistence: None,
            max_shrink_iters: 20_000,
            ..ProptestConfig::default()
        };
        let trace = (vec(uniform10(any::<u16>()), 0..300), blocks);
        let result = TestRunner::new(config).run(&trace, |(steps, blocks)| {
            vmap_rust_host::replay(&steps, blocks).map_err(TestCaseError::fail)
        });
        if let Err(failure) = result {
            panic!("{failure}");
        }
    }

    #[test]
    fn traces_without_blocks_agree_with_the_model() {
        traces(Just(0));
    }

    #[test]
    fn traces_with_few_small_blocks_agree_with_the_model() {
        traces(1..10_usize);
    }

    #[test]
    fn traces_with_blocks_of_all_sizes_agree_with_the_model() {
        traces(32..200_usize);
    }
}
