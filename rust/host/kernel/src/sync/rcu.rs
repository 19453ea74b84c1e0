// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::rcu`: callbacks run when there are no readers at all.

use std::{cell::Cell, panic::AssertUnwindSafe, sync::Mutex};

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
        Self(core::marker::PhantomData)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let ready = with(|state| {
            state.readers -= 1;
            match state.readers {
                0 => std::mem::take(&mut state.waiting),
                _ => Vec::new(),
            }
        });
        for callback in ready {
            // It may be another test's, and must not change which schedules this one sees.
            super::without_schedule(callback);
        }
    }
}

std::thread_local! {
    /// Whether this thread does not wait for readers.
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
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
        return callback();
    }
    let guard = Guard::new();
    with(|state| state.waiting.push(Box::new(callback)));
    drop(guard);
}
