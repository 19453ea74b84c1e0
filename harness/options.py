# SPDX-License-Identifier: GPL-2.0
"""Command lines: wrong use prints one line and exits with 1."""

import argparse
import os
import signal
import sys

from .settings import Refused, Skipped


class Parser(argparse.ArgumentParser):
    """An argument parser whose help keeps the lines of its description."""

    def __init__(self, text, prog=None):
        super().__init__(prog=prog, description=text.strip(), allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message):
        """Refuse it with one line."""
        raise Refused(f"{message}; see scripts/{self.prog} --help")


def whole(least, most):
    """Return a type of options: a whole number, also one that begins with 0x, from least to most."""
    def convert(text):
        try:
            number = int(text, 16 if text.lower().startswith("0x") else 10)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f'must be a whole number from {least} to {most}, not "{text}"')
        return number
    return convert


def program(name, main, arguments):
    """Run main(arguments) and exit with its result; what it refuses becomes one line. Signals end it like an
    interrupt."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        code = main(arguments)
        sys.stdout.flush()
    except Refused as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        code = 1
    except Skipped as why:
        print(f"{name}: skipped: {why}", file=sys.stderr)
        code = 4
    except BrokenPipeError:
        # The reader of the output has ended; nor can the rest be written at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
