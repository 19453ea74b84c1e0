#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of install-into on a plain tree and on a git tree. Sourced by scripts/suites/selftest.

rm -rf "$WORK/repo"
fake_repo "$WORK/repo"
S=$WORK/repo/scripts
P=$WORK/repo/kernel-patches/v$KVER_SERIES
I=$S/install-into
K=$WORK/plain
G=$WORK/git

cp -a "$WORK/linux" "$K"
cp -a "$WORK/linux" "$G"
kg() { git -C "$G" -c user.name=t -c user.email=t@localhost -c core.hooksPath=/dev/null -c commit.gpgSign=false "$@"; }
kg init -q -b master
kg add -Af
kg commit -q -m base
plain=$(sums "$K")

refuses "no tree given" "which kernel tree" "$I"
refuses "folder that is not there" "there is no folder" "$I" "$WORK/nowhere"
refuses "folder without a kernel" "is not a Linux kernel source tree" "$I" "$WORK/repo"
refuses "nothing to remove" "nothing is installed" "$I" "$K" --remove
sed -i 's/^PATCHLEVEL = .*/PATCHLEVEL = 1/' "$K/Makefile"
refuses "unsupported kernel" "Linux 7\.1.* is not supported.*--force-version" "$I" "$K"
check "--force-version" "$I" "$K" --force-version
"$I" "$K" --remove 2>/dev/null
cp -p "$WORK/linux/Makefile" "$K/Makefile"
same "unsupported kernel stays as it was" "$plain" "$K"

# Plain tree.
check "plain tree" "$I" "$K"
check "it is patched and linked" sh -c "grep -q vmap_rust '$K/mm/Makefile' && [ -e '$K/mm/vmap_rust/scripts/build' ]"
refuses "installed twice" "already installed in .* \(area and mapping\)" "$I" "$K"
echo "/* mine */" >>"$K/mm/vmalloc.c"
refuses "a file that was changed since" "changed since they were installed: mm/vmalloc.c" "$I" "$K" --remove
sed -i '$d' "$K/mm/vmalloc.c"
touch -d '1 minute ago' "$WORK/before"
check "--remove" "$I" "$K" --remove
same "it is as before, byte for byte" "$plain" "$K"
check "make sees the restored files as new" test "$K/mm/vmalloc.c" -nt "$WORK/before"
check "--copy" "$I" "$K" --copy
check "the copy is a folder with the files" sh -c "[ ! -L '$K/mm/vmap_rust' ] && cmp '$S/build' '$K/mm/vmap_rust/scripts/build'"
echo mine >"$K/mm/vmap_rust/mine.c"
refuses "a copy with a file of the user" "mine.c" "$I" "$K" --remove
rm "$K/mm/vmap_rust/mine.c"
touch "$K/mm/vmap_rust/built.o"
check "--remove of a copy with objects" "$I" "$K" --remove
same "it is as before, byte for byte" "$plain" "$K"
mkdir "$K/mm/vmap_rust"
refuses "mm/vmap_rust of somebody else" "not from this script" "$I" "$K"
rmdir "$K/mm/vmap_rust"
sed -i 's/vmalloc_init/vmalloc_init_/' "$K/mm/vmalloc.c" "$K/mm/mm_init.c" "$K/init/main.c"
refuses "a tree with changes in the way" "nothing was changed" "$I" "$K"
(cd "$WORK/linux" && cp -p --parents mm/vmalloc.c mm/mm_init.c init/main.c "$K")
same "it is as before" "$plain" "$K"

# Git tree.
status=$(kg status --porcelain --ignored)
exclude=$(cat "$G/.git/info/exclude" 2>/dev/null || :)
check "git tree" "$I" "$G"
check "one commit per patch" test "$(kg rev-list --count master..vmap-rust)" = "$(series_list "$P" | wc -l)"
check "git status is clean" sh -c "[ -z '$(kg status --porcelain)' ]"
kg commit -q --allow-empty -m mine
refuses "a commit of the user on the branch" "has 1 commits of yours" "$I" "$G" --remove
kg reset -q --hard HEAD^
echo >>"$G/mm/vmalloc.c"
refuses "changes that are not committed" "changes that are not committed" "$I" "$G" --remove
kg checkout -q mm/vmalloc.c
check "--remove" "$I" "$G" --remove
same "it is as before, byte for byte" "$plain" "$G"
check "git is as before" test "$(kg branch -a)$(kg status --porcelain --ignored)$(cat "$G/.git/info/exclude")" = \
	"* master$status$exclude"
