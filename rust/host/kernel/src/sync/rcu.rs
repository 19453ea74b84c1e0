// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::rcu`: what is to be done after a grace period waits until there are no readers.

use std::sync::Mutex;

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
    /// Begins to read.
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
            callback();
        }
    }
}

/// Calls `callback` when all readers of now are done.
pub fn call(callback: impl FnOnce() + Send + 'static) {
    let guard = Guard::new();
    with(|state| state.waiting.push(Box::new(callback)));
    drop(guard);
}
