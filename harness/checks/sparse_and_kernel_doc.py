# SPDX-License-Identifier: GPL-2.0
"""The items sparse and kernel-doc, on the kernel's files that the patches touch. What these programs say of the kernel
without patches, too, is not ours."""

import re
import subprocess

from ..rust import in_root
from ..settings import CACHE, REPO, TREE
from . import output, read, refuse
from .series import pristine, touched

# sparse runs on objects that are up to date, too. That of Debian 13 does not know __typeof_unqual__(), and the kernel
# does not use such a sparse; without qualifiers, which is all that it leaves out, the types are the same here.
# Another make in this build folder must have ended.
SPARSE = """. "$0/scripts/lib.sh"
LOCK_FOR="sparse arm64"
with_lock in_root make ARCH=arm64 "O=$1" "${MAKE_OPTS[@]}" KBUILD_BUILD_TIMESTAMP=2026-01-01 KBUILD_BUILD_USER=vmap \
	KBUILD_BUILD_HOST=rust C=2 "CHECK=sparse -D__typeof_unqual__=__typeof__" "${@:2}"
"""


def files(suffixes):
    """Return the files of the kernel with these suffixes that the patches touch, but not programs of the build host."""
    return [name for name in touched() if name.endswith(suffixes) and (TREE / name).exists()
            and not name.startswith(("scripts/", "tools/"))]


def is_new(name, number, source):
    """Tell whether a line of a file of the kernel, by its number, is one that the source without patches has not."""
    lines = read(source / name).splitlines() if (source / name).exists() else []
    return read(TREE / name).splitlines()[int(number) - 1] not in lines


def sparse():
    """Run sparse on the C files of which the build folder of arm64 has objects. Raises Fault if it says anything of a
    line that the source without patches has not, or if it did not run on a file."""
    output(REPO / "scripts/build", "arm64")
    folder, source = CACHE / "build/arm64", pristine()
    names = [name for name in files(".c") if (folder / f"{name[:-2]}.o").exists()]
    text = output("bash", "-c", SPARSE, REPO, folder, *(f"{name[:-2]}.o" for name in names), cwd=TREE,
                  stderr=subprocess.STDOUT)
    said = re.findall(rf"^(?:.*/)?(({'|'.join(map(re.escape, names))}):(\d+):\d+: .*)", text, re.M)
    refuse(line for line, name, number in said if is_new(name, number, source))
    ran = re.findall(r"CHECK +(\S+)$", text, re.M)
    refuse(f"sparse did not run on {name}" for name in names if name not in ran)
    return f"{len(names)} files"


def kernel_doc():
    """Run kernel-doc on C files and headers. Raises Fault if it warns of something that it does not say of the same
    file in the source without patches."""
    def said(folder, names):
        """Return what it says of files, without the numbers of lines."""
        lines = output(*in_root("scripts/kernel-doc", "-none", "-Wall", *names), cwd=folder, stderr=subprocess.STDOUT)
        return {re.sub(r":\d+", "", line) for line in lines.splitlines()}

    names, source = files((".c", ".h")), pristine()
    refuse(sorted(said(TREE, names) - said(source, [name for name in names if (source / name).exists()])))
    return f"{len(names)} files"
