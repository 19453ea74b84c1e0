// SPDX-License-Identifier: GPL-2.0

//! Traces as bytes, as the fuzzer changes them: the first byte says how many blocks there are, and each
//! 20 bytes that follow are the numbers of a step. What is missing is 0.

/// The numbers of a step.
pub type Step = [u16; 10];

/// Steps, and as large as how many fine blocks all blocks are.
pub fn decode(input: &[u8]) -> (Vec<Step>, usize) {
    let Some((&first, numbers)) = input.split_first() else {
        return (Vec::new(), 0);
    };
    let number = usize::from(first / 3);
    // None at all, fine ones, or coarse ones as well: a third of the inputs each.
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
