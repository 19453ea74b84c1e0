#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks of the patch series: git am and patch agree, each patch builds with the option on and off. Sourced by
# scripts/check. Uses $CACHE/check: one tree that walks through the series, and one build folder each for "on" and "off".

. "$REPO/scripts/lib/series.sh"

# series_states DIR: makes DIR/0, DIR/1 ...: the touched files of the pristine source after 0, 1 ... patches. One line on failure.
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

# series_key NUMBER NAME: prints what identifies the build of that state with the configuration of kernel NAME.
series_key() {
	{
		cat "$SRC_DIR.stamp" "$CACHE/build/$2/.config" "$REPO/scripts/lib/check-series.sh"
		in_root sh -c 'rustc --version; bindgen --version; clang-22 --version' 2>/dev/null || :
		# What is built depends on what the patch changes.
		(cd "$CACHE/check/state" && find "$(($1 - 1))" "$1" -type f -print0 | sort -z | xargs -0 sha256sum)
		# From the patch on that wires it up, the repository takes part.
		if grep -q vmap_rust "$CACHE/check/state/$1/mm/Makefile" 2>/dev/null; then
			sources rust kunit Kconfig Kbuild | xargs -r -d '\n' sha256sum
		fi
	} | sha256sum | cut -c 1-24
}

# series_changed NUMBER: prints the files that this patch changes.
series_changed() {
	(cd "$CACHE/check/state" && diff -rqN "$(($1 - 1))" "$1" || :) | sed -n 's,^Files [0-9]*/\(.*\) and .* differ$,\1,p'
}

# series_targets NUMBER on|off DIR: prints what to build after that patch, nothing when it changes nothing that is compiled: the
# objects of all C files of the series, of which make compiles those that the patch affects; for a header also what includes it
# in mm/, as far as kernel DIR has it (the rest of the kernel sees it in the last state, which is built whole); for a Makefile
# its folder; for a file of rust/, and for headers, which Rust reads too, the Rust code, which make prepares before anything else.
series_targets() {
	local changed file name
	changed=$(series_changed "$1" | grep -E '\.[chS]$|\.rs$|(^|/)(Makefile|Kbuild|Kconfig)[^/]*$' || :)
	[ "$2" = on ] || changed=$(grep -v '^rust/' <<<"$changed" || :)
	[ -n "$changed" ] || return 0
	{
		echo prepare
		(cd "$CACHE/check/state/$1" && find . -name '*.c' ! -path './rust/*') | sed 's,^\./,,; s,\.c$,.o,'
		while read -r file; do
			name=$(basename "$file")
			case $file in
			rust/*) ;;
			*.h) (cd "$CACHE/check/tree" && grep -lE "^#include [<\"]([a-z_]+/)*${name}[>\"]" mm/*.c) | sed 's,\.c$,.o,' |
				while read -r name; do [ ! -e "$3/$name" ] || echo "$name"; done ;;
			*/Makefile|*/Kbuild) echo "$(dirname "$file")/" ;;
			esac
		done <<<"$changed"
	} | sort -u
}

# series_folder on|off NAME: makes $CACHE/check/on or off, a copy of the build folder of kernel NAME, unless it is there. Make then
# compiles only what differs in a state.
series_folder() {
	local dir=$CACHE/check/$1
	[ ! -e "$dir" ] || return 0
	rm -rf "$dir.new"
	cp -a --reflink=auto "$CACHE/build/$2" "$dir.new" || return 1
	rm -f "$dir.new"/vmlinux*
	mv "$dir.new" "$dir"
}

# series_config on|off NAME: gives $CACHE/check/on or off the configuration of kernel NAME; with "on" the hook can be switched on
# without the allocator, which the last patch brings. Each time, since an earlier state may have lacked an option.
series_config() {
	{
		grep -vwE 'CONFIG_(COMPILE_TEST|WERROR|VMAP_AREA_OPS)' "$CACHE/build/$2/.config"
		[ "$1" = off ] || printf '%s\n' CONFIG_COMPILE_TEST=y '# CONFIG_WERROR is not set' CONFIG_VMAP_AREA_OPS=y
	} >"$CACHE/check/$1/.config"
}

