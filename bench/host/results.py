# SPDX-License-Identifier: GPL-2.0
"""Stored results: JSON files in the cache, and what is stored of the host and the kernels that they were taken with."""

import hashlib
import json
import os
import platform
import re
import secrets
import subprocess
from pathlib import Path

from harness.settings import BUILDS, CACHE, REPO, Refused

# Tests have a folder of their own.
FOLDER = Path(os.environ.get("VMAP_RUST_RESULTS") or CACHE / "bench")
# take.py makes what has this kind.
KIND = "vmap-rust-bench-2"


def named(name):
    """Return the path of a stored result: of "last", of "last~N", which is N before the newest, or of a name in the
    folder. Refuses one that is not there."""
    files = sorted(FOLDER.glob("*.json"), reverse=True)
    by_name = {path.stem: path for path in files}
    by_name |= {f"last~{back}": path for back, path in enumerate(files)}
    path = by_name.get("last~0" if name == "last" else name.removesuffix(".json"))
    if not path:
        raise Refused(f"there is no result {name} in {FOLDER}; run scripts/bench")
    return path


def load(path):
    """Return the result stored in a file. Refuses anything else with one line."""
    try:
        result = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: is not JSON, or was cut off: {error}") from None
    if not isinstance(result, dict) or result.get("kind") != KIND:
        raise Refused(f"{path}: is no result of this version of the benchmark; take it again")
    return result


def write(path, text):
    """Write a file so that it always is the old one or the whole new one. Refuses a path that cannot be written."""
    new = Path(f"{path}.{secrets.token_hex(4)}.tmp")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)


def save(path, result):
    """Store a result."""
    write(path, json.dumps(result, indent=1, allow_nan=False) + "\n")


def commit():
    """Return what is measured: the commit, with "-dirty" when files differ from it, or "unknown" without git."""
    git = ["git", "-c", "safe.directory=*", "-C", str(REPO)]
    head, changed = (subprocess.run([*git, *words], capture_output=True, text=True, check=False).stdout.strip()
                     for words in (["rev-parse", "HEAD"], ["status", "--porcelain"]))
    return head + "-dirty" * bool(changed) if head else "unknown"


def host():
    """Return what the host is, in one line without its name."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        model = re.search(r"^(?:model name|Model|Hardware)\s*: (.*)", file.read(), re.M)
    return f"{model[1] if model else platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}"


def kernel(name):
    """Return the version, the compilers and the configuration of a kernel that was built, in one line."""
    config = (BUILDS / name / ".config").read_text(encoding="utf-8")
    version = (BUILDS / name / "include/config/kernel.release").read_text(encoding="ascii").strip()
    compilers = re.findall(r'CONFIG_(?:CC|RUSTC)_VERSION_TEXT="(.*)"', config)
    return "; ".join([version, *compilers, "configuration " + hashlib.sha256(config.encode()).hexdigest()[:16]])
