# SPDX-License-Identifier: GPL-2.0
"""The commands of scripts/bench and their options.

With VMAP_RUST_PARSE, which scripts/bench sets outside of the toolchain root, only wrong use is found, and what a
command needs is printed: the parts that scripts/prepare makes, then folders to be seen in the root, a line each. What
only the root has is imported after that.
"""

import argparse
import importlib
import os
import re
import sys
import textwrap
from pathlib import Path

from harness import kernels
from harness.options import Parser, program, whole
from harness.settings import CACHE, REPO, Refused

from . import build, plan as plans, program_rows

# Commands, what they take, and what they do; those of the first group only read stored results, as many as they name.
READERS = {
    "compare": ("OLD NEW", "what became slower or faster from one result to another; exit code 1: slower"),
    "table": ("RESULT", "the table of a stored result"),
    "html": ("RESULT -o FILE", "the page of a stored result, with plots"),
    "markdown": ("RESULT", "the table of a stored result for documents"),
    "figures": ("RESULT", "the bases side by side; --write puts the tables into docs/measurements.md"),
    "sides": ("RBTREE RUST", "the table of --sides, from its result for each allocator")}
OTHERS = {
    "list": ("", "cases of the guest, and instruments"),
    "profile": ("CASE", "where the instructions of a case go, by function"),
    "lines": ("", "which cache lines move between many CPUs, by field"),
    "patches": ("", "what each patch of fixes and mapping changes"),
    "hook": ("", "what the series area costs the rb-trees"),
    "programs": ("", "what real programs gain"),
    "profile-program": ("NAME", "where the instructions of one of them go, by function")}
TEXTS = {name: text.capitalize() + "." for name, (_, text) in READERS.items()} | {
    "run": "Measures two allocators against each other.\n\n"
           "  scripts/bench [run] [OPTION...]       boot, measure, print the table, write the HTML page\n"
           + "".join(f"  scripts/bench {f'{name} {words}':<24}{text}\n"
                     for name, (words, text) in (READERS | OTHERS).items()) + """
Each command has --help. Results are files, or "last" and "last~1" for what was measured last, or before that.
Exit code: 0 measured, also when something is slower; 1 a boot or a case failed, or wrong use.""",
    "list": "Prints the cases of the guest, and the instruments.",
    "profile": f"""Shows where the instructions of one operation go, function by function.

Boots a case of the benchmark (scripts/bench list) in QEMU with each allocator, counts with a plugin of QEMU what it
executes between its first and its last operation, and prints, per operation and function: instructions, atomic
read-modify-writes, barriers, and loads and stores with acquire or release order.

With one CPU the total must agree with the benchmark's own figure within 1%. Logs: {CACHE}/log
Exit code: 0 shown; 1 a boot failed, the two figures differ, or wrong use.""",
    "lines": """Shows which cache lines move between CPUs when many CPUs use the allocators.

Executes the functions of the kernel arm64-bench in an emulator of a CPU, for up to 256 CPUs that take turns after whole
operations, and models which cache lines move between the CPUs' caches. Prints, for each case, number of CPUs and
allocator and per operation: coherence misses, atomic read-modify-writes, barriers, lines and instructions; and the
lines that move most, by structure and field.""",
    "patches": f"""Shows what each patch of the series fixes and mapping changes: docs/mapping.md.

Builds the kernel arm64-bench-pristine with the first 0, 1, 2 ... patches of the two, boots each, and prints the cases
that a patch changes by 5% or more. Logs: {CACHE}/log
Exit code: 0 measured, also when something is slower; 1 a build or a boot failed, or wrong use.""",
    "hook": f"""Shows what the series area costs the rb-trees: docs/measurements.md.

Builds a kernel with fixes and mapping, one with all series and the option off, and one with it on, boots each with the
rb-trees and 2 CPUs, and prints their instructions and the text of what area changes. Logs: {CACHE}/log
Exit code: 0 measured, also when something is slower; 1 a build or a boot failed, or wrong use.""",
    "programs": f"""Shows what real programs gain: docs/programs.md.

Boots a guest with packages of Debian, and counts the instructions of each program of bench/programs.sh: A with the
rb-trees, B with the allocator in Rust, C with the kernel without patches. Rows that spread by more than A and B differ
are taken in more boots. Logs: {CACHE}/log
Exit code: 0 measured, also when something is slower; 1 a program or a boot failed, or wrong use.""",
    "profile-program": """Shows where the instructions of a program go, function by function, on both sides.

Boots one row of "scripts/bench programs" and counts with a plugin of QEMU. All code of programs is one function.

Exit code: 0 shown; 1 a boot failed, or wrong use."""}


