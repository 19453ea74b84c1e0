// SPDX-License-Identifier: GPL-2.0

//! Random traces: in every step, the allocator must agree with the model, which is the record of the checker.

use crate::{
    check::trace_steps::Difference,
    sys::mm, //
};
use kernel::prelude::*;

#[kernel::prelude::kunit_tests(vmap_rust_trace)]
mod tests {
    use super::*;

    /// With this many blocks, some are large.
    const MANY: usize = 32;

    /// Runs a trace, and reports a failure with the arguments that repeat it.
    fn trace(seed: u64, steps: usize, blocks: usize) -> bool {
        passed(
            crate::check::trace::run(seed, steps, blocks),
            seed,
            steps,
            blocks,
        )
    }

    /// Returns whether a trace passed, and reports a failure.
    ///
    /// 64-bit numbers are printed in hexadecimal: decimal needs a 64-bit division, which panics in 32-bit
    /// kernels.
    fn passed(
        outcome: Result<core::result::Result<(), Difference>>,
        seed: u64,
        steps: usize,
        blocks: usize,
    ) -> bool {
        match outcome {
            Ok(Ok(())) => true,
            Ok(Err(difference)) => {
                pr_err!("seed {seed:#x}, {steps} steps, {blocks} blocks: {difference}\n");
                false
            }
            Err(err) => {
                pr_err!("seed {seed:#x}: {err:?}\n");
                false
            }
        }
    }

    #[test]
    fn short_traces_agree_with_the_model() {
        for seed in 1..=40 {
            assert!(trace(seed, 200, 0));
        }
    }

    #[test]
    fn long_traces_agree_with_the_model() {
        for seed in 1..=4 {
            assert!(trace(seed << 32, 4000, 0));
        }
    }

    /// With one to nine blocks: less than one for each band, up to enough.
    #[test]
    fn traces_with_blocks_agree_with_the_model() {
        for seed in 1..=40 {
            assert!(trace(seed, 400, 1 + seed as usize % 9));
        }
        for seed in 1..=4 {
            assert!(trace(seed << 32, 4000, 9));
        }
    }

    /// With room for one coarse block and no fine one, up to four coarse blocks and some fine ones.
    #[test]
    fn traces_with_coarse_blocks_agree_with_the_model() {
        for seed in 1..=40 {
            assert!(trace(seed, 400, MANY + 7 * (seed as usize % 17)));
        }
        for seed in 1..=4 {
            assert!(trace(seed << 32, 2000, 200));
        }
    }

    #[test]
    fn traces_with_randomized_placement_agree_with_the_model() {
        for seed in 1..=20_usize {
            for blocks in [seed % 9 + 1, MANY + 7 * (seed % 17)] {
                // CAST: A small number.
                let number = seed as u64;
                let outcome = crate::check::trace::run_randomized(number, 400, blocks);
                assert!(passed(outcome, number, 400, blocks));
            }
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
                assert!(matches!(
                    crate::check::trace::replay(trace, blocks),
                    Ok(Ok(()))
                ));
            }
        }
    }

    #[test]
    fn traces_with_a_new_seed_each_boot_agree_with_the_model() {
        let seed = mm::random_seed();
        pr_info!("trace of this boot: seed {seed:#x}\n");
        assert!(trace(seed, 2000, 0));
        assert!(trace(seed, 2000, 9));
        assert!(trace(seed, 2000, 100));
    }
}
