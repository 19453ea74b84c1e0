# SPDX-License-Identifier: GPL-2.0
"""Runs docs/litmus/*.litmus through herd7 with the kernel's memory model.

The model of Linux 7.3 needs herd7 7.58, which is too new for the Debian release of the toolchain root. It is unpacked
into herd of the cache, with the C library for which it was built, and runs from there."""

import concurrent.futures
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from ..toolchain import debian
from ..patches import prepare
from ..machine.options import Parser
from ..machine.settings import CACHE, REPO, TOOLCHAIN, Refused, Skipped, cpus, make_cache, need_space

HERD, SUITE, SECONDS = CACHE / "herd", "forky", 300
TESTS = REPO / "docs/litmus"
HELP = f"""Runs all files of docs/litmus, or those named, through herd7 with tools/memory-model of the kernel source.

Each file names the result that it must have: Never or Sometimes, and DATARACE if herd7 must find a data race. Downloads
herd7 from Debian {SUITE} into the cache; with TOOLCHAIN=host, uses that of the build host. Exit code: 0 all passed, 1 not,
4 the build host has no herd7."""


def find():
    """Return the command of herd7, which is downloaded if it is missing. With TOOLCHAIN=host, raises Skipped if it is."""
    if TOOLCHAIN == "host":
        if not shutil.which("herd7"):
            raise Skipped("there is no herd7; install version 7.58 or later")
        return ["herd7"]
    if not HERD.exists():
        make_cache()
        need_space(700, "herd7")
        # Needs no lock: each run has a separate folder, and the first complete one counts.
        with tempfile.TemporaryDirectory(prefix="herd.", dir=CACHE) as folder:
            debian.fetch("herd7", debian.machine(), ["herdtools7"], Path(folder) / "root", suite=SUITE)
            if not HERD.exists():
                (Path(folder) / "root").rename(HERD)
    # Its own C library needs the dynamic loader of that library.
    for loader in HERD.glob("usr/lib/*/ld-linux*.so.*"):
        return [loader, "--library-path", loader.parent, HERD / "usr/bin/herd7", "-set-libdir",
                HERD / "usr/share/herdtools7/herd"]
    raise Refused(f"{HERD} is damaged; remove it and call this again")


def judge(file, done, result):
    """Count one test, of which subprocess.run has returned what is done."""
    wanted = re.search(r"^\(\* Result: (.*) \*\)$", file.read_text(encoding="utf-8"), re.M)
    text, code = done.stdout, done.returncode
    found = re.search(rf"^Observation {re.escape(file.stem)} (\S+)", text, re.M)
    # Any other flag becomes part of the result, which then equals no expected one.
    flags = [" DATARACE" if flag == "data-race" else f" flag {flag}" for flag in re.findall("^Flag (.*)$", text, re.M)]
    got = f"nothing in {SECONDS} s of CPU time" if code == -signal.SIGXCPU else f"{found[1] if found else ''}{''.join(flags)}"
    good = code == 0 and bool(wanted) and got == wanted[1]
    result.add(good, file.stem, got if good else "\n".join([
        f'expected "{wanted and wanted[1]}", herd7 says "{got}", exit code {code}', *text.strip().split("\n")[-20:]]))


def main(arguments, result):
    """Run the wanted tests."""
    parser = Parser(HELP, "test litmus")
    parser.add_argument("names", nargs="*", metavar="NAME")
    files = []
    for name in parser.parse_args(arguments).names:
        files.append(TESTS / f"{name.removesuffix('.litmus')}.litmus")
        if not files[-1].is_file():
            raise Refused(f"there is no docs/litmus/{files[-1].name}")
    model, herd, files = prepare.prepare("source") / "tools/memory-model", find(), files or sorted(TESTS.glob("*.litmus"))

    def run(file):
        # CPU time, on which the load of the machine has no influence. Herd7 has one thread, and waits for nothing.
        return subprocess.run(["prlimit", f"--cpu={SECONDS}:{SECONDS + 5}", *herd, "-conf", "linux-kernel.cfg", file],
                              cwd=model, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    with concurrent.futures.ThreadPoolExecutor(cpus()) as pool:
        for file, done in zip(files, pool.map(run, files)):
            judge(file, done, result)
