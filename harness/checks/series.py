# SPDX-License-Identifier: GPL-2.0
"""The item series: git am and patch agree, and each patch of all series builds.

$CACHE/check has "am" and "patch", the files that the patches touch, as the two programs change them; "git", the states
of "am", each a git tree; "tree", a kernel tree that walks through them; and in KERNEL/ one build folder each for the
option "on" and "off"."""

import datetime
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from .. import kernels, step
from ..settings import CACHE, LOGS, REPO, TREE, Refused
from . import CPUS, PATCHES, Fault, output, read, refuse, sources

CHECK = CACHE / "check"
GIT, AM, PATCH, WALKED, SOURCE = (CHECK / name for name in ("git", "am", "patch", "tree", "tree.source"))
# Lines of a log that name an error, and six more.
ERROR = re.compile(r"^(?:(?:.*[^a-z_\n])?(?:error|Error|ERROR|E)(?:\[E\d+\])?: |"
                   r".*(?:undefined reference|No space left)).*(?:\n.*){0,6}", re.M)
# Runs make on the tree that walks through the series, in a build folder. Both are seen under the paths of the
# originals, or every command would be another and everything be built again.
MAKE = """. "$1/scripts/lib.sh"
ENTER_BINDS=(--bind "$2" "$TREE" --bind "$3" "$4") STEP_EXEC=1
in_root make "O=$4" "${MAKE_OPTS[@]}" KBUILD_BUILD_TIMESTAMP=2026-01-01 KBUILD_BUILD_USER=vmap \
	KBUILD_BUILD_HOST=rust "${@:5}"
"""


def git(*words, folder=AM, **more):
    """Return what git prints about the files of a folder. Raises Fault if it fails."""
    place = {"GIT_DIR": str(GIT), "GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": f"{folder}.index"}
    names = {f"GIT_{role}_{part}": "check" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    return output("git", *words, cwd=folder, env={**os.environ, **place, **names, "GIT_CONFIG_GLOBAL": "/dev/null"},
                  **more).rstrip("\n")


def wired(state):
    """Tell whether the allocator is part of the kernel in a state."""
    return "vmap_rust/" in git("show", f"{state}:mm/Makefile")


def series_lines(function, *folders):
    """Return the lines of a function of scripts/lib/series.sh, with these series, or all. It knows where the patches for
    another series of Linux are, if those differ."""
    script = '. "$0/scripts/lib.sh"; . "$0/scripts/lib/series.sh"; [ $# = 2 ] || SERIES=("${@:3}"); "$2" "$1"'
    return output("bash", "-c", script, REPO, PATCHES, function, *folders).splitlines()


def pristine():
    """Return the folder of the source without patches."""
    return CACHE / "src" / read(f"{TREE}.stamp").split()[0]


@functools.cache
def touched():
    """Return the files that the patches touch, relative to the kernel tree."""
    return series_lines("series_files")


def patches_of(*folders):
    """Return the paths of the patches of these series, in the order in which they are applied; covers are none."""
    return [Path(line) for line in series_lines("series_list", *folders)]


def apply(source, folders, steps):
    """Apply the patches of folders with git am and with patch, and add (name, state before, state after) of each to
    steps. Raises Fault if one program refuses one, or if they give different files."""
    for folder in (GIT / "rebase-apply", AM, PATCH):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in (AM, PATCH):
        for file in filter(lambda file: (source / file).exists(), touched()):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / file, folder / file)
    git("add", "-Af", ".")
    git("commit", "-q", "--allow-empty", "-m", "base")
    state = git("write-tree")
    for patch in patches_of(*folders):
        name = f"{patch.parent.name}/{patch.name}"
        git("am", "-q", patch, why=f"git am refuses {name}", stderr=subprocess.STDOUT)
        output("patch", "-p1", "-F0", "--no-backup-if-mismatch", "--batch", "-s", "-i", patch, cwd=PATCH,
               why=f"patch refuses {name}", stderr=subprocess.STDOUT)
        output("diff", "-rq", AM, PATCH, why=f"git am and patch differ after {name}")
        before, state = state, git("write-tree")
        steps.append((name, before, state))
    return f"{len(steps)} patches"


