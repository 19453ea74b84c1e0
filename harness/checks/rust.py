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
# Modules of the crate that may have unsafe code. In some modules of theirs, too, #[forbid(unsafe_code)] makes the
# compiler refuse it.
UNSAFE = ("debug", "ffi", "state", "sys")


def code_of(text):
    """Return (number, line) of the lines of Rust code that are no comments."""
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if not line.lstrip().startswith("//")]


def unsafe_code():
    """Raise Fault with unsafe code of modules beside UNSAFE, and those for which the compiler does not forbid it."""
    files = sources(":(glob)rust/*.rs", "rust/base", "rust/check", "rust/policy")
    files = [file for file in files if file not in ("rust/ffi.rs", "rust/vmap_rust.rs")]
    found = [f"{file}:{number}:{line}" for file in files for number, line in code_of(read(file))
             if re.search(r"\bunsafe\b", line)]
    modules = re.findall(r"^(.*)\n(?=mod (\w+);$)", read("rust/vmap_rust.rs"), re.M)
    refuse(found + [f"rust/vmap_rust.rs: mod {name} lacks #[forbid(unsafe_code)]" for before, name in modules
                    if name not in UNSAFE and before != "#[forbid(unsafe_code)]"])
    return f"{len(files)} files"


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


def rustfmt():
    """Raise Fault with what rustfmt would change by the kernel's rules. The kernel's make target does not follow the
    link mm/vmap_rust."""
    files = sources("*.rs")
    output(*in_root("rustfmt", "--check", "--color", "never", "--edition", "2021", "--config-path",
                    TREE / ".rustfmt.toml", "--", *files))
    return f"{len(files)} files"


def clippy():
    """Run clippy on the crate, with the flags that the kernel sets for make CLIPPY=1: by the command that compiled it
    for arm64, with clippy-driver for rustc. Raises Fault if it warns."""
    output(REPO / "scripts/build", "arm64")
    folder = CACHE / "build/arm64"
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
