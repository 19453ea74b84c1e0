# SPDX-License-Identifier: GPL-2.0
"""What a scenario found. Its last line is "N passed, N failed"."""

import re

TOTALS = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")


class Result:
    """Adds up checks."""

    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def add(self, state, name, text=None):
        """Count one check, whose state is True, False or None (skipped). Prints it if it failed, or if there is a text; further
        lines of that are below the first one."""
        self.passed += state is True
        self.failed += state is False
        self.skipped += state is None
        if text is not None or state is False:
            lines = "\n     ".join((text or "").splitlines())
            print(f"{ {True: 'ok', False: 'FAIL', None: 'skip'}[state]} {name}{': ' if lines else ''}{lines}", flush=True)

    def include(self, other):
        """Count what another one has counted."""
        self.passed, self.failed, self.skipped = (
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    @property
    def good(self):
        """Tell whether something passed and nothing failed."""
        return self.passed > 0 and self.failed == 0

    def totals(self):
        """Return the last line."""
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")


def read_totals(text):
    """Return the result that the last such line of a suite's output has; an empty one without such a line."""
    found = [match for match in map(TOTALS.fullmatch, text.split("\n")) if match]
    return Result(*(int(x or 0) for x in found[-1].groups())) if found else Result()
