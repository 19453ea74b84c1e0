# SPDX-License-Identifier: GPL-2.0
"""runs tests of other kernel subsystems on both allocators: the results must be equal

Builds the kernel's selftests, and runs selftests/mm (hugetlb, gup, mremap, memfd_secret, page_frag, test_vmalloc.sh and
others), lib/test_bpf, lib/test_maple_tree, and, in a separate boot, the cases of lkdtm that misuse stacks and copies
from and to user space. A test passes when both allocators give the same result, which the table shows. At the end of
each boot with the allocator in Rust, validate and the checker must report no fault.
"""

import os
import re
import shutil

from .. import step
from . import CHECKER
from ..guest import boot
from ..initramfs import make_guest_image
from ..settings import CACHE, LOGS, TREE, Refused
from ..table import print_table
from ..verdict import Expected, read_lines

DEFAULTS = {"kernel": "x86_64-user", "allocators": (), "cpus": 2, "mem": 3072, "timeout": 2400,
            "prepare": ["guest-image"]}
FULL = ("peers", CHECKER)
PEERS = CACHE / "peers"
# Programs of tools/testing/selftests/mm.
PROGRAMS = """hugetlb-mmap hugetlb-shm hugetlb-mremap hugetlb-madvise hugetlb_dio hugetlb_fault_after_madv hugetlb_madv_vs_map
    hugetlb-read-hwpoison hugetlb-soft-offline memory-failure thuge-gen map_populate memfd_secret mremap_test mremap_dontunmap
    madv_populate guard-regions mdwe_test droppable mlock2-tests merge gup_longterm gup_test cow"""
# Builds PROGRAMS into $new/mm from links to the kernel tree, which does not change. The guest skips a program that
# cannot be built. ../ of the sources must be the tree of links.
BUILD = r"""
mkdir -p "$new/src/tools/testing" "$new/src/mm" "$new/mm"
cp -rs "$tree/tools/testing/selftests" "$new/src/tools/testing/"
cp -rs "$tree/tools/include" "$tree/tools/scripts" "$tree/tools/build" "$new/src/tools/"
ln -s "$tree/mm/gup_test.h" "$new/src/mm/"
make -s -C "$tree" "O=$new/headers" ARCH=x86_64 "$llvm" headers
LIBRARY_PATH=$user/lib/x86_64-linux-gnu C_INCLUDE_PATH=$user/include make -k -C "$new/src/tools/testing/selftests/mm" ARCH=x86_64 \
    "OUTPUT=$new/mm" "KHDR_INCLUDES=-isystem $new/headers/usr/include" $(printf "$new/mm/%s " $programs) || :
cp -L "$tree"/tools/testing/selftests/mm/test_{vmalloc,page_frag}.sh "$new/mm/"
cp -rL "$tree/tools/testing/selftests/mm/page_frag" "$new/mm/page_frag"
make -C "$tree" "O=$build" ARCH=x86_64 "$llvm" "M=$new/mm/page_frag" modules || :
find "$new/mm/page_frag" -type f ! -name '*.ko' -delete
rm -rf --one-file-system "$new/src" "$new/headers"
"""


def options(parser):
    """Add the comparison by itself."""
    parser.add_argument("--no-boot", action="store_true", help="only compare the logs of the last run")


def check(args):
    """Logs of the last run need no kernel."""
    args.no_build = args.no_build or args.no_boot


def build_selftests(kernel):
    """Build the selftests unless they are up to date with the tree and, for the module of page_frag, the kernel's
    configuration."""
    wanted = TREE.with_name(TREE.name + ".stamp").read_text() + (kernel.folder / "include/config/auto.conf").read_text()
    stamp, new = PEERS / "stamp", PEERS.with_name("peers.new")
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(new, ignore_errors=True)
    llvm = "LLVM=-22" if os.environ.get("TOOLCHAIN") == "root" else f"LLVM={os.environ.get('LLVM', '1')}"
    if step.run("selftests: build", CACHE / "log/peers-build.log", ["bash", "-euc", BUILD], env={
            **os.environ, "new": str(new), "tree": str(TREE), "user": str(CACHE / "guest-image/usr"),
            "build": str(kernel.folder), "programs": PROGRAMS, "llvm": llvm}):
        raise Refused(f"the selftests could not be built; see {CACHE}/log/peers-build.log")
    (new / "stamp").write_text(wanted)
    shutil.rmtree(PEERS, ignore_errors=True)
    new.rename(PEERS)


