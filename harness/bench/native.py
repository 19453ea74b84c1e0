# SPDX-License-Identifier: GPL-2.0
"""Builds both allocators into one program of the build host, for "scripts/bench native" (native_report.py).

The rb-trees are cut out of the kernel source (cut()), the rest of the program is bench/native and rust/native."""

import json
import platform
import re
import subprocess
from pathlib import Path

from ..patches import source
from ..machine import step
from ..toolchain.enter import in_root
from ..boot.build import jobs
from ..machine.lock import locked
from ..machine.options import whole
from ..allocator.rust import BUILDS
from ..machine.settings import LLVM, LOGS, REPO, SERIES, Refused, Skipped, commit, cpus, kernel_version, linux, write

FOLDER = REPO / "bench/native"
# Sides of the program.
SIDES = {"rbtree": "rb-trees", "rust": "Rust", "calls": "Rust, calls"}
# Parts of mm/vmalloc.c: where each begins, and where the next function behind it does.
PARTS = [("/*** Global kva allocator ***/", "int register_vmap_purge_notifier("),
         ("/*\n * lazy_max_pages is the maximum", "/*** Per cpu kva allocator ***/"),
         ("static void __init vmap_init_free_space(void)", "static unsigned long\nvmap_node_shrink_count(")]


def known_cases():
    """Return the cases of the program."""
    return re.findall(r'^\t\[[A-Z0-9_]+\] = \{ "(\w+)", ', (FOLDER / "driver.c").read_text(encoding="utf-8"), re.M)


def case_list(text):
    """Return the cases of a list that --cases may have. The program would refuse others too, but only when it is built."""
    for case in text.split(","):
        if case not in known_cases():
            raise Refused(f'unknown case "{case}"; there are {" ".join(known_cases())}')
    return text


def thread_list(text):
    """Return the numbers of threads of a list. Refuses those that this machine has no CPUs for."""
    for number in text.split(","):
        whole(1, cpus())(number)
    return text


def read(path):
    """Return what the program has printed into the file at a path. Refuses another file."""
    try:
        raw = json.loads(Path(path).read_bytes())
        if raw["format"] != 1 or not raw["tests"]:
            raise ValueError("of another version, or without a test")
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path}: is not what the program printed: {error}") from None
    return raw


def cut(text, name):
    """Return the parts of mm/vmalloc.c that are the area allocator. text: the file; name: its path. Refuses a file in
    which it does not find them."""
    parts = []
    for first, behind in PARTS:
        if text.count(first) != 1 or text.count(behind) != 1 or text.index(first) > text.index(behind):
            lost = (first if text.count(first) != 1 else behind).strip("/* \n").replace("\n", " ")
            raise Refused(f'{name} has changed too much for bench/native: "{lost}" is not where it was; adapt PARTS in '
                          "harness/bench/native.py")
        parts.append(text[text.index(first):text.index(behind)])
    return "\n".join(parts)


def write_if_new(path, text):
    """Write a file unless it has this text already: make would build again what includes it."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write(path, text)


def build(kind="timed", target="native"):
    """Build the program in the toolchain root; returns its path. kind: see bench/native/Makefile; target: only this file.
    Refuses a kernel source that it does not build with, and skips a machine that is not x86-64."""
    if platform.machine() != "x86_64":
        raise Skipped(f"native measures on x86-64 only, and this machine is {platform.machine()}")
    kernel, log = source.find(linux(SERIES)), LOGS / f"native-{kind}.log"
    out = BUILDS / f"native-{SERIES}-{kind}"
    with locked(f"native {kind}", f"native-{kind}.lock"):
        (out / "generated").mkdir(parents=True, exist_ok=True)
        file = kernel / "mm/vmalloc.c"
        write_if_new(out / "vmalloc.inc", cut(file.read_text(encoding="utf-8"), file))
        # What tools/testing makes: nothing of it is used.
        for name in ("map-shift", "autoconf"):
            (out / f"generated/{name}.h").touch()
        clang = "clang" + LLVM.removeprefix("LLVM=").removeprefix("1")
        versions = subprocess.run(in_root("sh", "-c", f"{clang} --version | head -1; rustc --version"),
                                  stdout=subprocess.PIPE, text=True, check=False).stdout
        write_if_new(out / "about.h", "".join(f'#define NATIVE_{key} "{value}"\n' for key, value in (
            ("LINUX", kernel_version(kernel)), ("COMMIT", commit()),
            ("COMPILERS", "; ".join(versions.replace('"', "").splitlines())))))
        step.must(f"native: build, {kind}", log, in_root(
            "make", "-s", f"-j{jobs()}", "-C", FOLDER, f"LINUX={kernel}", f"OUT={out}",
            f"KIND={kind}", LLVM, out / target), f"bench/native does not build with {file}; if the compiler names vmalloc.inc, that file "
            f"has changed too much: adapt bench/native/rbtree.c; log: {log}", cwd=REPO)
    return out / target
