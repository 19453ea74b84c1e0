# SPDX-License-Identifier: GPL-2.0
"""The source and the tree that scripts/prepare makes: bad archives, bad patches, updates, damage, kills, two runs."""

import pytest

from conftest import CACHE, NAMES, PATCHES, SERIES, TESTED, User, clone, sums

# Archives of the small kernel tree, named after its version, and a cache that was made from one.
ARCHIVES = r"""
for version in $tested 6.12.1 $series.99; do
    cp -a $linux linux-$version
    IFS=. read -r v p s <<<$version
    sed -i -e "s/^VERSION = .*/VERSION = $v/; s/^PATCHLEVEL = .*/PATCHLEVEL = $p/; s/^SUBLEVEL = .*/SUBLEVEL = $s/" \
        linux-$version/Makefile
    tar -cf $version.tar linux-$version
done
head -c 100000 $tested.tar >short.tar
tar -cf nokernel.tar -C $other qemu
mkdir first
ln -s $real/root first
VMAP_RUST_CACHE=$PWD/first KERNEL_TARBALL=$PWD/$tested.tar $other/scripts/prepare
"""
BAD_PATCH = r"--- a/mm/vmalloc.c\n+++ b/mm/vmalloc.c\n@@ -1,3 +1,3 @@\n no such line\n-nor this one\n+new\n nor that\n"
# What happens in the cache. The next run must make source and tree what they were.
EVENTS = {
    "another clone": "$other/scripts/prepare; [ $(readlink $tree/mm/vmap_rust) = $other ]",
    # What still runs keeps the tree.
    "a command of another clone": r"""
        trap 'kill $(jobs -p) || :' EXIT
        mkfifo go
        PYTHONPATH=$other python3 -c '
from harness.patches import prepare
prepare.prepare()
open("prepared", "w").close()
open("go").read()' &
        for _ in $(seq 1200); do [ -e prepared ] || sleep 0.1; done
        $prepare >out 2>&1 &
        for _ in $(seq 1200); do [ -s out ] || sleep 0.1; done
        grep -xE "waiting for another run \\(a command of $other, since [0-9]{2}:[0-9]{2}\\)" out
        $other/scripts/prepare # Another one of that clone does not wait.
        [ $(readlink $tree/mm/vmap_rust) = $other ]
        echo >go
        wait $!""",
    "another kernel of the series": """
        KERNEL_TARBALL=$archives/$series.99.tar $prepare >out 2>&1
        grep "^note: the kernel source is $series.99; the patches were tested with $tested" out""",
    "damaged tree": "rm $tree/Makefile",
    # Only its files change.
    "series without its last patch": r"""
        times >was
        mv $last last
        $prepare
        times | sort - was | uniq -u | sed 's/ .*//' | sort -u | cmp - <(sed -n 's,^+++ b/,,p' last | sort -u)
        mv last $last""",
    "killed": """
        for delay in 0.1 0.2 0.4; do
            flock lock rm -rf src tree
            timeout -s KILL $delay $prepare >/dev/null 2>&1 || :
        done
        $prepare
        [ -z "$(find src tree -maxdepth 1 -name '*.new' -o -name '*.scratch' -o -name '*.old')" ]""",
    "killed during an update": r"""
        for delay in 0.3 0.45 0.6; do
            cp $last former
            sed -i 's/^+\([^+]\|$\)/+ \1/' $last # Other new lines, and still a valid patch.
            timeout -s KILL $delay $prepare >/dev/null 2>&1 || :
            cp former $last
        done""",
    "two runs": """
        exec 7>>lock
        flock 7
        timeout 120 $prepare # It has nothing to do, so it does not wait.
        rm $tree.stamp
        $prepare >out 2>&1 7>&- &
        for _ in $(seq 1200); do [ -s out ] || sleep 0.1; done
        grep -xE 'waiting for another run \\(prepare, since [0-9]{2}:[0-9]{2}\\)' out
        kill -0 $!
        exec 7>&-
        wait $!""",
}


