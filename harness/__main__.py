# SPDX-License-Identifier: GPL-2.0
"""The commands of scripts/, each a module that has main(arguments), which returns the exit code."""

import errno
import importlib
import os
import signal
import sys

from .machine.settings import Refused, Skipped

MODULES = {"bench": "harness.bench.main", "build": "harness.boot.build", "check": "harness.checks.main",
           "in-root": "harness.toolchain.enter", "install-into": "harness.patches.install",
           "prepare": "harness.patches.prepare", "rebase": "harness.patches.rebase", "run": "harness.boot.run",
           "test": "harness.test"}


def main(name, *words):
    """Run one command and exit with its result; what it refuses becomes one line. Signals end it like an interrupt."""
    if name not in MODULES:
        sys.exit(f"{name}: error: call scripts/NAME, where NAME is one of {' '.join(MODULES)}")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    code = 1
    try:
        # What came while Python was starting; see scripts/start.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        code = importlib.import_module(MODULES[name]).main([*words])
        sys.stdout.flush()
    except Refused as error:
        print(f"{name}: error: {error}", file=sys.stderr)
    except Skipped as why:
        print(f"{name}: skipped: {why}", file=sys.stderr)
        code = 4
    except BrokenPipeError:
        # The reader of the output has ended; nor can the rest be written at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        full = "; free some disk and call this again" if error.errno == errno.ENOSPC else ""
        print(f"{name}: error: {error.filename or 'a file'}: {error.strerror}{full}", file=sys.stderr)
    except KeyboardInterrupt:
        # Another one must not interrupt this.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(f"{name}: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
