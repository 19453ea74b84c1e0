// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::rcu`: callbacks run when there are no readers at all. What they queue for a worker runs after each of them.

use std::{
    cell::{Cell, RefCell},
    mem::ManuallyDrop,
    panic::AssertUnwindSafe,
    sync::Mutex,
};

type Callback = Box<dyn FnOnce() + Send>;

struct State {
    readers: usize,
    waiting: Vec<Callback>,
}

static STATE: Mutex<State> = Mutex::new(State {
    readers: 0,
    waiting: Vec::new(),
});

fn with<T>(what: impl FnOnce(&mut State) -> T) -> T {
    what(&mut STATE.lock().expect("no panic with the lock held"))
}

/// A reader.
pub struct Guard(core::marker::PhantomData<*mut ()>);

impl Guard {
    /// Begins a read-side critical section.
    #[allow(clippy::new_without_default, reason = "as in the kernel")]
    pub fn new() -> Self {
        with(|state| state.readers += 1);
        HELD.set(HELD.get() + 1);
        Self(core::marker::PhantomData)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        let ready = with(|state| {
            state.readers -= 1;
            match state.readers {
                0 => std::mem::take(&mut state.waiting),
                _ => Vec::new(),
            }
        });
        let steps = STEPS.get();
        for callback in ready {
            // It may be another test's, and must not change which schedules this one sees, nor what it counts.
            super::without_schedule(|| run(callback));
        }
        STEPS.set(steps);
    }
}

/// Returns whether this thread is in a read-side critical section.
pub fn is_held() -> bool {
    HELD.get() != 0
}

std::thread_local! {
    /// How many guards this thread has. With a scheduler, all its threads count together.
    static HELD: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread does not wait for readers.
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
    /// What the callback that this thread runs has queued for a worker. Without a drop: a thread that ends runs callbacks.
    static WORK: ManuallyDrop<RefCell<Vec<Callback>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    /// Number of callbacks that this thread has run in [`at_once`], and of their works; and the most accesses to atomics of
    /// one of them.
    pub static STEPS: Cell<[(usize, usize); 2]> = const { Cell::new([(0, 0); 2]) };
}

/// Calls `what`, and notes its accesses as those of kind `kind`. They are not those of the code that it interrupts.
fn count(kind: usize, what: impl FnOnce()) {
    let before = super::ACCESSES.get();
    what();
    let steps = super::ACCESSES.replace(before) - before;
    let mut all = STEPS.get();
    all[kind] = (all[kind].0 + 1, all[kind].1.max(steps));
    STEPS.set(all);
}

/// Runs a callback, and then what it has queued for a worker.
fn run(callback: impl FnOnce()) {
    count(0, callback);
    for work in WORK.with(|all| all.take()) {
        count(1, work);
    }
}

/// Runs `work` when the callback that calls this has ended.
pub fn queue(work: impl FnOnce() + Send + 'static) {
    WORK.with(|all| all.borrow_mut().push(Box::new(work)));
}

/// Calls `what` as another thread would, which holds no guard.
pub fn elsewhere<T>(what: impl FnOnce() -> T) -> T {
    let held = HELD.replace(0);
    let result = std::panic::catch_unwind(AssertUnwindSafe(what));
    HELD.set(held);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Calls `what`, in which callbacks run at once, as nobody reads: otherwise another test may delay them, and run them.
pub fn at_once<T>(what: impl FnOnce() -> T) -> T {
    AT_ONCE.set(true);
    let result = std::panic::catch_unwind(AssertUnwindSafe(what));
    AT_ONCE.set(false);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Calls `callback` when there are no readers.
pub fn call(callback: impl FnOnce() + Send + 'static) {
    if AT_ONCE.get() {
        return run(callback);
    }
    let guard = Guard::new();
    with(|state| state.waiting.push(Box::new(callback)));
    drop(guard);
}
