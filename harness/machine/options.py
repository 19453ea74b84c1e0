# SPDX-License-Identifier: GPL-2.0
"""Command lines: wrong use prints one line and exits with 1."""

import argparse
import re
import shutil
import textwrap

from .settings import Refused


def fill(text):
    """Return a text whose lines fit the terminal. A line that begins with spaces stays a line of its own; what does not fit
    continues below its second column."""
    width, lines = min(shutil.get_terminal_size().columns, 120) - 1, []
    for line in text.strip("\n").split("\n"):
        if lines and line and lines[-1] and " " not in (line[0], lines[-1][0]):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    indents = [len(re.match(r" *(?:\S+(?: \S+)*  +)?" if line.startswith(" ") else "", line)[0]) for line in lines]
    return "\n".join(textwrap.fill(line, width, subsequent_indent=" " * min(indent, width // 2), drop_whitespace=True,
                                   break_long_words=False, break_on_hyphens=False)
                     for line, indent in zip(lines, indents))


class Parser(argparse.ArgumentParser):
    """An argument parser whose help keeps the paragraphs and lists of its description."""

    def __init__(self, text, prog=None):
        super().__init__(prog=prog, description=fill(text), allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message):
        """Refuse it with one line."""
        raise Refused(f"{message}; see scripts/{self.prog} --help")


def whole(least, most, form="d"):
    """Return a type of options: a whole number, also one that begins with 0x, from least to most. form: how these two are
    printed."""
    def convert(text):
        try:
            number = int(text, 0)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(
                f'must be a whole number from {least:{form}} to {most:{form}}, not "{text}"')
        return number
    return convert
