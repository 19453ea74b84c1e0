# SPDX-License-Identifier: GPL-2.0
"""What the scenario live counts, from the log of a guest that is made up. No kernel is needed."""

import pytest

from harness import run
from harness.result import Result
from harness.scenarios import live

STACKS = [f"0x{start:016x}-0x{start + 0x5000:016x}   20480 copy_process+0x1e8/0xd20 pages=4 vmalloc"
          for start in range(0xffffc90000000000, 0xffffc90000000000 + 310 * 0x8000, 0x8000)]
FIXED = "0xffffc90001000000-0xffffc90001002000    8192 ioremap_prot+0x88/0x10c phys=0x00000000fed00000 ioremap"
OWNER = f"0xffffc90000001234: 0x1234 into {STACKS[0]}"
PRINTED = {
    "busy vmap validate": ["rust: ok"], "quiet vmap validate": ["rust: ok"],
    "quiet vmap owner ffffc90000001234": [OWNER], "quiet vmap pins ffffc90000000000": ["a block", "  " + STACKS[0]],
    "quiet vmap users": ["  1,000   3 copy_process"], "quiet vmap gaps": ["1 gaps, 4096 bytes"], "quiet vmap stats": ["busy 311"],
    "quiet vmap-report -o /tmp/report.tar.gz": ["/tmp/report.tar.gz: 12 files."]}


def log_of(lists, codes):
    """Return a log. lists: what "list" prints when; codes: exit codes other than 0."""
    areas = "".join(f"vmi| {line} |\n" for line in [*STACKS, FIXED])
    text = "".join(f"vmallocinfo: begin {when} tasks 310 cpus 2\n{areas}vmallocinfo: end {when}\n"
                   for when in ("early", "before", "after", "quiet"))
    runs = PRINTED | {f"{when} vmap list": lines for when, lines in lists.items()} | {"quiet vmap owner 1000": ["0x1000: in no area"]}
    for words, lines in runs.items():
        code = codes.get(words, int(words.endswith(" 1000")))
        text += f"tool: begin {words}\n" + "".join(f"| {line}\n" for line in lines) + f"tool: end {code} 3\n"
    return text + "live: done\n"


@pytest.mark.parametrize("busy, quiet, codes, failures", [
    ([*STACKS, FIXED], [*STACKS, FIXED], {}, []),
    (STACKS, [*STACKS, FIXED], {}, ["rust in the load: areas"]),
    ([*STACKS, FIXED], STACKS, {}, ["rust after the load: areas"]),
    ([*STACKS, FIXED], [*STACKS, FIXED], {"busy vmap validate": 1}, ["rust in the load: validate"]),
    ([*STACKS, FIXED], [*STACKS, FIXED], {"quiet vmap-report -o /tmp/report.tar.gz": 1}, ["rust vmap-report"])])
def test_live(tmp_path, monkeypatch, busy, quiet, codes, failures):
    """An area that is missing, and a command that fails, count as a failure each."""
    def boot(*_words, **_more):
        (tmp_path / "log").write_text(log_of({"busy": busy, "quiet": quiet}, codes))
        return str(tmp_path / "log")
    monkeypatch.setattr(live, "CACHE", tmp_path)
    monkeypatch.setattr(live, "boot", boot)
    monkeypatch.setattr(live, "make_guest_image", lambda *words, **more: "initramfs")
    result = Result(quiet=True)
    live.run(run.parse(["live", "--allocator", "rust"])[1], result)
    assert result.failures == failures and result.passed == 11 - len(failures)