echo >>"$G/mm/vmalloc.c"
refuses "git tree with changes" "changes that are not committed; commit or stash" "$I" "$G"
kg checkout -q mm/vmalloc.c
kg branch vmap-rust
refuses "a branch of that name" "has a branch vmap-rust already" "$I" "$G"
kg branch -q -D vmap-rust
sed '0,/^-\(.\)/s//-\1x/' "$(series_list "$P" | tail -n 1)" >"$P/9000-bad.patch"
refuses "series that does not apply" "nothing was changed" "$I" "$G"
rm "$P/9000-bad.patch"
same "it is as before" "$plain" "$G"
kg checkout -q --detach
check "detached HEAD" "$I" "$G"
check "detached HEAD: --remove" "$I" "$G" --remove
check "HEAD is detached again" sh -c "! git -C '$G' symbolic-ref -q HEAD"
kg checkout -q master

# One series.
refuses "--only with a wrong value" '^install-into: error: --only takes area or mapping, not "maps"$' "$I" "$K" --only maps
refuses "--only without a value" 'not ""$' "$I" "$K" --only
refuses "--remove with --only" "it takes no --only" "$I" "$K" --remove --only area
refuses "--copy of what is not wanted" "nothing for --copy" "$I" "$K" --copy --only mapping
same "it is as before" "$plain" "$K"

# is_only NAME TREE: true when exactly that series is in TREE; mapping has no mm/vmap_rust.
is_only() {
	local dir=$WORK/only file
	rm -rf "$dir"
	cp -a "$WORK/linux" "$dir"
	series_list "$P/$1" | while read -r file; do patch -d "$dir" -p1 -F0 --no-backup-if-mismatch -s <"$file" || return 1; done || return 1
	[ "$1" = mapping ] || ln -s "$WORK/repo" "$dir/mm/vmap_rust"
	diff <(sums "$dir") <(sums "$2" | grep -v -F ./.vmap-rust-installed)
}
for tree in "$K" "$G"; do
	kind=${tree##*/}
	for only in area mapping; do
		other=area
		[ "$only" = mapping ] || other=mapping
		check "$kind tree: --only $only" "$I" "$tree" --only "$only"
		check "it has that series only" is_only "$only" "$tree"
		refuses "the other series on top" "already installed in .* \($only\); --remove takes it out" "$I" "$tree" --only "$other"
		check "--remove" "$I" "$tree" --remove
		same "it is as before, byte for byte" "$plain" "$tree"
		# As a killed call leaves it: all changes are made, but the state still says that they are in progress.
		"$I" "$tree" --only "$only" 2>/dev/null
		sed -i -e s/^PHASE=.*/PHASE=installing/ -e /^TIP=/d "$tree/.vmap-rust-installed/state"
		check "after an interrupted call, $other is what is installed" "$I" "$tree" --only "$other"
		check "it has that series only" is_only "$other" "$tree"
		"$I" "$tree" --remove 2>/dev/null
		same "it is as before, byte for byte" "$plain" "$tree"
	done
	mkdir "$tree/mm/vmap_rust"
	echo mine >"$tree/mm/vmap_rust/mine.c"
	mine=$(sums "$tree")
	check "$kind tree: --only mapping beside a mm/vmap_rust of the user" "$I" "$tree" --only mapping
	check "--remove" "$I" "$tree" --remove
	same "it is still there" "$mine" "$tree"
	rm -r "$tree/mm/vmap_rust"
done
check "git is as before" test "$(kg branch -a)$(kg status --porcelain --ignored)$(cat "$G/.git/info/exclude")" = \
	"* master$status$exclude"

# Killed at many moments, then repaired by --remove or by the next install.
for tree in "$K" "$G"; do
	bad=
	for delay in 0.03 0.08 0.12 0.16 0.2 0.25 0.3 0.35 0.4; do
		# Some of these calls install one series; what repairs them installs both.
		case $delay in
		*[03569]) only=(--only mapping) ;;
		*) only=() ;;
		esac
		setsid "$I" "$tree" "${only[@]}" >/dev/null 2>&1 &
		pid=$!
		sleep "$delay"
		kill_group "$pid"
		setsid "$I" "$tree" --remove >/dev/null 2>&1 &
		pid=$!
		sleep "$delay"
		kill_group "$pid"
		"$I" "$tree" >/dev/null 2>&1 || :
		"$I" "$tree" --remove >"$WORK/remove.log" 2>&1 || bad+="$delay: $(cat "$WORK/remove.log") "
		[ "$(sums "$tree")" = "$plain" ] || bad+="$delay: differs "
	done
	check "${tree##*/} tree: killed and repaired ($bad)" test -z "$bad"
done
check "git is as before" test "$(kg branch -a)$(kg status --porcelain --ignored)$(cat "$G/.git/info/exclude")" = \
	"* master$status$exclude"