def file(name):
    """Return an absolute path; the current folder may be another one in the toolchain root."""
    path = os.path.abspath(os.path.join(os.environ.get("VMAP_RUST_FOLDER", ""), name))
    if not os.path.isdir(os.path.dirname(path)):
        raise Refused(f"there is no folder {os.path.dirname(path)}")
    return path


def result(name):
    """Return the path of a stored result; "last" and "last~N" count back from the newest."""
    if name != "last" and not name.startswith("last~"):
        return file(name)
    back = re.fullmatch(r"last(?:~(\d{1,4}))?", name)
    if not back:
        raise Refused(f'"{name}": last~N needs a number')
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


def run_options(parser):
    """Add the options of a measurement."""
    sets = parser.add_mutually_exclusive_group()
    for name, text in (("full", "the full set (over an hour) instead of the quick one"),
                       ("figures", "only what the documents quote"),
                       ("sides", "what the mapping series is about, for three sides: the kernel without the patches, "
                        "and with them on each allocator; one table")):
        sets.add_argument(f"--{name}", dest="set", action="store_const", const=name, default="quick", help=text)
    parser.add_argument("--a", choices=("rbtree", "rust", plans.PRISTINE),
                        help="what is compared with (default: rbtree); pristine: the kernel without the patches")
    parser.add_argument("--b", choices=("rbtree", "rust"), help="what is judged against it (default: rust); the same "
                        "twice is a check of the bench: nothing may differ")
    parser.add_argument("--instruments", type=names(plans.INSTRUMENTS, "instrument"), metavar="LIST",
                        help="only these: " + ",".join(plans.INSTRUMENTS))
    parser.add_argument("--cases", type=plans.case_list, metavar="LIST", help="only these: area_pair,lookup_* ...; '*' "
                        "at the end is any rest, '-' in front leaves one out")
    parser.add_argument("--threads", type=numbers(1, 64), metavar="LIST",
                        help="workers, each on a CPU of its own; the guest has as many CPUs as the largest")
    parser.add_argument("--repetitions", type=whole(1, 1000), metavar="N",
                        help="boots of each side, instead of 5 to 21")
    parser.add_argument("--seed", type=whole(0, 999999999), default=1, metavar="N",
                        help="of the first boot (default: 1)")
    parser.add_argument("--kernel", metavar="NAME",
                        help="boot this configuration of qemu/kernels.toml instead of arm64-bench or x86_64-bench")
    parser.add_argument("-o", dest="output", type=file, metavar="FILE", help="the stored result; the page is written "
                        "beside it (default: bench/DATE-COMMIT.json in the cache)")


def run_check(args):
    """Refuse what cannot be measured."""
    if args.set == "sides":
        for side in "ab":
            if getattr(args, side):
                raise Refused(f"--sides has sides of its own; leave --{side} out")
        args.a = plans.PRISTINE
    args.a, args.b = args.a or "rbtree", args.b or "rust"
    # With KVM, the machine decides.
    for name in sorted({p.instrument for p in plans.wanted(args)} - {"kvm"}):
        for side in (args.a, args.b):
            kernels.get(plans.on_side(side, plans.kernel_of(name, args))[1])


