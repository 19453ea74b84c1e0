# SPDX-License-Identifier: GPL-2.0
"""Wrong arguments, settings and machines."""

import contextlib
import os

import pytest

from conftest import REPO, User
from harness import debian
from harness.settings import Refused

# PATH of a machine that cannot build a kernel.
BARE = r"""
mkdir bare
for tool in bash sh awk sed grep cat ls sort head tail cut tr df flock stat find xargs mkdir rm mv cp ln env dirname \
    basename realpath sleep id git nproc sha256sum cmp setpriv touch readlink tput paste wc make python3; do
    ln -s "$(command -v $tool)" bare/$tool
done
"""
# Commands, and their last line; \A where it is the only one.
REFUSED = {
    "unknown configuration": ("build nosuch", 'unknown configuration "nosuch"; there are: .*arm64'),
    "no configuration": ("build", "arguments are required: NAME"),
    "two configurations": ("build uml arm64", "unrecognized arguments: arm64"),
    "unknown part": ("prepare rooot", "PART: invalid choice: 'rooot' .choose from '?root"),
    "unknown TOOLCHAIN": ("TOOLCHAIN=foo prepare", "TOOLCHAIN=foo is unknown; use"),
    "cache path with a space": ("VMAP_RUST_CACHE='a b' prepare", "paths? with spaces or colons.*VMAP_RUST_CACHE"),
    "cache that cannot be made": ("VMAP_RUST_CACHE=/proc/none prepare",
                                  "cannot write to the cache folder.*VMAP_RUST_CACHE"),
    "in-root without a root": ("VMAP_RUST_CACHE=none in-root true", "not ready; run scripts/prepare"),
    "a disk of 64 MiB": ("bwrap --dev-bind / / --size 67108864 --tmpfs /mnt "
                         "--setenv VMAP_RUST_CACHE /mnt/cache prepare root",
                         "needs [0-9]+ MiB of disk, .* has 6[0-9] MiB free;.*VMAP_RUST_CACHE"),
    "TOOLCHAIN=host without tools": (
        "PATH=$here/bare TOOLCHAIN=host LLVM=-22 $scripts/prepare", r"\A.*tools are missing: .*flex .*rustc bindgen "
        "clang-22 .*qemu-system-aarch64 .*; install them, or leave TOOLCHAIN unset"),
    "plain user without bubblewrap": (
        "bwrap --dev-bind / / --unshare-user --uid 54321 env PATH=$here/bare VMAP_RUST_CACHE=none $scripts/prepare root",
        r'\A.*ask an administrator to run "apt-get install bubblewrap"'),
}
# What "apt-get indextargets" prints of repositories, releases and labels, and the mirror.
MIRRORS = {"with lists": ("http://a/x bookworm Other\nhttp://b/debian trixie Debian", "http://b/debian"),
           "without lists": ("http://a/x other \nhttp://b/debian $VERSION_CODENAME ", "http://b/debian"),
           "another distribution": ("http://a/x noble Ubuntu", "")}
# in-root hands on the exit code, the current folder and the arguments, and protects the rest.
PASSES = {
    **{f"{script} --help": f"{script} --help" for script in ("prepare", "build", "in-root", "install-into")},
    "in-root keeps the folder": '[ "$(in-root pwd)" = "$here" ]',
    "in-root passes arguments": r"""[ "$(in-root printf %s. 'a  b' '$c')" = 'a  b.$c.' ]""",
    "in-root passes the exit code": "code=0; in-root sh -c 'exit 7' || code=$?; [ $code = 7 ]",
    "in-root protects the toolchain root": "! in-root touch /etc/selftest",
    "in-root has the toolchain": "for tool in clang-22 ld.lld-22 rustc bindgen qemu-system-aarch64; do "
                                 "in-root $tool --version; done; in-root test -x /opt/busybox-arm64/bin/busybox",
    # Python would take the package in the current folder.
    "another clone as the current folder":
        f"""mkdir harness; echo 'raise SystemExit("another")' >harness/__init__.py; {REPO}/scripts/run --help""",
}


@pytest.fixture(name="user")
def user_with_commands(repo, tmp_path):
    """A user for whom the scripts are commands."""
    scripts = repo / "scripts"
    return User(tmp_path, here=tmp_path, scripts=scripts, PATH=f"{scripts}:{os.environ['PATH']}")


@pytest.mark.parametrize("command, pattern", REFUSED.values(), ids=REFUSED)
def test_refused(user, command, pattern):
    """The last line says what is wrong, and nothing looks like a toolchain root."""
    user.run(BARE)
    user.refused(command, pattern)
    assert not (user.folder / "none/root").exists()


@pytest.mark.parametrize("command", PASSES.values(), ids=PASSES)
def test_passes(user, command):
    """The command does what it should."""
    user.run(command)


@pytest.mark.parametrize("rows, address", MIRRORS.values(), ids=MIRRORS)
def test_mirror(tmp_path, monkeypatch, rows, address):
    """The mirror is that of the machine's own apt configuration."""
    (tmp_path / "apt-get").write_text(f'#!/bin/sh\n. /etc/os-release\necho "{rows}"\n', encoding="ascii")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with contextlib.nullcontext() if address else pytest.raises(Refused, match="no Debian mirror in this machine's apt"):
        assert debian.mirror() == address
