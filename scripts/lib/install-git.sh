#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Installs into a kernel tree that is a git tree: the patches become commits on a branch. Sourced by install-into.
#
# The state also has: FORMER (the branch before, or the commit if HEAD was detached), BASE and TIP (the commits before and
# after the patches). The record also has: exclude (a copy of git's info/exclude; absent when there was none).

GIT_BRANCH=vmap-rust

# kgit ARG...: runs git in KDIR, without the user's hooks and signing, with an identity when there is none.
kgit() {
	local id=()
	git -C "$KDIR" var GIT_COMMITTER_IDENT >/dev/null 2>&1 ||
		id=(-c user.name=vmap-rust -c user.email=vmap-rust@localhost)
	git -C "$KDIR" -c core.hooksPath=/dev/null -c commit.gpgSign=false -c advice.detachedHead=false "${id[@]}" "$@"
}

# git_path NAME: prints the absolute path of a file of the git folder.
git_path() { git -C "$KDIR" rev-parse --path-format=absolute --git-path "$1"; }

# git_idle: true when no merge, rebase, am or bisect is in progress.
git_idle() {
	local name
	for name in rebase-apply rebase-merge MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD BISECT_LOG; do
		[ ! -e "$(git_path "$name")" ] || return 1
	done
}

# git_clean: true when no tracked file differs from HEAD.
git_clean() { [ -z "$(kgit status --porcelain --untracked-files=no)" ]; }

# git_check: dies unless the tree is ready for a new branch.
git_check() {
	git_idle || die "$KDIR is in the middle of a merge, rebase, am or bisect; finish it first"
	git_clean || die "$KDIR has changes that are not committed; commit or stash them first"
	! git_has_branch || die "$KDIR has a branch $GIT_BRANCH already; rename or delete it first"
}

# git_excluded: prints our lines for info/exclude.
git_excluded() {
	! link_wanted || echo /mm/vmap_rust
	echo "/${REC##*/}"
}

# git_install: makes the branch, runs git am, makes the link and adds it to exclude.
git_install() {
	local files former base exclude patches=()
	# shellcheck disable=SC2153 # PATCHES is set by lib.sh
	files=$(series_files "$PATCHES")
	mkdir "$REC" || die "cannot create $REC"
	rec_lock
	if ! series_apply_copy "$PATCHES" "$KDIR" "$REC/new" "$files" -F0; then
		rec_remove
		die "nothing was changed in $KDIR"
	fi
	rm -rf "$REC/new"
	former=$(kgit symbolic-ref -q --short HEAD || kgit rev-parse HEAD)
	base=$(kgit rev-parse HEAD)
	exclude=$(git_path info/exclude)
	[ ! -e "$exclude" ] || cp -p "$exclude" "$REC/exclude"
	state_write KIND=git PHASE=installing "ONLY=$ONLY" "FORMER=$former" "BASE=$base"
	mkdir -p "$(dirname "$exclude")"
	git_excluded >>"$exclude"
	mapfile -t patches < <(series_list "$PATCHES")
	kgit checkout -q -b "$GIT_BRANCH"
	if ! kgit am --quiet --3way "${patches[@]}" >"$REC/am.log" 2>&1; then
		grep -m 3 -E '^(Patch failed|error|fatal)' "$REC/am.log" >&2 || tail -n 3 "$REC/am.log" >&2
		remove
		die "git am failed; $KDIR is as it was"
	fi
	link_install
	state_write KIND=git PHASE=installed "ONLY=$ONLY" "FORMER=$former" "BASE=$base" "TIP=$(kgit rev-parse "$GIT_BRANCH")"
}

# git_exclude_restore: removes our lines from info/exclude; lines that the user added since stay.
git_exclude_restore() {
	local exclude
	exclude=$(git_path info/exclude)
	[ -e "$exclude" ] || return 0
	sed -i -f <(git_excluded | sed 's/.*/\\,^&$,d/') "$exclude"
	if [ ! -e "$REC/exclude" ]; then
		[ -s "$exclude" ] || rm -f "$exclude"
	elif cmp -s "$REC/exclude" "$exclude"; then
		cp -p "$REC/exclude" "$exclude"
	fi
}

# git_unlock: removes the locks that a killed git left. Needs the record's lock, so that no git of ours is running.
git_unlock() {
	local name
	for name in index HEAD packed-refs "refs/heads/$GIT_BRANCH"; do
		rm -f "$(git_path "$name.lock")"
	done
}

# git_on_branch: true when HEAD is on our branch.
git_on_branch() { [ "$(kgit symbolic-ref -q --short HEAD || :)" = "$GIT_BRANCH" ]; }

# git_has_branch: true when our branch exists.
git_has_branch() { kgit rev-parse -q --verify "refs/heads/$GIT_BRANCH" >/dev/null; }

# git_abort: removes the commits of an interrupted installation. The tree had no changes when the installation began.
git_abort() {
	git_on_branch || return 0
	[ ! -d "$(git_path rebase-apply)" ] || kgit am --quit
	kgit reset -q --hard "$(state_get BASE)"
	series_files "$PATCHES" | while read -r file; do
		kgit ls-files --error-unmatch "$file" >/dev/null 2>&1 || rm -f "$KDIR/$file"
	done
}

# git_leave: checks out the branch that was checked out before; its commit when that branch is gone.
git_leave() {
	local former file
	former=$(state_get FORMER)
	kgit rev-parse -q --verify "refs/heads/$former" >/dev/null || former=$(state_get BASE)
	git_idle || die "$KDIR is in the middle of a merge, rebase, am or bisect; finish it first"
	while IFS= read -r file; do
		# A killed call may have done half of the checkout: then the file is already that of the former branch.
		[ "$(state_get PHASE)" = removing ] &&
			[ "$(kgit rev-parse -q --verify "$former:$file" || :)" = "$(kgit hash-object "$KDIR/$file" 2>/dev/null || :)" ] ||
			die "$KDIR has changes that are not committed; commit or stash them first"
	done < <(kgit diff --name-only HEAD)
	state_phase removing
	if [ "$former" = "$(state_get BASE)" ]; then
		kgit checkout -q -f --detach "$former"
	else
		kgit checkout -q -f "$former" --
	fi
}

# git_remove: checks out the former branch and deletes ours; dies if the user has added commits to ours.
git_remove() {
	local tip added
	link_check
	[ "$(state_get PHASE)" = installed ] || git_unlock
	tip=$(state_get TIP)
	if [ -z "$tip" ]; then
		git_abort
	elif git_has_branch; then
		added=$(kgit rev-list --count "$tip..$GIT_BRANCH")
		[ "$added" = 0 ] || die "branch $GIT_BRANCH has $added commits of yours; move them to another branch first" \
			"(git branch NAME $GIT_BRANCH && git branch -f $GIT_BRANCH ${tip:0:12})"
	fi
	if git_on_branch; then git_leave; else state_phase removing; fi
	link_remove
	! git_has_branch || kgit branch -q -D "$GIT_BRANCH"
	git_exclude_restore
	rec_remove
}