def configure(base, folder, on, state, extra, make):
    """Make the build folder, a copy of base, unless it is there, and configure it. Raises Fault if an option cannot be
    chosen."""
    new, owner, now = folder.with_suffix(".new"), folder / ".vmap-rust-repo", folder / ".config"
    if not folder.exists():
        # Make then compiles only what differs in a state.
        shutil.rmtree(new, ignore_errors=True)
        new.parent.mkdir(exist_ok=True)
        output("cp", "-a", "--reflink=auto", base, new)
        new.rename(folder)
    # Objects of another clone can be newer than the files of this one, and different.
    if read(owner).strip() != str(REPO):
        shutil.rmtree(folder / "mm/vmap_rust", ignore_errors=True)
    owner.write_text(f"{REPO}\n", encoding="utf-8")
    lines, kconfig, options = read(base / ".config").split("\n"), git("show", f"{state}:mm/Kconfig"), {}
    needed = ["RUST"] * (on and "CONFIG_RUST=y" in lines)
    needed += ["VMAP_AREA_OPS"] * (on and "\nconfig VMAP_AREA_OPS\n" in kconfig)
    chosen = dict([extra.split("=")]) if extra else {}
    if not on:
        options = {"VMAP_AREA_OPS": "n", "VMAP_RUST": "n"}
    elif not wired(state):
        # The hook without the allocator.
        options = {"COMPILE_TEST": "y", "WERROR": "n", "VMAP_AREA_OPS": "y"}
    options |= chosen
    lines = [line for line in lines if not re.search(rf"\bCONFIG_({'|'.join(options) or '-'})\b", line)]
    lines += [f"CONFIG_{name}={value}" for name, value in options.items()]
    # Make takes three times as long when it has to read all Kconfig files, so the configuration of the state before
    # stays if it can.
    wanted = "\n".join([*lines, f"# {hashlib.sha256((kconfig + read('Kconfig')).encode()).hexdigest()}", ""])
    given = folder / ".config.given"
    if not given.exists() or read(given) != wanted:
        given.unlink(missing_ok=True)
        now.write_text(wanted, encoding="utf-8")
        make(": configure", "olddefconfig")
        given.write_text(wanted, encoding="utf-8")
    made = read(now).split("\n")
    refuse(f"error: {name} cannot be {value}" for name, value in (dict.fromkeys(needed, "y") | chosen).items()
           if (f"CONFIG_{name}=y" in made) != (value == "y"))


def objects_of(state, names, base, arch, on):
    """Return the objects in the build folder base that a patch affects which changes the files names: those of the C
    files of all series, and for a header of what includes it in mm/. The rest of the kernel, and for patches after the
    allocator is wired up all of it, sees a header in the last state, which is built whole."""
    there = git("ls-tree", "-r", "--name-only", state)
    files = re.findall(rf"^(?!rust/|arch/(?!{arch}/))(.*)\.c$", there, re.M)
    headers = "|".join(re.escape(os.path.basename(name)) for name in names if name.endswith(".h"))
    if headers and not wired(state):
        include = re.compile(rf"^#include [<\"]([a-z_]+/)*({headers})[>\"]", re.M)
        # The tree may still be in a later state, with files that this one has not.
        later = set(touched()) - set(there.split("\n"))
        files += [f"mm/{path.stem}" for path in (WALKED / "mm").glob("*.c")
                  if f"mm/{path.name}" not in later and include.search(read(path))]
    # Kernels without a configuration of their own for "off" have vmap_area_ops.o from the build with the option.
    return [f"{file}.o" for file in dict.fromkeys(files)
            if (base / f"{file}.o").exists() and (on or "area_ops" not in file)]


def build(kernel, base, option, before, state, label, fresh, extra=""):
    """Build what changes from the state before to a state. Returns why nothing was built, or nothing. Raises Fault if it
    fails, if it warns, or if make did not build one of the objects.

    kernel: a configuration; base: the one whose build folder is copied; option: "on" or "off"; label: names the log;
    fresh: also if the same build succeeded before; extra: NAME=y or n, an option with which mm/vmalloc.o and
    mm/vmap_area_ops.o are built, and nothing else."""
    base, folder, arch, on = CACHE / "build" / base, CHECK / kernel / option, kernels.get(kernel).arch, option == "on"
    names = git("diff", "--name-only", "--no-renames", before, state).split("\n")
    if "CONFIG_RUST=y" not in read(base / ".config").split("\n"):
        names = [name for name in names if not name.startswith("rust/")]
    if not any(re.fullmatch(r".*\.([chS]|rs)|(.*/)?(Makefile|Kbuild|Kconfig)[^/]*", name) for name in names):
        return "it changes nothing that is compiled"
    objects = ["mm/vmalloc.o", *["mm/vmap_area_ops.o"] * on] if extra else objects_of(state, names, base, arch, on)
    folders = ["mm/"] * ("mm/Makefile" in names and not extra)
    # The configuration has the versions of the compilers.
    parts = [read(SOURCE), read(base / ".config"), read(__file__), base, option, extra, before, state, objects]
    # Only a build of all of mm/ reads this repository.
    if folders and wired(state):
        parts += [(file, (REPO / file).read_bytes()) for file in sources("rust", "kunit", "bench", "Kconfig", "Kbuild")]
    memory = CHECK / "built" / hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
    if memory.exists() and not fresh:
        return f"unchanged since it built on {read(memory).strip()}"
    log = LOGS / f"series-{kernel}-{label}-{option}.log"

    def make(what, *words):
        """Run make. A patch must not bring a warning either."""
        code = step.run(f"{kernel}, {label}, option {option}{what}", log, [
            "bash", "-c", MAKE, "check", REPO, WALKED, folder, base, f"ARCH={arch}", *words], cwd=TREE)
        text = read(log)
        if code:
            raise Fault("\n".join(ERROR.findall(text) or text.split("\n")[-20:]))
        refuse(line for line in text.split("\n") if re.search("(^|[^a-z])warning: ", line))

    git("read-tree", "--reset", "-u", state, folder=WALKED)
    configure(base, folder, on, state, extra, make)
    # Make must really build this state: it makes a removed archive again, if it enters the folder.
    archive = folder / "mm/built-in.a"
    archive.unlink(missing_ok=True)
    make("", f"--jobs={os.environ.get('JOBS') or CPUS}", "prepare", *objects, *folders)
    refuse(f"error: {name} was not built" for name in objects if not (folder / name).exists() or
           (folder / name).stat().st_mtime_ns <= (WALKED / f"{name[:-2]}.c").stat().st_mtime_ns)
    refuse([] if archive.exists() or not folders else ["error: mm/built-in.a was not built"])
    memory.parent.mkdir(exist_ok=True)
    memory.write_text(f"{datetime.date.today()}\n", encoding="utf-8")
    return ""


