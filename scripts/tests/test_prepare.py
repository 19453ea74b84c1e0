# SPDX-License-Identifier: GPL-2.0
"""The source and the tree that scripts/prepare makes: bad archives, bad patches, updates, damage, kills, two runs."""

import pytest

from conftest import CACHE, HERE, NAMES, PATCHES, SERIES, TESTED, User, clone, sums

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
# A Debian mirror with the package of the kernel source, whose apt takes it without a signature.
MIRROR = r"""
name=linux-source-$series arch=$(dpkg --print-architecture)
mkdir -p deb/DEBIAN deb/usr/src dists bin
cp $archives/$tested.tar deb/usr/src/$name.tar.xz
printf '%s\n' "Package: $name" "Version: $tested-1" "Architecture: all" "Maintainer: none" \
    "Description: none" >deb/DEBIAN/control
dpkg-deb -b deb $name.deb
cp deb/DEBIAN/control Packages
printf '%s\n' "Filename: $name.deb" "Size: $(stat -c %s $name.deb)" \
    "SHA256: $(sha256sum <$name.deb | cut -d ' ' -f 1)" >>Packages
for suite in trixie trixie-backports; do
    install -D Packages dists/$suite/main/binary-$arch/Packages
    printf '%s\n' "Codename: $suite" "Date: $(date -uR)" SHA256: " $(sha256sum <Packages | cut -d ' ' -f 1) \
$(stat -c %s Packages) main/binary-$arch/Packages" >dists/$suite/Release
done
options='-o Acquire::AllowInsecureRepositories=true -o APT::Get::AllowUnauthenticated=true'
address=file:$PWD
"""
APT = r"""
cat >bin/apt-get <<END
#!/bin/sh
case \$* in
    *indextargets*) echo "$address trixie Debian" ;;
    *) exec "$(command -v apt-get)" -o Acquire::Retries::Delay=false $options "\$@" ;;
esac
END
chmod +x bin/apt-get
"""
# What is wrong with the mirror, and the last line.
MIRRORS = {"": "", "options=": "the package lists could not be downloaded; look at the network",
           "printf x >>$name.deb": f"the package linux-source-{SERIES} could not be downloaded; look .* or give KERNEL",
           "address=http://127.0.0.1:9/debian": "the package lists could not be downloaded; look at the network"}
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
            flock lock rm -rf src tree
            timeout -s KILL $delay $prepare >/dev/null 2>&1 || :
        done
        $prepare
        [ -z "$(find src tree -maxdepth 1 -name '*.new' -o -name '*.scratch' -o -name '*.old')" ]""",
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


@pytest.mark.parametrize("fault, pattern", MIRRORS.items())
def test_mirror(cache, names, tmp_path, fault, pattern):
    """The source is that of the package, if its signature and hash are right."""
    user = User(tmp_path, **names)
    user.run(f"{MIRROR}{fault}{APT}")
    command = "PATH=$PWD/bin:$PATH $other/scripts/prepare source"
    if pattern:
        user.refused(command, pattern)
        assert not [*cache.glob("src/*"), *cache.glob("linux-source*.xz")]
    else:
        user.run(command)
        assert sums(cache / f"src/linux-{TESTED}") == sums(names["archives"] / f"linux-{TESTED}")


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


def test_root_of_another_recipe(cache):
    """It is not used, although it has the programs."""
    ready = "PYTHONPATH=$PWD python3 -P -c 'from harness import root; raise SystemExit(not root.ready())'"
    assert HERE.run(f"VMAP_RUST_CACHE={CACHE} {ready}") == ""
    User(cache, real=CACHE / "root").run("""
        rm root; mkdir -p root/usr/bin root/opt/cargo/bin; echo other >root/.vmap-rust-stamp
        for name in usr/bin/make opt/cargo/bin/bindgen; do ln -s $real/$name root/$name; done""")
    assert HERE.run(ready, 1) == ""
