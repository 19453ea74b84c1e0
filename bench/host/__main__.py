# SPDX-License-Identifier: GPL-2.0
"""The commands of scripts/bench and their options.

With VMAP_RUST_PARSE, which scripts/bench sets outside of the toolchain root, only wrong use is found, and the parts
that scripts/prepare must make for a command are printed. What only the root has is imported after that.
"""

import argparse
import importlib
import os
import sys

from harness.options import Parser, program, whole
from harness.settings import Refused

from . import plan as plans, program_rows, results
from .table import DOCUMENTS

# The words of each command, what it does, and the module whose main(command, options) runs it.
COMMANDS = {
    "run": ("[run] [OPTION...]", "measures two allocators against each other; writes a page of plots, too", "take"),
    "show": ("show RESULT", "prints the table of a stored result", "report"),
    "figures": ("figures RESULT", "prints CPUs side by side, as the documents quote them", "report"),
    "sides": ("sides RBTREE RUST", "prints the table of --sides, from its result for each allocator", "report"),
    "compare": ("compare OLD NEW", "prints which counts of side B became larger or smaller; exit 1: larger", "report"),
    "list": ("list", "prints the cases of the guest, and the instruments", "plan"),
    "profile": ("profile CASE", "prints what an operation executes, by function, or its page tables", "profile"),
    "lines": ("lines", "prints which cache lines move between many CPUs, in an emulator", "cachelines.show"),
    "patches": ("patches", "measures which cases each patch of fixes and mapping changes by 5% or more", "patches"),
    "hook": ("hook", "measures what the series area costs the rb-trees: instructions, and text", "patches"),
    "programs": ("programs", "measures what real programs gain, by instructions", "programs"),
    "profile-program": ("profile-program NAME", "prints what one of them executes, by function", "programs")}
HELP = "Commands:\n\n" + "".join(f"  scripts/bench {words:<22}{what}\n" for words, what, _ in COMMANDS.values()) + """
docs/bench.md explains what is measured. Each command has --help. A RESULT is "last", "last~1" for the one before, or
the name of a file in the folder of results. Exit code: 0 measured, also when something is slower; 1 a boot or a case
failed, or wrong use."""
# The commands that only read results, and how many.
READERS = {"show": 1, "figures": 1, "sides": 2, "compare": 2}


def names(known, what):
    """Return a type of options: names of a list, separated by commas."""
    def convert(text):
        for word in text.split(","):
            if word not in known:
                raise Refused(f'unknown {what} "{word}"; there are: {" ".join(known)}')
        return text.split(",")
    return convert


def numbers(least, most):
    """Return a type of options: whole numbers from least to most, separated by commas."""
    def convert(text):
        for word in text.split(","):
            if not word.isdecimal() or not least <= int(word) <= most:
                raise argparse.ArgumentTypeError(f'each must be from {least} to {most}, not "{word}"')
        return tuple(map(int, text.split(",")))
    return convert


def guest_case(name):
    """Return the name of one case."""
    if name not in plans.guest_cases():
        raise Refused(f'unknown case "{name}"; scripts/bench list prints them')
    return name


def run_options(parser):
    """Add the options of a measurement."""
    add, add_set = parser.add_argument, parser.add_mutually_exclusive_group().add_argument
    for name, text in (("figures", "what the documents quote"),
                       ("sides", "what the mapping series is about, for three sides: the kernel without the patches, "
                        "and with them on each allocator; one table")):
        add_set(f"--{name}", dest="set", action="store_const", const=name, default="quick", help=text)
    add("--a", choices=("rbtree", "rust", plans.PRISTINE),
        help="what is compared with (default: rbtree); pristine: the kernel without the patches")
    add("--b", choices=("rbtree", "rust"), help="what is judged against it (default: rust); the same "
        "twice is a check of the bench: nothing may differ")
    add("--instruments", type=names(plans.INSTRUMENTS, "instrument"), metavar="LIST",
        help="only these: " + ",".join(plans.INSTRUMENTS))
    add("--cases", type=plans.case_list, metavar="LIST",
        help="only these: area_pair,lookup_* ...; '*' at the end is any rest, '-' in front leaves one out")
    add("--repetitions", type=whole(1, 1000), metavar="N", help="boots of each side, instead of 5 or 15")


def profile_options(parser):
    """Add the options of a profile."""
    add = parser.add_argument
    add("case", type=guest_case, metavar="CASE", help="a case of scripts/bench list")
    add("--cpu", default="cortex-a72", metavar="MODEL",
        help="cortex-a72 (default: atomics are loops), neoverse-n1 (atomics are single instructions) ...")
    add("--threads", type=whole(1, 64), default=1, metavar="N", help="workers, each on a CPU of its own (default: 1)")
    add("--locks", action="store_true",
        help="also show how many instructions each spinlock is held, by the function that takes it")
    add("--tables", action="store_true", help="instead: print what the page tables have for one mapping of a case of "
        "bench/mapping.c, in the kernel without the patches and with each allocator")


def lines_options(parser):
    """Add the options of a run of the emulator."""
    parser.add_argument("--cases", type=names(plans.LINES, "case"), default="pair,pair_remote", metavar="LIST",
                        help=f"{','.join(plans.LINES)} (default: %(default)s)")
    parser.add_argument("--cpus", type=numbers(2, 256), default="8,128", metavar="LIST",
                        help="numbers of CPUs (default: %(default)s)")


def parse(arguments):
    """Return the name of the command and its options."""
    name, words = "run", arguments
    if words and not words[0].startswith("-"):
        name, *words = words
    if name not in COMMANDS:
        raise Refused(f"unknown command {name}; see --help")
    parser = Parser(HELP if name == "run" else f"scripts/bench {name} {COMMANDS[name][1]}.",
                    "bench" if name == "run" else f"bench {name}")
    if name in READERS:
        parser.add_argument("results", nargs="*", type=results.named, metavar="RESULT", help="last, last~1 or a name")
    elif name == "programs":
        parser.add_argument("--programs", type=program_rows.chosen, default="*", dest="names", metavar="LIST",
                            help="only these: bpf-*,make ...; * is any text")
    elif name == "profile-program":
        parser.add_argument("name", type=program_rows.one, metavar="NAME", help="a row of bench/programs.sh")
    elif options := {"run": run_options, "profile": profile_options, "lines": lines_options}.get(name):
        options(parser)
    if name in DOCUMENTS:
        parser.add_argument("--write", action="store_true", help=f"put the table into {DOCUMENTS[name]}")
    args = parser.parse_args(words)
    if name in READERS and len(args.results) != READERS[name]:
        parser.error(f"{name} needs {('one result', 'two results')[READERS[name] - 1]}")
    if name == "run":
        if args.set == "sides" and (args.a or args.b):
            raise Refused("--sides has sides of its own; leave --a and --b out")
        args.a, args.b = args.a or (plans.PRISTINE if args.set == "sides" else "rbtree"), args.b or "rust"
        plans.wanted(args)
    args.words = words
    return name, args


def main(arguments):
    """Run one command; returns the exit code."""
    name, args = parse(arguments)
    if os.environ.get("VMAP_RUST_PARSE"):
        print("root" if name in READERS else "all programs-image" if "program" in name else "all")
        return 0
    # Only the toolchain root has what some of them import.
    return importlib.import_module(f".{COMMANDS[name][2]}", __package__).main(name, args)


if __name__ == "__main__":
    program("bench", main, sys.argv[1:])
