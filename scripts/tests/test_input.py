# SPDX-License-Identifier: GPL-2.0
"""Wrong arguments, settings and machines."""

import os

import pytest

from conftest import REPO, User

# PATH of a machine that cannot build a kernel, of a user without subordinate ids, and of a mirror that does not answer,
# for which apt does not wait.
MACHINES = r"""
mkdir bare user mirror
for tool in bash sh awk sed grep cat ls sort head tail cut tr df flock stat find xargs mkdir rm mv cp ln env dirname \
    basename realpath sleep id git nproc sha256sum cmp setpriv touch readlink tput paste wc make; do
    ln -s "$(command -v $tool)" bare/$tool
done
printf '#!/bin/sh\n[ "$1" = -u ] && echo 54321 || echo plain-user\n' >user/id
printf '#!/bin/sh\necho "apt-get must not start"\n' >user/apt-get
printf '#!/bin/sh\ncase $* in *indextargets*) echo "http://127.0.0.1:9/debian Debian" ;;
    *) exec "%s" -o Acquire::Retries::Delay=false "$@" ;; esac\n' "$(command -v apt-get || :)" >mirror/apt-get
chmod +x user/* mirror/*
"""
BARE = "PATH=$here/bare TOOLCHAIN=host"
# Commands, and their last line; \A where it is the only one.
REFUSED = {
    "unknown configuration": ("build nosuch", "unknown configuration 'nosuch'; known: .*arm64"),
    "no configuration": ("build", r"which configuration\? known: .*arm64"),
    "two configurations": ("build uml arm64", "one configuration at a time"),
    "unknown part": ("prepare rooot", "unknown part 'rooot'; use root, source, tree or all"),
    "unknown TOOLCHAIN": ("TOOLCHAIN=foo prepare", "TOOLCHAIN=foo is unknown; use"),
    "cache path with a space": ("VMAP_RUST_CACHE='a b' prepare", "paths? with spaces or colons.*VMAP_RUST_CACHE"),
    "cache that cannot be made": ("VMAP_RUST_CACHE=/proc/none prepare",
                                  "cannot create the cache folder.*VMAP_RUST_CACHE"),
    "in-root without a root": ("VMAP_RUST_CACHE=none in-root true", "not ready; run scripts/prepare"),
    "a disk of 64 MiB": ("bwrap --dev-bind / / --size 67108864 --tmpfs /mnt "
                         "--setenv VMAP_RUST_CACHE /mnt/cache prepare root",
                         "needs [0-9]+ MiB of disk, .* has 6[0-9] MiB free;.*VMAP_RUST_CACHE"),
    "TOOLCHAIN=host without tools": (f"{BARE} LLVM=-22 $scripts/prepare", "".join(
        rf"^missing tool: {tool} \(Debian package (.*\n)+" for tool in (
            "flex", "rustc", "bindgen", "clang-22", "qemu-system-aarch64")) +
        ".*: [0-9]+ tools are missing; install them, or leave TOOLCHAIN unset"),
    "plain user without subordinate ids": (
        "PATH=$here/user:$here/bare VMAP_RUST_CACHE=none $scripts/prepare root",
        r'\A.*ask an administrator to run "apt-get install uidmap mmdebstrap bubblewrap", '
        'and for a line such as "plain-user:'),
    "mirror that cannot be reached": ("PATH=$here/mirror:$PATH VMAP_RUST_CACHE=none $scripts/prepare root",
                                      "could not be downloaded; the next run goes on"),
}
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
    user.run(MACHINES)
    user.refused(command, pattern)
    assert not (user.folder / "none/root").exists()


@pytest.mark.parametrize("command", PASSES.values(), ids=PASSES)
def test_passes(user, command):
    """The command does what it should."""
    user.run(command)
