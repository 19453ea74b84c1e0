# SPDX-License-Identifier: GPL-2.0
"""The archive of the guest image has the modules of the kernel, which may have been made before."""

import subprocess

from harness import initramfs, kernels


def test_guest_image(tmp_path, monkeypatch):
    """Made twice, it has init, the scripts and each module once."""
    monkeypatch.setattr(initramfs, "CACHE", tmp_path)
    monkeypatch.setattr(kernels, "BUILDS", tmp_path / "build")
    kernel = kernels.get("x86_64-user")
    for name, text in {"modules.order": "lib/test_module.o\nlib/other.o\nlib/test_module.o\n", "modules.builtin": "",
                       "lib/test_module.ko": "", "lib/other.ko": "", "include/config/kernel.release": "7.3\n",
                       # It prints the names of files instead of an archive.
                       "usr/gen_init_cpio": "#!/bin/sh\nsed -n 's,^file /\\([^ ]*\\) .*,\\1,p' $1\n"}.items():
        (kernel.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (kernel.folder / name).write_text(text)
        (kernel.folder / name).chmod(0o755)
    (tmp_path / "guest-image.cpio.zst").write_bytes(subprocess.run(["zstd"], input=b"", stdout=subprocess.PIPE,
                                                                   check=True).stdout)
    for _ in range(2):
        archive = initramfs.make_guest_image(kernel)
    files = subprocess.run(["zstd", "-dc", archive], capture_output=True, text=True, check=True).stdout
    assert [name for name in files.split() if name.endswith(".ko")] == ["test_module.ko",
                                                                        "usr/lib/modules/7.3/kernel/test_module.ko"]
    assert {"init", "stress.sh", "functions.sh", "usr/lib/modules/7.3/modules.dep"} <= set(files.split())
