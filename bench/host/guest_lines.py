# SPDX-License-Identifier: GPL-2.0
"""What a benchmark guest prints: the lines of bench/report.c."""

import re

from harness.settings import Refused

FORMAT = "2"
# Units that are thousandths of another.
THOUSANDTHS = {"mns": "ns", "mbytes": "bytes"}


class Guest:
    """What one boot printed: results, skips and errors as they are stored."""

    def __init__(self, text):
        """Read a console log. Refuses lines that no guest of this version prints."""
        self.results, self.skips, self.errors = [], [], []
        self.refused = None  # why the guest did nothing
        self.ended = False
        self.last = None  # the last case that came to its end
        # Without the lines that the kernel broke off to print them again.
        broken = r"^.*\n.*\*\* replaying previous printk message \*\*.*\n"
        for line in re.sub(broken, "", text.replace("\r", ""), flags=re.M).split("\n"):
            found = re.search(r"vmap_bench: (\w+):? ?(.*)", line)
            if found and "Kernel command line" not in line:
                try:
                    self._line(*found.groups())
                except (KeyError, ValueError, IndexError):
                    raise Refused(f"cannot read this line of the guest: {found[0]}") from None

    def _line(self, kind, rest):
        """Read one line: its first word, and what follows."""
        f = dict(word.split("=", 1) for word in rest.split() if "=" in word)
        if kind == "start" and f.get("format") != FORMAT:
            raise Refused(f"the guest's benchmark prints another format: {rest}")
        if kind == "result":
            divisor = 1000 if f["unit"] in THOUSANDTHS else 1
            self.results.append({
                "case": f["case"], "metric": f["metric"], "unit": THOUSANDTHS.get(f["unit"], f["unit"]),
                "threads": int(f["threads"]), **{key: int(f[key]) / divisor for key in ("value", "min", "max")},
                **{key: int(f[key]) for key in ("passes", "ops")}})
            self.last = f["case"]
        elif kind == "skip":
            reason = rest.split("reason=", 1)[1]
            self.skips.append({"case": f["case"], "threads": int(f["threads"]), "reason": reason})
        elif kind == "error" and rest.startswith("case="):
            reason = "failed: " + rest.split(": ", 1)[1]
            self.errors.append({"case": f["case"], "threads": int(f["threads"].rstrip(":")), "reason": reason})
        elif kind == "error":
            self.refused = rest
        elif kind == "end":
            self.ended = True
