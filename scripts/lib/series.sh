#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Functions for the folders of numbered patches (0001-...patch; 0000 is the cover letter). Sourced by scripts/prepare and
# install-into.

# The series, in the order in which they are applied; those that are used: all, or VMAP_RUST_SERIES.
ALL_SERIES=(fixes maple area debug mapping alone later)
read -ra SERIES <<<"${VMAP_RUST_SERIES:-${ALL_SERIES[*]}}"

# series_with NAME: prints the series that NAME needs, and NAME, in order.
series_with() {
	case $1 in
	area) echo fixes maple area ;;
	debug) echo fixes maple area debug ;;
	mapping) echo fixes mapping ;;
	alone) echo fixes maple area debug mapping alone ;;
	later) echo "${ALL_SERIES[@]}" ;;
	*) echo "$1" ;;
	esac
}

# series_list DIR: prints the paths of the patches of SERIES in order, then of those in DIR itself; nothing when there are none.
# DIR/META may say that DIR has only what differs from the patches for another kernel ("Based-On: 7.3").
series_list() {
	local folder base=$1 patch
	if grep -qs '^Based-On:' "$1/META"; then base=${1%/*}/v$(PATCHES=$1 meta Based-On); fi
	for folder in "${SERIES[@]}" ''; do
		folder=$base${folder:+/$folder}
		[ ! -d "$folder" ] ||
			find "$folder" -mindepth 1 -maxdepth 1 -name '[0-9][0-9][0-9][0-9]-*.patch' ! -name '0000-*' | sort
	done | while read -r patch; do
		if [ -e "$1${patch#"$base"}" ]; then echo "$1${patch#"$base"}"; else echo "$patch"; fi
	done
}

# patch_hash FILE: prints the hash of what a patch changes, without its mail.
patch_hash() { sed -n '/^diff --git /,$p' "$1" | sha256sum | cut -c 1-16; }

# series_files DIR: prints the files that the patches touch, sorted, relative to the kernel tree.
series_files() {
	series_list "$1" | xargs -r -d '\n' sed -n \
		-e 's,^--- a/\([^\t]*\).*,\1,p' -e 's,^+++ b/\([^\t]*\).*,\1,p' \
		-e 's,^rename from ,,p' -e 's,^rename to ,,p' | sort -u
}

# series_apply_copy DIR TREE SCRATCH FILES [ARG]: copies FILES (one per line) of TREE to the new folder SCRATCH and applies the
# patches there. Only reads TREE. Passes ARG to patch: -F0 is as strict as git am. When a patch does not apply, prints one
# line that names it and returns 1.
series_apply_copy() {
	local dir=$1 tree=$2 scratch=$3 strict=${5:-} file patch out
	remove_left "$scratch"
	mkdir -p "$scratch"
	while read -r file; do
		if [ -z "$file" ] || [ ! -e "$tree/$file" ]; then continue; fi
		mkdir -p "$scratch/$(dirname "$file")"
		cp -p "$tree/$file" "$scratch/$file"
	done <<<"$4"
	while read -r patch; do
		[ -n "$patch" ] || continue
		if ! out=$(cd "$scratch" && patch -p1 -N ${strict:+"$strict"} --no-backup-if-mismatch --batch <"$patch" 2>&1); then
			out=$(grep -m 1 -E 'FAILED|malformed|find file|already exists|previously applied' <<<"$out" || :)
			say "patch $(basename "$patch") does not apply to Linux $(kernel_version "$tree")${out:+ ($out)}"
			return 1
		fi
	done <<<"$(series_list "$dir")"
}
