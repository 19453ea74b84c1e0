# SPDX-License-Identifier: GPL-2.0
"""The commands of scripts/bench and their options.

With VMAP_RUST_PARSE, which scripts/bench sets outside of the toolchain root, only wrong use is found, and what a
command needs is printed: the parts that scripts/prepare makes, then folders to be seen in the root, a line each. What
only the root has is imported after that.
"""

import argparse
import os
import re
import sys
from pathlib import Path

from harness import kernels
from harness.options import Parser, program, whole
from harness.settings import CACHE, REPO, Refused

from . import plan as plans, program_rows

TEXTS = {
    "run": """Measures two allocators against each other.

  scripts/bench [run] [OPTION...]       boot, measure, print the table, write the HTML page
  scripts/bench show RESULT             the table of a stored result, or its page
  scripts/bench figures RESULT          CPUs side by side; --write puts it into docs/bench.md
  scripts/bench sides RBTREE RUST       the table of --sides, from its result for each allocator; --write
  scripts/bench compare OLD NEW         what became slower or faster; exit code 1: slower
  scripts/bench list                    cases of the guest, and instruments
  scripts/bench profile CASE            where the instructions of a case go, by function
  scripts/bench lines                   which cache lines move between many CPUs
  scripts/bench patches                 what each patch of fixes and mapping changes
  scripts/bench hook                    what the series area costs the rb-trees
  scripts/bench programs                what real programs gain
  scripts/bench profile-program NAME    where the instructions of one of them go, by function

Each command has --help. Results are files, or "last" and "last~1" for what was measured last, or before that.
Exit code: 0 measured, also when something is slower; 1 a boot or a case failed, or wrong use.""",
    "show": "Shows a stored result.",
    "figures": "Shows the figures that the documents quote.",
    "sides": "Shows the table of --sides.",
    "compare": "Shows what became slower or faster from one result to another. Exit code 1: slower.",
    "list": "Prints the cases of the guest, and the instruments.",
    "profile": f"""Shows what one operation executes, function by function: instructions, atomics, barriers, acquires.

Boots a case in QEMU with each allocator, and counts with a plugin between its first and its last operation. With one
CPU the total must agree with the benchmark's own figure within 1%, or the exit code is 1. Logs: {CACHE}/log""",
    "lines": """Shows which cache lines move between CPUs when many CPUs use the allocators.

Executes the functions of a kernel in an emulator, for up to 256 CPUs that take turns after whole operations, with a
model of the CPUs' caches: docs/bench.md.""",
    "patches": """Shows which cases each patch of the series fixes and mapping changes by 5% or more.

Builds and boots arm64-bench-pristine with the first 0, 1, 2 ... of these patches, and x86_64-bench-pristine with those of
whole series.""",
    "hook": """Shows what the series area costs the rb-trees: instructions, and the text of what it changes.

Builds and boots a kernel with fixes and mapping, one with all series but later and the option off, and one with it on.""",
    "programs": """Shows what real programs gain: docs/bench.md.

Boots a guest with packages of Debian, and counts the instructions of each program of bench/programs.sh: A with the
rb-trees, B with the allocator in Rust, C with the kernel without patches.""",
    "profile-program": "Shows where the instructions of a row of scripts/bench programs go, function by function."}
# How many results the commands read that do nothing else.
READERS = {"show": 1, "figures": 1, "sides": 2, "compare": 2}
WRITERS = {"figures": "docs/bench.md", "sides": "docs/mapping.md"}


def file(name):
    """Return an absolute path; the current folder may be another one in the toolchain root."""
    path = os.path.abspath(os.path.join(os.environ.get("VMAP_RUST_FOLDER", ""), name))
    if not os.path.isdir(os.path.dirname(path)):
        raise Refused(f"there is no folder {os.path.dirname(path)}")
    return path


