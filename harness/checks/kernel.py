# SPDX-License-Identifier: GPL-2.0
"""Items about the kernel and its patches: rustfmt, checkpatch, kernel-doc, sparse, clippy. What they say of the kernel
without patches, too, is not ours."""

import re
import subprocess

from ..boot import build, kernels
from ..patches import prepare
from ..toolchain.enter import in_root
from ..patches.rebase import patch_hash
from ..machine.settings import CACHE, REPO, SERIES, TREE, Refused, linux
from . import fault_if, output, read, sources, spread
from .series import touched


def rustfmt():
    """rustfmt would change nothing by the kernel's rules."""
    # The kernel's make target does not follow the link mm/vmap_rust.
    files = sources("*.rs")
    output(*in_root("rustfmt", "--check", "--color", "never", "--edition", "2021", "--config-path",
                    TREE / ".rustfmt.toml", "--", *files))
    return f"{len(files)} files"


def checkpatch():
    """checkpatch.pl finds nothing in the patches, also those for other series of Linux, and in C files for a kernel."""
    patches = [f"{REPO}/{file}" for file in sources("kernel-patches/*.patch") if "/0000-" not in file]
    files = [f"mm/vmap_rust/{file}" for file in sources("*.c", "*.h", ":!bench/plugin", ":!bench/native", ":!tools")]
    # The commit of a "Fixes:" is not to be found: the source has no history.
    for some, words in (patches, ["--ignore", "UNKNOWN_COMMIT_ID"]), (files, ["-f"]):
        # By itself it does not fail on a file that it cannot read.
        fault_if(spread(some, 8, "perl", "scripts/checkpatch.pl", "--strict", "--no-summary", "--show-types", "--terse",
                        *words, cwd=TREE, stderr=subprocess.STDOUT).splitlines())
    return f"{len(patches)} patches, {len(files)} files"


def made_from():
    """Patches for other series of Linux were made from those that there are now (scripts/rebase)."""
    for meta in linux(SERIES).patches.parent.glob("*/META"):
        base = meta.parent.parent / f"v{''.join(re.findall('^Based-On: (.*)', read(meta), re.M))}"
        fault_if(f"{base / name} has changed since; run scripts/rebase {meta.parent.name[1:]}"
                 for was, name in re.findall(r"^Made-From: (\w+) (.*)", read(meta), re.M) if patch_hash(base / name) != was)


def files(suffixes):
    """Return the files of the kernel with these suffixes that the patches touch, but not programs of the build host."""
    return [name for name in touched() if name.endswith(suffixes) and not name.startswith(("scripts/", "tools/"))]


def sparse():
    """sparse says nothing of a line of a C file that the patches change, on arm64."""
    kernel, source = kernels.get("arm64"), prepare.prepare("source")
    build.build(kernel)
    names = [name for name in files(".c") if (kernel.folder / f"{name[:-2]}.o").exists()]
    # That of Debian 13 does not know __typeof_unqual__(): without qualifiers, which is all that it leaves out, the types are
    # the same here. Another make in this build folder must have ended.
    with build.held(kernel):
        text = output(*build.make(kernel, "C=2", "CHECK=sparse -D__typeof_unqual__=__typeof__",
                                  *(f"{name[:-2]}.o" for name in names), cwd=TREE), cwd=TREE, stderr=subprocess.STDOUT)
    fault_if(f"sparse did not run on {name}" for name in set(names) - set(re.findall(r"CHECK +(\S+)$", text, re.M)))
    fault_if(line for line, name, number in re.findall(
        rf"^(?:.*/)?(({'|'.join(map(re.escape, names))}):(\d+):\d+: .*)", text, re.M)
        if not (source / name).exists() or read(TREE / name).splitlines()[int(number) - 1] not in
        read(source / name).splitlines())
    return f"{len(names)} files"


def kernel_doc():
    """kernel-doc warns of nothing in files that the patches touch of which it does not warn without them."""
    def said(folder):
        """Return what it says of the files, without the numbers of lines."""
        there = [name for name in names if (folder / name).exists()]
        lines = output(*in_root("scripts/kernel-doc", "-none", "-Wall", *there, cwd=folder), cwd=folder,
                       stderr=subprocess.STDOUT)
        return {re.sub(r":\d+", "", line) for line in lines.splitlines()}

    names = files((".c", ".h"))
    fault_if(sorted(said(TREE) - said(prepare.prepare("source"))))
    return f"{len(names)} files"


def compile_crate(driver, emit, is_lean):
    """Run a compiler on the crate on arm64, by the command of the kernel's build; returns its output. emit: what it makes, in
    $CACHE/check; is_lean: without tests and debugging, as users build it."""
    kernel = kernels.get("arm64")
    build.build(kernel)
    saved = re.search(r"^savedcmd_\S* := (.*)", read(kernel.folder / "mm/vmap_rust/rust/.vmap_rust.o.cmd"), re.M)
    # The command may go on after the compiler, for example to merge helpers; only the compiler's part matters.
    command = saved[1].replace("$(pound)", "#").replace("$$", "$").partition(";")[0] if saved else ""
    command, count = re.subn(r"(^|\s)rustc(?=\s)", rf"\1{driver}", command)
    options = "@./include/generated/rustc_cfg"
    if not count or options not in command:
        raise Refused(f"cannot find the compiler in: {command}")
    command = re.sub(r"--emit=(dep-info|obj|llvm-bc|asm|metadata|link)=\S+", "", command)
    (CACHE / "check").mkdir(exist_ok=True)
    if is_lean:
        # What only tests use would be dead code there, which stops a kernel with WERROR.
        lean = CACHE / "check/rustc_cfg"
        lean.write_text(re.sub(r"^.*CONFIG_VMAP_RUST_(DEBUG|KUNIT_TEST|BENCH)\b.*\n", "", read(
            kernel.folder / "include/generated/rustc_cfg"), flags=re.M), encoding="utf-8")
        command = command.replace(options, f"@{lean}")
    return output(*in_root("sh", "-c", f"{command} --emit={emit}", cwd=kernel.folder, RUSTC_BOOTSTRAP=1, CLIPPY_CONF_DIR=TREE),
                  cwd=kernel.folder, stderr=subprocess.STDOUT)


def clippy():
    """clippy does not warn of the crate on arm64, with and without tests and debugging."""
    for is_lean in (False, True):
        out = compile_crate("clippy-driver", f"metadata={CACHE}/check/clippy.rmeta", is_lean)
        fault_if([out] if re.search("^warning", out, re.M) else [])


def panics():
    """Nothing in the crate can panic on arm64, without tests and debugging: the compiler has left no call of it."""
    made = CACHE / "check/lean.o"
    compile_crate("rustc", f"obj={made}", True)
    names = output(*in_root("llvm-nm", made)).split()
    # Otherwise this would look at nothing.
    fault_if([] if "vmap_rust_alloc" in names else [f"{made} has no vmap_rust_alloc()"])
    # Those of core that do not return: is_rust_noreturn() of tools/objtool/check.c has a list.
    fault_if(name for name in names if re.search(r"4core\w*(?:panic|_fail(?:ed)?)", name))
