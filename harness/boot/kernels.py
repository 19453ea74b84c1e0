# SPDX-License-Identifier: GPL-2.0
"""The kernel configurations of qemu/kernels.toml."""

import dataclasses
import functools
import tomllib

from ..machine.settings import BUILDS, REPO, Refused

IMAGES = {"arm64": "arch/arm64/boot/Image", "arm": "arch/arm/boot/zImage", "x86_64": "arch/x86/boot/bzImage",
          "riscv": "arch/riscv/boot/Image", "loongarch": "arch/loongarch/boot/vmlinux.elf", "um": "linux"}


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
        """Whether it has what the Debian guest image needs, with debuggers."""
        return self.user_image == "guest-image"

    @property
    def user_image(self):
        """The image of harness/toolchain/image.py with programs for it, or ""."""
        return {"x86_64": "guest-image", "arm64": "programs-image"}[self.arch] if "user" in self.fragments else ""

    @property
    def allocators(self):
        """What vmap_allocator= can choose from, or "none" for a kernel without the option."""
        wanted = {*self.options, *(line for file in self.files
                                   for line in (REPO / file).read_text(encoding="utf-8").split("\n"))}
        return ("rbtree", "rust") if "CONFIG_VMAP_RUST=y" in wanted else ("none",)

    def has(self, option, value="y"):
        """Tell whether the built kernel has CONFIG_option=value."""
        config = self.folder / ".config"
        if not config.is_file():
            raise Refused(f"configuration {self.name} is not built; run scripts/build {self.name}")
        return f"CONFIG_{option}={value}" in config.read_text(encoding="utf-8").split("\n")


@functools.cache
def load():
    """Return all configurations by name."""
    found = {}
    try:
        for name, values in tomllib.loads((REPO / "qemu/kernels.toml").read_text(encoding="utf-8")).items():
            found[name] = Kernel(name, **values)
            # Runs take the locks of kernels in this order.
            if found[name].start not in ("", *[*found][:-1]):
                raise ValueError(f'{name}: start "{found[name].start}" is not above it')
            for file in found[name].files:
                if not (REPO / file).is_file():
                    raise ValueError(f"there is no fragment {file}")
    except (TypeError, ValueError) as error:
        raise Refused(f"qemu/kernels.toml, after {' '.join(found)}: {error}") from None
    return found


def get(name):
    """Return the configuration of that name."""
    if name not in load():
        raise Refused(f'unknown configuration "{name}"; there are: {" ".join(load())}')
    return load()[name]
