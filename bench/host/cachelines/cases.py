# SPDX-License-Identifier: GPL-2.0
"""The cases: what the CPUs do, in which order, and what of it is measured.

CPUs take turns in a random order that the seed decides. Each turn is one whole operation.
"""

import collections

from .allocators import ALLOC, CALLBACK, FIND, PURGE, RETIRE, UNLINK

PAIR = (ALLOC, UNLINK, RETIRE, PURGE, CALLBACK)
# Whole cycles, from one purge to the next, before and while it is measured: a purge belongs to the pairs that caused it.
WARM_UP, MEASURED = 6, 2
# Most areas that wait for the CPU that frees them.
QUEUE = 16
# Most pairs before a cycle ends, whatever happens.
LIMIT = 1 << 20


class Run:
    """One allocator in one case."""

    def __init__(self, allocator, rng):
        self.allocator, self.rng, self.cpus = allocator, rng, allocator.cpus
        self.ops = 0

    def cpu(self):
        """Return the CPU whose turn it is."""
        return int(self.rng.random() * self.cpus)

    def cycles(self, turn, warm_up, measured):
        """Let CPUs take turns until that many purges are over; measure the last of them. turn() returns the pairs that it has completed."""
        for count, is_measured in ((warm_up, False), (measured, True)):
            if is_measured:
                self.start()
            until = self.allocator.purges + count
            done = 0
            while self.allocator.purges < until and done < LIMIT:
                done += turn()
                self.allocator.settle()
        self.ops = done

    def start(self):
        """What follows is measured."""
        self.allocator.machine.emulator.model.model_reset()


def pairs(run, pages, other, warm_up=WARM_UP, measured=MEASURED):
    """Reserve an area and free it: on the same CPU, or if other, on any other one."""
    allocator, rng = run.allocator, run.rng
    reserved, unlinked = [[] for _ in range(run.cpus)], [[] for _ in range(run.cpus)]

    def turn():
        cpu = run.cpu()
        if unlinked[cpu]:
            allocator.retire(cpu, unlinked[cpu].pop())
            return 1
        if reserved[cpu]:
            unlinked[cpu].append(allocator.unlink(cpu, reserved[cpu].pop(0)))
            return 0
        owner = (cpu + rng.randrange(1, run.cpus)) % run.cpus if other else cpu
        if len(reserved[owner]) >= QUEUE:
            return 0  # with two CPUs, one would only reserve, faster than the other one frees
        reserved[owner].append(allocator.alloc(cpu, pages))
        return 0

    run.cycles(turn, warm_up, measured)


def pair(run):
    """One page and its guard page, freed by the CPU that reserved it."""
    pairs(run, 2, False)


def pair_remote(run):
    """The same freed by another CPU."""
    pairs(run, 2, True)


def area_2048(run):
    """2048 pages and a guard page: a purge after every 4 * CPUs pairs at most."""
    cycles = max(8, 32 * run.cpus * 2049 * 4096 // (run.cpus.bit_length() * (32 << 20)))
    pairs(run, 2049, False, cycles // 4, cycles)


def find_inner(run):
    """All CPUs look up inner addresses of areas that stay; half of the CPUs also reserve and free others."""
    allocator, rng = run.allocator, run.rng
    stay = [(allocator.alloc(cpu, 17), 17) for cpu in range(run.cpus) for _ in range(4)]
    held = [[] for _ in range(run.cpus)]
    rng.shuffle(stay)

    def turn():
        cpu = run.cpu()
        if cpu % 2 or rng.random() < 0.5:
            start, pages = rng.choice(stay)
            allocator.find(cpu, start + 4096 * rng.randrange(1, pages - 1))
            return 1
        if held[cpu]:
            allocator.retire(cpu, allocator.unlink(cpu, held[cpu].pop()))
        else:
            held[cpu].append(allocator.alloc(cpu, 2))
        return 0

    # Each CPU looks at each of the areas first: what is missed afterwards, others have written.
    for cpu in range(run.cpus):
        for start, _ in stay:
            allocator.find(cpu, start + 4096)
    run.start()
    for _ in range(max(20_000, 100 * run.cpus)):
        run.ops += turn()
        allocator.settle()


# As in bench/burst.c: percent and pages without the guard page.
SIZES = ((82, 4), (6, 1), (3, 3), (5, 16), (2, 64), (1, 96), (1, 368))
LIVE = 128


def mixed(run):
    """Replace one of 128 live areas of a CPU, with the sizes of a booted system."""
    allocator, rng = run.allocator, run.rng
    weights = [percent for percent, _ in SIZES]
    live = [[None] * LIVE for _ in range(run.cpus)]

    def turn():
        cpu, slot = run.cpu(), rng.randrange(LIVE)
        if live[cpu][slot]:
            allocator.retire(cpu, allocator.unlink(cpu, live[cpu][slot]))
            allocator.settle()
        live[cpu][slot] = allocator.alloc(cpu, 1 + rng.choices(SIZES, weights)[0][1])
        return 1

    for _ in range(run.cpus * LIVE):
        turn()
        allocator.settle()
    run.cycles(turn, 1, MEASURED)


def purges(run, pages, rounds):
    """A purge of what all CPUs have freed: an area of each of these sizes."""
    allocator = run.allocator
    for number in range(2 + rounds):
        # Two rounds are not measured, and always find something to purge.
        for size in pages if pages or number >= 2 else (2, 33, 2049):
            for cpu in run.rng.sample(range(run.cpus), run.cpus):
                address = allocator.alloc(cpu, size)
                allocator.retire(cpu, allocator.unlink(cpu, address))
                allocator.settle()
        if number == 2:
            run.start()
            run.ops = rounds
        # Only the kind of operation that this is counts: see Case.kinds.
        allocator.purge(run.cpu())
        allocator.settle()


def purge(run):
    """A purge of 32 areas of each CPU."""
    purges(run, 32 * (2,), 4)


def purge_empty(run):
    """A purge when nothing is lazy."""
    purges(run, (), 16)


Case = collections.namedtuple("Case", "run kinds unit")
CASES = {
    "pair": Case(pair, PAIR, "pair"),
    "pair_remote": Case(pair_remote, PAIR, "pair"),
    "find_inner": Case(find_inner, (FIND,), "lookup"),
    "area_2048": Case(area_2048, PAIR, "pair"),
    "mixed": Case(mixed, PAIR, "pair"),
    "purge": Case(purge, (PURGE, CALLBACK), "purge"),
    "purge_empty": Case(purge_empty, (PURGE, CALLBACK), "purge"),
}
