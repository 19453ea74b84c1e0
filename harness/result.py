# SPDX-License-Identifier: GPL-2.0
"""What a scenario found: counts, names of failures, logs. Its last line is "N passed, N failed"."""

import re

TOTALS = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")


class Result:
    """Adds up checks, and prints each as it comes, or, if it is quiet, keeps what it would print about failures."""

    def __init__(self, quiet=False):
        self.quiet, self.passed, self.failed, self.skipped = quiet, 0, 0, 0
        self.failures, self.lines, self.logs, self.data = [], [], [], {}

    def show(self, text):
        """Print a line."""
        if not self.quiet:
            print(text, flush=True)
        elif text.startswith("FAIL"):
            self.lines.append(text)

    def add(self, state, name, text=None):
        """Count one check, whose state is True, False or None (skipped); prints text if there is any."""
        self.passed += state is True
        self.skipped += state is None
        if state is False:
            self.failed += 1
            self.failures.append(name)
        if text is not None:
            self.show(text)

    @property
    def good(self):
        """Tell whether something passed and nothing failed."""
        return self.passed > 0 and self.failed == 0

    def totals(self):
        """Return the last line."""
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")


def read_totals(text):
    """Return (passed, failed, skipped) from the last such line of a suite's output, or None."""
    found = [match for match in map(TOTALS.fullmatch, text.split("\n")) if match]
    return tuple(int(x or 0) for x in found[-1].groups()) if found else None
