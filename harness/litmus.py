# SPDX-License-Identifier: GPL-2.0
"""Runs docs/litmus/*.litmus through herd7 with the kernel's memory model.

The model of Linux 7.3 needs herd7 7.58, which is too new for the Debian release of the toolchain root. It is unpacked
into herd of the cache, with the C library for which it was built, and runs from there."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import debian, prepare
from .options import Parser
from .settings import CACHE, REPO, TOOLCHAIN, Refused, Skipped, make_cache, need_space, say

HERD, SUITE, SECONDS = CACHE / "herd", "forky", 300
TESTS = REPO / "docs/litmus"
HELP = f"""Runs all files of docs/litmus, or those named, through herd7 with tools/memory-model of the kernel source.

Each file names the result that it must have: Never or Sometimes, and DATARACE if herd7 must find a data race. Uses herd7
of the build host if it passes one of the kernel's litmus tests; else downloads it from Debian {SUITE} into the cache,
except with TOOLCHAIN=host. Exit code: 0 all passed, 1 not, 4 there is no usable herd7."""


def fetch():
    """Make the folder of herd7. Needs no lock: each run has a separate folder, and the first complete one counts."""
    make_cache()
    need_space(700, "herd7")
    with tempfile.TemporaryDirectory(prefix="herd.", dir=CACHE) as folder:
        new = Path(folder) / "root"
        try:
            debian.fetch("herd7", debian.machine(), ["herdtools7"], new, suite=SUITE)
        except Refused as error:
            say(str(error))
            return
        if not HERD.exists():
            new.rename(HERD)


def run_herd(herd, model, file):
    """Run one test; returns what herd7 prints and its exit code."""
    done = subprocess.run(["timeout", str(SECONDS), *herd, "-conf", "linux-kernel.cfg", file], cwd=model, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout, done.returncode


def find(model):
    """Return the command of a herd7 that can read the kernel's model. Raises Skipped if there is none."""
    for again in (False, True):
        if again and TOOLCHAIN == "root" and shutil.which("apt-get"):
            shutil.rmtree(HERD, ignore_errors=True)
            fetch()
        # Its own C library needs the dynamic loader of that library.
        own = [[loader, "--library-path", loader.parent, HERD / "usr/bin/herd7", "-set-libdir", HERD / "usr/share/herdtools7/herd"]
               for loader in HERD.glob("usr/lib/*/ld-linux*.so.*") if os.access(loader, os.X_OK)]
        for herd in [["herd7"], *own]:
            text, code = run_herd(herd, model, "litmus-tests/MP+polocks.litmus")
            if code == 0 and re.search("^Observation MP\\+polocks Never ", text, re.M):
                return herd
    raise Skipped("there is no herd7 that can read the kernel's memory model (7.58 or later), and it could not be "
                  "downloaded")


def judge(herd, model, file, result):
    """Run one test and count it."""
    wanted = re.search(r"^\(\* Result: (.*) \*\)$", file.read_text(encoding="utf-8"), re.M)
    text, code = run_herd(herd, model, file)
    found = re.search(rf"^Observation {re.escape(file.stem)} (\S+)", text, re.M)
    # Any other flag becomes part of the result, which then equals no expected one.
    flags = [" DATARACE" if flag == "data-race" else f" flag {flag}" for flag in re.findall("^Flag (.*)$", text, re.M)]
    got = f"{found[1] if found else ''}{''.join(flags)}"
    good = code == 0 and bool(wanted) and got == wanted[1]
    lines = "".join(f"\n     {line}" for line in text.strip().split("\n")[-20:])
    result.add(good, file.stem, f"ok - {file.stem}: {got}" if good else
               f'not ok - {file.stem}: expected "{wanted and wanted[1]}", herd7 says "{got}", exit code {code}{lines}')


def main(arguments, result):
    """Run the wanted tests."""
    parser = Parser(HELP, "test litmus")
    parser.add_argument("names", nargs="*", metavar="NAME")
    files = []
    for name in parser.parse_args(arguments).names:
        files.append(TESTS / f"{name.removesuffix('.litmus')}.litmus")
        if not files[-1].is_file():
            raise Refused(f"there is no docs/litmus/{files[-1].name}")
    model = prepare.prepare("source") / "tools/memory-model"
    if not (model / "linux-kernel.cfg").is_file():
        raise Skipped("the kernel source has no tools/memory-model")
    herd = find(model)
    for file in files or sorted(TESTS.glob("*.litmus")):
        judge(herd, model, file, result)