def read_results(peers, lkdtm):
    """Map each test of the two logs to its result. That of a case of lkdtm is all lines that it printed."""
    results, cases = {}, {}
    for line in read_lines(peers):
        if match := re.fullmatch(r"peers: ([\w.-]+) (.+)", line):
            results[match[1]] = match[2]
    lines = read_lines(lkdtm)
    for line in lines:
        if match := re.fullmatch(r"lkdtm: ([A-Z_]+)\| (.*)", line):
            cases.setdefault(match[1], []).extend([match[2]] if match[2] != "end" else [])
    results |= {name: "; ".join(texts) or "printed nothing" for name, texts in cases.items()}
    # The last case ends the guest: what names why, without numbers.
    end = "\n".join(lines).partition("\nlkdtm: done")[2]
    why = [re.sub("0x[0-9a-f]+", "H", x)
           for x in re.findall(r"BUG: .*guard page was hit|Kernel panic.*|Oops: [a-z ]+", end)]
    results["EXHAUST_STACK"] = ";".join(x for i, x in enumerate(why) if x != why[i - 1] or not i) or "not reported"
    return results


def same(rbtree, rust):
    """Tell whether two results are equal: True, False, or None where there is nothing to compare."""
    equal = rbtree == rust and rbtree != "not reported"
    # A test that is too slow for the emulator with the rb-trees cannot be compared.
    if rbtree.startswith("timeout") or equal and (rbtree.startswith("skip") or rbtree == "not in this kernel"):
        return None
    return equal


def compare(result, rbtree, rust):
    """Count each test, and print the table and, in full, the results that differ."""
    rows, different = [], []
    for name, text in rbtree.items():
        other = rust.get(name, "not reported")
        equal = same(text, other)
        result.add(equal, name)
        rows.append([name, *(x if len(x) <= 60 else x[:57] + "..." for x in (text, other)),
                     {True: "yes", False: "NO", None: "skipped"}[equal]])
        if equal is False:
            different.append(f"{name} differs\n  rbtree: {text}\n  rust:   {other}")
    print_table("tests of other subsystems", ["test", "rbtree", "rust", "same?"], rows)
    for text in different:
        print(text)


def judge_checker(args, result, script, least):
    """Count one check of a boot with the allocator in Rust: it refused nothing, all invariants hold at the end, and,
    with the checker, at least that number of answers were compared and none differed."""
    if not args.kernel.has("VMAP_RUST_DEBUG"):
        return
    lines = read_lines(LOGS / f"{script}-{args.kernel.name}-rust.log")
    text = ";".join(line for line in lines if re.match(r"(validate|checker)\|", line))
    refused = sum("vmap_rust: refused" in line for line in lines)
    good = text.startswith("validate| ok:") and not refused
    if "vmap_rust.check=1" in args.append:
        compared = re.search(r"checker\| compared +(\d+)", text)
        good = good and bool(re.search(r"checker\| wrong +0 ",
                                       text)) and compared is not None and int(compared[1]) >= least
    result.add(good, f"checker {script}",
               f"rust: {script}: {'ok' if good else 'FAIL'} {refused} refusals; {text or 'validate was not reported'}")


def run(args, result):
    """Boot both allocators twice and compare."""
    kernel = args.kernel
    if not args.no_boot:
        build_selftests(kernel)
        initramfs = make_guest_image(kernel, PEERS)
        for allocator in ("rbtree", "rust"):
            # The cases of lkdtm provoke oopses, which both allocators must print alike.
            for script, allow in (("peers", []), ("lkdtm", ["."])):
                boot(result, args, script, Expected(allocator, f"^{script}: done", allow),
                     f"kunit.enable=0 tsc=reliable GUEST_RUN={script}",
                     initramfs=initramfs, log=LOGS / f"{script}-{kernel.name}-{allocator}.log")
    compare(result, *(read_results(*(LOGS / f"{script}-{kernel.name}-{allocator}.log" for script in ("peers", "lkdtm")))
                      for allocator in ("rbtree", "rust")))
    judge_checker(args, result, "peers", 1001)
    # Few cases of lkdtm need areas.
    judge_checker(args, result, "lkdtm", 101)
