# SPDX-License-Identifier: GPL-2.0
"""Tests of vmap-report on made-up files. Run with pytest."""

import os
import re
import resource
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("vmap-report")
INFO = "0x1000000-0x1005000   20480 kernel_clone+0x1/0x2 pages=4 vmalloc\n"
FILES = {"cmdline": "vmap_allocator=rust\n", "version": "Linux version 7.3.4\n", "vmallocinfo": INFO,
         "meminfo": "PageTables: 88 kB\n", "sys/kernel/kptr_restrict": "1\n", "debugfs/allocator": "rust\n",
         "debugfs/map": "the map\n", "debugfs/validate": "ok\n"}


@pytest.fixture(name="report")
def report_of_a_system(tmp_path, monkeypatch):
    """Return a function that runs the tool in the folder "out", and returns exit code, stdout, stderr and the files of
    the archive."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    # The tool with other places of the files.
    text = TOOL.read_text(encoding="utf-8").replace('f"/proc/', f'f"{tmp_path}/')
    text = text.replace("/sys/kernel/debug/vmap_rust", f"{tmp_path}/debugfs")
    text = text.replace('["dmesg"]', '["echo", "the log"]')
    text = re.sub(r'f"zcat .*"', '"echo no >&2; exit 1"', text)
    (tmp_path / "tool").write_text(text)

    def run(*words, **more):
        done = subprocess.run([sys.executable, "-B", tmp_path / "tool", *words], capture_output=True, text=True,
                              check=False, **more)
        files = {}
        for path in (tmp_path / "out").glob("*.tar.gz") if not done.returncode else ():
            with tarfile.open(path) as archive:
                files = {entry.name: archive.extractfile(entry).read().decode() for entry in archive}
        return done.returncode, done.stdout, done.stderr, files
    return run


def test_a_report_has_everything(report):
    """All files but validate, which delays others; only the owner can read it; what is missing is named."""
    code, out, err, files = report("-o", "bug.tar.gz")
    wanted = {f"bug/{os.path.basename(name)}": text for name, text in FILES.items() if not name.endswith("validate")}
    assert (code, err) == (0, "")
    assert files == wanted | {"bug/dmesg": "the log\n", "bug/config": "", "bug/missing": "config: no\n"}
    assert os.stat("bug.tar.gz").st_mode & 0o777 == 0o600 and "not there: config: no\n" in out


def test_the_default_name_says_when(report):
    """It has date and time."""
    report()
    assert re.fullmatch(r"vmap-report-\d{8}-\d{6}\.tar\.gz", *os.listdir())


def test_hidden_addresses_are_named(report):
    """With another kptr_restrict, there are no addresses."""
    Path("../sys/kernel/kptr_restrict").write_text("0\n", encoding="utf-8")
    assert "sysctl kernel.kptr_restrict=1" in report("-o", "bug.tar.gz")[1]


def refused(done, words, left=()):
    """Check that one line with these words is all that there is."""
    assert done[0] == 1 and done[1] == "" and done[2].count("\n") == 1 and words in done[2]
    assert tuple(os.listdir()) == left


def test_what_cannot_be_is_refused(report):
    """Without the allocator, the disk space, the folder, or with a file of that name, nothing is written."""
    small = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))}
    refused(report("-o", "bug.tar.gz", **small), "cannot write bug.tar.gz")
    refused(report("-o", "none/bug.tar.gz"), "cannot write none/bug.tar.gz: No such file")
    Path("bug.tgz").write_text("precious", encoding="utf-8")
    refused(report("-o", "bug.tgz"), "bug.tgz exists", ("bug.tgz",))
    assert Path("bug.tgz").read_text(encoding="utf-8") == "precious"
    Path("../debugfs").rename("../other")
    refused(report("-o", "bug.tar.gz"), "CONFIG_VMAP_RUST", ("bug.tgz",))


def test_the_tool_compiles_as_it_is():
    """Without the replacements, only --help runs on any system."""
    with pytest.raises(SystemExit) as end:
        sys.argv = ["vmap-report", "--help"]
        runpy.run_path(str(TOOL), run_name="__main__")
    assert end.value.code == 0
