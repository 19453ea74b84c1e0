#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks of the patch series: git am and patch agree, each patch builds with the option on and off. Sourced by
# scripts/check. Uses $CACHE/check: one tree that walks through the series, and one build folder per configuration.

. "$REPO/scripts/lib/series.sh"

# series_states DIR: makes DIR/0, DIR/1 ...: the touched files of the pristine source after so many patches. One line on failure.
series_states() {
	local dir=$1 number=0 patch file source=$2
	rm -rf "$dir"
	mkdir -p "$dir/0"
	while read -r file; do
		[ -e "$source/$file" ] || continue
		mkdir -p "$dir/0/$(dirname "$file")"
		cp -p "$source/$file" "$dir/0/$file"
	done < <(series_files "$PATCHES")
	while read -r patch; do
		cp -a "$dir/$number" "$dir/$((number + 1))"
		number=$((number + 1))
		(cd "$dir/$number" && patch -p1 -F0 --no-backup-if-mismatch --batch -s <"$patch" 2>&1) || { echo "patch -p1 refuses $(basename "$patch")"; return 1; }
	done < <(series_list "$PATCHES")
	echo "$number patches"
}

# series_git DIR: applies the same patches with git am and compares the files after each.
series_git() {
	local dir=$1 number=0 patch
	rm -rf "$dir/git"
	cp -a "$dir/0" "$dir/git"
	git -C "$dir/git" init -q
	git -C "$dir/git" config user.name check
	git -C "$dir/git" config user.email check@localhost
	git -C "$dir/git" config commit.gpgsign false
	git -C "$dir/git" add -f .
	git -C "$dir/git" commit -q -m base
	while read -r patch; do
		number=$((number + 1))
		git -C "$dir/git" am -q "$patch" 2>&1 || { echo "git am refuses $(basename "$patch")"; return 1; }
		diff -r -q -x .git "$dir/git" "$dir/$number" || { echo "git am and patch differ after $(basename "$patch")"; return 1; }
	done < <(series_list "$PATCHES")
	echo "the same after each of $number patches"
}

# series_tree TREE STATE: gives the touched files of TREE the content of STATE; unchanged files keep their time.
series_tree() {
	local tree=$1 state=$2 file
	while read -r file; do
		if [ ! -e "$state/$file" ]; then
			rm -f "$tree/$file"
		elif ! cmp -s "$state/$file" "$tree/$file"; then
			mkdir -p "$(dirname "$tree/$file")"
			# The tree is made of hard links: replace, never write.
			cp "$state/$file" "$tree/$file.new"
			touch "$tree/$file.new"
			mv "$tree/$file.new" "$tree/$file"
		fi
	done < <(series_files "$PATCHES")
}

# series_key STATE NAME: prints what identifies the build of STATE with the configuration of kernel NAME.
series_key() {
	{
		cat "$SRC_DIR.stamp" "$CACHE/build/$2/.config" "$REPO/scripts/lib/check-series.sh"
		in_root sh -c 'rustc --version; bindgen --version; clang-22 --version' 2>/dev/null || :
		(cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
		# From the patch on that wires it up, the repository takes part.
		if grep -q vmap_rust "$1/mm/Makefile" 2>/dev/null; then
			sources rust kunit Kconfig Kbuild | xargs -r -d '\n' sha256sum
		fi
	} | sha256sum | cut -c 1-24
}

# series_targets STATE: prints what to build: all of mm/, and the object of each touched C file elsewhere.
series_targets() {
	echo mm/
	(cd "$1" && find . -name '*.c' ! -path './mm/*' | sed 's,^\./,,; s,\.c$,.o,') | sort
}

# series_build TREE STATE NAME: builds what STATE touches with the configuration of kernel NAME.
series_build() {
	local tree=$1 state=$2 name=$3 dir=$CACHE/check/build-$3 targets target
	# More than one command runs here, so in_root must not replace this shell.
	# shellcheck disable=SC2034 # read by in_root
	STEP_EXEC=0
	series_tree "$tree" "$state"
	mkdir -p "$dir"
	cp "$CACHE/build/$name/.config" "$dir/.config.new"
	cmp -s "$dir/.config.new" "$dir/.config.wanted" || { cp "$dir/.config.new" "$dir/.config"; mv "$dir/.config.new" "$dir/.config.wanted"; }
	mapfile -t targets < <(series_targets "$state")
	cd "$tree" || return 1
	in_root make ARCH=arm64 "O=$dir" "${MAKE_OPTS[@]}" KBUILD_BUILD_TIMESTAMP=2026-01-01 olddefconfig || return 1
	in_root make ARCH=arm64 "O=$dir" "${MAKE_OPTS[@]}" KBUILD_BUILD_TIMESTAMP=2026-01-01 "--jobs=${JOBS:-$(nproc)}" "${targets[@]}" || return 1
	# Make must really have built this state.
	for target in mm/vmalloc.o mm/built-in.a "${targets[@]}"; do
		case $target in
		*.o) [ "$dir/$target" -nt "$tree/${target%.o}.c" ] || { echo "error: $target was not built"; return 1; } ;;
		*.a) [ -s "$dir/$target" ] || { echo "error: $target was not built"; return 1; } ;;
		esac
	done
}

