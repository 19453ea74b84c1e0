# SPDX-License-Identifier: GPL-2.0
"""Items about the Rust code, in the folder of the repository: unsafe, rustfmt, clippy."""

import re
import subprocess
from pathlib import Path

from ..rust import in_root
from ..settings import CACHE, REPO, TREE
from . import Fault, output, read, refuse, sources

# Layers of rust/, the lowest first: a layer uses only itself and those before it. The crate root, ffi.rs, debugfs.rs
# and debug/ use all.
LAYERS = ("base", "sys", "state", "policy", "check")


def code_of(text):
    """Return (number, line) of the lines of Rust code that are no comments."""
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if not line.lstrip().startswith("//")]


def unsafe_modules():
    """Return the files that may have unsafe code: those of sys/, state/ and debug/ for which mod.rs does not forbid it,
    and ffi.rs."""
    found = ["rust/ffi.rs"]
    for folder in ("rust/debug", "rust/state", "rust/sys"):
        text = re.sub(r".*forbid\(unsafe_code\).*\n.*\n", "", read(f"{folder}/mod.rs"))
        found += [f"{folder}/{name}.rs" for name in re.findall(r"^(?:pub\(crate\) )?mod (\w+)", text, re.M)]
    return found


def unsafe_elsewhere(allowed):
    """Raise Fault with the unsafe code of other files, and the modules for which the compiler does not forbid it."""
    files = [str(file) for folder in ("", *LAYERS, "check/tests", "debug")
             for file in sorted(Path("rust", folder).glob("*.rs"))]
    found = [f"{file}:{number}:{line}" for file in files if file not in (*allowed, "rust/vmap_rust.rs")
             for number, line in code_of(read(file)) if re.search(r"\bunsafe\b", line)]
    safe = re.findall(r"forbid\(unsafe_code\).*\nmod (\w+);$", read("rust/vmap_rust.rs"), re.M)
    refuse(found + [f"rust/vmap_rust.rs: mod {name} lacks #[forbid(unsafe_code)]"
                    for name in ("base", "check", "debugfs", "policy") if name not in safe])


def upward():
    """Raise Fault with the lines by which a layer uses one above it. What comes after the attribute of KUnit's cases
    does not count: tests use check/."""
    found = []
    for file in (file for layer in LAYERS for file in sorted(Path("rust", layer).glob("*.rs"))):
        allowed = LAYERS[:LAYERS.index(file.parent.name) + 1]
        # In "use crate::{", each name that is indented once is one of the crate.
        text = re.sub(r"^(pub(\(crate\))? )?use crate::\{\n(.*\n)*?\};",
                      lambda use: re.sub(r"^    (?=[a-z_]+(::|,))", "crate::", use[0], flags=re.M),
                      read(file).split("kunit_tests(")[0], flags=re.M)
        found += [f"{file}:{number}: uses crate::{name}" for number, line in code_of(text)
                  for name in re.findall("crate::([a-z_]+)", line)
                  if name not in allowed and not file.name.endswith("tests.rs")]
    refuse(found)


def unsafe(check):
    """Check that policy modules have no unsafe code, and layers use only those below."""
    allowed = unsafe_modules()
    check(f"unsafe code in {len(allowed)} modules of sys, state, debug and ffi only", unsafe_elsewhere, allowed)
    check(f"each of the layers {' '.join(LAYERS)} uses only those before it", upward)


def rustfmt(check):
    """Check the format of the files by the kernel's rules. The kernel's make target does not follow the link
    mm/vmap_rust."""
    files = sources("*.rs")
    check(f"rustfmt, {len(files)} files", output, *in_root(
        "rustfmt", "--check", "--color", "never", "--edition", "2021", "--config-path", TREE / ".rustfmt.toml", "--",
        *files))


def run_clippy(folder):
    """Run clippy on the crate: the command that compiled it in this build folder, with clippy-driver for rustc. Raises
    Fault if it warns."""
    saved = re.search(r"^savedcmd_\S* := (.*)", read(folder / "mm/vmap_rust/rust/.vmap_rust.o.cmd"), re.M)
    if not saved:
        raise Fault(f"no compile command in {folder}")
    # The command may go on after the compiler, for example to merge helpers; only the compiler's part matters.
    command = saved[1].replace("$(pound)", "#").replace("$$", "$").partition(";")[0]
    command, count = re.subn(r"(^|\s)rustc(?=\s)", r"\1clippy-driver", command)
    if not count:
        raise Fault(f"cannot find the compiler in: {command}")
    command = re.sub(r"--emit=(dep-info|obj|llvm-bc|asm|metadata|link)=\S+", "", command)
    (CACHE / "check").mkdir(exist_ok=True)
    out = output(*in_root("sh", "-c", f"{command} --emit=metadata={CACHE}/check/clippy.rmeta", RUSTC_BOOTSTRAP=1,
                          CLIPPY_CONF_DIR=TREE), cwd=folder, stderr=subprocess.STDOUT)
    refuse([out] if re.search("^warning", out, re.M) else [])
    return "no warning"


def clippy(check):
    """Check that clippy prints no warning with the flags that the kernel sets for make CLIPPY=1."""
    check("kernel arm64 builds, option on", output, REPO / "scripts/build", "arm64")
    check("clippy, arm64", run_clippy, CACHE / "build/arm64")
