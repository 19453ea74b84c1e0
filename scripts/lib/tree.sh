#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes $TREE: the kernel source with the patches and a link to this repository. Sourced by scripts/prepare.
#
# The tree is a hard-link copy of the pristine source in which patched files are replaced, never written to. When the
# patches change, only files whose content differs are replaced, so that the builds stay incremental.

# tree_hash: prints a hash of the source and the patches, which identifies the tree's content.
tree_hash() {
	{ basename "$SRC_DIR"; cat "$SRC_DIR.stamp"; series_list "$PATCHES" | xargs -r -d '\n' cat; } | sha256sum | cut -c 1-16
}

# tree_patch TREE: makes TREE the source with the patches. TREE.files lists the files that may differ from the source; it is
# written before the first of them is replaced, so a killed run can be repeated.
tree_patch() {
	local tree=$1 scratch=$1.scratch file files
	files=$({ cat "$tree.files" 2>/dev/null || :; series_files "$PATCHES"; } | sort -u)
	in_root "${PART[@]}" series_apply_copy "$PATCHES" "$SRC_DIR" "$scratch" "$files" || { rm -rf "$scratch"; return 1; }
	rm -f "$tree.stamp"
	printf '%s\n' "$files" >"$tree.files.new"
	mv "$tree.files.new" "$tree.files"
	while read -r file; do
		[ -n "$file" ] || continue
		if [ ! -e "$scratch/$file" ]; then
			rm -f "$tree/$file"
		elif ! cmp -s "$scratch/$file" "$tree/$file"; then
			touch "$scratch/$file"
			mkdir -p "$(dirname "$tree/$file")" || return 1
			mv "$scratch/$file" "$tree/$file.new" || return 1
			mv "$tree/$file.new" "$tree/$file" || return 1
		fi
	done <<<"$files"
	rm -rf "$scratch"
	series_files "$PATCHES" >"$tree.files.new"
	mv "$tree.files.new" "$tree.files"
}

# tree_copy SOURCE NEW: makes a hard-link copy of the source.
tree_copy() {
	rm -rf "$2" "$2.files"
	mkdir -p "$(dirname "$2")"
	cp -al "$1" "$2"
}

# tree_linked TREE: true when mm/vmap_rust of TREE points to this repository.
tree_linked() { [ "$(readlink "$1/mm/vmap_rust" 2>/dev/null)" = "$REPO" ]; }

# shellcheck disable=SC2153 # TREE is set by lib.sh
# tree_ready: true when $TREE is the source with the patches. Needs SRC_DIR.
tree_ready() { [ -e "$TREE/Makefile" ] && [ "$(cat "$TREE.stamp" 2>/dev/null)" = "$(basename "$SRC_DIR") $(tree_hash)" ]; }

# prepare_tree: makes or updates $TREE. Needs SRC_DIR. When a patch does not apply, it dies and the tree does not change.
prepare_tree() {
	local hash new
	# shellcheck disable=SC2153 # TREE is set by lib.sh
	new=$TREE.new
	hash="$(basename "$SRC_DIR") $(tree_hash)"
	if ! tree_ready; then
		rm -rf "$TREE.scratch"
		if [ -e "$TREE/Makefile" ] && [ "$(cat "$TREE.source" 2>/dev/null)" = "$(cat "$SRC_DIR.stamp")" ]; then
			tree_patch "$TREE" || die "the tree $TREE stays as it was"
			say "kernel tree: patches updated in $TREE"
		else
			need_space 200 "the kernel tree"
			step "kernel tree: copy" "$CACHE/log/tree.log" "${PART[@]}" tree_copy "$SRC_DIR" "$new" || die "the kernel tree could not be made"
			tree_patch "$new" || { rm -rf "$new"; die "no tree was made"; }
			rm -rf "$TREE.old"
			rm -f "$TREE.stamp"
			[ ! -e "$TREE" ] || mv "$TREE" "$TREE.old"
			mv "$new.files" "$TREE.files"
			mv "$new" "$TREE"
			cp "$SRC_DIR.stamp" "$TREE.source"
			rm -rf "$TREE.old"
			say "kernel tree: $(series_list "$PATCHES" | wc -l) patches on $(basename "$SRC_DIR") in $TREE"
		fi
		printf '%s\n' "$hash" >"$TREE.stamp.new"
		mv "$TREE.stamp.new" "$TREE.stamp"
	fi
	tree_linked "$TREE" || ln -sfnT "$REPO" "$TREE/mm/vmap_rust"
}

# pristine_tree COUNT: makes or updates $TREE-pristine: the source of $TREE with the first COUNT patches of fixes and mapping,
# mostly none, and this repository wired up, for its benchmark.
pristine_tree() {
	# shellcheck disable=SC2034 # SERIES is for series_list
	local source tree=$TREE-pristine new=$TREE-pristine.new stamp patch number=0 SERIES=(fixes mapping)
	source=$CACHE/src/$(cut -d ' ' -f 1 "$TREE.stamp")
	if [ ! -e "$tree/Makefile" ] || [ "$(cat "$tree.source" 2>/dev/null)" != "$(cat "$source.stamp")" ]; then
		# Its files may be older than objects of a state with patches, which make would then keep.
		rm -rf "$new" "$tree" "$tree.stamp" "$tree.files" "$CACHE"/build/*-pristine
		cp -al "$source" "$new"
		# Files of a copy by hard links are replaced, never written to.
		sed '/^source "mm\/damon\/Kconfig"/i source "mm/vmap_rust/Kconfig"' "$source/mm/Kconfig" >"$new/mm/Kconfig.new"
		mv "$new/mm/Kconfig.new" "$new/mm/Kconfig"
		{ cat "$source/mm/Makefile"; echo 'obj-y += vmap_rust/'; } >"$new/mm/Makefile.new"
		mv "$new/mm/Makefile.new" "$new/mm/Makefile"
		mv "$new" "$tree"
		cp "$source.stamp" "$tree.source"
	fi
	rm -rf "$tree.patches"
	mkdir "$tree.patches"
	while read -r patch; do
		number=$((number + 1))
		cp "$patch" "$tree.patches/$(printf %04d "$number")-$(basename "$patch")"
	done < <(series_list "$PATCHES" | head -n "$1")
	stamp="$(cat "$source.stamp") $(series_list "$tree.patches" | xargs -r -d '\n' cat | sha256sum | cut -c 1-16)"
	if [ "$(cat "$tree.stamp" 2>/dev/null)" != "$stamp" ]; then
		PATCHES=$tree.patches SRC_DIR=$source tree_patch "$tree" || die "the first $1 patches do not apply alone"
		printf '%s\n' "$stamp" >"$tree.stamp"
	fi
	ln -sfnT "$REPO" "$tree/mm/vmap_rust"
}