# series_step NUMBER PATCH on|off NAME: one build, or its remembered success.
series_step() {
	local state=$CACHE/check/state/$1 log=$LOGS/series-$1-$3.log memory
	memory=$CACHE/check/built/$(series_key "$state" "$4")
	if [ "$FRESH" = 0 ] && [ -e "$memory" ]; then
		echo "unchanged since it built on $(cat "$memory")"
		return
	fi
	step "patch $2, option $3" "$log" series_build "$CACHE/check/tree" "$state" "$4" || return 1
	# A patch must not bring a warning either.
	! grep -E '(^|[^a-z])warning: ' "$log" || return 1
	mkdir -p "$CACHE/check/built"
	date +%F >"$memory"
}

# series_scratch: makes the tree that walks through the series, if there is none of this source.
series_scratch() {
	local tree=$CACHE/check/tree
	if [ "$(cat "$tree.source" 2>/dev/null)" != "$(cat "$SRC_DIR.stamp")" ]; then
		rm -rf "$tree" "$tree.source"
		cp -al "$SRC_DIR" "$tree"
		cat "$SRC_DIR.stamp" >"$tree.source"
	fi
	ln -sfnT "$REPO" "$tree/mm/vmap_rust"
}

# series_walk: all of the above; the last state is what scripts/build builds, whole.
series_walk() {
	local number=0 count patch before
	SRC_DIR=$(find_source)
	# shellcheck disable=SC2154 # counted by "result"
	before=$passed
	result "patch -p1 applies without fuzz" series_states "$CACHE/check/state" "$SRC_DIR"
	# Without the states there is nothing to build.
	[ "$passed" -gt "$before" ] || return 0
	result "git am gives the same files" series_git "$CACHE/check/state"
	result "kernel arm64 builds, all patches, option on" "$REPO/scripts/build" arm64
	result "kernel arm64 builds, all patches, option off" "$REPO/scripts/build" arm64-off
	count=$(series_list "$PATCHES" | wc -l)
	series_scratch
	while read -r patch; do
		number=$((number + 1))
		[ "$number" -lt "$count" ] || break
		result "builds, option on: $(basename "$patch")" series_step "$number" "$(basename "$patch" | cut -c 1-4)" on arm64
		result "builds, option off: $(basename "$patch")" series_step "$number" "$(basename "$patch" | cut -c 1-4)" off arm64-off
	done < <(series_list "$PATCHES")
}

# find_source: prints the folder of the pristine source that the tree was made from.
find_source() {
	local name
	# shellcheck disable=SC2153 # TREE is set by lib.sh
	name=$(cut -d ' ' -f 1 "$TREE.stamp")
	[ -d "$CACHE/src/$name" ] || die "no pristine source $CACHE/src/$name; run scripts/prepare"
	printf '%s\n' "$CACHE/src/$name"
}

# check_series: one at a time, since the tree is shared.
check_series() {
	exec 8>"$CACHE/check.lock"
	flock 8
	mkdir -p "$CACHE/check"
	series_walk
	exec 8>&-
}
