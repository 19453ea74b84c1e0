# SPDX-License-Identifier: GPL-2.0
"""The item series: git am and patch agree, and each patch of all series builds.

$CACHE/check has a git repository of the states, one kernel tree that walks through them, and in KERNEL/ one build
folder each for the option "on" and "off". A state is a git tree of the files that the patches touch, after some of the
patches on the pristine source."""

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
GIT, WORK, WALKED, SOURCE = CHECK / "git", CHECK / "work", CHECK / "tree", CHECK / "tree.source"
# Files that are compiled, or say what is.
COMPILED = re.compile(r".*\.([chS]|rs)|(.*/)?(Makefile|Kbuild|Kconfig)[^/]*")
# Lines of a log that name an error, and six more.
ERROR = re.compile(r"^(?:(?:.*[^a-z_\n])?(?:error|Error|ERROR|E)(?:\[E\d+\])?: |"
                   r".*(?:undefined reference|No space left)).*(?:\n.*){0,6}", re.M)
# Builds kernels under one lock: between two, another run would build another kernel. 130: it was interrupted.
KERNELS = """. "$1/scripts/lib.sh"
each() { local name; for name; do "$REPO/scripts/build" "$name" || [ $? != 130 ]; done; }
with_lock each "${@:2}"
"""
# Runs make on the tree that walks through the series, in a build folder. Both are seen under the paths of the
# originals, or every command would be another and everything be built again.
MAKE = """. "$1/scripts/lib.sh"
ENTER_BINDS=(--bind "$2" "$TREE" --bind "$3" "$4") STEP_EXEC=1
in_root make "O=$4" "${MAKE_OPTS[@]}" KBUILD_BUILD_TIMESTAMP=2026-01-01 KBUILD_BUILD_USER=vmap \
	KBUILD_BUILD_HOST=rust "${@:5}"
"""


