# SPDX-License-Identifier: GPL-2.0
"""The commands of scripts/bench and their options."""

import importlib

from .. import image, prepare
from ..enter import enter
from ..options import Parser, whole
from ..settings import INSIDE, Refused, need_space

from . import plan as plans, results
from .table import DOCUMENTS

# The words of each command, what it does, and the module whose main(command, options) runs it.
COMMANDS = {
    "run": ("[run] [OPTION...]", "measures two allocators against each other; writes a page of plots, too", "report"),
    "show": ("show RESULT", "prints the table of a stored result", "report"),
    "figures": ("figures RESULT", "prints CPUs side by side, as the documents quote them", "report"),
    "sides": ("sides RBTREE RUST", "prints the table of --sides, from its result for each allocator", "report"),
    "compare": ("compare OLD NEW", "prints which counts of side B became larger or smaller; exit 1: larger", "report"),
    "list": ("list", "prints the cases of the guest, and the instruments", "plan"),
    "profile": ("profile CASE", "prints what an operation executes, by function, and how long locks are held", "profile"),
    "patches": ("patches", "measures which cases each patch of fixes and mapping changes by 5% or more", "patches"),
    "hook": ("hook", "measures what the series area costs the rb-trees: instructions, and text", "patches"),
    "programs": ("programs", "measures what real programs gain, by instructions", "programs")}
HELP = "Commands:\n\n" + "".join(f"  scripts/bench {words:<22}{what}\n" for words, what, _ in COMMANDS.values()) + """
docs/bench.md explains what is measured. Each command has --help. A RESULT is "last", "last~1" for the one before, or
the name of a file in the folder of results. Exit code: 0 measured, also when something is slower; 1 a boot or a case
failed, or wrong use."""
# The commands that only read results, and which.
READERS = {"show": ["RESULT"], "figures": ["RESULT"], "sides": ["RBTREE", "RUST"], "compare": ["OLD", "NEW"]}


def names(known, what):
    """Return a type of options: names of a list, separated by commas."""
    def convert(text):
        for word in text.split(","):
            if word not in known:
                raise Refused(f'unknown {what} "{word}"; there are: {" ".join(known)}')
        return text.split(",")
    return convert


def guest_case(name):
    """Return the name of one case."""
    if name not in plans.guest_cases():
        raise Refused(f'unknown case "{name}"; scripts/bench list prints them')
    return name


def add_options(name, parser):
    """Add the options of a command to its parser."""
    add = parser.add_argument
    if name == "run":
        sets = parser.add_mutually_exclusive_group()
        for one, text in (("figures", "what the documents quote"),
                          ("sides", "what the mapping series is about, for three sides: the kernel without the patches, "
                           "and with them on each allocator; one table")):
            sets.add_argument(f"--{one}", dest="set", action="store_const", const=one, default="quick", help=text)
        add("--a", choices=("rbtree", "rust", plans.PRISTINE),
            help="what is compared with (default: rbtree); pristine: the kernel without the patches")
        add("--b", choices=("rbtree", "rust"), help="what is judged against it (default: rust); the same "
            "twice is a check of the bench: nothing may differ")
        add("--instruments", type=names(plans.INSTRUMENTS, "instrument"), metavar="LIST",
            help="only these: " + ",".join(plans.INSTRUMENTS))
        add("--cases", type=plans.case_list, metavar="LIST",
            help="only these: area_pair,lookup_* ...; '*' at the end is any rest, '-' in front leaves one out")
        add("--repetitions", type=whole(1, 1000), metavar="N", help="boots of each side, instead of 5 or 15")
    elif name == "profile":
        add("case", type=guest_case, metavar="CASE", help="a case of scripts/bench list")
        add("--threads", type=whole(1, 64), default=1, metavar="N", help="workers, each on a CPU of its own (default: 1)")
        add("--lines", action="store_true", help="print instead which cache lines move between the CPUs of the workers")
    elif name == "programs":
        rows = plans.program_texts()
        add("--programs", type=names(rows, "program"), default=",".join(rows), dest="names", metavar="LIST",
            help="only these: " + ",".join(rows))
    for result in READERS.get(name, ()):
        add("results", action="append", type=results.named, metavar=result, help="last, last~1 or a name")
    if name in DOCUMENTS:
        add("--write", action="store_true", help=f"put the table into {DOCUMENTS[name]}")


def parse(arguments):
    """Return the name of the command and its options."""
    name, words = "run", arguments
    if words and not words[0].startswith("-"):
        name, *words = words
    if name not in COMMANDS:
        raise Refused(f"unknown command {name}; see --help")
    parser = Parser(HELP if name == "run" else f"scripts/bench {name} {COMMANDS[name][1]}.",
                    "bench" if name == "run" else f"bench {name}")
    add_options(name, parser)
    args = parser.parse_args(words)
    args.words = words
    if name == "run":
        if args.set == "sides" and (args.a or args.b):
            raise Refused("--sides has sides of its own; leave --a and --b out")
        args.a, args.b = args.a or (plans.PRISTINE if args.set == "sides" else "rbtree"), args.b or "rust"
        plans.wanted(args)
    return name, args


def main(arguments):
    """Run one command; returns the exit code."""
    name, args = parse(arguments)
    if not INSIDE and name != "list":
        prepare.prepare("root" if name in READERS else "all")
        if name == "programs":
            image.prepare("programs-image")
        if name not in READERS:
            need_space(300, "the benchmark's logs and results")
        # Only the toolchain root has what some of them import.
        enter("bench", *arguments)
    return importlib.import_module(f".{COMMANDS[name][2]}", __package__).main(name, args)
