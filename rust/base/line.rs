// SPDX-License-Identifier: GPL-2.0

//! A line of text in a buffer of fixed size, which needs no memory.

use core::fmt;

/// The size of the buffer, as a power of two.
pub(crate) const LINE_SHIFT: u32 = 10;

/// A line of text.
pub(crate) struct Line {
    buffer: [u8; 1 << LINE_SHIFT],
    len: usize,
}

impl Line {
    /// Creates an empty line.
    pub(crate) const fn new() -> Self {
        Self {
            buffer: [0; 1 << LINE_SHIFT],
            len: 0,
        }
    }

    /// Returns what was written.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Write for Line {
    /// Appends `text`. Fails, and appends nothing, if it has no room.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len.checked_add(text.len()).ok_or(fmt::Error)?;
        let room = self.buffer.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}
