#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: GPL-2.0
"""Tests of what reads guests and plans boots. The last line is "N passed, N failed"; exit code 0 when none failed."""

import sys
import tempfile
import unittest

import boot
import counts
import lines
import plan as plans

START = "[    0.1] vmap_bench: start format=1 allocator=rust release=7.3.4 cpus=1 page_size=4096 scale=100 seed=1\n"
PAIR = "[    0.2] vmap_bench: result case=area_pair threads=1 metric=cost unit=mns value=2003500 min=2001000 max=2010000 passes=5 ops=20000\n"
END = "[    0.3] vmap_bench: end failed=0\n"
SUMMARY = "Summary: {}_test passed: {} failed: {} xfailed: {} repeat: 1 loops: 100 avg: {} usec\n"
DONE = "All test took worker{}=123 cycles\n"


class Lines(unittest.TestCase):
    """What a guest prints."""

    def test_result(self):
        """Thousandths become nanoseconds."""
        guest = lines.Guest(START + PAIR + END)
        self.assertEqual(guest.results, [{"case": "area_pair", "metric": "cost", "unit": "ns", "threads": 1, "value": 2003.5,
                                          "min": 2001.0, "max": 2010.0, "passes": 5, "ops": 20000}])
        self.assertTrue(guest.ended)
        self.assertEqual(guest.last, "area_pair")

    def test_command_line_is_no_result(self):
        """The kernel prints its command line, which names the benchmark too."""
        guest = lines.Guest("Kernel command line: vmap_bench.run=area_pair\n" + START + END)
        self.assertEqual(guest.results, [])

    def test_not_at_its_end(self):
        """A guest that stopped in the middle has not ended."""
        self.assertFalse(lines.Guest(START + PAIR).ended)

    def test_skip_and_error(self):
        """Both keep their reasons; an error of all says that the guest refused."""
        guest = lines.Guest(START + "vmap_bench: skip case=cross_cpu threads=1 reason=needs 2 workers or more\n"
                            "vmap_bench: error: case=burst_order threads=2: -ENOMEM\n" + END)
        self.assertEqual(guest.skips, [{"case": "cross_cpu", "threads": 1, "reason": "needs 2 workers or more"}])
        self.assertEqual(guest.errors, [{"case": "burst_order", "threads": 2, "reason": "failed: -ENOMEM"}])
        mismatch = lines.Guest(START + "vmap_bench: error: case=whole_api threads=2: vmap at 0xffff: found 0x0, expected 0x1\n" + END)
        self.assertEqual(mismatch.errors, [{"case": "whole_api", "threads": 2, "reason": "failed: vmap at 0xffff: found 0x0, expected 0x1"}])
        self.assertIsNone(guest.refused)
        refused = lines.Guest('vmap_bench: error: unknown case "foo" in run=; run=list prints them\n')
        self.assertIn('unknown case "foo"', refused.refused)

    def test_histogram_of_two_lines(self):
        """The parts of a histogram belong together."""
        line = "vmap_bench: hist case=purge_latency threads=2 metric=alloc unit=ns buckets={}\n"
        guest = lines.Guest(START + line.format("16:3,17:4") + line.format("32:1") + END)
        self.assertEqual([h["buckets"] for h in guest.hists], [[[16, 3], [17, 4], [32, 1]]])

    def test_line_that_was_broken_off(self):
        """The kernel prints a line again when another CPU took the console from it."""
        guest = lines.Guest(START + PAIR[:-30] + "\n** replaying previous printk message **\n" + PAIR + END)
        self.assertEqual([r["value"] for r in guest.results], [2003.5])

    def test_other_lines(self):
        """Lines of no known form are refused, not guessed at."""
        for text in ("vmap_bench: result case=x threads=1\n", "vmap_bench: start format=9 allocator=rust\n",
                     "vmap_bench: hist case=x threads=1 metric=a unit=ns buckets=1:2:3,x\n"):
            with self.subTest(text), self.assertRaises(lines.Broken):
                lines.Guest(text)

    def sweep(self, *summaries, threads=2):
        """A guest that ran test_vmalloc with the first two tests."""
        return (f"vmap_bench: sweep threads={threads} mask=0x3 loops=100\n" + "".join(summaries)
                + "".join(DONE.format(i) for i in range(threads)) + "vmap_bench: guest end\n")

    def test_sweep(self):
        """The mean of the workers counts."""
        guest = lines.Guest(self.sweep(*(SUMMARY.format(case, 1, 0, 0, usec) for usec in (10, 30)
                                         for case in ("fix_size_alloc", "full_fit_alloc"))))
        self.assertEqual([(r["case"], r["metric"], r["threads"], r["value"]) for r in guest.results],
                         [("test:fix_size_alloc", "loops_100", 2, 20000), ("test:full_fit_alloc", "loops_100", 2, 20000)])
        self.assertTrue(guest.guest_ended)

    def test_sweep_that_failed(self):
        """A test that failed in one worker, or did not report, has no time."""
        guest = lines.Guest(self.sweep(SUMMARY.format("fix_size_alloc", 1, 0, 0, 10), SUMMARY.format("fix_size_alloc", 0, 1, 0, 10),
                                       SUMMARY.format("full_fit_alloc", 1, 0, 0, 10)))
        self.assertEqual(guest.results, [])
        self.assertEqual([e["case"] for e in guest.errors], ["test:fix_size_alloc", "test:full_fit_alloc"])

    def test_warm_up_does_not_count(self):
        """A run that comes before the one that is measured."""
        warm_up = "vmap_bench: warm-up\n" + SUMMARY.format("fix_size_alloc", 1, 0, 0, 999) + DONE.format(0)
        measured = "".join(SUMMARY.format(case, 1, 0, 0, 10) for case in ("fix_size_alloc", "full_fit_alloc"))
        guest = lines.Guest(warm_up + self.sweep(measured, threads=1).replace("vmap_bench: guest end\n", "")
                            + warm_up + self.sweep(measured, threads=1))
        self.assertEqual([r["value"] for r in guest.results], [10000] * 4)
        self.assertEqual(guest.errors, [])