def profile_options(parser):
    """Add the options of a profile."""
    parser.add_argument("case", type=guest_case, metavar="CASE", help="a case of scripts/bench list")
    parser.add_argument("--allocator", choices=("rbtree", "rust", "both", plans.PRISTINE), default="both",
                        help="default: both, one after the other; pristine: the kernel without the patches")
    parser.add_argument("--cpu", metavar="MODEL", help="cortex-a72 (default: atomics are loops), neoverse-n1 (atomics "
                        "are single instructions) ...")
    parser.add_argument("--threads", type=whole(1, 64), default=1, metavar="N",
                        help="workers, each on a CPU of its own (default: 1)")
    parser.add_argument("--cpus", type=whole(1, 64), metavar="N",
                        help="CPUs of the guest (default: as many as workers)")
    parser.add_argument("--scale", type=whole(1, 10000), default=100, metavar="P",
                        help="operations in percent of what the case asks for (default: 100)")
    parser.add_argument("--least", type=float, default=1, metavar="N",
                        help="sum up functions that take fewer instructions per operation (default: 1)")
    parser.add_argument("--locks", action="store_true",
                        help="also show how many instructions each spinlock is held, by the function that takes it")
    parser.add_argument("--time", action="append", default=[], metavar="FUNCTION", help="also time each call of a "
                        "function, by the instructions of the CPU that runs it; up to four times")
    parser.add_argument("--tables", action="store_true", help="instead: print what the page tables have for one "
                        "mapping of a case of bench/mapping.c, in the kernel without the patches and with each "
                        "allocator")
    parser.add_argument("--kernel", default="arm64-bench", metavar="NAME",
                        help="configuration of qemu/kernels.toml (default: arm64-bench)")


def profile_check(args):
    """Complete what follows from other options, and refuse a guest that cannot be."""
    args.cpus = args.cpus or args.threads
    if args.cpus < args.threads:
        raise Refused(f"--cpus {args.cpus} is fewer than --threads {args.threads}")
    args.sides = (plans.PRISTINE, "rbtree", "rust") if args.tables else \
        ("rbtree", "rust") if args.allocator == "both" else (args.allocator,)
    for side in args.sides:
        kernels.get(plans.on_side(side, args.kernel)[1])


def lines_options(parser):
    """Add the options of a run of the emulator."""
    parser.add_argument("--cases", type=names(plans.LINES, "case"), default="pair,pair_remote", metavar="LIST",
                        help=f"{','.join(plans.LINES)} (default: %(default)s)")
    parser.add_argument("--cpus", type=numbers(2, 256), default="8,128", metavar="LIST",
                        help="numbers of CPUs (default: %(default)s)")
    parser.add_argument("--allocator", choices=("rbtree", "rust", "both"), default="both", help="default: both")
    parser.add_argument("--line", type=int, choices=(64, 128), default=64, help="bytes of a cache line (default: 64)")
    parser.add_argument("--seed", type=int, default=1, metavar="N",
                        help="of the order in which CPUs take turns (default: 1)")
    parser.add_argument("--worst", type=whole(0, 1000000), default=10, metavar="N",
                        help="lines to list for each run (default: 10; 0: none)")
    parser.add_argument("--vmlinux", type=file, metavar="FILE",
                        help="a kernel that scripts/build made (default: that of arm64-bench, built if necessary)")
    parser.add_argument("-o", dest="output", type=file, metavar="FILE",
                        help="write the figures there, as JSON, instead")


def lines_check(args):
    """Refuse a file that is no kernel."""
    args.vmlinux = args.vmlinux and Path(args.vmlinux)
    if args.vmlinux:
        build.check_kernel(args.vmlinux)


def sides_list(text):
    """Return the sides of a profile, as they are given."""
    for side in text.split(","):
        if side not in ("A", "B", "C"):
            raise Refused(f'unknown side "{side}"; there are: A B C')
    return text


def hook_kernels(text):
    """Return the kernels of the table of the hook."""
    for name in text.split(","):
        if name not in ("arm64-bench", "x86_64-bench"):
            raise Refused(f'unknown kernel "{name}"; there are: arm64-bench x86_64-bench')
    return text.split(",")


def programs_options(parser):
    """Add the options of the measurement of programs."""
    parser.add_argument("--programs", type=program_rows.chosen, default="*", dest="names", metavar="LIST",
                        help="only these: bpf-*,make ...; * is any text")
    parser.add_argument("--boots", type=whole(1, 100), default=3, metavar="N",
                        help="boots of each side (default: 3; the rows that need it get up to three times as many)")
    parser.add_argument("--wall", action="store_true", help="wall clock with 4 CPUs instead of instructions; shows "
                        "only rows that differ by more than they spread")
    parser.add_argument("--markdown", action="store_true", help="for documents")
    parser.add_argument("--write", action="store_true", help="put the table into docs/programs.md")


def states_options(parser, boots, page):
    """Add the options of a measurement of several states of a kernel: how many boots, and where the table goes."""
    parser.add_argument("--boots", type=whole(1, 100), default=boots, metavar="N",
                        help="boots of each kernel (default: %(default)s)")
    parser.add_argument("--seed", type=whole(0, 999999999), default=1, metavar="N", help="of the first (default: 1)")
    parser.add_argument("--write", action="store_true", help=f"put the table into {page}")


