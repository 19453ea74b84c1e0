# SPDX-License-Identifier: GPL-2.0
"""The cases: what the CPUs do, in which order, and what of it is measured.

CPUs take turns in a random order that the seed decides. Each turn is one whole operation.
"""

from harness.settings import Refused

from .allocators import ALLOC, CALLBACK, PURGE, RETIRE, UNLINK

# Whole cycles, from one purge to the next, before and while it is measured: a purge belongs to the pairs that caused
# it.
WARM_UP, MEASURED = 6, 2
# Most areas that wait for the CPU that frees them.
QUEUE = 16
# Most pairs between two purges.
LIMIT = 1 << 20


def pairs(allocator, pages, other=False, warm_up=WARM_UP, measured=MEASURED):
    """Reserve an area and free it: on the same CPU, or if other, on any other one. Returns the pairs that count."""
    rng, cpus = allocator.rng, allocator.cpus
    reserved, unlinked = [[] for _ in range(cpus)], [[] for _ in range(cpus)]

    def turn(cpu):
        if unlinked[cpu]:
            allocator.retire(cpu, unlinked[cpu].pop())
            return 1
        if reserved[cpu]:
            unlinked[cpu].append(allocator.unlink(cpu, reserved[cpu].pop(0)))
            return 0
        owner = (cpu + rng.randrange(1, cpus)) % cpus if other else cpu
        # With two CPUs, one would only reserve, faster than the other one frees.
        if len(reserved[owner]) < QUEUE:
            reserved[owner].append(allocator.alloc(cpu, pages))
        return 0

    done = 0
    for count in (warm_up, measured):
        allocator.start()
        until, done = allocator.purges + count, 0
        while allocator.purges < until:
            done += turn(int(rng.random() * cpus))
            allocator.settle()
            if done > LIMIT:
                raise Refused(f"{allocator.name}: no purge after {LIMIT} pairs")
    return done


def area_2048(allocator):
    """2048 pages and a guard page: a purge after every 4 * CPUs pairs at most."""
    cycles = max(8, 32 * allocator.cpus * 2049 * 4096 // (allocator.cpus.bit_length() * (32 << 20)))
    return pairs(allocator, 2049, False, cycles // 4, cycles)


def purge_empty(allocator):
    """A purge when nothing is lazy, after two that found something."""
    for number in range(2 + 16):
        for size in (2, 33, 2049) if number < 2 else ():
            for cpu in allocator.rng.sample(range(allocator.cpus), allocator.cpus):
                allocator.retire(cpu, allocator.unlink(cpu, allocator.alloc(cpu, size)))
                allocator.settle()
        if number == 2:
            allocator.start()
        allocator.purge(allocator.rng.randrange(allocator.cpus))
        allocator.settle()
    return 16


# What runs an allocator and returns the operations that count, and the kinds of operations that belong to it.
PAIR = (ALLOC, UNLINK, RETIRE, PURGE, CALLBACK)
CASES = {
    "pair": (lambda allocator: pairs(allocator, 2), PAIR),
    "pair_remote": (lambda allocator: pairs(allocator, 2, True), PAIR),
    "area_2048": (area_2048, PAIR),
    "purge_empty": (purge_empty, (PURGE, CALLBACK)),
}
