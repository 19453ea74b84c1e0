# SPDX-License-Identifier: GPL-2.0
"""Locks on the cache, so that no two runs change the same files of it. The kernel releases them when a run and the
commands that it started have ended: those of a killed run write for a moment longer."""

import contextlib
import fcntl
import os
import time

from .settings import CACHE, make_cache, say

# Names the locks that this process has: the scripts that it starts need not take them again.
VARIABLE = "VMAP_RUST_LOCKED"


@contextlib.contextmanager
def locked(what, name="lock"):
    """Hold a lock. Says who has it if this must wait. A run that has it, and the scripts that it starts, do not wait.

    what: of this run, for those that wait; name: of a file in the cache. "lock" is that of sources, trees and builds."""
    key = f"{CACHE}/{name}"
    if key in os.environ.get(VARIABLE, "").split(":"):
        yield
        return
    make_cache()
    with open(key, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            say(f"waiting for another run ({file.read().strip() or 'unknown'})")
            fcntl.flock(file, fcntl.LOCK_EX)
        os.set_inheritable(file.fileno(), True)
        file.truncate(0)
        print(f"{what}, since {time.strftime('%H:%M')}", file=file, flush=True)
        before = os.environ.get(VARIABLE, "")
        os.environ[VARIABLE] = f"{before}:{key}".strip(":")
        try:
            yield
            # Also for a command that lives on.
            fcntl.flock(file, fcntl.LOCK_UN)
        finally:
            os.environ[VARIABLE] = before
