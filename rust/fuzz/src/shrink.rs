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

#[derive(Clone, PartialEq)]
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
            { 0..count }.flat_map(|step| (0..Step::default().len()).map(move |at| (step, at)));
        let lower = places.flat_map(move |(step, at)| {
            let number = self.steps[step][at];
            [0, number / 2, number & number.saturating_sub(1)].map(|lower| {
                let mut smaller = self.clone();
                smaller.steps[step][at] = lower;
                smaller
            })
        });
        let fewer_blocks =
            [0, self.blocks / 2, self.blocks.saturating_sub(1)].map(|blocks| Trace {
                blocks,
                ..self.clone()
            });
        let all = fewer.chain(fewer_blocks).chain(lower);
        all.filter(move |smaller| smaller != self)
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
    while Instant::now() < until {
        let found = { trace.smaller() }
            .take_while(|_| Instant::now() < until)
            .find(|smaller| smaller.difference().is_some());
        let Some(smaller) = found else { break };
        trace = smaller;
    }
    println!("fails: {}", trace.difference().unwrap_or_default());
    println!("steps of the smallest such trace, {} blocks:", trace.blocks);
    for step in &trace.steps {
        println!("    {step:?},");
    }
    ExitCode::FAILURE
}
