#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Unpacks the pristine kernel source into the cache. Sourced by scripts/prepare.
#
# $CACHE/src/linux-VERSION is complete when $CACHE/src/linux-VERSION.stamp exists. No script writes to it after that:
# each build has a separate folder, and $TREE replaces files instead of changing them.

# source_tarball: prints the path of the kernel source archive.
source_tarball() {
	local file
	if [ -n "${KERNEL_TARBALL:-}" ]; then
		[ -r "$KERNEL_TARBALL" ] || die "KERNEL_TARBALL=$KERNEL_TARBALL cannot be read"
		realpath "$KERNEL_TARBALL"
		return
	fi
	file=/usr/src/linux-source-$KVER_SERIES.tar.xz
	if [ "$TOOLCHAIN" = root ] && [ "$KVER_SERIES" != "$ROOT_KERNEL" ]; then
		file=$CACHE/${file##*/}
		[ -r "$file" ] || step "kernel source: download" "$CACHE/log/source-download.log" "${PART[@]}" root_file \
			"$CACHE" "$(dpkg --print-architecture)" "linux-source-$KVER_SERIES" "./usr/src/${file##*/}" "$file" ||
			die "the package linux-source-$KVER_SERIES could not be downloaded;" \
				"give KERNEL_TARBALL=/path/to/linux-$KVER_TESTED.tar.xz"
	elif [ "$TOOLCHAIN" = root ]; then
		file=$CACHE/root$file
	fi
	[ -r "$file" ] || die "no kernel source: $file is missing;" \
		"install the package linux-source-$KVER_SERIES, or give KERNEL_TARBALL=/path/to/linux-$KVER_TESTED.tar.xz"
	printf '%s\n' "$file"
}

# source_ready: sets SRC_DIR and is true when there is a complete source from the archive that would be used now.
# Another archive (a newer package, another KERNEL_TARBALL) means another source.
source_ready() {
	local stamp tarball
	for stamp in "$CACHE/src/linux-$KVER_SERIES"*.stamp; do
		[ -r "$stamp" ] || continue
		SRC_DIR=${stamp%.stamp}
		tarball=$(sed -n 's/^tarball=//p' "$stamp")
		[ -n "${KERNEL_TARBALL:-}" ] || [ -r "$tarball" ] || return 0
		[ "$(source_tarball) $(stat -c %s-%Y "$tarball")" != "$tarball $(sed -n 's/^size=//p' "$stamp")" ] ||
			return 0
	done
	return 1
}

# source_unpack TARBALL DIR: unpacks TARBALL, whose own checksums detect damage. Runs in the toolchain root: a minimal
# build host has no xz.
source_unpack() {
	remove_left "$2"
	mkdir -p "$2"
	tar -x --strip-components=1 --no-same-owner -C "$2" -f "$1"
}

# prepare_source: unpacks the kernel source unless it is there. Sets SRC_DIR.
prepare_source() {
	local tarball version new=$CACHE/src/unpack.new
	SRC_DIR=
	if source_ready; then
		return 0
	fi
	tarball=$(source_tarball)
	remove_left "$new"
	# shellcheck disable=SC2034 # for in_root
	ENTER_BINDS=(--ro-bind "$tarball" "$tarball")
	need_space 2300 "the kernel source"
	step "kernel source: unpack $(basename "$tarball")" "$CACHE/log/source.log" in_root "${PART[@]}" source_unpack "$tarball" "$new" || {
		rm -rf "$new"
		die "$tarball cannot be unpacked: it is damaged, or the disk is full; get it again" \
			"(remove $CACHE/root and run scripts/prepare), or give KERNEL_TARBALL=/path/to/linux-$KVER_TESTED.tar.xz"
	}
	version=$(kernel_version "$new") || { rm -rf "$new"; die "$tarball holds no kernel source"; }
	(check_version "$version" "the kernel source" "; give KERNEL_TARBALL=/path/to/linux-$KVER_TESTED.tar.xz") ||
		{ rm -rf "$new"; exit 1; }
	SRC_DIR=$CACHE/src/linux-$version
	# A tree shares its files with the source that is removed here.
	rm -f "$CACHE/src/linux-$KVER_SERIES"*.stamp "$TREE"*.source "$TREE"*.stamp
	rm -rf "$SRC_DIR"
	mv "$new" "$SRC_DIR"
	printf 'tarball=%s\nsize=%s\n' "$tarball" "$(stat -c %s-%Y "$tarball")" >"$SRC_DIR.stamp.new"
	mv "$SRC_DIR.stamp.new" "$SRC_DIR.stamp"
}
