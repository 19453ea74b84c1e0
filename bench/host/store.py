# SPDX-License-Identifier: GPL-2.0
"""Stored results: JSON files, written whole or not at all."""

import json
import os
import secrets
from pathlib import Path

from harness.settings import Refused

# Of a result, in the order in which they are written; take.measure() and boot.new_record() make them.
KEYS = ("kind", "started", "command", "set", "commit", "host", "sides", "kernels", "instruments", "boots")
KIND = "vmap-rust-bench-2"


def load(path):
    """Return the result stored in a file. Refuses anything else with one line."""
    try:
        result = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: is not JSON, or was cut off: {error}") from None
    if not isinstance(result, dict) or result.get("kind") != KIND or not set(KEYS) <= result.keys():
        raise Refused(f"{path}: is no result of this version of the benchmark; take it again")
    return result


def write(path, data):
    """Write bytes to a file so that it always is the old one or the whole new one. Refuses a path that cannot be
    written."""
    new = Path(f"{path}.{secrets.token_hex(4)}.tmp")
    try:
        new.write_bytes(data)
        os.replace(new, path)
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)


def save(path, result):
    """Store a result."""
    write(path, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
