#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of the source and the tree: bad archives, bad patches, updates, damage, kills, two runs. Sourced by scripts/suites/selftest.

S=$WORK/repo/scripts
P=$WORK/repo/kernel-patches/v$KVER_SERIES
C=$WORK/cache
T=$C/tree/v$KVER_SERIES

# archive VERSION FILE: an archive of the small kernel tree that says it is VERSION (three numbers).
archive() {
	local dir=$WORK/pack
	rm -rf "$dir"
	cp -a "$WORK/linux" "$dir"
	IFS=. read -r v p s <<<"$1"
	sed -i -e "s/^VERSION = .*/VERSION = $v/" -e "s/^PATCHLEVEL = .*/PATCHLEVEL = $p/" -e "s/^SUBLEVEL = .*/SUBLEVEL = $s/" \
		"$dir/Makefile"
	tar -cf "$2" -C "$WORK" --transform "s,^pack,linux-$1," pack
}

# leftovers: prints what a failed run must not leave in the cache.
leftovers() { find "$C/src" "$C/tree" -maxdepth 1 \( -name '*.new' -o -name '*.scratch' -o -name '*.old' \) 2>/dev/null; }

archive "$KVER_TESTED" "$WORK/good.tar"
archive 6.12.1 "$WORK/old.tar"
archive "$KVER_SERIES.99" "$WORK/other.tar"
head -c 100000 "$WORK/good.tar" >"$WORK/short.tar"
tar -cf "$WORK/nokernel.tar" -C "$WORK" repo/qemu

refuses "archive that is not there" "KERNEL_TARBALL=.* cannot be read" env KERNEL_TARBALL="$WORK/none.tar" "$S/prepare"
refuses "unsupported kernel" "Linux 6.12.1 is not supported: the patches are for $KVER_SERIES" \
	env KERNEL_TARBALL="$WORK/old.tar" "$S/prepare"
refuses "truncated archive" "short.tar cannot be unpacked: it is damaged" env KERNEL_TARBALL="$WORK/short.tar" "$S/prepare"
refuses "archive without a kernel" "nokernel.tar holds no kernel source" env KERNEL_TARBALL="$WORK/nokernel.tar" "$S/prepare"
check "nothing half done after bad archives" sh -c "[ -z \"\$(ls -A '$C/src' '$C/tree' 2>/dev/null | grep linux)\" ]"

export KERNEL_TARBALL=$WORK/good.tar
check "source and tree" "$S/prepare"
pristine=$(sums "$C/src/linux-$KVER_TESTED")
same "the source is that of the archive" "$(sums "$WORK/pack" >/dev/null; sums "$WORK/linux")" "$C/src/linux-$KVER_TESTED"
check "the tree has the link" test "$(readlink "$T/mm/vmap_rust")" = "$WORK/repo"
check "the tree is patched" grep -q vmap_rust "$T/mm/Makefile"
before=$(sums "$T")
times() { (cd "$1" && find . -type f -printf '%p %T@\n' | sort); }
was=$(times "$T")
check "second run says nothing" sh -c "[ -z \"\$('$S/prepare' 2>&1)\" ]"
same "second run changes nothing" "$before" "$T"

# Another clone takes the link over.
cp -a "$WORK/repo" "$WORK/repo2"
check "another clone" "$WORK/repo2/scripts/prepare"
check "the link follows" test "$(readlink "$T/mm/vmap_rust")" = "$WORK/repo2"
"$S/prepare"

# A patch that does not apply.
last=$(series_list "$P" | tail -n 1)
cat >"$P/9000-bad.patch" <<'PATCH'
--- a/mm/vmalloc.c
+++ b/mm/vmalloc.c
@@ -1,3 +1,3 @@
 no such line
-nor this one
+new
 nor that
PATCH
refuses "patch that does not apply" "the tree .* stays as it was" "$S/prepare"
check "it names patch and kernel" sh -c "'$S/prepare' 2>&1 | grep -q '^patch 9000-bad.patch does not apply to Linux $KVER_TESTED'"
same "the tree stays as it was" "$before" "$T"
rm "$P/9000-bad.patch"
check "without it all is well" "$S/prepare"
check "no file was touched" test "$(times "$T")" = "$was"

