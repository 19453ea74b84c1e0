# SPDX-License-Identifier: GPL-2.0
"""Tests what makes a core of a guest's memory, on dumps that are made by hand. Needs pytest and drgn."""

import struct
import tempfile
import unittest
from pathlib import Path

from vmap_core import LOAD, MEMORY_OFFSET, NOTE, NOTES_OFFSET, PROGRAM_HEADER, Unfit, program_headers, write_head

ARM64, X86_64, S390 = 183, 62, 22
BASE, SIZE = 0x40000000, 1 << 20
NOTES = b"notes of the CPUs"


def dump(machine=ARM64, segments=((LOAD, BASE, SIZE),)):
    """Return a dump without its memory. segments: type, physical address and size of those behind the notes."""
    at = 64 + PROGRAM_HEADER.size * (1 + len(segments))
    table = PROGRAM_HEADER.pack(NOTE, 0, at, 0, 0, len(NOTES), len(NOTES), 0)
    for kind, address, size in segments:
        table += PROGRAM_HEADER.pack(kind, 0, 1 << 30, 0, address, size, size, 0)
    head = struct.pack("<6s10xHHIQQQIHHHHHH", b"\x7fELF\x02\x01", 4, machine, 1, 0, 64, 0, 0, 64, 56, 1 + len(segments), 0, 0, 0)
    return head + table + NOTES


class Head(unittest.TestCase):
    """The head of a core, and what is refused."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.core, self.memory = Path(folder.name, "core"), Path(folder.name, "memory")
        with open(self.memory, "wb") as memory:
            memory.truncate(MEMORY_OFFSET + SIZE)
            memory.seek(MEMORY_OFFSET)
            memory.write(b"first word")

    def test_each_segment_is_where_the_memory_is(self):
        # The flash memory of the machine is no part of the file.
        self.core.write_bytes(dump(segments=((LOAD, 0, SIZE), (LOAD, BASE, 4096), (LOAD, BASE + 8192, SIZE - 8192))))
        write_head(self.core, self.memory)
        _, segments = program_headers(self.memory)
        self.assertEqual([(kind, offset, paddr, size) for kind, _, offset, _, paddr, size, *_ in segments],
                         [(NOTE, NOTES_OFFSET, 0, len(NOTES)), (LOAD, MEMORY_OFFSET, BASE, 4096),
                          (LOAD, MEMORY_OFFSET + 8192, BASE + 8192, 4096), (LOAD, MEMORY_OFFSET + 12288, BASE + 12288, SIZE - 12288)])
        content = self.memory.read_bytes()
        self.assertEqual(content[NOTES_OFFSET:][:len(NOTES)], NOTES)
        self.assertEqual(content[MEMORY_OFFSET:][:10], b"first word")
        self.assertEqual(len(content), MEMORY_OFFSET + SIZE)

    def test_one_physical_address_is_not_0(self):
        # Otherwise drgn takes all for missing.
        self.core.write_bytes(dump(machine=X86_64, segments=((LOAD, 0, SIZE),)))
        write_head(self.core, self.memory)
        self.assertEqual([paddr for kind, _, _, _, paddr, *_ in program_headers(self.memory)[1] if kind == LOAD], [0, 4096])

    def test_what_does_not_fit_is_refused_and_nothing_written(self):
        before = self.memory.read_bytes()
        for core, words in ((b"KDUMP   " * 10, "no ELF core"), (b"", "no ELF core"), (dump(S390), "machine 22"),
                            (dump(segments=((LOAD, 0, SIZE),)), "does not have the memory"),
                            (dump(segments=((LOAD, BASE, 4096),) * 100), "does not have the memory")):
            self.core.write_bytes(core)
            with self.subTest(words), self.assertRaisesRegex(Unfit, words):
                write_head(self.core, self.memory)
        self.assertEqual(self.memory.read_bytes(), before)

    def test_a_file_without_room_for_the_head_is_refused(self):
        self.core.write_bytes(dump())
        self.memory.write_bytes(b"x" * MEMORY_OFFSET)
        with self.assertRaisesRegex(Unfit, "2097152 bytes more"):
            write_head(self.core, self.memory)