def patches_options(parser):
    """Add the options of the measurement of patches."""
    states_options(parser, 1, "docs/mapping.md")


def hook_options(parser):
    """Add the options of the measurement of the hook."""
    parser.add_argument("--kernels", type=hook_kernels, default=["arm64-bench"], metavar="LIST",
                        help="arm64-bench, x86_64-bench, or both (default: arm64-bench)")
    states_options(parser, 5, "docs/measurements.md")


def program_options(parser):
    """Add the options of a profile of a program."""
    parser.add_argument("name", type=program_rows.one, metavar="NAME", help="a row of bench/programs.sh")
    parser.add_argument("--sides", type=sides_list, default="A,B", metavar="LIST",
                        help="A: rb-trees, B: Rust, C: the kernel without patches (default: A,B)")
    parser.add_argument("--least", type=float, default=1, metavar="N",
                        help="sum up functions that take fewer instructions per operation (default: 1)")


# What adds the options of a command, and what checks them.
OPTIONS = {"run": (run_options, run_check), "profile": (profile_options, profile_check),
           "lines": (lines_options, lines_check), "list": (lambda parser: None, lambda args: None),
           "patches": (patches_options, lambda args: None), "hook": (hook_options, lambda args: None),
           "programs": (programs_options, lambda args: None),
           "profile-program": (program_options, lambda args: None)}
# Commands that need the guest image of programs.
PROGRAMS = ("programs", "profile-program")


def add_reader(name, parser):
    """Add the options of a command that only reads results."""
    words = READERS[name][0].removesuffix(" -o FILE")
    parser.add_argument("results", nargs="*", type=result, metavar=words, help="stored results, or last, last~1 ...")
    if name == "html":
        parser.add_argument("-o", dest="output", type=file, metavar="FILE", required=True, help="the page")
    if name in ("figures", "sides"):
        parser.add_argument("--markdown", action="store_true", help="for documents")
    if name == "figures":
        parser.add_argument("--write", action="store_true", help="put the tables into docs/measurements.md")


def parse(arguments):
    """Return the name of the command, its options, and its words."""
    name, words = "run", arguments
    if words and not words[0].startswith("-"):
        name, *words = words
    if name not in TEXTS:
        raise Refused(f"unknown command {name}; see --help")
    parser = Parser(TEXTS[name], "bench" if name == "run" else f"bench {name}")
    if name in READERS:
        add_reader(name, parser)
        args = parser.parse_args(words)
        wanted = 2 if name in ("compare", "sides") else 1
        if len(args.results) != wanted:
            parser.error(f"{name} needs {['one result', 'two results'][wanted - 1]}")
    else:
        add, check = OPTIONS[name]
        add(parser)
        args = parser.parse_args(words)
        check(args)
    return name, args, words


def needed(name, args):
    """Return the parts that scripts/prepare must make for a command, and the folders that it must see."""
    kernel = getattr(args, "vmlinux", None)
    files = [*getattr(args, "results", ()), *filter(None, [getattr(args, "output", None)])]
    folders = dict.fromkeys([*(Path(path).parent for path in files), *(build.check_kernel(kernel) if kernel else ())])
    return ["root" if name in READERS or kernel else "all programs-image" if name in PROGRAMS else "all",
            *(str(path) for path in folders if not (path.is_relative_to(CACHE) or path.is_relative_to(REPO)))]


def main(arguments):
    """Run one command; returns the exit code."""
    name, args, words = parse(arguments)
    if os.environ.get("VMAP_RUST_PARSE"):
        print("\n".join(needed(name, args)))
        return 0
    if name == "list":
        print(textwrap.fill(" ".join(plans.guest_cases()), 110))
        print(f"\ncases of the instrument lines: {' '.join(plans.LINES)}\ninstruments: {' '.join(plans.INSTRUMENTS)}")
        return 0
    module = {"run": ".take", "profile": ".profile", "lines": ".cachelines.show", "patches": ".patches",
              "hook": ".hook", **dict.fromkeys(PROGRAMS, ".programs")}.get(name, ".report")
    return importlib.import_module(module, __package__).main(name, args, words)


if __name__ == "__main__":
    program("bench", main, sys.argv[1:])