def result(name):
    """Return the path of a stored result; "last" and "last~N" count back from the newest."""
    back = re.fullmatch(r"last(?:~(\d{1,4}))?", name)
    if not back:
        return file(name)
    files = sorted((CACHE / "bench").glob("*.json"), reverse=True)
    if int(back[1] or 0) >= len(files):
        raise Refused(f"there is no result {name} in {CACHE}/bench; run scripts/bench")
    return str(files[int(back[1] or 0)])


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


def run_options(add, add_set):
    """Add the options of a measurement. add_set: for those that exclude each other."""
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
    add("--threads", type=numbers(1, 64), metavar="LIST",
        help="workers, each on a CPU of its own; the guest has as many CPUs as the largest")
    add("--repetitions", type=whole(1, 1000), metavar="N", help="boots of each side, instead of 5 or 15")
    add("--seed", type=whole(0, 999999999), default=1, metavar="N", help="of the first boot (default: 1)")
    add("--kernel", metavar="NAME", help="boot this configuration of qemu/kernels.toml instead of arm64-bench")
    add("-o", dest="output", type=file, metavar="FILE",
        help="the stored result; the page is written beside it (default: bench/DATE.json in the cache)")


def profile_options(add):
    """Add the options of a profile."""
    add("case", type=guest_case, metavar="CASE", help="a case of scripts/bench list")
    add("--allocator", choices=("rbtree", "rust", "both", plans.PRISTINE), default="both",
        help="default: both, one after the other; pristine: the kernel without the patches")
    add("--cpu", metavar="MODEL", help="cortex-a72 (default: atomics are loops), neoverse-n1 (atomics are single "
        "instructions) ...")
    add("--threads", type=whole(1, 64), default=1, metavar="N", help="workers, each on a CPU of its own (default: 1)")
    least_option(add)
    add("--locks", action="store_true",
        help="also show how many instructions each spinlock is held, by the function that takes it")
    add("--tables", action="store_true", help="instead: print what the page tables have for one mapping of a case of "
        "bench/mapping.c, in the kernel without the patches and with each allocator")
    add("--kernel", default="arm64-bench", metavar="NAME",
        help="configuration of qemu/kernels.toml (default: arm64-bench)")


def least_option(add):
    """Add the option of both profiles."""
    add("--least", type=float, default=1, metavar="N",
        help="sum up functions that take fewer instructions per operation (default: 1)")


def lines_options(add):
    """Add the options of a run of the emulator."""
    add("--cases", type=names(plans.LINES, "case"), default="pair,pair_remote", metavar="LIST",
        help=f"{','.join(plans.LINES)} (default: %(default)s)")
    add("--cpus", type=numbers(2, 256), default="8,128", metavar="LIST", help="numbers of CPUs (default: %(default)s)")
    add("--allocator", choices=("rbtree", "rust", "both"), default="both", help="default: both")
    add("--seed", type=whole(0, 999999999), default=1, metavar="N", help="of the order in which CPUs take turns "
        "(default: 1)")
    add("--kernel", default="arm64-bench", metavar="NAME",
        help="configuration of qemu/kernels.toml (default: arm64-bench)")
    add("--built", action="store_true", help="do not build the kernel again")
    add("-o", dest="output", type=file, metavar="FILE", help="write the figures there, as JSON, instead")


def boots_options(add, boots, document):
    """Add the options of a measurement of several kernels: how many boots, and where the table goes."""
    add("--boots", type=whole(1, 100), default=boots, metavar="N", help="boots of each kernel (default: %(default)s)")
    add("--write", action="store_true", help=f"put the table into {document}")


def programs_options(add):
    """Add the options of the measurement of programs."""
    add("--programs", type=program_rows.chosen, default="*", dest="names", metavar="LIST",
        help="only these: bpf-*,make ...; * is any text")
    boots_options(add, 3, "docs/bench.md")


def program_options(add):
    """Add the options of a profile of a program."""
    add("name", type=program_rows.one, metavar="NAME", help="a row of bench/programs.sh")
    add("--sides", type=names("ABC", "side"), default=["A", "B"], metavar="LIST",
        help="A: rb-trees, B: Rust, C: the kernel without patches (default: A,B)")
    least_option(add)