def make_tree(source):
    """Make the tree that walks through the series, if there is none for this source and these files. What git puts
    there is newer than all objects, which are copied from kernels with the patches. It replaces hard links."""
    made_of = "\n".join([read(f"{source}.stamp"), *touched()])
    if not SOURCE.exists() or read(SOURCE) != made_of:
        SOURCE.unlink(missing_ok=True)
        for folder in (WALKED, *CHECK.glob("*/on"), *CHECK.glob("*/off")):
            shutil.rmtree(folder, ignore_errors=True)
        output("cp", "-al", source, WALKED)
        SOURCE.write_text(made_of, encoding="utf-8")
    output("ln", "-sfnT", REPO, WALKED / "mm/vmap_rust")


def walk(check, kernel, fresh):
    """Check that all series apply and build. Each patch is built with the option off, and, together with the allocator
    from the last one of area on, with the option on; those of maple, too, as a kernel without the option has no Rust. Those
    of fixes and mapping, whose code does not depend on the option, are built with it off only, and mapping without area
    in one step. The last state is what scripts/build builds, whole;
    with the option off arm64 has a configuration for that."""
    source = pristine()
    if not source.is_dir():
        raise Refused(f"no pristine source {source}; run scripts/prepare")
    shutil.rmtree(GIT, ignore_errors=True)
    # An old index would make git leave out files that the new repository lacks.
    AM.with_suffix(".index").unlink(missing_ok=True)
    output("git", "init", "-q", "--bare", GIT)
    every, alone = [], []
    order = output("bash", "-c", '. "$0/scripts/lib/series.sh"; echo "${ALL_SERIES[@]}"', REPO).split()
    applied = [check(f"git am and patch without fuzz give the same files: {name}", apply, source, folders, steps)
               for name, folders, steps in (("all", order, every), ("without area", ("fixes", "mapping"), alone))]
    # Without the states there is nothing to build.
    if not all(applied):
        return
    bases = {"on": kernel, "off": "arm64-off" if kernel == "arm64" else kernel}
    for option, base in bases.items():
        if option == "on" or base != kernel:
            check(f"kernel {kernel} builds, all patches, option {option}", output, REPO / "scripts/build", base)
    if not all((CACHE / "build" / base / ".config").exists() for base in bases.values()):
        return
    make_tree(source)
    # The last state is not built again.
    for name, before, state in every[:-1]:
        label = name.partition("-")[0].replace("/", "-")
        # Without the allocator the option needs CONFIG_COMPILE_TEST, which user-mode Linux lacks.
        if not name.startswith(("fixes/", "mapping/")) and (wired(state) or kernels.get(kernel).has("HAS_IOMEM")):
            check(f"builds, option on: {name}", build, kernel, bases["on"], "on", before, state, label, fresh)
        check(f"builds, option off: {name}", build, kernel, bases["off"], "off", before, state, label, fresh)
    check("builds, without the rb-trees", build, kernel, bases["on"], "on", *every[-1][1:], "alone", fresh, "VMAP_RBTREE=n")
    # No other build of mapping on arm64 has huge pages of hugetlbfs.
    for extra in ["", "HUGETLBFS=y"] if kernel == "arm64" else [""]:
        check(f"builds, mapping without area {extra}", build, kernel, bases["off"], "off", alone[0][1], alone[-1][2],
              f"mapping-alone-{extra}", fresh, extra)


def series(check, kernel, fresh):
    """Check the series, one run at a time, since the tree is shared."""
    CHECK.mkdir(exist_ok=True)
    with open(CACHE / "check.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        walk(check, kernel, fresh)
