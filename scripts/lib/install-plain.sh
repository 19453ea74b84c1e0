#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Installs into a kernel tree that is not the top of a git tree. Sourced by install-into.
#
# The record also has: files (the touched files), orig/ (the originals), added (new files), dirs (new folders), sums (sha256
# of the patched files). All of them are complete before PHASE=installing is written, and that before the first change.

# plain_new_dirs: prints the folders that the files named on stdin need and the tree lacks, the deepest first.
plain_new_dirs() {
	local file dir
	while read -r file; do
		dir=$(dirname "$file")
		while [ ! -d "$KDIR/$dir" ]; do
			echo "$dir"
			dir=$(dirname "$dir")
		done
	done | sort -ru
}

# plain_install: applies the patches to copies, saves the originals, then moves the patched files into the tree.
plain_install() {
	local files file
	files=$(series_files "$PATCHES")
	mkdir "$REC" || die "cannot create $REC"
	rec_lock
	if ! series_apply_copy "$PATCHES" "$KDIR" "$REC/new" "$files" -F0; then
		rec_remove
		die "nothing was changed in $KDIR; are there changes of its own in these files?"
	fi
	printf '%s\n' "$files" >"$REC/files"
	plain_new_dirs <"$REC/files" >"$REC/dirs"
	(cd "$REC/new" && find . -type f -printf '%P\0' | xargs -0 sha256sum) >"$REC/sums"
	: >"$REC/added"
	while read -r file; do
		if [ ! -e "$KDIR/$file" ]; then
			echo "$file" >>"$REC/added"
			continue
		fi
		mkdir -p "$REC/orig/$(dirname "$file")"
		cp -a "$KDIR/$file" "$REC/orig/$file"
	done <"$REC/files"
	state_write KIND=plain PHASE=installing "ONLY=$ONLY"
	while read -r file; do
		if [ -e "$REC/new/$file" ]; then
			cmp -s "$REC/new/$file" "$KDIR/$file" && continue
			mkdir -p "$KDIR/$(dirname "$file")"
			touch "$REC/new/$file"
			mv "$REC/new/$file" "$KDIR/$file"
		else
			rm -f "$KDIR/$file"
		fi
	done <"$REC/files"
	link_install
	rm -rf "$REC/new"
	state_phase installed
}

# plain_changed: prints the touched files that the user has changed: restoring the original would lose these changes.
plain_changed() {
	local file sum
	while read -r file; do
		[ -e "$KDIR/$file" ] || continue
		if ! grep -qxF -- "$file" "$REC/added"; then
			# Without an original in the record, the file is already restored.
			[ -e "$REC/orig/$file" ] || continue
			! cmp -s "$REC/orig/$file" "$KDIR/$file" || continue
		fi
		sum=$(sha256sum <"$KDIR/$file")
		grep -qxF -- "${sum%% *}  $file" "$REC/sums" || echo "$file"
	done <"$REC/files"
}

# plain_remove: restores the originals; dies if the user has changed a touched file.
plain_remove() {
	local changed file dir
	changed=$(plain_changed | paste -sd' ')
	[ -z "$changed" ] || die "changed since they were installed: $changed; save your changes and undo them first"
	link_check
	state_phase removing
	link_remove
	while read -r file; do
		if [ -e "$REC/orig/$file" ]; then
			# With a new modification time: objects that were built from the patched file must not look up to date.
			touch "$REC/orig/$file"
			mv -f "$REC/orig/$file" "$KDIR/$file"
		elif grep -qxF -- "$file" "$REC/added"; then
			rm -f "$KDIR/$file"
		fi
	done <"$REC/files"
	while read -r dir; do
		[ ! -d "$KDIR/$dir" ] || rmdir --ignore-fail-on-non-empty "$KDIR/$dir"
	done <"$REC/dirs"
	rec_remove
}
