#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes $TREE: the kernel source with the patches and a link to this repository. Sourced by scripts/prepare and
# scripts/build.
#
# A tree is a hard-link copy of the pristine source in which patched files are replaced, never written to. When the
# patches change, only files whose content differs are replaced, so that the builds stay incremental.

# tree_stamp: prints what identifies the content of a tree: the source, and a hash of it and the patches.
tree_stamp() {
	local hash
	hash=$({ basename "$SRC_DIR"; cat "$SRC_DIR.stamp"; series_list "$PATCHES" | xargs -r -d '\n' cat; } | sha256sum)
	echo "$(basename "$SRC_DIR") ${hash:0:16}"
}

# tree_ready TREE: true when TREE is the source with the patches. Needs SRC_DIR.
tree_ready() { [ -e "$1/Makefile" ] && [ "$(cat "$1.stamp" 2>/dev/null)" = "$(tree_stamp)" ]; }

# tree_linked TREE: true when mm/vmap_rust of TREE points to this repository.
tree_linked() { [ "$(readlink "$1/mm/vmap_rust" 2>/dev/null)" = "$REPO" ]; }

# tree_copy TREE: makes TREE a copy of the source, unless it is one, with whatever patches.
tree_copy() {
	[ ! -e "$1/Makefile" ] || [ "$(cat "$1.source" 2>/dev/null)" != "$(cat "$SRC_DIR.stamp")" ] || return 0
	need_space 200 "the kernel tree"
	rm -rf "$1" "$1".*
	mkdir -p "$(dirname "$1")"
	step "kernel tree: copy" "$CACHE/log/tree.log" cp -al "$SRC_DIR" "$1.new" || die "the kernel tree could not be made"
	mv "$1.new" "$1"
	cp "$SRC_DIR.stamp" "$1.source"
}

# tree_patch TREE: makes TREE the source with the patches; returns 1, without a change, if one does not apply.
# TREE.files lists the files that may differ from the source; it is written before the first of them is replaced, so a
# killed run can be repeated.
tree_patch() {
	local tree=$1 scratch=$1.scratch file files
	files=$({ cat "$tree.files" 2>/dev/null || :; series_files "$PATCHES"; } | sort -u)
	in_root "${PART[@]}" series_apply_copy "$PATCHES" "$SRC_DIR" "$scratch" "$files" || { rm -rf "$scratch"; return 1; }
	rm -f "$tree.stamp"
	printf '%s\n' "$files" >"$tree.files.new"
	mv "$tree.files.new" "$tree.files"
	while read -r file; do
		if [ -z "$file" ] || cmp -s "$scratch/$file" "$tree/$file"; then
			continue
		elif [ ! -e "$scratch/$file" ]; then
			rm -f "$tree/$file"
		else
			touch "$scratch/$file"
			mkdir -p "$(dirname "$tree/$file")" && mv "$scratch/$file" "$tree/$file" || return 1
		fi
	done <<<"$files"
	rm -rf "$scratch"
	tree_stamp >"$tree.stamp.new"
	mv "$tree.stamp.new" "$tree.stamp"
}

# prepare_tree: makes or updates $TREE. Needs SRC_DIR. When a patch does not apply, it dies and the tree does not
# change.
prepare_tree() {
	# shellcheck disable=SC2153 # TREE is set by lib.sh
	if ! tree_ready "$TREE"; then
		tree_copy "$TREE"
		tree_patch "$TREE" || die "the tree $TREE stays as it was"
		say "kernel tree: $(series_list "$PATCHES" | wc -l) patches on $(basename "$SRC_DIR") in $TREE"
	fi
	tree_linked "$TREE" || ln -sfnT "$REPO" "$TREE/mm/vmap_rust"
}

# pristine_tree COUNT: makes or updates $TREE-pristine: the source of $TREE with the first COUNT patches of fixes and
# mapping, mostly none, and this repository wired up, for its benchmark.
pristine_tree() {
	# shellcheck disable=SC2034 # SERIES is for series_list
	local tree=$TREE-pristine patch number=0 SERIES=(fixes mapping) SRC_DIR all
	SRC_DIR=$CACHE/src/$(cut -d ' ' -f 1 "$TREE.stamp")
	tree_copy "$tree"
	if ! grep -q vmap_rust "$tree/mm/Makefile"; then
		# The files of a new copy may be older than objects of a state with patches, which make would then keep.
		rm -rf "$BUILDS"/*-pristine
		# Files of a copy by hard links are replaced, never written to.
		sed '/^source "mm\/damon\/Kconfig"/i source "mm/vmap_rust/Kconfig"' "$SRC_DIR/mm/Kconfig" >"$tree/mm/Kconfig.new"
		mv "$tree/mm/Kconfig.new" "$tree/mm/Kconfig"
		{ cat "$SRC_DIR/mm/Makefile"; echo 'obj-y += vmap_rust/'; } >"$tree/mm/Makefile.new"
		mv "$tree/mm/Makefile.new" "$tree/mm/Makefile"
	fi
	rm -rf "$tree.patches"
	mkdir "$tree.patches"
	mapfile -t all < <(series_list "$PATCHES")
	for patch in "${all[@]:0:$1}"; do
		number=$((number + 1))
		cp "$patch" "$tree.patches/$(printf %04d "$number")-$(basename "$patch")"
	done
	local PATCHES=$tree.patches
	tree_ready "$tree" || tree_patch "$tree" || die "the first $1 patches do not apply alone"
	ln -sfnT "$REPO" "$tree/mm/vmap_rust"
}
