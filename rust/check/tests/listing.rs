// SPDX-License-Identifier: GPL-2.0

//! The list of all ranges: what it shows of areas and blocks, and that its parts fit together for any reader.

use super::*;
use core::fmt::{
    self,
    Write, //
};

/// Text that was read or is expected.
struct Text(KVec<u8>);

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        append(&mut self.0, text.as_bytes()).map_err(|_| fmt::Error)
    }
}

fn append(text: &mut KVec<u8>, part: &[u8]) -> Result {
    for &byte in part {
        text.push(byte, GFP_KERNEL)?;
    }
    Ok(())
}

/// Reads the list of `space` with buffers of `room` bytes.
fn read(space: &Space<FlushLog>, room: usize) -> Result<KVec<u8>> {
    read_from(space, &mut 0, room)
}

/// Reads what is left of the list at `position`.
fn read_from(space: &Space<FlushLog>, position: &mut u64, room: usize) -> Result<KVec<u8>> {
    let mut text = KVec::new();
    while space.read_list(position, room, |part| {
        assert!(part.len() <= room);
        append(&mut text, part)
    })? > 0
    {}
    Ok(text)
}

/// Allocates the lowest free area of `pages` pages before the first block. Returns its first address.
fn alloc_before(space: &Space<FlushLog>, pages: usize) -> Result<usize> {
    let window = Span::from_bounds(START, FIRST).ok_or(EINVAL)?;
    alloc(space, &Request::bytes(window, pages * PAGE_SIZE))
}

/// Returns the list of a space of [`make_blocks`] with 8 blocks: an area of 40 pages in `stage`, if there is one, and two
/// blocks in `place`, of slots of two and of three pages. The first one has these slots, the second an area in the first.
fn expected(stage: Option<&str>, place: &str, slots: &str) -> Result<KVec<u8>> {
    let mut text = Text(KVec::new());
    let mut write = || {
        let end = FIRST + 8 * SIZE + PAGE_SIZE;
        writeln!(
            text,
            "vmap_rust map 1 page {PAGE_SIZE} home {START:#x}-{end:#x}"
        )?;
        if let Some(stage) = stage {
            let end = START + 40 * PAGE_SIZE;
            writeln!(text, "{START:#x}-{end:#x} area {stage}")?;
        }
        let [second, end] = [1, 2].map(|blocks| FIRST + blocks * SIZE);
        write!(text, "{FIRST:#x}-{second:#x} block cpu 0 {place} slot 2 ")?;
        writeln!(text, "{slots:.<256}")?;
        write!(text, "{second:#x}-{end:#x} block cpu 0 {place} slot 3 ")?;
        writeln!(text, "{:.<170}", "B")
    };
    write().map_err(|_: fmt::Error| ENOMEM)?;
    Ok(text.0)
}

#[kernel::prelude::kunit_tests(vmap_rust_listing)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_each_state() -> Result {
        let (space, mut req) = make_blocks(8, 8)?;
        let starts = fill(&space, &req, 3)?;
        req.size = 3 * PAGE_SIZE;
        let other = alloc(&space, &req)?;
        // The text compares as text if it differs: a failed assertion prints both.
        let shown = |stage: Option<&str>, place: &str, slots: &str| -> Result {
            let (is, want) = (read(&space, 4096)?, expected(stage, place, slots)?);
            assert_eq!(
                core::str::from_utf8(&is).ok(),
                core::str::from_utf8(&want).ok()
            );
            Ok(())
        };
        shown(None, "current", "BBB")?;
        assert_eq!(alloc_before(&space, 40)?, START);
        shown(Some("busy"), "current", "BBB")?;

        let leaving = space.unlink(starts[1]).ok_or(EINVAL)?;
        shown(Some("busy"), "current", "BuB")?;
        space.retire(leaving);
        shown(Some("busy"), "current", "BlB")?;
        let leaving = space.unlink(START).ok_or(EINVAL)?;
        shown(Some("leaving"), "current", "BlB")?;
        space.retire(leaving);
        shown(Some("lazy"), "current", "BlB")?;
        space.purge(None, false);
        shown(None, "current", "B.B")?;
        space.return_all();
        shown(None, "pool", "B.B")?;
        free_all(&space, [starts[0], starts[2], other].into_iter());
        Ok(())
    }

    #[test]
    fn lines_do_not_overlap_if_a_range_grows_meanwhile() -> Result {
        let (space, _) = make_blocks(8, 8)?;
        let first = alloc_before(&space, 40)?;
        let second = alloc_before(&space, 50)?;
        let mut position = 0;
        // The head and the line of the first area.
        let head = space.read_list(&mut position, 100, |_| Ok(()))?;
        assert!(head > 60);
        free_all(&space, [first, second].into_iter());
        assert_eq!(alloc_before(&space, 80)?, first);
        // It covers both, so it is not after the first.
        assert_eq!(space.read_list(&mut position, 100, |_| Ok(()))?, 0);
        free_all(&space, [first].into_iter());
        Ok(())
    }

    #[test]
    fn a_line_ends_if_its_range_is_freed_meanwhile() -> Result {
        let (space, _) = make_blocks(8, 8)?;
        let first = alloc_before(&space, 40)?;
        let second = alloc_before(&space, 50)?;
        let all = read(&space, 4096)?;
        let head = all.iter().take_while(|&&byte| byte != b'\n').count() + 1;
        let mut position = 0;
        space.read_list(&mut position, head, |_| Ok(()))?;
        // A part of the line of the first area.
        assert_eq!(space.read_list(&mut position, 10, |_| Ok(()))?, 10);
        free_all(&space, [first].into_iter());
        let rest = read_from(&space, &mut position, 7)?;
        let all = read(&space, 4096)?;
        let all = core::str::from_utf8(&all).map_err(|_| EINVAL)?;
        let rest = core::str::from_utf8(&rest).map_err(|_| EINVAL)?;
        assert!(rest.starts_with('\n'));
        assert_eq!(rest.get(1..), all.get(head..));
        // The same without any range above.
        let mut position = 0;
        space.read_list(&mut position, head, |_| Ok(()))?;
        assert_eq!(space.read_list(&mut position, 10, |_| Ok(()))?, 10);
        free_all(&space, [second].into_iter());
        assert_eq!(space.read_list(&mut position, 80, |_| Ok(()))?, 1);
        assert_eq!(space.read_list(&mut position, 80, |_| Ok(()))?, 0);
        Ok(())
    }

    #[test]
    fn a_reader_may_have_a_buffer_of_any_size() -> Result {
        let (space, req) = make_blocks(8, 8)?;
        // Five blocks and a part of the sixth.
        let starts = fill(&space, &req, 5 * SLOTS + 1)?;
        retire(&space, starts[7])?;
        let all = read(&space, usize::MAX)?;
        let lines = all.iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(lines, 7);
        for room in [1, 7, 500, 600, 1200, 4096] {
            assert!(read(&space, room)?.iter().eq(all.iter()));
        }
        // A reader that is after the first block does not notice that it becomes empty.
        let mut position = 0;
        let read_before = space.read_list(&mut position, 1024, |_| Ok(()))?;
        for &start in starts.iter().take(SLOTS) {
            if let Some(area) = space.unlink(start) {
                space.retire(area);
            }
        }
        space.purge(None, false);
        let rest = read_from(&space, &mut position, 4096)?;
        assert!(rest.iter().eq(all.iter().skip(read_before)));
        free_all(&space, starts.iter().copied());
        Ok(())
    }
}
