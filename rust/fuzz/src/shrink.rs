// SPDX-License-Identifier: GPL-2.0

//! Runs the trace in a file. If it fails, shrinks it for up to 30 s and prints the smallest trace that still
//! fails. It drops steps, and lowers numbers and the limit of blocks.

use std::{
    env, fs,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    time::{Duration, Instant},
};
use vmap_rust_fuzz::Step;

#[derive(Clone)]
struct Trace {
    steps: Vec<Step>,
    blocks: usize,
}

impl Trace {
    /// Runs the trace. Returns the difference or the panic message if it fails.
    fn difference(&self) -> Option<String> {
        let replay = || vmap_rust_host::replay(&self.steps, self.blocks).err();
        panic::catch_unwind(AssertUnwindSafe(replay)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Some(text.unwrap_or_default())
        })
    }

    /// Returns traces that are smaller by one change, those that are much smaller first.
    fn smaller(&self) -> impl Iterator<Item = Trace> + '_ {
        let count = self.steps.len();
        let runs =
            std::iter::successors(Some(count), |len| Some(len / 2)).take_while(|&len| len > 0);
        let fewer = runs.flat_map(move |len| {
            (0..count).step_by(len).map(move |first| {
                let mut smaller = self.clone();
                smaller.steps.drain(first..count.min(first + len));
                smaller
            })
        });
        let places =
            (0..count).flat_map(|step| (0..Step::default().len()).map(move |at| (step, at)));
        let lower = places.flat_map(move |(step, at)| {
            let number = self.steps[step][at];
            let fewer_bits = (1..16).rev().map(move |bits| number >> bits << bits);
            let numbers = [0, number / 2].into_iter().chain(fewer_bits);
            numbers
                .filter(move |&lower| lower < number)
                .map(move |lower| {
                    let mut smaller = self.clone();
                    smaller.steps[step][at] = lower;
                    smaller
                })
        });
        let blocks = [0, 1, 2, 9, 32, self.blocks / 2].into_iter();
        let fewer_blocks = blocks
            .filter(|&blocks| blocks < self.blocks)
            .map(|blocks| Trace {
                steps: self.steps.clone(),
                blocks,
            });
        fewer.chain(fewer_blocks).chain(lower)
    }
}

fn main() -> ExitCode {
    let file = env::args_os().nth(1).expect("a file");
    let (steps, blocks) = vmap_rust_fuzz::decode(&fs::read(file).expect("the file can be read"));
    let mut trace = Trace { steps, blocks };
    // Do not print the panics of traces on the way to the smallest one.
    panic::set_hook(Box::new(|_| {}));
    if trace.difference().is_none() {
        println!("passes: {} steps, {} blocks", trace.steps.len(), blocks);
        return ExitCode::SUCCESS;
    }
    let until = Instant::now() + Duration::from_secs(30);
    // On from the change that was accepted last, until none of all is.
    let (mut at, mut is_done) = (0, false);
    while !is_done {
        let found = { trace.smaller().enumerate().skip(at) }
            .take_while(|_| Instant::now() < until)
            .find(|(_, smaller)| smaller.difference().is_some());
        if let Some((number, smaller)) = found {
            (at, trace) = (number, smaller);
        } else {
            is_done = at == 0;
            at = 0;
        }
    }
    println!("fails: {}", trace.difference().unwrap_or_default());
    println!("steps of the smallest such trace, {} blocks:", trace.blocks);
    for step in &trace.steps {
        println!("    {step:?},");
    }
    ExitCode::FAILURE
}
