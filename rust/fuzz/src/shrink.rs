// SPDX-License-Identifier: GPL-2.0

//! Runs the trace in a file. If it fails, shrinks it for up to 30 s and prints the smallest trace that still
//! fails. It drops steps, and lowers numbers and the limit of blocks.

use std::{
    env,
    fs,
    panic::{
        self,
        AssertUnwindSafe, //
    },
    process::ExitCode,
    time::{
        Duration,
        Instant, //
    }, //
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

    /// Replaces the trace by `smaller` if that fails, too. Returns whether it did.
    fn accept(&mut self, smaller: Trace) -> bool {
        let fails = smaller.difference().is_some();
        if fails {
            *self = smaller;
        }
        fails
    }

    /// Drops runs of steps, long ones first. Returns whether it dropped any.
    fn drop_steps(&mut self, until: Instant) -> bool {
        let before = self.steps.len();
        let mut count = before;
        while count > 0 {
            let mut first = 0;
            while first < self.steps.len() && Instant::now() < until {
                let mut smaller = self.clone();
                let end = self.steps.len().min(first + count);
                smaller.steps.drain(first..end);
                if !self.accept(smaller) {
                    first += count;
                }
            }
            count /= 2;
        }
        self.steps.len() < before
    }

    /// Lowers the numbers of all steps one by one. Returns whether it lowered any.
    fn lower_numbers(&mut self, until: Instant) -> bool {
        let mut lowered = false;
        for step in 0..self.steps.len() {
            for index in 0..Step::default().len() {
                let number = self.steps[step][index];
                let fewer_bits = (1..16).rev().map(|bits| number >> bits << bits);
                for lower in [0, number / 2].into_iter().chain(fewer_bits) {
                    if lower >= self.steps[step][index] || Instant::now() > until {
                        continue;
                    }
                    let mut smaller = self.clone();
                    smaller.steps[step][index] = lower;
                    lowered |= self.accept(smaller);
                }
            }
        }
        lowered
    }

    fn lower_blocks(&mut self) -> bool {
        let lower = [0, 1, 2, 9, 32, self.blocks / 2];
        let blocks = lower.into_iter().filter(|&blocks| blocks < self.blocks);
        let smaller: Vec<Trace> = blocks
            .map(|blocks| Trace {
                steps: self.steps.clone(),
                blocks,
            })
            .collect();
        smaller.into_iter().any(|trace| self.accept(trace))
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
    while Instant::now() < until
        && (trace.drop_steps(until) | trace.lower_numbers(until) | trace.lower_blocks())
    {}
    println!("fails: {}", trace.difference().unwrap_or_default());
    println!("steps of the smallest such trace, {} blocks:", trace.blocks);
    for step in &trace.steps {
        println!("    {step:?},");
    }
    ExitCode::FAILURE
}