def git(*words, folder=WORK, program="git", **more):
    """Return what git, or another program, prints about the files of a folder. Raises Fault if it fails."""
    place = {"GIT_DIR": str(GIT), "GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": f"{folder}.index"}
    names = {f"GIT_{role}_{part}": "check" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    return output(program, *words, cwd=folder, env={**os.environ, **place, **names, "GIT_CONFIG_GLOBAL": "/dev/null"},
                  **more).rstrip("\n")


def wired(state):
    """Tell whether the allocator is part of the kernel in a state."""
    return "vmap_rust/" in git("show", f"{state}:mm/Makefile")


@functools.cache
def touched():
    """Return the files that the patches touch, relative to the kernel tree."""
    names = r"^(?:--- a/|\+\+\+ b/|rename from |rename to )([^\t\n]*)"
    return sorted({name for patch in PATCHES.rglob("*.patch") for name in re.findall(names, read(patch), re.M)})


class Series:
    """The patches of folders, in this order, without cover letters."""

    def __init__(self, *folders):
        self.names, self.states = [str(path.relative_to(PATCHES)) for folder in folders
                                   for path in sorted((PATCHES / folder).glob("*.patch"))
                                   if re.match(r"(?!0000)\d{4}-", path.name)], []

    def apply(self, source, program, *words):
        """Return the states after 0, 1 ... patches. Raises Fault if the program refuses one."""
        for folder in (WORK, GIT / "rebase-apply"):
            shutil.rmtree(folder, ignore_errors=True)
        for file in filter(lambda file: (source / file).exists(), touched()):
            (WORK / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / file, WORK / file)
        git("add", "-Af", ".")
        git("commit", "-q", "--allow-empty", "-m", "base")
        states = [git("write-tree")]
        for name in self.names:
            git(*words, PATCHES / name, program=program, why=f"{program} {words[0]} refuses {name}",
                stderr=subprocess.STDOUT)
            git("add", "-Af", ".")
            states.append(git("write-tree"))
        return states

    def patch(self, source):
        """Make the states with patch. Raises Fault if one does not apply without fuzz."""
        self.states = self.apply(source, "patch", "-p1", "-F0", "--no-backup-if-mismatch", "--batch", "-s", "-i")
        return f"{len(self.names)} patches"

    def compare(self, source):
        """Apply the same patches with git am. Raises Fault if the files after one differ."""
        for name, one, other in zip(["", *self.names], self.states, self.apply(source, "git", "am", "-q")):
            files = git("diff", "--name-only", one, other)
            refuse([files, f"git am and patch differ after {name}"] if files else [])
        return f"the same after each of {len(self.names)} patches"


class Build:
    """The build of a state after the state before, with the option on or off, in a copy of the build folder base. label
    names the log. extra is one more option of the configuration, with which only mm/vmalloc.o is built."""

    def __init__(self, kernel, base, option, before, state, label, extra=""):
        self.base, self.folder, self.arch = CACHE / "build" / base, CHECK / kernel / option, kernels.get(kernel).arch
        self.what, self.log = f"{kernel}, {label}, option {option}", LOGS / f"series-{kernel}-{label}-{option}.log"
        self.on, self.before, self.state, self.extra, self.wired = option == "on", before, state, extra, wired(state)
        self.changed = [file for file in git("diff", "--name-only", "--no-renames", before, state).split("\n")
                        if COMPILED.fullmatch(file) and (self.on or not file.startswith("rust/"))]
        # Rust code takes most of the time. Before the allocator is there, only a patch that changes what Rust code is
        # or reads needs it: a file of rust/, or a header, since Rust reads most of them through others. All that is no
        # C file counts, so that a Makefile is not forgotten.
        self.rust = self.wired or not all(re.fullmatch(r"(?!rust/).*\.[cS]", file) for file in self.changed)

    def targets(self):
        """Return what to build, nothing when the patch changes nothing that is compiled: the objects of all C files of
        the series that the kernel has, of which make compiles those that the patch affects; for a header also what
        includes it in mm/, as far as the kernel has it (the rest of the kernel, and for patches after the allocator is wired up all of it,
        sees it in the last state, which is built whole); for a Makefile the folder that it adds, or its own. Make
        prepares the Rust code, if it is in the configuration, before anything else."""
        own = rf"^((?!rust/|arch/(?!{self.arch}/)).*)\.c$"
        names = re.findall(own, git("ls-tree", "-r", "--name-only", self.state), re.M)
        targets = {"prepare", *(f"{name}.o" for name in names if (self.base / f"{name}.o").exists())}
        for folder, name in (os.path.split(file) for file in self.changed if not file.startswith("rust/")):
            if name.endswith(".h") and not self.wired:
                include = re.compile(rf"^#include [<\"]([a-z_]+/)*{re.escape(name)}[>\"]", re.M)
                targets |= {f"mm/{path.stem}.o" for path in (WALKED / "mm").glob("*.c")
                            if (self.base / f"mm/{path.stem}.o").exists() and include.search(read(path))}
            elif folder and name in ("Makefile", "Kbuild"):
                diff = git("diff", "-U0", self.before, self.state, "--", f"{folder}/{name}")
                targets |= {f"{folder}/{added}" for added in re.findall(r"^\+obj-.*\s([a-z_]*/)$", diff, re.M) or [""]}
        if not self.on:
            # Kernels without a configuration of their own for that have it from the build with the option.
            targets.discard("mm/vmap_area_ops.o")
        return (["mm/vmalloc.o"] if self.extra else sorted(targets)) if self.changed else []

    def config(self):
        """Return the configuration, and lines that it must have when make has completed it. As long as the allocator
        is not wired up, "on" means the hook without it."""
        base, kconfig = read(self.base / ".config").split("\n"), git("show", f"{self.state}:mm/Kconfig")
        options, needed = {"COMPILE_TEST": "", "WERROR": ""}, []
        if not self.on:
            options |= {"VMAP_AREA_OPS": "", "VMAP_RUST": ""}
        elif not self.wired:
            options |= {"COMPILE_TEST": "y", "WERROR": "n", "VMAP_AREA_OPS": "y"} | ({} if self.rust else {"RUST": "n"})
        if self.on:
            needed += ["VMAP_AREA_OPS=y"] * bool(re.search("^config VMAP_AREA_OPS$", kconfig, re.M))
            needed += ["RUST=y"] * (self.rust and "CONFIG_RUST=y" in base)
        if self.extra:
            options |= [self.extra.split("=")]
            needed += [self.extra]
        lines = [line for line in base if not re.search(rf"\bCONFIG_({'|'.join(options)})\b", line)]
        lines += [f"CONFIG_{name}={value}" for name, value in options.items() if value]
        # All Kconfig files are read again when one of them changes.
        lines += [f"# {hashlib.sha256((kconfig + read('Kconfig')).encode()).hexdigest()}", ""]
        return "\n".join(lines), [f"CONFIG_{line}" for line in needed]

    def make(self, what, *words):
        """Run make. Raises Fault if it fails, or warns: a patch must not bring a warning either."""
        code = step.run(f"{self.what}{what}", self.log, [
            "bash", "-c", MAKE, "check", REPO, WALKED, self.folder, self.base, f"ARCH={self.arch}", *words], cwd=TREE)
        log = read(self.log)
        if code:
            raise Fault("\n".join(ERROR.findall(log) or log.split("\n")[-20:]))
        refuse(line for line in log.split("\n") if re.search("(^|[^a-z])warning: ", line))

    def prepare(self):
        """Make the build folder unless it is there, and configure it. Raises Fault if an option cannot be chosen."""
        new, owner = Path(f"{self.folder}.new"), self.folder / ".vmap-rust-repo"
        if not self.folder.exists():
            # Make then compiles only what differs in a state.
            shutil.rmtree(new, ignore_errors=True)
            new.parent.mkdir(exist_ok=True)
            output("cp", "-a", "--reflink=auto", self.base, new)
            for file in new.glob("vmlinux*"):
                file.unlink()
            new.rename(self.folder)
        # Objects of another clone can be newer than the files of this one, and different.
        if read(owner).strip() != str(REPO):
            shutil.rmtree(self.folder / "mm/vmap_rust", ignore_errors=True)
        owner.write_text(f"{REPO}\n", encoding="utf-8")
        now, given = self.folder / ".config", self.folder / ".config.given"
        wanted, needed = self.config()
        # Make takes three times as long when it has to read all Kconfig files, so the configuration of the state before
        # stays if it can.
        if not given.exists() or read(given) != wanted:
            given.unlink(missing_ok=True)
            now.write_text(wanted, encoding="utf-8")
            self.make(": configure", "olddefconfig")
            given.write_text(wanted, encoding="utf-8")
        refuse(f"error: {line} cannot be chosen" for line in needed if line not in read(now).split("\n"))

    def build(self, targets):
        """Build the targets in this state. Raises Fault if make fails, or did not build one of them."""
        git("read-tree", "--reset", "-u", self.state, folder=WALKED)
        self.prepare()
        # Make must really build this state: it makes a removed archive again, if it enters the folder.
        archives = [self.folder / name / "built-in.a" for name in targets if name.endswith("/")]
        for archive in archives:
            archive.unlink(missing_ok=True)
        self.make("", f"--jobs={os.environ.get('JOBS') or CPUS}", *targets)
        objects = {self.folder / name: WALKED / f"{name[:-2]}.c" for name in targets if name.endswith(".o")}
        missing = [file for file in archives if not file.exists() or not file.stat().st_size]
        missing += [file for file, text in objects.items()
                    if not file.exists() or file.stat().st_mtime_ns <= text.stat().st_mtime_ns]
        refuse(f"error: {file.relative_to(self.folder)} was not built" for file in missing)

    def test(self, fresh):
        """Build what the patch changes, or find the remembered success of the same build unless a fresh one is wanted;
        returns which. Raises Fault if it does not build."""
        targets = self.targets()
        if not targets:
            return "it changes nothing that is compiled"
        # The configuration has the versions of the compilers.
        parts = [read(SOURCE), read(self.base / ".config"), read(__file__), self.base, self.on, self.extra, targets,
                 self.before, self.state]
        # Other targets do not read this repository, although it is wired up in all later states.
        if "mm/vmap_rust/" in targets:
            files = sources("rust", "kunit", "bench", "Kconfig", "Kbuild")
            parts += [(file, (REPO / file).read_bytes()) for file in files]
        memory = CHECK / "built" / hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
        if memory.exists() and not fresh:
            return f"unchanged since it built on {read(memory).strip()}"
        self.build(targets)
        memory.parent.mkdir(exist_ok=True)
        memory.write_text(f"{datetime.date.today()}\n", encoding="utf-8")
        return ""


def image_of(base, images):
    """Return the image of a kernel. Raises Fault if it is not one of those that were built."""
    image = str(kernels.get(base).image)
    refuse([] if image in images else [f"scripts/build {base} failed"])
    return image


def make_tree(source):
    """Make the tree that walks through the series, if there is none for this source and these files. What git puts
    there is newer than all objects, which are copied from kernels with the patches. It replaces hard links."""
    made_of = "\n".join([read(f"{source}.stamp"), *touched()])
    if not SOURCE.exists() or read(SOURCE) != made_of:
        for file in (SOURCE, Path(f"{WALKED}.index")):
            file.unlink(missing_ok=True)
        for folder in (WALKED, *CHECK.glob("*/on"), *CHECK.glob("*/off")):
            shutil.rmtree(folder, ignore_errors=True)
        output("cp", "-al", source, WALKED)
        SOURCE.write_text(made_of, encoding="utf-8")
    output("ln", "-sfnT", REPO, WALKED / "mm/vmap_rust")


def walk(check, kernel, fresh):
    """Check that all series apply and build. Each patch of area and debug is built with the option on and off, together
    with the allocator from the last one of area on. A patch of the others, whose code does not depend on the option, is
    built with it off only, and mapping without area in one step. The last state is what scripts/build builds, whole;
    with the option off arm64 has a configuration for that."""
    source = CACHE / "src" / read(f"{TREE}.stamp").split()[0]
    if not source.is_dir():
        raise Refused(f"no pristine source {source}; run scripts/prepare")
    shutil.rmtree(GIT, ignore_errors=True)
    # It could make git leave out files as unchanged that the new repository lacks.
    Path(f"{WORK}.index").unlink(missing_ok=True)
    output("git", "init", "-q", "--bare", GIT)
    every, alone = Series("fixes", "maple", "area", "debug", "mapping"), Series("fixes", "mapping")
    parts = {"all": every, "without area": alone}
    # Without the states there is nothing to build.
    applied = [check(f"patch -p1 applies without fuzz: {name}", part.patch, source) for name, part in parts.items()]
    if not all(applied):
        return
    for name, part in parts.items():
        check(f"git am gives the same files: {name}", part.compare, source)
    bases = {"on": kernel, "off": "arm64-off" if kernel == "arm64" else kernel}
    images = subprocess.run(["bash", "-c", KERNELS, "check", REPO, *dict.fromkeys(bases.values())],
                            stdout=subprocess.PIPE, text=True, check=False).stdout.split("\n")
    for option, base in bases.items():
        if option == "on" or base != kernel:
            check(f"kernel {kernel} builds, all patches, option {option}", image_of, base, images)
    if not all((CACHE / "build" / base / ".config").exists() for base in bases.values()):
        return
    make_tree(source)

    def build(what, option, *args):
        """Count the build of a state."""
        check(f"builds, {what}", lambda: Build(kernel, bases[option], option, *args).test(fresh))

    # The last state is not built again.
    for name, before, state in list(zip(every.names, every.states, every.states[1:]))[:-1]:
        label = name.partition("-")[0].replace("/", "-")
        # Without the allocator the option needs CONFIG_COMPILE_TEST, which user-mode Linux lacks.
        if name.startswith(("area/", "debug/")) and (wired(state) or kernels.get(kernel).has("HAS_IOMEM")):
            build(f"option on: {name}", "on", before, state, label)
        build(f"option off: {name}", "off", before, state, label)
    build("mapping without area", "off", alone.states[0], alone.states[-1], "mapping-alone")
    # No other build of mapping on arm64 has it.
    if kernel == "arm64":
        build("mapping without area, CONFIG_HUGETLBFS=y", "off", alone.states[0], alone.states[-1],
              "mapping-alone-hugetlb", "HUGETLBFS=y")


def series(check, kernel, fresh):
    """Check the series, one run at a time, since the tree is shared."""
    CHECK.mkdir(exist_ok=True)
    with open(CACHE / "check.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        walk(check, kernel, fresh)
