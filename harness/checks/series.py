# SPDX-License-Identifier: GPL-2.0
"""The item series: all series apply and build with the option off and on; "make check" builds after each patch, too.

$CACHE/check has "tree", a kernel tree that walks through the series; in "arm64" a build folder each for the option "on"
and "off"; and in "built" a file for each build that passed."""

import datetime
import functools
import hashlib
import os
import re
import shutil

from ..boot import build as builds, kernels
from ..patches import prepare, series as patched
from ..machine import step
from ..machine.lock import locked
from ..machine.settings import CACHE, INSIDE, LOGS, REPO, SERIES, TOOLCHAIN, TREE, Refused, linux
from . import fault_if, output, read, sources

CHECK = CACHE / "check"
WALKED = CHECK / "tree"
# The configuration for each state of the option. Its build folder is copied, so that make compiles only what differs.
BASES = {"on": "arm64", "off": "arm64-off"}


@functools.cache
def touched():
    """Return the files that the patches touch, relative to the kernel tree."""
    return patched.files_of(patched.patches(linux(SERIES), patched.ALL))


def configure(folder, base, options, make):
    """Configure a build folder with the configuration of base and options. Raises Refused if one cannot be chosen."""
    lines = re.sub(rf".*\bCONFIG_({'|'.join(options)})\b.*\n", "", read(base / ".config"))
    # Make takes three times as long when it has to read all Kconfig files, so the configuration of the state before
    # stays if it can.
    menus = hashlib.sha256((read(WALKED / "mm/Kconfig") + read(REPO / "Kconfig")).encode()).hexdigest()
    wanted = "\n".join([lines, *(f"CONFIG_{name}={value}" for name, value in options.items()), f"# {menus}", ""])
    given = folder / ".config.given"
    if patched.read(given) != wanted:
        given.unlink(missing_ok=True)
        (folder / ".config").write_text(wanted, encoding="utf-8")
        make("olddefconfig")
        given.write_text(wanted, encoding="utf-8")
    made = read(folder / ".config").split("\n")
    fault_if(f"error: {name} cannot be {value}" for name, value in options.items()
             if (f"CONFIG_{name}=y" in made) != (value == "y"))


def build(name, option, patch, source, paths):
    """Apply patches to the source and build mm/ and the other C files that they touch. Returns since when that is known to
    build, or nothing. Raises Refused if it fails or warns.

    name: of the log; option: "on" or "off"; patch: the one that this is about, the last of paths."""
    kernel, folder = kernels.get(BASES[option]), CHECK / "arm64" / option
    patched.put_patches(WALKED, source, paths)
    wired = "vmap_rust/" in read(WALKED / "mm/Makefile")
    options = {"RUST": "y"} if option == "on" else {"VMAP_RUST": "n"}
    # Those of Rust are part of "prepare".
    objects = [f"{file[:-2]}.o" for file in touched() if file.endswith(".c") and not file.startswith(("mm/", "rust/"))
               and (kernel.folder / f"{file[:-2]}.o").exists()]
    # The configuration has the versions of the compilers.
    parts = [read(f"{WALKED}.source"), *(patched.read(WALKED / file) for file in touched()),
             read(kernel.folder / ".config"), read(__file__), option]
    # The allocator is built again where it is wired up; what differs later is not its own.
    if wired and "mm/Makefile" in patched.files_of([patch]):
        parts += [(file, (REPO / file).read_bytes())
                  for file in sources("rust", "kunit", "mapping", "bench", "Kconfig", "Kbuild")]
    memory = CHECK / "built" / hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
    if memory.exists():
        return f"unchanged since it built on {read(memory).strip()}"

    def make(*words):
        """Run make. A patch must not bring a warning either."""
        log = LOGS / f"series-{name.partition('-')[0].replace('/', '-')}-{option}.log"
        # The tree that walks through the series and its build folder are seen under the paths of the originals, or every
        # command would be another and everything be built again.
        if step.Step(f"{name}, option {option}", log, builds.make(kernel, *words, cwd=TREE, binds=[
                "--bind", WALKED, TREE, "--bind", folder, kernel.folder]), cwd=TREE).wait():
            raise Refused(step.errors(log))
        fault_if(line for line in read(log).split("\n") if re.search("(^|[^a-z])warning: ", line))

    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        shutil.rmtree(f"{folder}.new", ignore_errors=True)
        output("cp", "-a", "--reflink=auto", kernel.folder, f"{folder}.new")
        os.rename(f"{folder}.new", folder)
    builds.claim(folder)
    configure(folder, kernel.folder, options, make)
    make(f"-j{builds.jobs()}", "prepare", "mm/", *objects)
    memory.parent.mkdir(exist_ok=True)
    memory.write_text(f"{datetime.date.today()}\n", encoding="utf-8")
    return ""


def series(run, each=True):
    """All series apply, also without those that they do not need, and build with the option off and on.

    run: see main.checker(); each: build after each patch, and each series without the others, not only the last state."""
    if TOOLCHAIN == "host" or INSIDE:
        raise Refused("the series is built in the toolchain root, which this enters: no TOOLCHAIN=host, no scripts/in-root")
    every = patched.patches(linux(SERIES), patched.ALL)
    alone = {name: patched.patches(linux(SERIES), patched.with_needed(name)) for name in patched.ALL[1:]}
    single = {f"{path.parent.name}/{path.name}": [path] for path in every if path.parent.name == patched.ALL[0]}
    # One run at a time, since the tree is shared.
    with locked("series check", "check.lock"):
        source = prepare.prepare("source")
        # The last state is built whole.
        if not all([*(run(f"kernel {name} builds, all patches", builds.build, kernels.get(name))
                      for name in [*BASES.values(), *(["arm64-bench"] if each else [])]),
                    *(run(f"applies without what it does not need: {name}", patched.apply_copy, paths, source,
                          CHECK / "patch", touched()) for name, paths in {**single, **alone}.items())]):
            return
        if read(f"{source}.stamp") != patched.read(patched.beside(WALKED, "source")):
            # Their objects are newer than the files of another source.
            shutil.rmtree(CHECK / "arm64", ignore_errors=True)
        patched.copy_source(WALKED, source)
        patched.link(WALKED)
        for number, patch in enumerate(every[:-1] if each else (), 1):
            name = f"{patch.parent.name}/{patch.name}"
            # C code without the allocator does not depend on the option. A kernel without it has no Rust.
            for option in BASES if "rust/" in "".join(patched.files_of([patch])) or name.startswith("area/") else ["off"]:
                run(f"builds, option {option}: {name}", build, name, option, patch, source, every[:number])
        for name, paths in alone.items() if each else ():
            for option in BASES if name == "area" else ["off"]:
                run(f"builds, option {option}, with what it needs: {name}", build, name, option, paths[-1], source, paths)
