# SPDX-License-Identifier: GPL-2.0
"""What the tests of the benchmark share."""

import os
import subprocess

from harness.machine.settings import REPO


def bench(*words, stdout=subprocess.PIPE, **env):
    """Run scripts/bench; returns the exit code and the output. stdout: of subprocess.run; env: further variables."""
    done = subprocess.run([REPO / "scripts/bench", *words], stdout=stdout, stderr=subprocess.STDOUT, text=True,
                          check=False, env={**os.environ, "VMAP_RUST_BENCH_KERNEL": "arm64", **env})
    return done.returncode, done.stdout