OPTIONS = {"profile": profile_options, "lines": lines_options, "list": lambda add: None,
           "patches": lambda add: boots_options(add, 1, "docs/mapping.md"),
           "hook": lambda add: boots_options(add, 5, "docs/bench.md"), "programs": programs_options,
           "profile-program": program_options}
# Commands that need the guest image of programs.
PROGRAMS = ("programs", "profile-program")


def reader_options(name, add):
    """Add the options of a command that only reads results."""
    add("results", nargs="*", type=result, metavar="RESULT", help="a stored result, or last, last~1 ...")
    if name == "show":
        add("-o", dest="output", type=file, metavar="FILE", help="write the page with plots there instead")
    if name in WRITERS:
        add("--write", action="store_true", help=f"put the tables into {WRITERS[name]}")


def check(name, args):
    """Complete what follows from other options, and refuse a guest that cannot be."""
    booted = ()
    if name == "run":
        if args.set == "sides":
            if args.a or args.b:
                raise Refused("--sides has sides of its own; leave --a and --b out")
            args.a = plans.PRISTINE
        args.a, args.b = args.a or "rbtree", args.b or "rust"
        booted = {plans.on_side(side, plans.kernel_of(p.instrument, args))[1]
                  for p in plans.wanted(args) for side in (args.a, args.b)}
    elif name == "profile":
        args.sides = (plans.PRISTINE, "rbtree", "rust") if args.tables else \
            ("rbtree", "rust") if args.allocator == "both" else (args.allocator,)
        booted = {plans.on_side(side, args.kernel)[1] for side in args.sides}
    elif name == "lines":
        booted = {args.kernel}
    for kernel in sorted(booted):
        kernels.get(kernel)


def parse(arguments):
    """Return the name of the command, its options, and its words."""
    name, words = "run", arguments
    if words and not words[0].startswith("-"):
        name, *words = words
    if name not in TEXTS:
        raise Refused(f"unknown command {name}; see --help")
    parser = Parser(TEXTS[name], "bench" if name == "run" else f"bench {name}")
    if name in READERS:
        reader_options(name, parser.add_argument)
        args = parser.parse_args(words)
        if len(args.results) != READERS[name]:
            parser.error(f"{name} needs {('one result', 'two results')[READERS[name] - 1]}")
    else:
        if name == "run":
            run_options(parser.add_argument, parser.add_mutually_exclusive_group().add_argument)
        else:
            OPTIONS[name](parser.add_argument)
        args = parser.parse_args(words)
        check(name, args)
    return name, args, words


def needed(name, args):
    """Return the parts that scripts/prepare must make for a command, and the folders that it must see."""
    files = [*getattr(args, "results", ()), *filter(None, [getattr(args, "output", None)])]
    folders = dict.fromkeys(Path(path).parent for path in files)
    return ["root" if name in READERS else "all programs-image" if name in PROGRAMS else "all",
            *(str(path) for path in folders if not (path.is_relative_to(CACHE) or path.is_relative_to(REPO)))]


def main(arguments):
    """Run one command; returns the exit code."""
    name, args, words = parse(arguments)
    if os.environ.get("VMAP_RUST_PARSE"):
        print("\n".join(needed(name, args)))
        return 0
    if name == "list":
        known = plans.guest_cases() | {name: one.what for name, one in plans.INSTRUMENTS.items()}
        print("\n".join(f"{name:<18}{what}" for name, what in known.items()))
        return 0
    # pylint: disable=import-outside-toplevel # what they need only the toolchain root has
    if name == "run":
        from . import take
        return take.main(args, words)
    if name in READERS:
        from . import report
        return report.main(name, args)
    if name == "lines":
        from .cachelines import show
        return show.main(args)
    if name == "profile":
        from . import profile
        return profile.main(args)
    if name in PROGRAMS:
        from . import programs
        return programs.main(name, args)
    from . import patches
    return patches.main(name, args)


if __name__ == "__main__":
    program("bench", main, sys.argv[1:])
