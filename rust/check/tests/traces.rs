// SPDX-License-Identifier: GPL-2.0

//! Random traces: in every step, the allocator must agree with the model, which is the record of the checker.

use super::*;
use crate::check::trace::{
    replay,
    run,
    Source, //
};

#[kernel::prelude::kunit_tests(vmap_rust_trace)]
mod tests {
    use super::*;

    /// With this many blocks, some are large.
    const MANY: usize = 32;

    /// Runs a trace, and reports a failure with the arguments that repeat it.
    ///
    /// 64-bit numbers are printed in hexadecimal: decimal needs a 64-bit division, which panics in 32-bit
    /// kernels.
    fn passes(seed: u64, steps: usize, blocks: usize, is_randomized: bool) -> bool {
        let outcome = run(
            Source::Random(Random::new(seed)),
            steps,
            blocks,
            is_randomized,
        );
        let what = (steps, blocks, is_randomized);
        match outcome {
            Ok(Ok(())) => return true,
            Ok(Err(difference)) => pr_err!("seed {seed:#x}, {what:?}: {difference}\n"),
            Err(err) => pr_err!("seed {seed:#x}, {what:?}: {err:?}\n"),
        }
        false
    }

    #[test]
    fn traces_without_blocks_agree_with_the_model() {
        for seed in 1..=40 {
            assert!(passes(seed, 200, 0, false));
        }
    }

    #[test]
    fn long_traces_without_blocks_agree_with_the_model() {
        for seed in 1..=4 {
            assert!(passes(seed << 32, 4000, 0, false));
        }
    }

    /// With one to nine blocks: less than one for each band, up to enough.
    #[test]
    fn traces_with_blocks_agree_with_the_model() {
        for seed in 1..=40 {
            assert!(passes(seed, 400, 1 + seed as usize % 9, false));
        }
    }

    #[test]
    fn long_traces_with_blocks_agree_with_the_model() {
        for seed in 1..=4 {
            assert!(passes(seed << 32, 4000, 9, false));
        }
    }

    /// With room for one coarse block and no fine one, up to four coarse blocks and some fine ones.
    #[test]
    fn traces_with_coarse_blocks_agree_with_the_model() {
        for seed in 1..=40 {
            assert!(passes(seed, 400, MANY + 7 * (seed as usize % 17), false));
        }
    }

    #[test]
    fn long_traces_with_coarse_blocks_agree_with_the_model() {
        for seed in 1..=4 {
            assert!(passes(seed << 32, 2000, 200, false));
        }
    }

    #[test]
    fn traces_with_randomized_placement_agree_with_the_model() {
        for seed in 1..=20 {
            assert!(passes(seed, 400, seed as usize % 9 + 1, true));
            assert!(passes(seed, 400, MANY + 7 * (seed as usize % 17), true));
        }
    }

    /// Traces that proptest (rust/prop) shrank from failures with faults of `scripts/test faults`.
    #[test]
    fn small_traces() {
        let traces = [
            [[0, 16384, 16384, 0, 4096, 21846, 0, 0, 0, 0]],
            [[0, 16384, 8192, 0, 4096, 0, 0, 0, 0, 0]],
        ];
        for blocks in [0, 1, MANY] {
            for trace in &traces {
                assert!(matches!(replay(trace, blocks), Ok(Ok(()))));
            }
        }
    }

    #[test]
    fn traces_with_a_new_seed_each_boot_agree_with_the_model() {
        let seed = mm::random_seed();
        pr_info!("trace of this boot: seed {seed:#x}\n");
        for blocks in [0, 9, 100] {
            assert!(passes(seed, 2000, blocks, false));
        }
    }
}
