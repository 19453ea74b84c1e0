# SPDX-License-Identifier: GPL-2.0
"""What a benchmark guest prints: the lines of bench/report.c."""

import re

FORMAT = "2"
# Units that are thousandths of another.
THOUSANDTHS = {"mns": "ns", "mbytes": "bytes"}


class Broken(Exception):
    """The log has lines that no guest of this version prints."""


def _fields(words):
    """Return key=value words as a dict."""
    return dict(word.split("=", 1) for word in words if "=" in word)


def _result(f):
    """Return one result line."""
    unit, divisor = (THOUSANDTHS[f["unit"]], 1000) if f["unit"] in THOUSANDTHS else (f["unit"], 1)
    return {"case": f["case"], "metric": f["metric"], "unit": unit, "threads": int(f["threads"]),
            **{key: int(f[key]) / divisor for key in ("value", "min", "max")},
            **{key: int(f[key]) for key in ("passes", "ops")}}


class Guest:
    """What one boot printed."""

    def __init__(self, text):
        """Read a console log."""
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
                except (KeyError, ValueError, IndexError) as error:
                    raise Broken(f"cannot read this line of the guest: {found[0]}") from error

    def _line(self, kind, rest):
        """Read one line."""
        f = _fields(rest.split())
        if kind == "start" and f.get("format") != FORMAT:
            raise Broken(f"the guest's benchmark prints another format: {rest}")
        if kind == "result":
            self.results.append(_result(f))
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
