# SPDX-License-Identifier: GPL-2.0
"""Stored results of the benchmark: JSON files, format 1, written whole or not at all and checked when they are read."""

import json
import os
import secrets
from pathlib import Path

from harness.settings import Refused

KIND, FORMAT = "vmap-rust-bench", 1


class Bad(Refused):
    """A stored result that cannot be used; the message is one line."""


# Leaves of a shape: what must be there, in words, and the test of it. bool is an int in Python, but not in JSON.
TEXT = ("a string", lambda v: isinstance(v, str))
FLAG = ("true or false", lambda v: isinstance(v, bool))
NUMBER = ("a finite number", lambda v: type(v) in (int, float) and abs(v) < 1e300)
COUNT = ("a whole number, 0 or more", lambda v: type(v) is int and v >= 0)
SIZE = ("a whole number, 1 or more", lambda v: type(v) is int and v >= 1)
SIDE = ('"a" or "b"', lambda v: v in ("a", "b"))
SET = ('"quick", "full", "figures", "sides" or "custom"',
       lambda v: v in ("quick", "full", "figures", "sides", "custom"))
BUCKET = ("a pair [lower bound, count]",
          lambda v: isinstance(v, list) and len(v) == 2 and NUMBER[1](v[0]) and COUNT[1](v[1]))

# Shapes: a dict has these keys ("?" in front: may be missing; "*": any key), a list has elements of one shape.
SERIES = {"case": TEXT, "metric": TEXT, "unit": TEXT, "threads": SIZE}
BOOT = {"instrument": TEXT, "plan": TEXT, "side": SIDE, "allocator": TEXT, "repetition": COUNT, "seed": COUNT,
        "cpus": SIZE, "seconds": NUMBER, "command": TEXT, "status": TEXT,
        "results": [{**SERIES, "value": NUMBER, "?min": NUMBER, "?max": NUMBER, "?passes": COUNT, "?ops": COUNT}],
        "skips": [{"case": TEXT, "threads": SIZE, "reason": TEXT}],
        "hists": [{**SERIES, "buckets": [BUCKET]}]}
KERNEL = {"version": TEXT, "config_hash": TEXT, "compiler": TEXT, "options": {"*": TEXT},
          "text": COUNT, "data": COUNT, "bss": COUNT}
USED = {"used": FLAG, "kernel": TEXT, "absolute": FLAG, "unit": TEXT, "what": TEXT}
UNUSED = {"used": FLAG, "reason": TEXT}
RESULT = {"started": TEXT, "finished": TEXT, "command": TEXT, "set": SET, "commit": TEXT,
          "host": {"cpu": TEXT, "cpus": SIZE, "mem_mib": NUMBER, "kernel": TEXT, "qemu": TEXT},
          "sides": {"a": TEXT, "b": TEXT}, "kernels": {"*": KERNEL}, "instruments": {"*": {"used": FLAG}},
          "boots": [BOOT]}


def check_shape(value, shape, where):
    """Raise Bad, naming the key, unless the value has the shape."""
    if isinstance(shape, tuple):
        if not shape[1](value):
            raise Bad(f"{where} must be {shape[0]}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise Bad(f"{where} must be a list")
        for number, element in enumerate(value):
            check_shape(element, shape[0], f"{where}[{number}]")
    else:
        if not isinstance(value, dict):
            raise Bad(f"{where or 'it'} must be an object")
        prefix = f"{where}." if where else ""
        for key in value if "*" in shape else ():
            check_shape(value[key], shape["*"], prefix + key)
        for key, inner in shape.items():
            name = key.lstrip("?*")
            if name in value:
                check_shape(value[name], inner, prefix + name)
            elif key == name:
                raise Bad(f"the key {prefix}{name} is missing")


def check(result):
    """Raise Bad unless this is a complete result of format 1."""
    if not isinstance(result, dict) or result.get("kind") != KIND:
        raise Bad(f'is no result of this benchmark ("kind" is not "{KIND}")')
    version, commit = result.get("format"), result.get("commit", "none")
    if type(version) is not int or version != FORMAT:
        raise Bad(f"has format {version}, this bench reads format {FORMAT}; "
                  f"take it again or use the commit it names: {commit}")
    check_shape(result, RESULT, "")
    for name, instrument in result["instruments"].items():
        check_shape(instrument, USED if instrument["used"] else UNUSED, f"instruments.{name}")
        if instrument["used"] and instrument["kernel"] not in result["kernels"]:
            raise Bad(f"instruments.{name}.kernel is not a key of kernels")
    for number, boot in enumerate(result["boots"]):
        if boot["instrument"] not in result["instruments"]:
            raise Bad(f"boots[{number}].instrument is not a key of instruments")
        if boot["status"] == "ok" and not result["instruments"][boot["instrument"]]["used"]:
            raise Bad(f"boots[{number}].status is ok, but its instrument is not used")


def no_constant(name):
    """Refuse NaN and the infinities, which Python would read though they are not JSON."""
    raise ValueError(f"{name} is no JSON number")


def load(path):
    """The result stored in a file. Raises Bad with one line that says what is wrong with it."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise Bad(f"{path}: no such file") from None
    except OSError as error:
        raise Bad(f"{path}: cannot be read: {error.strerror}") from None
    try:
        result = json.loads(data, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise Bad(f"{path}: is not JSON, or was cut off: {error}") from None
    try:
        check(result)
    except Bad as error:
        raise Bad(f"{path}: {error}") from None
    return result


def write(path, data):
    """Write bytes to a file so that it always is the old one or the whole new one. Raises Bad when that fails."""
    new = Path(f"{path}.{secrets.token_hex(4)}.tmp")
    try:
        with open(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise Bad(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)


def save(path, result):
    """Store a result."""
    write(path, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
