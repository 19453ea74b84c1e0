# SPDX-License-Identifier: GPL-2.0
"""The source and the tree that scripts/prepare makes: bad archives, bad patches, updates, damage, kills, two runs."""

import pytest

from conftest import CACHE, HERE, NAMES, PATCHES, REPO, SERIES, TESTED, User, clone, sums

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
# A Debian archive of kernel sources in the versions $versions, as scripts/prepare sees it after an update.
DEBIAN = r"""
mkdir debian
for version in $versions; do
    name=linux-source-$(cut -d . -f 1,2 <<<$version)
    printf '%s\n' "Package: $name" "Version: $version-1~bpo13+1" "Architecture: all" "Maintainer: none" \
        "Filename: ./${name}_$version.deb" "Size: 1" "SHA256: $(printf 1 | sha256sum | cut -d ' ' -f 1)" \
        "Description: Linux kernel source" ""
done >debian/Packages
printf '%s\n' "Codename: trixie-backports" "Date: $(date -uR)" SHA256: \
    " $(sha256sum <debian/Packages | cut -d ' ' -f 1) $(stat -c %s debian/Packages) Packages" >debian/Release
. $repo/scripts/lib.sh
. $repo/scripts/lib/root.sh
root_apt_setup
echo "deb [trusted=yes] file:$PWD/debian ./" >$CACHE/apt/sources.list
root_update >log 2>&1 || cat log
root_source_check
root_apt $(dpkg --print-architecture) download --print-uris linux-source-$KVER_SERIES | cut -d ' ' -f 2
"""
NO_PACKAGE = (f"bash: error: the Debian archive has no package linux-source-{SERIES} any more{{}} and the patches "
              f"are for Linux {SERIES}; give KERNEL_TARBALL=/path/to/linux-{TESTED}.tar.xz")
BAD_PATCH = r"--- a/mm/vmalloc.c\n+++ b/mm/vmalloc.c\n@@ -1,3 +1,3 @@\n no such line\n-nor this one\n+new\n nor that\n"
# Other new lines, and still a valid patch.
CHANGED_PATCH = r"cp $last former; sed -i 's/^+\([^+]\|$\)/+ \1/' $last"
# What happens in the cache. The next run must make source and tree what they were.
EVENTS = {
    "another clone": "$other/scripts/prepare; [ $(readlink $tree/mm/vmap_rust) = $other ]",
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
        for delay in 0.02 0.05 0.1 0.15 0.2 0.3 0.4; do
            (. $repo/scripts/lib.sh; with_lock remove_left src; remove_left tree)
            timeout -s KILL $delay $prepare >/dev/null 2>&1 || :
        done
        $prepare
        [ -z "$(find src tree -maxdepth 1 -name '*.new' -o -name '*.scratch' -o -name '*.old')" ]""",
    "killed in an update": CHANGED_PATCH + """
        for delay in 0.05 0.08 0.11 0.14 0.17 0.2; do
            timeout -s KILL $delay $prepare >/dev/null 2>&1 || :
        done
        cp former $last""",
    # Before the first file is replaced, when there is no stamp any more, and after one was.
    "killed while files are replaced": f"""
        file=$tree/$(sed -n 's,^+++ b/,,p' $last | head -n 1)
        for moment in "[ ! -e $tree.stamp ]" "[ $file -nt former ]"; do
            {CHANGED_PATCH}
            setsid $prepare >/dev/null 2>&1 &
            until eval "$moment" || ! kill -0 $!; do :; done
            kill -9 -- -$! || :
            cp former $last
            $prepare
        done""",
    "two runs": """
        exec 7>>lock
        flock 7
        timeout 5 $prepare # It has nothing to do, so it does not wait.
        rm $tree.stamp
        $prepare >out 2>&1 7>&- &
        for _ in $(seq 100); do [ -s out ] || sleep 0.1; done
        grep -xE 'waiting for another run \\(prepare, since [0-9]{2}:[0-9]{2}\\)' out
        kill -0 $!
        exec 7>&-
        wait $!""",
    "two cold runs": "rm -r src tree; $prepare & $prepare; wait $!",
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
    kit = User(cache, **names, repo=repo, prepare=repo / "scripts/prepare", bad=repo / PATCHES / "9000-bad.patch",
               last=repo / NAMES[-1], source=cache / f"src/linux-{TESTED}", tree=cache / f"tree/v{SERIES}")
    kit.names += "times() { (cd $tree && find . -type f -printf '%P %T@\n' | sort); }\n"
    kit.run("cp -a $archives/first/{src,tree,lock.by} .; ln -sfnT $repo $tree/mm/vmap_rust")
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


@pytest.mark.parametrize("versions, code, text", [
    (f"{SERIES}.99 {TESTED} 6.12.1", 0, f"linux-source-{SERIES}_{TESTED}-1~bpo13+1_all.deb"),
    (f"{SERIES}.99 6.12.1", 0, f"linux-source-{SERIES}_{SERIES}.99-1~bpo13+1_all.deb"),
    ("6.12.1 99.1.2", 1, NO_PACKAGE.format(", only linux-source-6.12 linux-source-99.1,")),
    ("", 1, NO_PACKAGE.format(","))])
def test_debian_archive(cache, versions, code, text):
    """The tested release is taken if it is there, else another of its series. Without one, the only line says so before
    anything else is downloaded."""
    assert User(cache.parent, repo=REPO, versions=versions).run(DEBIAN, code) == f"{text}\n"


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
    kit.refused("$prepare", rf"^patch 9000-bad.patch does not apply to Linux {TESTED}(.*\n)+"
                ".*the tree .* stays as it was")
    assert state(kit) == before
    kit.run("rm $bad; $prepare; times | cmp was -")
    assert state(kit) == before


def test_root_of_another_recipe(cache):
    """It is not used, although it has the programs."""
    ready = ". scripts/lib.sh; . scripts/lib/root.sh; root_ready"
    HERE.run(ready)
    User(cache, real=CACHE / "root").run("""
        rm root; mkdir -p root/usr/bin root/opt/cargo/bin; echo other >root/.vmap-rust-stamp
        for name in usr/bin/make opt/cargo/bin/bindgen; do ln -s $real/$name root/$name; done""")
    assert HERE.run(ready, 1) == ""
