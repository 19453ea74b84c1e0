# SPDX-License-Identifier: GPL-2.0
"""Runs one scenario on one kernel: "scripts/run SCENARIO NAME [OPTION...]"."""

import importlib
import os
import pkgutil
import sys

from . import build, kernels, scenarios
from ..toolchain import image, root
from ..patches import prepare
from ..machine import step
from ..toolchain.enter import enter
from ..machine.options import Parser, fill, whole
from ..machine.result import Result
from ..machine.settings import INSIDE, LOGS, Refused, check_settings

ALLOCATORS = "rbtree", "rust", "none", "both"


def common(parser, defaults):
    """Add the options that all scenarios have, with the defaults of this one."""
    def add(name, text, **more):
        option = name.removeprefix("--")
        if option in defaults:
            # 0: the scenario computes it.
            more, text = {"default": defaults[option], **more}, text + (" (default: %(default)s)" if defaults[option] else "")
        parser.add_argument(name, help=text, **more)

    kernel = defaults.get("kernel")
    parser.add_argument("name", metavar="NAME", nargs="?" if kernel else None, default=kernel,
                        help="a kernel of qemu/kernels.toml" + (f" (default: {kernel})" if kernel else ""))
    if allocators := defaults.get("allocators", ALLOCATORS):
        parser.add_argument("--allocator", choices=allocators, help="what is active; none: a kernel without the option; both: "
                            f"one after the other (default: {defaults['allocator']}, or what the kernel has)")
    defaults = {"cpus": 1, "nodes": 1, "mem": 2048, **defaults}
    add("--cpus", "guest CPUs", type=whole(1, 64), metavar="N")
    add("--nodes", "NUMA nodes that share CPUs and memory evenly", type=whole(1, 8), metavar="N")
    add("--mem", "guest memory in MiB", type=whole(64, 1000000), metavar="MB")
    add("--timeout", "seconds until a guest is ended", type=whole(1, 86400), metavar="S")
    add("--append", "further kernel arguments; may be repeated", action="append", default=[], metavar="ARGS")
    add("--icount", "guest nanoseconds are instructions, repeatable; all CPUs take turns", dest="accel",
        action="store_const", const="icount", default="")
    add("--no-build", "boot the last build", action="store_true")


def names():
    """Return the names of the scenarios: one file each."""
    return [module.name for module in pkgutil.iter_modules(scenarios.__path__)]


def get(name):
    """Return a scenario."""
    if name not in names():
        raise Refused(f'unknown scenario "{name}"; there are: {" ".join(names())}')
    return importlib.import_module(f".scenarios.{name}", __package__)


def usage():
    """Return the text of --help."""
    texts = (f"  {name:<{max(map(len, names())) + 2}}{get(name).__doc__.splitlines()[0]}" for name in names())
    return ("usage: scripts/run SCENARIO NAME [OPTION...]\n\nBuilds kernel NAME (qemu/kernels.toml), boots it and "
            "judges what it prints. Scenarios, each with --help:\n\n" + "\n".join(texts) + "\n\n"
            'Last line: "N passed, N failed" and, if there are any, ", N skipped".\nExit code: 0 all passed, 1 not or wrong use, '
            "4 this machine cannot run it.")


def check_allocator(args, scenario):
    """Complete --allocator, or raise Refused if the kernel has not what is asked for, or what the scenario needs."""
    there, choices = args.kernel.allocators, scenario.DEFAULTS.get("allocators", ALLOCATORS)
    default = "none" if there == ("none",) and "none" in choices else scenario.DEFAULTS.get("allocator", "both")
    wanted = getattr(args, "allocator", None) or default
    # Those that are booted one after the other.
    args.allocator, args.allocators = wanted, ("rbtree", "rust") if wanted == "both" else (wanted,)
    if not {*args.allocators} <= {*there}:
        raise Refused(f"configuration {args.kernel.name} has {' and '.join(there)} as allocator, not "
                      f"{' and '.join(args.allocators)}; choose another one, or another configuration")


def parse(arguments):
    """Return the scenario and its options."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(fill(usage()))
        sys.exit(0 if arguments else 1)
    scenario = get(arguments[0])
    parser = Parser(scenario.__doc__, f"run {arguments[0]}")
    common(parser, scenario.DEFAULTS)
    getattr(scenario, "options", lambda parser: None)(parser)
    args = parser.parse_intermixed_args(arguments[1:])
    args.kernel = kernels.get(args.name)
    args.append, args.logs = " ".join(args.append), LOGS
    if args.nodes > args.cpus:
        raise Refused(f"--nodes {args.nodes} needs at least as many CPUs, not --cpus {args.cpus}")
    check_allocator(args, scenario)
    getattr(scenario, "check", lambda args: None)(args)
    return scenario, args


def prepare_host(scenario, args):
    """Make what only the build host can, since it needs its apt. A boot of the last build waits for nobody."""
    check_settings()
    if not args.no_build:
        prepare.prepare()
    if args.kernel.user_image and "guest_image" in scenario.DEFAULTS:
        image.prepare(args.kernel.user_image)
    root.prepare_busybox(args.kernel.arch)
    root.prepare_emulator(args.kernel.arch)


def main(arguments):
    """Build the kernel and run a scenario; returns the exit code."""
    scenario, args = parse(arguments)
    if not INSIDE:
        prepare_host(scenario, args)
        enter("run", *arguments)
    if not args.no_build:
        getattr(scenario, "build_all", lambda args: build.build(args.kernel))(args)
    # A folder for each run: two at the same time do not write to one log.
    if "VMAP_RUST_LOGS" not in os.environ:
        args.logs = step.new_logs("run", 20)
    result = Result()
    scenario.run(args, result)
    print(result.totals())
    return 0 if result.good else 1
