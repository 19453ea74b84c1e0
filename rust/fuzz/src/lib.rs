// SPDX-License-Identifier: GPL-2.0

//! Decodes traces from the bytes of the fuzzer. The first byte determines the blocks, and each following 20
//! bytes are the numbers of one step. Missing bytes are 0.

/// The random numbers of one step.
pub type Step = [u16; 10];

/// Returns the steps of a trace, and the limit for the total size of blocks, in blocks of the smallest size.
pub fn decode(input: &[u8]) -> (Vec<Step>, usize) {
    let Some((&first, numbers)) = input.split_first() else {
        return (Vec::new(), 0);
    };
    let number = usize::from(first / 3);
    // A third of the inputs each has no blocks, few small ones, and a large space with blocks of all sizes.
    let blocks = match first % 3 {
        0 => 0,
        1 => 1 + number % 9,
        _ => 32 + 2 * number,
    };
    let steps = numbers.chunks(2 * Step::default().len()).map(|bytes| {
        let mut step = Step::default();
        for (number, bytes) in step.iter_mut().zip(bytes.chunks_exact(2)) {
            *number = u16::from_le_bytes([bytes[0], bytes[1]]);
        }
        step
    });
    (steps.collect(), blocks)
}
