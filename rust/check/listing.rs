// SPDX-License-Identifier: GPL-2.0

//! The list of all reserved ranges in the order of addresses, as text for debugfs and for pictures. A reader takes the lock of
//! the tree for one walk down the tree per line, and holds the RCU read lock for one line at a time. A module of `policy`,
//! whose private items it uses.
//!
//! ```text
//! vmap_rust map 1 page 4096 home 0x0000000060800000-0x00007fbffffff000
//! 0x0000000060a00000-0x0000000060c00000 block cpu 0 current slot 2 BB...l
//! 0x0000000064000000-0x0000000064801000 area busy
//! ```
//!
//! Addresses are as in /proc/vmallocinfo: `kernel.kptr_restrict` says who sees them. Ends are exclusive. Each line was
//! true at some time, but not all at the same time.

use super::prelude::*;
use core::fmt::{
    self,
    Write, //
};

/// Bytes after which a read ends even if the reader has room for more, so that signals are noticed.
const MAX_READ: usize = 1 << 16;

/// The size of the buffer, as a power of two.
const LINE_SHIFT: u32 = 10;

/// A line of text in a buffer of fixed size, which needs no memory.
pub(crate) struct Line {
    buffer: [u8; 1 << LINE_SHIFT],
    len: usize,
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self {
            buffer: [0; 1 << LINE_SHIFT],
            len: 0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

impl Write for Line {
    /// Appends `text`. Fails, and appends nothing, if it has no room.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len.checked_add(text.len()).ok_or(fmt::Error)?;
        let room = self.buffer.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl<T: Tlb> Space<T> {
    /// Gives `sink` the next lines of the list, whole ones if at least one fits in `room` bytes. Returns how many
    /// bytes these were, 0 at the end of the list. Sleepable context. Errors of `sink`; on 32-bit machines `EINVAL` for
    /// a `position` that no read has left.
    ///
    /// `position` is 0 at first. It is not a number of bytes: it holds the page from which to look for the next
    /// range, and how much of its line was read. So a reader needs no state, and a range that others reserve or
    /// free meanwhile does not move the lines after it. If a part of the line was read, the page is the first one of
    /// its range. If no range begins there any more, the line ends where it is.
    pub(crate) fn read_list(
        &self,
        position: &mut u64,
        room: usize,
        mut sink: impl FnMut(&[u8]) -> Result,
    ) -> Result<usize> {
        let mut written = 0_usize;
        while written < MAX_READ {
            let page = usize::try_from(position.wrapping_shr(LINE_SHIFT)).map_err(|_| EINVAL)?;
            let skip = usize::try_from(*position & ((1 << LINE_SHIFT) - 1)).map_err(|_| EINVAL)?;
            let mut line = Line::new();
            let found = self.write_line(page, &mut line)?;
            let (first, next, text) = match found {
                Some((first, next)) if skip == 0 || first == page => {
                    // The line may be shorter than when its first part was read.
                    let text = line.bytes().get(skip..).filter(|text| !text.is_empty());
                    (first, next, text.unwrap_or(b"\n"))
                }
                _ if skip != 0 => (page, page.wrapping_add(1), b"\n".as_slice()),
                _ => break,
            };
            let left = room.saturating_sub(written);
            match text.get(..left) {
                // All of it has room.
                None => sink(text)?,
                Some(_) if text.len() == left => sink(text)?,
                // The buffer is smaller than a line.
                Some(part) if written == 0 => {
                    sink(part)?;
                    let read = skip.wrapping_add(part.len());
                    // CAST: A `usize` fits in a `u64`, here and below.
                    *position = (first as u64).wrapping_shl(LINE_SHIFT) | read as u64;
                    return Ok(part.len());
                }
                Some(_) => break,
            }
            *position = (next as u64).wrapping_shl(LINE_SHIFT);
            written = written.saturating_add(text.len());
            mm::cond_resched();
        }
        Ok(written)
    }

    /// Writes the line of the lowest range at or above page `page`, or the head of the list for page 0. Returns its
    /// first page, and the page from which to look for the next one; [`None`] if there is no range.
    fn write_line(&self, page: usize, line: &mut Line) -> Result<Option<(usize, usize)>> {
        if page == 0 {
            self.blocks.note_batches();
            self.write_head(line).map_err(|_| EINVAL)?;
            return Ok(Some((0, 1)));
        }
        let Some((span, range)) = page
            .checked_mul(PAGE_SIZE)
            .and_then(|addr| self.range_from(addr))
        else {
            return Ok(None);
        };
        self.write_range(span, range, line).map_err(|_| EINVAL)?;
        let next = (span.last() / PAGE_SIZE).wrapping_add(1);
        Ok(Some((span.first() / PAGE_SIZE, next)))
    }

    /// Returns the lowest reserved range that begins at or above `addr`.
    ///
    /// One that begins below it is newer than the line before, and overlaps what that line shows: it is left out.
    fn range_from(&self, mut addr: usize) -> Option<(Span, Range)> {
        loop {
            let (span, range) = self.tree.index.lock().next_range(addr)?;
            if span.first() >= addr {
                return Some((span, range));
            }
            addr = span.next_addr()?;
        }
    }

    fn write_head(&self, line: &mut Line) -> fmt::Result {
        write!(line, "vmap_rust map 1 page {PAGE_SIZE} home ")?;
        self.write_span(self.home, line)?;
        line.write_char('\n')
    }

    fn write_span(&self, span: Span, line: &mut Line) -> fmt::Result {
        self.tlb.write_address(span.first(), line)?;
        line.write_char('-')?;
        self.tlb.write_address(span.end(), line)
    }

    fn write_range(&self, span: Span, range: Range, line: &mut Line) -> fmt::Result {
        self.write_span(span, line)?;
        line.write_char(' ')?;
        match range {
            Range::Area(stage) => writeln!(line, "area {}", stage.name()),
            Range::Block => self.write_block(span, line),
        }
    }

    fn write_block(&self, span: Span, line: &mut Line) -> fmt::Result {
        let rcu = Guard::new();
        let block = self.blocks.dir.block_at(span.first(), &rcu);
        let Some(block) = block.filter(|block| block.span() == Some(span)) else {
            // It is being inserted or removed.
            return writeln!(line, "block changing");
        };
        let (cpu, slot) = (block.links().owner().number(), block.class().slot_pages());
        let place = match block.links().place() {
            Place::Held => "current",
            _ => "pool",
        };
        write!(line, "block cpu {cpu} {place} slot {slot} ")?;
        for slot in block.states() {
            line.write_char(slot.letter())?;
        }
        line.write_char('\n')
    }
}
