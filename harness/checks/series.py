# SPDX-License-Identifier: GPL-2.0
"""The item series: git am and patch agree, and each patch of all series builds ("make test": only the last state).

$CACHE/check has "am", a git repository of the files that the patches touch; "tree", a kernel tree that walks through the
series; in "arm64" a build folder each for the option "on" and "off"; and in "built" a file for each build that passed."""

import datetime
import functools
import hashlib
import os
import re
import shutil
import subprocess

from .. import build as builds, kernels, prepare, series as patched, step
from ..lock import locked
from ..settings import CACHE, INSIDE, LOGS, REPO, SERIES, TOOLCHAIN, TREE, Refused, linux
from . import Fault, fault_if, output, read, sources

CHECK = CACHE / "check"
AM, PATCH, WALKED = CHECK / "am", CHECK / "patch", CHECK / "tree"
# The configuration for each state of the option. Its build folder is copied, so that make compiles only what differs.
BASES = {"on": "arm64", "off": "arm64-off"}


@functools.cache
def touched():
    """Return the files that the patches touch, relative to the kernel tree."""
    return patched.files_of(patched.patches(linux(SERIES), patched.ALL))


def wired():
    """Tell whether the allocator is part of the kernel in the state of WALKED."""
    return "vmap_rust/" in read(WALKED / "mm/Makefile")