# Dropping the last patch changes the files of that patch only; putting it back restores the content.
mv "$last" "$WORK/last.patch"
check "series without its last patch" "$S/prepare"
changed=$(diff <(echo "$was") <(times "$T") | sed -n 's,^[<>] \./\([^ ]*\) .*,\1,p' | sort -u)
check "only its files changed" test "$changed" = "$(sed -n 's,^+++ b/,,p' "$WORK/last.patch" | sort -u)"
mv "$WORK/last.patch" "$last"
check "series complete again" "$S/prepare"
same "the tree is as before" "$before" "$T"
same "the source was never written to" "$pristine" "$C/src/linux-$KVER_TESTED"

# Another kernel of the series replaces the source, with a note.
check "another 7.3.x is taken with a note" sh -c "KERNEL_TARBALL='$WORK/other.tar' '$S/prepare' 2>&1 |
	grep -q '^note: the kernel source is $KVER_SERIES.99; the patches were tested with $KVER_TESTED'"
check "and back" "$S/prepare"
same "the tree is as before" "$before" "$T"

# Damage.
rm "$C/src/linux-$KVER_TESTED/Makefile"
check "damaged source is noticed" sh -c "'$S/prepare' 2>&1 | grep -q 'is damaged: unpacking it again'"
rm -rf "$T/Makefile"
check "damaged tree is made again" "$S/prepare"
same "the tree is as before" "$before" "$T"
# shellcheck disable=SC2016 # for the inner shell
check "a root of another recipe is not used" bash -c '. "$1/lib.sh"; . "$1/lib/root.sh"
	CACHE=$2; mkdir -p "$2/root/usr/bin"; echo other >"$2/root/.vmap-rust-stamp"; ! root_ready' sh "$S" "$WORK/oldroot"

# Killed at many moments: the next run ends with the same tree.
for delay in 0.02 0.05 0.1 0.15 0.2 0.3 0.4; do
	# With the lock, or what was killed just now may still be writing.
	flock "$C/lock" rm -rf "$C/src" "$C/tree"
	setsid "$S/prepare" >/dev/null 2>&1 &
	pid=$!
	sleep "$delay"
	kill_group "$pid"
done
check "after being killed" "$S/prepare"
same "the tree is as before" "$before" "$T"
check "nothing is left of it" sh -c "[ -z '$(leftovers)' ]"
sed -i 's/^+/+ /' "$last" # content of the last patch's new lines, still a valid patch
for delay in 0.05 0.08 0.11 0.14 0.17 0.2; do
	setsid "$S/prepare" >/dev/null 2>&1 &
	pid=$!
	sleep "$delay"
	kill_group "$pid"
done
cp "$REPO/${last#"$WORK/repo/"}" "$last"
check "after being killed in an update" "$S/prepare"
same "the tree is as before" "$before" "$T"

# Two runs at once: the second waits, says so, and then finds all done.
exec 7>>"$C/lock"
flock 7
check "a run with nothing to do does not wait" timeout 5 "$S/prepare"
rm "$T.stamp"
"$S/prepare" >"$WORK/second.log" 2>&1 7>&- &
pid=$!
sleep 0.5
check "the second run waits and says so" grep -qE '^waiting for another run \(prepare, since [0-9]{2}:[0-9]{2}\)$' "$WORK/second.log"
check "it is still waiting" kill -0 "$pid"
exec 7>&-
wait "$pid"
check "it goes on when the lock is free" test $? = 0
rm -rf "$C/src" "$C/tree"
"$S/prepare" 2>/dev/null & one=$!
"$S/prepare" 2>/dev/null & two=$!
wait "$one"
check "two cold runs: the first" test $? = 0
wait "$two"
check "two cold runs: the second" test $? = 0
same "the tree is as before" "$before" "$T"
unset KERNEL_TARBALL
