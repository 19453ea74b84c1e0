# SPDX-License-Identifier: GPL-2.0
"""The kernel configurations of qemu/kernels.toml. As a program: prints one of them as assignments for scripts/build."""

import dataclasses
import functools
import shlex
import subprocess
import sys
import tomllib

from .options import program
from .settings import BUILDS, REPO, Refused

IMAGES = {"arm64": "arch/arm64/boot/Image", "arm": "arch/arm/boot/zImage", "x86_64": "arch/x86/boot/bzImage",
          "um": "linux"}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One configuration; the head of qemu/kernels.toml explains the values."""

    name: str
    arch: str
    fragments: list
    options: list = ()
    start: str = ""
    pristine: bool = False
    machine: str = ""
    cpu: str = ""
    append: str = ""
    allow: list = ()
    kunit_nodes: int = 1
    suites: list = ()

    @property
    def folder(self):
        """The folder in which scripts/build builds it."""
        return BUILDS / self.name

    @property
    def image(self):
        """The file that is booted."""
        return self.folder / IMAGES[self.arch]

    @property
    def files(self):
        """Paths of the fragments, in the repository."""
        return ["kunit/.kunitconfig" if name == "kunit" else f"qemu/configs/{name}.config" for name in self.fragments]

    @property
    def guest_image(self):
        """Whether it has what the Debian guest image needs."""
        return "user" in self.fragments

    def has(self, option, value="y"):
        """Tell whether the built kernel has CONFIG_option=value."""
        return f"CONFIG_{option}={value}" in (self.folder / ".config").read_text(encoding="utf-8").split("\n")

    def build(self):
        """Build it."""
        if subprocess.run([REPO / "scripts/build", self.name], stdout=subprocess.DEVNULL, check=False).returncode:
            # scripts/build has said why.
            sys.exit(1)


@functools.cache
def load():
    """Return all configurations by name."""
    try:
        with open(REPO / "qemu/kernels.toml", "rb") as file:
            table = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"qemu/kernels.toml: {error}") from None
    known, found = {field.name for field in dataclasses.fields(Kernel)} - {"name"}, {}
    for name, values in table.items():
        if unknown := set(values) - known:
            raise Refused(f'qemu/kernels.toml: {name}: unknown key "{min(unknown)}"; there are: '
                          f'{" ".join(sorted(known))}')
        if not {"arch", "fragments"} <= set(values):
            raise Refused(f"qemu/kernels.toml: {name}: arch and fragments must be given")
        found[name] = Kernel(name, **values)
    for kernel in found.values():
        if kernel.arch not in IMAGES:
            raise Refused(f"qemu/kernels.toml: {kernel.name}: arch must be one of {' '.join(IMAGES)}, "
                          f'not "{kernel.arch}"')
        for file in kernel.files:
            if not (REPO / file).is_file():
                raise Refused(f"qemu/kernels.toml: {kernel.name}: there is no fragment {file}")
    return found


def get(name):
    """Return the configuration of that name."""
    if name not in load():
        raise Refused(f'unknown configuration "{name}"; there are: {" ".join(load())}')
    return load()[name]


def main(arguments):
    """Print one of them as assignments."""
    kernel = get(arguments[0])
    for key, text in {"ARCH": kernel.arch, "FRAGMENTS": " ".join(kernel.files), "KCONFIG_ADD": " ".join(kernel.options),
                      "IMAGE": IMAGES[kernel.arch], "START": kernel.start,
                      "PRISTINE": "1" if kernel.pristine else ""}.items():
        print(f"{key}={shlex.quote(text)}")
    return 0


if __name__ == "__main__":
    program("kernels", main, sys.argv[1:])
