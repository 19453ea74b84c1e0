# SPDX-License-Identifier: GPL-2.0
"""Tests of vmap-report on made-up files. Run with pytest."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("vmap-report")
FILES = {"cmdline": "vmap_allocator=rust\n", "version": "Linux version 7.3.4\n", "vmallocinfo": "0x1000-0x3000 8192\n",
         "meminfo": "PageTables: 88 kB\n", "sys/kernel/kptr_restrict": "0\n", "debugfs/allocator": "rust\n",
         "debugfs/map": "the map\n", "debugfs/validate": "ok\n"}


@pytest.fixture(name="report")
def report_of_a_system(tmp_path, monkeypatch):
    """Return a function that runs the tool, with other places of the files, in the folder "out"."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    text = TOOL.read_text(encoding="utf-8").replace('f"/proc/', f'f"{tmp_path}/')
    text = text.replace("/sys/kernel/debug/vmap_rust", f"{tmp_path}/debugfs").replace('["dmesg"]', '["echo", "the log"]')
    (tmp_path / "tool").write_text(re.sub(r'f"zcat .*"', '"echo no >&2; exit 1"', text))
    return lambda *words: subprocess.run([sys.executable, "-B", tmp_path / "tool", *words], capture_output=True, text=True,
                                         check=False)


def test_a_report_has_everything(report):
    """All files but validate, which delays others; only the owner can read it; what is missing is named."""
    done = report()
    name, = os.listdir()
    assert (done.returncode, done.stderr) == (0, "") and re.fullmatch(r"vmap-report-\d{8}-\d{6}\.tar\.gz", name)
    with tarfile.open(name) as archive:
        files = {entry.name: archive.extractfile(entry).read().decode() for entry in archive}
    assert os.stat(name).st_mode & 0o777 == 0o600
    missing = files.pop(f"{name[:-7]}/missing")
    wanted = {os.path.basename(path): text for path, text in FILES.items() if not path.endswith("validate")}
    assert files == {f"{name[:-7]}/{file}": text for file, text in {**wanted, "dmesg": "the log\n", "config": ""}.items()}
    assert "config: no\n" in missing and "sysctl kernel.kptr_restrict=1" in missing
    assert all(f"not there: {line}" in done.stdout for line in missing.splitlines())


@pytest.mark.parametrize("output, words", [
    ("none/bug.tar.gz", "none/bug.tar.gz: No such file"), ("old.tgz", "old.tgz: File exists"),
    ("bug.tar.gz", "CONFIG_VMAP_RUST")])
def test_what_cannot_be_is_refused(report, output, words):
    """Without the allocator or the folder, or with a file of that name, there is one line and no report."""
    Path("old.tgz").write_text("precious", encoding="utf-8")
    if "RUST" in words:
        Path("../debugfs").rename("../other")
    done = report("-o", output)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1 and words in done.stderr
    assert os.listdir() == ["old.tgz"] and Path("old.tgz").read_text(encoding="utf-8") == "precious"
