# SPDX-License-Identifier: GPL-2.0
"""Names of addresses: the variable or the object on the heap, and the field in it, by the layout of types.

The type of an object on the heap is found by following pointers from variables of the kernel, or is that of its slab
cache. Behind a pointer to void is the type that is put into boxes and has the size that was asked for, if there is only one.
"""

import bisect
import collections
import functools
import re
import struct
import subprocess

from .machine import HEAP, HEAP_SIZE, PAGE, PERCPU, PRIVATE

# Elements of an array that are searched for pointers.
SEARCHED = 1024


class Names:
    """Names for the memory of a machine, as it is now."""

    def __init__(self, allocator, image, types):
        self.machine, self.image, self.types = allocator.machine, image, types
        self.objects = allocator.kernel.slab.objects
        self._bases = sorted(self.objects)
        self._kinds = {}  # base of an object to key of its type
        self._pointers, self._demangled = {}, {}
        self._by_size = collections.defaultdict(set)
        for name in types.named:
            boxed = re.fullmatch(r"kernel::alloc::kbox::Box<(vmap_rust::.*), [\w:]*>", name)
            if boxed and boxed.group(1) in types.named:
                self._by_size[types.size(boxed.group(1))].add(types.named[boxed.group(1)])
        for base, found in self.objects.items():
            if found.cache and found.cache.removesuffix("_head") in types.named:
                self._kinds[base] = types.named[found.cache.removesuffix("_head")]
        for name, key in types.variables.items():
            if name in image.symbols:
                self._walk(image.symbols[name], key)

    def function(self, name):
        """Return the short name of a function or variable."""
        if name not in self._demangled:
            self._demangled |= demangle(self.image.symbols)
            self._demangled.setdefault(name, name)
        return self._demangled[name]

    @functools.cache
    def function_at(self, offset):
        """Return the short name of the function at an offset in the text."""
        return self.function(self.image.symbol_at(self.machine.text + offset)[0])

    def _object(self, address):
        index = bisect.bisect_right(self._bases, address) - 1
        if index >= 0:
            found = self.objects[self._bases[index]]
            if address < found.base + max(found.size, 1):
                return found
        return None

    def _pointers_of(self, key):
        """Return (offset, key of target) of the pointers in a type, with those in arrays."""
        if key in self._pointers:
            return self._pointers[key]
        self._pointers[key] = found = []
        kind = self.types.resolve(key)
        if kind is None:
            return found
        # The memory of an atomic pointer is a pointer to void: the type is only in the name.
        atomic = re.fullmatch(r"(?:\w+::)*Atomic<\*\w+ (.*)>", kind[2] or "") if kind[0] == "struct" else None
        if kind[0] == "pointer":
            found.append((0, kind[2]))
        elif atomic:
            found.append((0, self.types.named.get(atomic.group(1))))
        elif kind[0] == "array":
            size = self.types.size_of(kind[2])
            for index in range(min(kind[1], SEARCHED)):
                found += [(index * size + offset, target) for offset, target in self._pointers_of(kind[2])]
        elif kind[0] == "struct":
            for _, offset, member in kind[3]:
                found += [(offset + inner, target) for inner, target in self._pointers_of(member)]
        return found

    def _walk(self, address, key):
        todo = [(address, key, 1)]
        while todo:
            address, key, count = todo.pop()
            size = self.types.size_of(key)
            pointers = self._pointers_of(key)
            for index in range(min(count, SEARCHED) if pointers else 0):
                memory = bytes(self.machine.uc.mem_read(address + index * size, size))
                for offset, target in pointers:
                    if offset + 8 > size:
                        continue
                    value = struct.unpack_from("<Q", memory, offset)[0]
                    if not HEAP <= value < HEAP + HEAP_SIZE:
                        continue
                    found = self._object(value)
                    if found is None or found.base in self._kinds or value != found.base:
                        continue
                    length = self.types.size_of(target)
                    if length <= 1:  # void
                        fits = self._by_size.get(found.size, ())
                        if len(fits) != 1:
                            continue
                        target, = fits
                        length = found.size
                    if length > found.size:
                        continue
                    self._kinds[found.base] = target
                    todo.append((found.base, target, found.size // length))

    @functools.cache
    def field(self, key, offset):
        """Return the path to the byte at an offset of a type, as ".name[index]"; wrappers of core and kernel add nothing."""
        kind = self.types.resolve(key)
        if kind is None or kind[0] in ("pointer", "plain") or kind[2] in ("spinlock", "raw_spinlock"):
            return ""
        if kind[0] == "array":
            size = self.types.size_of(kind[2])
            return f"[{offset // size}]{self.field(kind[2], offset % size)}" if size else ""
        for name, start, member in reversed(kind[3]):
            if start <= offset < start + self.types.size_of(member):
                is_wrapper = re.match(r"(core|kernel|alloc|pin_init)::", kind[2]) or re.fullmatch(r"(__)?\d+|value", name)
                if kind[2].startswith("kernel::sync::lock::Lock<") and name == "state":
                    return ".lock"
                if kind[2].startswith("bindings") or not name or is_wrapper:
                    return self.field(member, offset - start)
                return f".{name}{self.field(member, offset - start)}"
        return ""

    @functools.cache
    def _short(self, key):
        kind = self.types.resolve(key)
        if not kind or kind[0] != "struct":
            return "object"
        around = re.fullmatch(r"(vmap_rust::[\w:]+)<(.+)>", kind[2])
        if around and "::Node<" not in kind[2]:
            return f"{short(around.group(1))} of {short(around.group(2))}"
        return short(kind[2])

    def of(self, address):
        """Return (object, field) of an address: the object with its number if there are several."""
        if HEAP <= address < HEAP + HEAP_SIZE:
            found = self._object(address)
            if found is None:
                return "unknown memory", hex(address)
            offset = address - found.base
            key = self._kinds.get(found.base)
            if key is None:
                return f"{found.cache or 'kmalloc'} of {found.size} ({self.function(found.caller)})", f"+{offset}"
            size = self.types.size_of(key)
            index = f"[{offset // size}]" if size and found.size >= 2 * size else ""
            return f"{self._short(key)}{index}", self.field(key, offset % size if size else offset)
        if PERCPU <= address < PRIVATE:
            first = self.image.address("__per_cpu_start")
            size = self.image.address("__per_cpu_end") - first
            stride = -(-size // PAGE) * PAGE
            cpu, offset = divmod(address - PERCPU, stride)
            name, inner = self.image.symbol_at(first + offset)
            return f"percpu {name} of CPU {cpu}", f"+{inner}" if inner else ""
        name, offset = self.image.symbol_at(address)
        if name in self.types.variables:
            return self.function(name), self.field(self.types.variables[name], offset)
        return self.function(name), f"+{offset}" if offset else ""


def _closing(name):
    """Return where the bracket at the start of a name is closed."""
    depth = 0
    for at, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0) if name[at - 1:at + 1] != "->" else 0
        if not depth:
            return at
    return len(name) - 1


def short(name):
    """Return the name of a Rust type or function without crates, generic arguments and wrappers."""
    name = re.sub(r"\[[0-9a-f]{16}\]", "", name)
    wrapped = re.fullmatch(r".*::Node<(.*)>", name)
    if wrapped:
        return short(wrapped.group(1))
    locked = re.fullmatch(r"kernel::sync::lock::Lock<(.*), [\w:]*>", name)
    if locked:
        return f"Lock of {short(locked.group(1))}"
    if name.startswith("<"):  # <Type>::function or <Type as Trait>::function
        end = _closing(name)
        return short(name[1:end].split(" as ")[0]) + short(name[end + 1:])
    while "<" in name:
        start = name.index("<")
        name = name[:start].removesuffix("::") + name[start + _closing(name[start:]) + 1:]
    return re.sub(r"\b(vmap_rust|core|kernel|alloc)::", "", name)


def demangle(names):
    """Return a dict of Rust symbols to what they stand for; others are as they are."""
    mangled = [name for name in names if name.startswith("_R")]
    done = subprocess.run(["c++filt", "-s", "rust"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout.split("\n")
    return {name: short(text) for name, text in zip(mangled, done)}