class Functions:
    """Symbols of a kernel that nobody has built."""

    PARTS = {"space": "allocator", "pool": "allocator"}

    def name(self, addr):
        """One function for each 256 bytes."""
        return ("space", "pool", "other", "flush_tlb_kernel_range", "asm_sysvec_call_function")[addr // 256]

    def part(self, name):
        """The part of the kernel."""
        return self.PARTS.get(name, counts.REST)


class Counts(unittest.TestCase):
    """What the plugin of QEMU writes."""

    TEXT = ("window 0 area_pair cost 100 5\ncpu 0 0 1500 1500\nflush 0 3\nblock 0 10 5 1 0 2 0 200\nblock 0 20 2 0 1 0 0 100\n"
            "block 0 210 3 0 0 0 1 100\nhold 0 ff00 24 10 900 400 0\nhold 0 ff00 148 1 500 500 1\nhold 0 aa00 148 1 70 70 0\n"
            "hold 0 bb00 224 1 9000 9000 0\nend\n")

    def read(self, text):
        """The windows of a file with that text."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            return counts.read(file.name, Functions())

    def test_sums(self):
        """Blocks are summed up by function."""
        window, = self.read(self.TEXT)
        self.assertEqual((window.case, window.part, window.ops, window.passes), ("area_pair", "cost", 100, 5))
        space = window.functions["space"]
        self.assertEqual((space.insns, space.rmw, space.barriers, space.ordered), (1200, 200, 100, 400))
        self.assertEqual((window.total.insns, window.total.tlbi), (1500, 100))

    def test_holds(self):
        """A lock under which the maple tree was worked on is its lock, in all functions that take it; locks of others do not count."""
        found = counts.results(self.read(self.TEXT), "holds", Functions(), 1)
        self.assertEqual({r["metric"]: r["value"] for r in found}, {"longest_hold": 500, "tree_hold": 500, "other_hold": 70})

    def test_flushes(self):
        """On arm64 runs of TLBI instructions, on x86_64 calls and interrupts, for 1,000 operations."""
        found = counts.results(self.read(self.TEXT), "flushes", Functions(), 1)
        self.assertEqual({r["metric"]: r["value"] for r in found}, {"flushes": 30, "tlbi": 1000})
        text = self.TEXT.replace("flush 0 3\n", "flush 0 0\ncall 0 300 2\ncall 0 400 6\n")
        found = counts.results(self.read(text), "interrupts", Functions(), 1)
        self.assertEqual({r["metric"]: r["value"] for r in found}, {"flushes": 20, "interrupts": 60})

    def test_broken(self):
        """A file that is cut off or has another form is refused, not guessed at."""
        for text in ("", self.TEXT[:-4], self.TEXT.replace("block 0 10 5", "block 0 10 x"), self.TEXT.replace("cpu 0", "cpu 1"),
                     self.TEXT.replace("hold", "held")):
            with self.subTest(text), self.assertRaises(counts.Bad):
                self.read(text)


class Boots(unittest.TestCase):
    """How boots are made and judged."""

    def status(self, code, output, text):
        """The status of a boot with a run of the benchmark."""
        return boot.status_of(plans.Plan("p", "icount", 1, 1, "area_pair"), code, output, lines.Guest(text))

    def test_status(self):
        """Why a boot does not count, in one line."""
        for code, output, text, expected in (
                (0, "PASS\n", START + PAIR + END, "ok"),
                (0, "PASS\n", START + PAIR, "died: the benchmark did not come to its end after area_pair"),
                (1, "FAIL the emulator ended with exit code 137\n", START + PAIR, "died: the emulator ended with exit code 137 after area_pair"),
                (1, "FAIL timeout: the guest was still running after 9 s and was ended\n", START,
                 "timeout: the guest was still running after 9 s and was ended"),
                (1, "FAIL kasan: line 3: BUG: KASAN: x\n", START + PAIR + END, "failed: kasan: line 3: BUG: KASAN: x"),
                (1, "FAIL x\n", "vmap_bench: error: threads=0: each must\n", "refused: threads=0: each must")):
            with self.subTest(expected):
                self.assertEqual(self.status(code, output, text), expected)

    def test_command_has_no_folder(self):
        """What is stored names no folder of this machine."""
        for one in plans.quick(2) + plans.full(2) + plans.goals(2):
            shown = boot.shown(boot.arguments(one, "rust", 1, plans.INSTRUMENTS[one.instrument].kernel, "/cache/x/initramfs.cpio", "/cache/log/a.log",
                                              lambda _, out: f"{counts.PLUGIN},out={out}"))
            self.assertNotRegex(shown, r"(^|[\s\"=])/")
            self.assertTrue(shown.startswith("scripts/run boot "))

    def test_seed_is_handed_on(self):
        """To the guest's random numbers and to the benchmark's."""
        command = boot.arguments(plans.Plan("p", "icount", 1, 1, "area_pair"), "rust", 77, "arm64-bench", None, "x.log")
        self.assertIn("vmap_bench.seed=77", " ".join(command))
        self.assertEqual(command[command.index("--seed") + 1], "77")


class Plans(unittest.TestCase):
    """The sets."""

    def test_rows_do_not_mix(self):
        """No two plans of an instrument have the same case, CPUs and threads."""
        for made in (plans.quick(2), plans.full(2), plans.goals(2)):
            seen = set()
            for one in made:
                keys = {(one.instrument, one.cpus, case, threads) for case in one.run.split(",") if case for threads in one.threads}
                if not one.page_tables:
                    keys |= {(one.instrument, one.cpus, "test", point) for point in one.sweep}
                self.assertFalse(seen & keys, one)
                seen |= keys

    def test_enough_boots(self):
        """Each plan has the boots that a verdict needs."""
        for one in plans.quick(2) + plans.full(2) + plans.goals(2):
            self.assertGreaterEqual(one.repetitions, 15 if one.instrument in ("wall", "uml", "kvm") else 5, one)

    def test_threads_fit(self):
        """One worker for each CPU at most, but in test_vmalloc."""
        for cpus in (1, 2, 8):
            for one in plans.quick(cpus) + plans.full(cpus) + plans.goals(cpus):
                self.assertLessEqual(max(one.threads), one.cpus, one)

    def test_selected(self):
        """Cases replace those of the plans; memory runs by itself."""
        some = plans.selected(plans.quick(2), ["icount"], "area_pair")
        self.assertEqual({p.run for p in some}, {"area_pair"})
        self.assertEqual([p.name for p in plans.selected(plans.quick(2), None, "memory")], ["memory"])
        self.assertFalse(any(p.sweep for p in some))


def main():
    """Run all tests."""
    run = unittest.main(exit=False, verbosity=0).result
    failed = len(run.failures) + len(run.errors)
    print(f"{run.testsRun - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
