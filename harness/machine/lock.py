# SPDX-License-Identifier: GPL-2.0
"""Locks on the cache, so that no two runs change the same files of it. The kernel releases them when a run and the
commands that it started have ended: those of a killed run write for a moment longer.

Each build folder has a lock. "lock" is that of toolchain root, sources and trees: builds share it, and what changes one of
these has it alone. "tree-*.lock" keeps a tree linked to one clone (prepare.clone_lock()). A run takes that one first, then
locks of kernels in the order of qemu/kernels.toml, then "lock", and then no other of these, so no two runs can wait for
each other."""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from .settings import CACHE, make_cache, say

# Names the locks that this process has: the scripts that it starts need not take them again.
VARIABLE = "VMAP_RUST_LOCKED"


def is_held(name):
    """Tell whether this run has a lock, alone or shared."""
    return any(f"{CACHE}/{name}{kind}" in os.environ.get(VARIABLE, "").split(":") for kind in ("", "(shared)"))


@contextlib.contextmanager
def locked(what, name="lock", shared=False):
    """Hold a lock. Says who has it if this must wait. A run that has it, and the scripts that it starts, do not wait.

    what: of this run, for those that wait; name: of a file in the cache; shared: with others that share it. A run that
    shares a lock must not ask for it alone."""
    key, kind = f"{CACHE}/{name}", fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    held = os.environ.get(VARIABLE, "").split(":")
    if key in held or shared and f"{key}(shared)" in held:
        yield
        return
    assert f"{key}(shared)" not in held, f"this would wait for itself: {name}"
    make_cache()
    Path(key).parent.mkdir(parents=True, exist_ok=True)
    with open(key, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            say(f"waiting for another run ({file.read().strip() or 'unknown'})")
            fcntl.flock(file, kind)
        os.set_inheritable(file.fileno(), True)
        file.truncate(0)
        print(f"{what}, since {time.strftime('%H:%M')}", file=file, flush=True)
        before = os.environ.get(VARIABLE, "")
        os.environ[VARIABLE] = f"{before}:{key}{'(shared)' if shared else ''}".strip(":")
        try:
            yield
            # Also for a command that lives on.
            fcntl.flock(file, fcntl.LOCK_UN)
        finally:
            os.environ[VARIABLE] = before
