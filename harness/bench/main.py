# SPDX-License-Identifier: GPL-2.0
"""The commands of scripts/bench and their options."""

import importlib

from ..toolchain import image
from ..patches import prepare
from ..toolchain.enter import become_root_python, enter
from ..machine.options import Parser, whole
from ..machine.settings import INSIDE, Refused, need_space

from . import native, plan as plans, results

# The words of each command, what it does, and the module whose main(command, options) runs it.
COMMANDS = {
    "run": ("[run] [OPTION...]", "measures two allocators against each other; draws a plot, too", "report"),
    "native": ("native", "measures both allocators in user space, in nanoseconds", "native_report"),
    "show": ("show RESULT", "prints the table of a stored result", "report"),
    "compare": ("compare OLD NEW", "prints which counts of side B, or times of tools/vmap-bench, became larger or smaller; exit 1: larger", "report"),
    "list": ("list", "prints the cases of the guest, and the instruments", "plan"),
    "profile": ("profile CASE", "prints what an operation executes, by function, and how long locks are held", "profile"),
    "figures": ("figures RESULT...", "prints the tables of the documents; of more results side B, too", "figures"),
    "draw": ("draw", "draws the tables of docs/bench.md as docs/figures-*.svg", "pictures"),
    "hook": ("hook", "measures what the series area costs the rb-trees, for docs/bench.md", "patches"),
    "programs": ("programs", "measures what real programs gain, by instructions, for docs/bench.md", "programs"),
    "complaints": ("complaints", "measures what users complain about, each as a load of some seconds", "complaints"),
    "patches": ("patches", "measures which cases each patch changes that needs no allocator, for mapping/README.md", "patches")}
HELP = "Commands:\n\n" + "".join(f"  scripts/bench {words:<22}{what}\n" for words, what, _ in COMMANDS.values()) + """
docs/bench.md explains what is measured. Each command has --help. A RESULT is "last", "last~1" for the one before, or
the name or path of a file in the folder of results. Exit code: 0 measured, also when something is slower; 1 a boot or a
case failed, or wrong use."""
# The commands that only read results, and how many.
READERS = {"show": 1, "figures": "+", "compare": 2, "draw": 0}


def parse(arguments):
    """Return the name of the command and its options."""
    name, words = "run", arguments
    if words and not words[0].startswith("-"):
        name, *words = words
    if name not in COMMANDS:
        raise Refused(f"unknown command {name}; see --help")
    parser = Parser(HELP if name == "run" else f"scripts/bench {name} {COMMANDS[name][1]}.",
                    "bench" if name == "run" else f"bench {name}")
    add = parser.add_argument
    if name == "run":
        add("--set", choices=plans.SETS, default="quick", help='what is measured: "figures" is what docs/bench.md quotes, '
            '"mapping" what mapping/README.md quotes')
        add("--a", choices=("rbtree", "rust", plans.PRISTINE), default="rbtree",
            help="what is compared with (default: rbtree); pristine: the kernel without the patches")
        add("--b", choices=("rbtree", "rust"), default="rust", help="what is judged against it (default: rust); the same "
            "twice is a check of the bench: nothing may differ")
        add("--instruments", nargs="+", choices=[*filter(plans.boots, plans.INSTRUMENTS)], metavar="NAME",
            help="only these: %(choices)s")
        add("--cases", type=plans.case_list, metavar="LIST", help="only these: area_pair,lookup_* ...")
        add("--repetitions", type=whole(1, 1000), metavar="N", help="boots of each side, instead of 5")
    elif name == "profile":
        add("case", type=plans.case_list, metavar="CASE", help="a case of scripts/bench list, or some as for --cases")
        add("--threads", type=whole(1, 64), default=1, metavar="N", help="workers, each on a CPU of its own (default: 1)")
        add("--lines", action="store_true", help="print instead which cache lines move between the CPUs of the workers")
    elif name == "native":
        add("--cases", type=native.case_list, metavar="LIST", help="only these: area_pair,find_1k ...")
        add("--threads", type=native.thread_list, metavar="LIST", help="numbers of threads (default: 1,2,4 ... all CPUs)")
        add("--passes", type=whole(1, 1000), metavar="N", help="passes of each side (default: 9)")
        add("--build", action="store_true", help="only build the program, and print its path: it is static, for other machines")
        add("--from", dest="file", type=native.read, metavar="FILE", help="show what the program has printed on another machine")
    elif name == "complaints":
        add("--only", nargs="+", choices=[one.name for one in plans.COMPLAINTS], metavar="LOAD", help="only these: %(choices)s")
        add("--repetitions", type=whole(1, 1000), metavar="N", help="boots of each side, instead of 3")
    elif name == "programs":
        add("--programs", nargs="+", choices=plans.program_texts(), default=plans.program_texts(), metavar="NAME",
            help="only these: %(choices)s")
    elif name in READERS:
        if name == "figures":
            add("--write", action="store_true", help="put the tables into README.md and docs/bench.md, too, and draw them")
        if READERS[name]:
            add("results", nargs=READERS[name], type=results.load, metavar="RESULT", help="last, last~1, a name or a path")
    args = parser.parse_args(words)
    args.words = words
    if name == "run":
        args.plans = plans.wanted(args)
    return name, args


def main(arguments):
    """Run one command; returns the exit code."""
    name, args = parse(arguments)
    if name == "native":
        # The program runs on the build host, with the Python of the toolchain root.
        if not INSIDE:
            prepare.prepare("root" if args.file else "source")
            need_space(300, "the program and results")
        become_root_python("bench", *arguments)
    elif not INSIDE and name != "list":
        prepare.prepare("root" if name in READERS else "all")
        if name == "programs":
            image.prepare("programs-image")
        if name not in READERS:
            need_space(300, "the benchmark's logs and results")
        # Only the toolchain root has what some of them import.
        enter("bench", *arguments)
    return importlib.import_module(f".{COMMANDS[name][2]}", __package__).main(name, args)
