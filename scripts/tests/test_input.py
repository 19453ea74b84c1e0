# SPDX-License-Identifier: GPL-2.0
"""Wrong arguments, settings and machines."""

import os

import pytest

from conftest import HERE, User

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
    "unknown part": ("prepare rooot", "PART: invalid choice: 'rooot' .choose from '?root"),
    "JOBS that is too small": ("JOBS=0 prepare", "JOBS=0 must be a whole number from 1"),
    "JOBS that is no number": ("JOBS=x prepare", "JOBS=x must be a whole number from 1"),
    "unknown TOOLCHAIN": ("TOOLCHAIN=foo prepare", "TOOLCHAIN=foo is unknown; use"),
    "cache path with a space": ("VMAP_RUST_CACHE='a b' prepare", "paths? with spaces or colons.*VMAP_RUST_CACHE"),
    "in-root without a root": ("VMAP_RUST_CACHE=none in-root true", "not ready; run scripts/prepare"),
    "a disk of 64 MiB": ("bwrap --dev-bind / / --size 67108864 --tmpfs /mnt "
                         "--setenv VMAP_RUST_CACHE /mnt/cache prepare root",
                         "needs [0-9]+ MiB of disk, .* has 6[0-9] MiB free;.*VMAP_RUST_CACHE"),
    "TOOLCHAIN=host without tools": (
        "PATH=$here/bare TOOLCHAIN=host LLVM=-22 $scripts/prepare", r"\A.*tools are missing: .*flex .*rustc bindgen "
        "clang-22 .*qemu-system-aarch64 .*; install them, or leave TOOLCHAIN unset"),
    "plain user without bubblewrap": (
        "bwrap --dev-bind / / --unshare-user --uid 54321 env PATH=$here/bare VMAP_RUST_CACHE=none $scripts/prepare root",
        r'\A.*ask an administrator to run "apt-get install bubblewrap", or use TOOLCHAIN=host'),
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


def test_in_root(user):
    """It hands on the current folder, folders that are named, the arguments and the exit code, and protects the toolchain
    root."""
    user.run(r"""
        [ "$(in-root pwd)" = "$here" ]
        [ "$(in-root printf %s. 'a  b' '$c')" = 'a  b.$c.' ]
        code=0; in-root sh -c 'exit 7' || code=$?; [ $code = 7 ]
        mkdir other; echo x >other/file; [ "$(cd /; in-root find $here/other -type f)" = $here/other/file ]
        ! in-root touch /etc/selftest""")


@pytest.mark.parametrize("words, text", [
    ("CPU=4 demo", "make demo takes no CPU; make help lists"), ("demo SUITE=x", "make demo takes no SUITE;"),
    ("test MASK=3", "make test takes no MASK;"), ("test FULL=2", "FULL=2 must be 0 or 1"),
    ("test CONFIGS=arm", "FULL=1 goes with CONFIGS"), ("test FULL=1 SUITES=host", "and SUITES without it")])
def test_make_refuses(words, text):
    """A variable that nothing reads is refused in one line."""
    assert text in HERE.run(f"make -n {words}", 2)


@pytest.mark.parametrize("words, commands", [
    ("test FULL=0 SUITES='kunit-* host'", "set -f; scripts/test kunit-* host"), ("test", "set -f; scripts/test"),
    ("test FULL=1 CONFIGS='arm uml'", "set -f; scripts/test --full arm uml"), ("demo", "scripts/run demo 'arm64'"),
    ("demo ARCH=uml MASK=0xf CPUS=4 JOBS=1", "scripts/run demo 'uml' --cpus '4' --mask '0xf'")])
def test_make(words, commands):
    """make hands on what it is given. FULL=0 is no whole run."""
    assert HERE.run(f"make -n --no-print-directory {words}").replace("\\\n", "").split() == commands.split()