def git(*words):
    """Return what git prints about AM. Raises Fault if it fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return output("git", "-c", "user.name=check", "-c", "user.email=check", *words, cwd=AM, stderr=subprocess.STDOUT,
                  env={**env, "GIT_CONFIG_GLOBAL": "/dev/null"})


def start(source):
    """Make the repository of the files that the patches touch, without patches."""
    shutil.rmtree(AM, ignore_errors=True)
    AM.mkdir()
    output("cp", "-p", "--parents", *(name for name in touched() if (source / name).exists()), AM, cwd=source)
    git("init", "-q")
    git("add", "-Af", ".")
    git("commit", "-q", "-m", "base")


def apply(source, paths, new):
    """Apply the patches new with git am, and paths, which end with them, with patch to the source. Raises Fault if one
    program refuses one, or if they give different files."""
    git("am", "-q", *new)
    patched.put_patches(WALKED, source, paths)
    fault_if(f"git am and patch differ in {name}" for name in touched()
             if patched.read(AM / name) != patched.read(WALKED / name))


def configure(folder, base, options, make):
    """Configure a build folder with the configuration of base and options. Raises Fault if one cannot be chosen."""
    lines = re.sub(rf".*\bCONFIG_({'|'.join(options)})\b.*\n", "", read(base / ".config"))
    # Make takes three times as long when it has to read all Kconfig files, so the configuration of the state before
    # stays if it can.
    menus = hashlib.sha256((read(WALKED / "mm/Kconfig") + read("Kconfig")).encode()).hexdigest()
    wanted = "\n".join([lines, *(f"CONFIG_{name}={value}" for name, value in options.items()), f"# {menus}", ""])
    given = folder / ".config.given"
    if not given.exists() or read(given) != wanted:
        given.unlink(missing_ok=True)
        (folder / ".config").write_text(wanted, encoding="utf-8")
        make("olddefconfig")
        given.write_text(wanted, encoding="utf-8")
    made = read(folder / ".config").split("\n")
    fault_if(f"error: {name} cannot be {value}" for name, value in options.items()
             if (f"CONFIG_{name}=y" in made) != (value == "y"))


def options_of(option, extra):
    """Return the options of a build of the state of WALKED; extra: NAME=VALUE, or nothing."""
    options = {"VMAP_AREA_OPS": "n", "VMAP_RUST": "n"}
    if option == "on":
        # Before the allocator is wired up, the hook without it.
        options = {"RUST": "y"} if wired() else {"RUST": "y", "COMPILE_TEST": "y", "WERROR": "n"}
        options |= {"VMAP_AREA_OPS": "y"} if "\nconfig VMAP_AREA_OPS\n" in read(WALKED / "mm/Kconfig") else {}
    return options | dict([extra.split("=")] if extra else [])


def objects_of(names, base, option):
    """Return the objects in the build folder base that a patch affects which changes the files names: those of the C
    files of all series, and for a header of what includes it in mm/. The rest of the kernel, and for patches after the
    allocator is wired up all of it, sees a header in the last state, which is built whole."""
    files = [file for file in touched() if re.match(r"(?!rust/|arch/(?!arm64/)).*\.c$", file) and (WALKED / file).exists()]
    headers = "|".join(re.escape(os.path.basename(name)) for name in names if name.endswith(".h"))
    if headers and not wired():
        include = re.compile(rf"^#include [<\"]([a-z_]+/)*({headers})[>\"]", re.M)
        files += [f"mm/{path.name}" for path in (WALKED / "mm").glob("*.c") if include.search(read(path))]
    # A folder that began as a copy has objects that are not part of its kernel.
    left_out = ["mm/vmap_area_ops.c"] if option == "off" else []
    return [f"{file[:-2]}.o" for file in dict.fromkeys(files)
            if (base / f"{file[:-2]}.o").exists() and file not in left_out]


def build(name, option, patches, extra=""):
    """Build what patches change that WALKED has. Returns why nothing was built, or nothing. Raises Fault if it fails, if it
    warns, or if make did not build one of the objects.

    name: of the log; option: "on" or "off"; extra: NAME=VALUE, with which nothing but mm/vmalloc.o and
    mm/vmap_area_ops.o is built."""
    kernel, folder, names = kernels.get(BASES[option]), CHECK / "arm64" / option, patched.files_of(patches)
    # The kernel without the option has no Rust.
    if not any(re.fullmatch(r".*\.([chS]|rs)|(.*/)?(Makefile|Kbuild|Kconfig)[^/]*", name) for name in names
               if option == "on" or not name.startswith("rust/")):
        return "it changes nothing that is compiled"
    if extra:
        objects = ["mm/vmalloc.o", *["mm/vmap_area_ops.o"] * (option == "on")]
    else:
        objects = objects_of(names, kernel.folder, option)
    folders = ["mm/"] * ("mm/Makefile" in names and not extra)
    # The configuration has the versions of the compilers.
    parts = [read(f"{WALKED}.source"), *(patched.read(WALKED / name) for name in touched()),
             read(kernel.folder / ".config"), read(__file__), option, extra, objects]
    # Only a build of all of mm/ reads this repository.
    if folders and wired():
        parts += [(file, (REPO / file).read_bytes()) for file in sources("rust", "kunit", "bench", "Kconfig", "Kbuild")]
    memory = CHECK / "built" / hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
    if memory.exists():
        return f"unchanged since it built on {read(memory).strip()}"

    def make(*words):
        """Run make. A patch must not bring a warning either."""
        log = LOGS / f"series-{name.partition('-')[0].replace('/', '-')}-{option}.log"
        # The tree that walks through the series and its build folder are seen under the paths of the originals, or every
        # command would be another and everything be built again.
        code = step.run(f"{name}, option {option}", log, builds.make(kernel, *words, cwd=TREE, binds=[
            "--bind", WALKED, TREE, "--bind", folder, kernel.folder]), cwd=TREE)
        if code:
            raise Fault(step.errors(log))
        fault_if(line for line in read(log).split("\n") if re.search("(^|[^a-z])warning: ", line))

    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        shutil.rmtree(f"{folder}.new", ignore_errors=True)
        output("cp", "-a", "--reflink=auto", kernel.folder, f"{folder}.new")
        os.rename(f"{folder}.new", folder)
    builds.claim(folder)
    configure(folder, kernel.folder, options_of(option, extra), make)
    # Make must really build this state: it makes a removed archive again, if it enters the folder.
    archive = folder / "mm/built-in.a"
    archive.unlink(missing_ok=True)
    make(f"-j{builds.jobs()}", "prepare", *objects, *folders)
    fault_if(f"error: {name} was not built" for name in objects if not (folder / name).exists() or
             (folder / name).stat().st_mtime_ns <= (WALKED / f"{name[:-2]}.c").stat().st_mtime_ns)
    fault_if(["error: mm/built-in.a was not built"] if folders and not archive.exists() else [])
    memory.parent.mkdir(exist_ok=True)
    memory.write_text(f"{datetime.date.today()}\n", encoding="utf-8")
    return ""


def walk(run, each):
    """Check that all series apply and build. run: see main.checker(); each: build after each patch, the last state without
    the rb-trees and without KUnit, and mapping without area; otherwise only the last state, with the option and without."""
    if TOOLCHAIN == "host" or INSIDE:
        raise Refused("the series is built in the toolchain root, which this enters: no TOOLCHAIN=host, no scripts/in-root")
    every, alone = (patched.patches(linux(SERIES), some) for some in (patched.ALL, ("fixes", "mapping")))
    source, same = prepare.prepare("source"), "git am and patch give the same files: "
    if read(f"{source}.stamp") != patched.read(patched.beside(WALKED, "source")):
        # Their objects are newer than the files of another source.
        shutil.rmtree(CHECK / "arm64", ignore_errors=True)
    patched.copy_source(WALKED, source)
    patched.link(WALKED)
    if not all([*(run(f"{len(paths)} patches apply without fuzz", patched.apply_copy, paths, source, PATCH, touched())
                  for paths in (every, alone)),
                *(run(f"kernel {name} builds, all patches", builds.build, kernels.get(name))
                  for name in [*BASES.values(), *["arm64-bench"] * each])]):
        return
    start(source)
    for number, patch in enumerate(every, 1):
        name = f"{patch.parent.name}/{patch.name}"
        if not run(f"{same}{name}", apply, source, every[:number], [patch]):
            return
        # The last state was built whole.
        if patch == every[-1] or not each:
            continue
        # The code of fixes and mapping does not depend on the option. That of maple does: a kernel without it has no Rust.
        for option in ["off"] if name.startswith(("fixes/", "mapping/")) else BASES:
            run(f"builds, option {option}: {name}", build, name, option, [patch])
    if each:
        run("builds, without the rb-trees", build, "VMAP_RBTREE=n", "on", every, "VMAP_RBTREE=n")
    start(source)
    # No other build of mapping on arm64 has huge pages of hugetlbfs.
    for extra in ("", "HUGETLBFS=y") if run(f"{same}mapping without area", apply, source, alone, alone) and each else ():
        run(f"builds, mapping without area {extra}", build, f"mapping{extra}", "off", alone, extra)


def series(run, each=True):
    """All series apply with git am and with patch, and build with the option off and on. each: see walk()."""
    # One run at a time, since the tree is shared.
    with locked("series check", "check.lock"):
        walk(run, each)