@pytest.fixture(name="names", scope="module")
def names_and_archives(tmp_path_factory, linux, repo):
    """What the tests have names for. Makes the archives."""
    folder = tmp_path_factory.mktemp("archives")
    names = {"archives": folder, "linux": linux, "other": repo, "real": CACHE, "series": SERIES, "tested": TESTED}
    User(folder, **names).run(ARCHIVES)
    return names


@pytest.fixture(name="kit")
def prepared(tmp_path, cache, names, monkeypatch):
    """A clone, and a cache with the source and the tree."""
    monkeypatch.setenv("KERNEL_TARBALL", f"{names['archives']}/{TESTED}.tar")
    repo = clone(tmp_path / "repo")
    kit = User(cache, **names, repo=repo, prepare=repo / "scripts/prepare", bad=repo / PATCHES / "area/9000-bad.patch",
               last=repo / NAMES[-1], source=cache / f"src/linux-{TESTED}", tree=cache / f"tree/v{SERIES}")
    kit.names += "times() { (cd $tree && find . -type f -printf '%P %T@\n' | sort); }\n"
    kit.run("cp -a $archives/first/{src,tree,lock} .; ln -sfnT $repo $tree/mm/vmap_rust")
    return kit


def state(kit):
    """Return the sums of the source, which no run changes, and of the tree."""
    return sums(kit.folder / f"src/linux-{TESTED}"), sums(kit.folder / f"tree/v{SERIES}")


@pytest.mark.parametrize("name, pattern", [
    ("none", "KERNEL_TARBALL=.* cannot be read"),
    ("6.12.1", f"Linux 6.12.1 is not supported: the patches are for {SERIES}"),
    ("short", "short.tar cannot be unpacked: it is damaged"), ("nokernel", "nokernel.tar holds no kernel source")])
def test_bad_archive(cache, names, name, pattern):
    """It is refused, and nothing is half done."""
    User(cache, **names).refused(f"KERNEL_TARBALL=$archives/{name}.tar $other/scripts/prepare", pattern)
    assert not [*cache.glob("src/*"), *cache.glob("tree/*")]


def test_no_mirror(cache, names, tmp_path):
    """Without KERNEL_TARBALL the source is that of a package; a download that fails leaves nothing."""
    user = User(tmp_path, **names)
    user.run(r"""mkdir bin; cat >bin/apt-get <<END
#!/bin/sh
case \$* in
    *indextargets*) echo "http://127.0.0.1:9/debian trixie Debian" ;;
    *) exec "$(command -v apt-get)" -o Acquire::Retries::Delay=false "\$@" ;;
esac
END
chmod +x bin/apt-get""")
    user.refused("PATH=$PWD/bin:$PATH $other/scripts/prepare source",
                 "the package lists could not be downloaded; look at the network")
    assert not [*cache.glob("src/*"), *cache.glob("linux-source*.xz")]


def test_source_and_tree(kit, names):
    """The source is that of the archive, the tree is patched and linked, and a second run says and does nothing."""
    assert sums(kit.folder / f"src/linux-{TESTED}") == sums(names["archives"] / f"linux-{TESTED}")
    kit.run("grep vmap_rust $tree/mm/Makefile; [ $(readlink $archives/first/tree/*/mm/vmap_rust) = $other ]")
    kit.run('times >was; [ -z "$($prepare 2>&1)" ]; times | cmp was -')


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_next_run(kit, event):
    """After an event, the next run makes source and tree what they were."""
    before = state(kit)
    kit.run(event)
    kit.run("$prepare")
    assert state(kit) == before


def test_patch_that_does_not_apply(kit):
    """It is named, and the tree stays as it was; without it all is well."""
    before = state(kit)
    kit.run(f"times >was; printf %b '{BAD_PATCH}' >$bad")
    kit.refused("$prepare", rf"\A.*patch 9000-bad.patch does not apply to Linux {TESTED} .*; nothing was changed in")
    assert state(kit) == before
    kit.run("rm $bad; $prepare; times | cmp was -")
    assert state(kit) == before