# series_make NAME ARG...: make on the tree that walks through the series, in the copy of the build folder of NAME. Both are seen
# under the paths of the originals, or every command would be another and everything be built again.
series_make() {
	local name=$1 dir=$CACHE/check/off
	shift
	[ "$name" = arm64-off ] || dir=$CACHE/check/on
	# shellcheck disable=SC2034 # read by in_root
	ENTER_BINDS=(--bind "$CACHE/check/tree" "$TREE" --bind "$dir" "$CACHE/build/$name")
	in_root make ARCH=arm64 "O=$CACHE/build/$name" "${MAKE_OPTS[@]}" KBUILD_BUILD_TIMESTAMP=2026-01-01 KBUILD_BUILD_USER=vmap \
		KBUILD_BUILD_HOST=rust "$@"
}

# series_build NUMBER on|off NAME TARGET...: builds the targets in that state with the configuration of kernel NAME.
series_build() {
	local state=$CACHE/check/state/$1 tree=$CACHE/check/tree dir=$CACHE/check/$2 option=$2 name=$3 target
	shift 3
	# More than one command runs here, so in_root must not replace this shell.
	# shellcheck disable=SC2034 # read by in_root
	STEP_EXEC=0
	series_tree "$tree" "$state"
	series_folder "$option" "$name" || return 1
	series_config "$option" "$name"
	cd "$TREE" || return 1
	series_make "$name" olddefconfig || return 1
	if [ "$option" = on ] && grep -q '^config VMAP_AREA_OPS' "$state/mm/Kconfig" && ! grep -qx CONFIG_VMAP_AREA_OPS=y "$dir/.config"; then
		echo "error: CONFIG_VMAP_AREA_OPS cannot be switched on"
		return 1
	fi
	series_make "$name" "--jobs=${JOBS:-$(nproc)}" "$@" || return 1
	# Make must really have built this state.
	for target in "$@"; do
		case $target in
		*.o) [ "$dir/$target" -nt "$tree/${target%.o}.c" ] || { echo "error: $target was not built"; return 1; } ;;
		*/) [ -s "$dir/${target}built-in.a" ] || { echo "error: $target was not built"; return 1; } ;;
		esac
	done
}

# series_step NUMBER PATCH on|off NAME: one build, or its remembered success.
series_step() {
	local log=$LOGS/series-$1-$3.log memory targets
	mapfile -t targets < <(series_targets "$1" "$3" "$CACHE/build/$4")
	if [ ${#targets[@]} = 0 ]; then
		echo "it changes nothing that is compiled"
		return
	fi
	memory=$CACHE/check/built/$(series_key "$1" "$4")
	if [ "$FRESH" = 0 ] && [ -e "$memory" ]; then
		echo "unchanged since it built on $(cat "$memory")"
		return
	fi
	step "patch $2, option $3" "$log" series_build "$1" "$3" "$4" "${targets[@]}" || return 1
	# A patch must not bring a warning either.
	! grep -E '(^|[^a-z])warning: ' "$log" || return 1
	mkdir -p "$CACHE/check/built"
	date +%F >"$memory"
}

# series_scratch: makes the tree that walks through the series, if there is none of this source. Its files of the series are newer
# than all objects, which are copied from kernels with the patches.
series_scratch() {
	local tree=$CACHE/check/tree file
	if [ "$(cat "$tree.source" 2>/dev/null)" != "$(cat "$SRC_DIR.stamp")" ]; then
		rm -rf "$tree" "$tree.source" "$CACHE/check/on" "$CACHE/check/off"
		cp -al "$SRC_DIR" "$tree"
		while read -r file; do
			[ ! -e "$tree/$file" ] || { rm "$tree/$file" && cp "$SRC_DIR/$file" "$tree/$file"; }
		done < <(series_files "$PATCHES")
		cat "$SRC_DIR.stamp" >"$tree.source"
	fi
	ln -sfnT "$REPO" "$tree/mm/vmap_rust"
}

# series_kernels: builds the last state, whole.
series_kernels() {
	result "kernel arm64 builds, all patches, option on" "$REPO/scripts/build" arm64
	result "kernel arm64 builds, all patches, option off" "$REPO/scripts/build" arm64-off
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
	# Under one lock: between the two, another run would build another kernel.
	with_lock series_kernels
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
