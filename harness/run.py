# SPDX-License-Identifier: GPL-2.0
"""Runs one scenario on one kernel: "scripts/run SCENARIO NAME [OPTION...]"."""

import importlib
import os
import pkgutil
import sys

from . import kernels, scenarios
from .options import Parser, kept, program, whole
from .result import Result
from .settings import LOGS, Refused

ALLOCATORS = ("rbtree", "rust", "none", "both")


def common(parser, defaults):
    """Add the options that all scenarios have, with the defaults of this one."""
    allocators = [x for x in ALLOCATORS if x in defaults.get("allocators", ALLOCATORS)]
    if allocators:
        parser.add_argument("--allocator", choices=allocators, default=defaults.get("allocator"),
                            required="allocator" not in defaults,
                            help="the allocator that is active"
                                 + "; none: a kernel without the option" * ("none" in allocators)
                                 + "; both: one after the other" * ("both" in allocators)
                                 + " (default: %(default)s)" * ("allocator" in defaults))
    parser.add_argument("--cpus", type=whole(1, 64), default=defaults.get("cpus", 1), metavar="N",
                        help="guest CPUs (default: %(default)s)")
    parser.add_argument("--nodes", type=whole(1, 8), default=1, metavar="N",
                        help="NUMA nodes that share CPUs and memory evenly")
    parser.add_argument("--mem", type=whole(64, 1000000), default=defaults.get("mem", 2048), metavar="MB",
                        help="guest memory in MiB (default: %(default)s)")
    parser.add_argument("--timeout", type=whole(1, 86400), default=defaults.get("timeout"), metavar="S",
                        help="seconds until a guest is ended" + " (default: %(default)s)" * ("timeout" in defaults))
    parser.add_argument("--append", action="append", default=[], metavar="ARGS",
                        help="further kernel arguments; may be repeated")
    parser.add_argument("--icount", dest="accel", action="store_const", const="icount", default="",
                        help="guest nanoseconds are instructions, repeatable; all CPUs take turns")
    parser.add_argument("--log", type=kept, metavar="FILE", help="write the console log there, if there is one boot only")
    parser.add_argument("--no-build", action="store_true", help="boot the last build")


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
    texts = (f"  {name:<9}{get(name).__doc__.splitlines()[0]}" for name in names())
    return ("usage: scripts/run SCENARIO NAME [OPTION...]\n\nBuilds kernel NAME (qemu/kernels.toml), boots it and "
            "judges what it prints. Scenarios, each with --help:\n\n" + "\n".join(texts) + "\n\n"
            'Last line: "N passed, N failed" and, if there are any, ", N skipped"; of boot and demo: PASS, or FAIL and '
            "why.\nExit code: 0 all passed, 1 not or wrong use, 4 this machine cannot run it.\n"
            f"Logs are in {LOGS}.")


def parse(arguments):
    """Return the scenario and its options."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        sys.exit(0 if arguments else 1)
    scenario = get(arguments[0])
    defaults = scenario.DEFAULTS
    parser = Parser(scenario.__doc__, f"run {arguments[0]}")
    if "kernel" in defaults:
        parser.add_argument("name", metavar="NAME", nargs="?", default=defaults["kernel"],
                            help=f"a kernel of qemu/kernels.toml (default: {defaults['kernel']})")
    else:
        parser.add_argument("name", metavar="NAME", help="a kernel of qemu/kernels.toml")
    common(parser, defaults)
    getattr(scenario, "options", lambda parser: None)(parser)
    args = parser.parse_intermixed_args(arguments[1:])
    args.kernel = kernels.get(args.name)
    args.append = " ".join(args.append)
    if args.nodes > args.cpus:
        raise Refused(f"--nodes {args.nodes} needs at least as many CPUs, not --cpus {args.cpus}")
    getattr(scenario, "check", lambda args: None)(args)
    return scenario, args


def each_allocator(args):
    """Return the allocators that are booted one after the other."""
    return ("rbtree", "rust") if getattr(args, "allocator", "both") == "both" else (args.allocator,)


def main(arguments):
    """Run a scenario; returns the exit code."""
    scenario, args = parse(arguments)
    if os.environ.get("VMAP_RUST_PARSE"):
        # Only wrong use was to be found, and what scripts/prepare must make.
        print(*["guest-image"] * (args.kernel.guest_image and "guest_image" in scenario.DEFAULTS),
              *["busybox-arm"] * (args.kernel.arch == "arm"))
        return 0
    if not args.no_build:
        args.kernel.build()
    result = Result()
    scenario.run(args, result)
    if scenario.DEFAULTS.get("totals", True):
        print(result.totals())
    return 0 if result.good else 1


if __name__ == "__main__":
    program("run", main, sys.argv[1:])
