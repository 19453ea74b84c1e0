# SPDX-License-Identifier: GPL-2.0
"""What a scenario found: counts, names of failures, logs. Its last line is "N passed, N failed"."""

import re

TOTALS = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")


class Result:
    """Adds up checks, and prints each as it comes."""

    def __init__(self):
        self.passed, self.failed, self.skipped, self.failures, self.logs = 0, 0, 0, [], []

    def show(self, text):
        """Print a line."""
        print(text, flush=True)

    def add(self, state, name, text=None):
        """Count one check, whose state is True, False or None (skipped); prints text if there is any."""
        self.passed += state is True
        self.skipped += state is None
        if state is False:
            self.failed += 1
            self.failures.append(name)
        if text:
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
