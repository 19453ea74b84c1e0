#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks of the two series: git am and patch agree, each patch builds. Sourced by scripts/check, which sets KERNEL to a configuration
# of qemu/kernels.toml. Uses $CACHE/check: the states, one tree that walks through them, and in KERNEL/ one build folder each for the
# option "on" and "off".
#
# A state is a folder of $CACHE/check/state with the touched files of the pristine source after some of the patches: N after N
# patches of both series in order, mapping/N after N patches of mapping alone.

. "$REPO/scripts/lib/series.sh"

# series_name PATCH: prints how messages call that patch: area/0001-... or mapping/0001-...
series_name() { printf '%s\n' "${1#"$PATCHES"/}"; }

# series_base on|off: prints the name of the kernel whose build folder and configuration a walk begins with.
series_base() { if [ "$KERNEL/$1" = arm64/off ]; then echo arm64-off; else echo "$KERNEL"; fi; }

# series_arch: prints the ARCH of make for KERNEL.
series_arch() { harness kernels "$KERNEL" | sed -n 's/^ARCH=//p'; }

# series_states PATCHES DIR SOURCE: makes DIR/0, DIR/1 ...: the touched files of the pristine source after 0, 1 ... of these
# patches. One line on failure.
series_states() {
	local list=$1 dir=$2 number=0 patch file source=$3
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
		(cd "$dir/$number" && patch -p1 -F0 --no-backup-if-mismatch --batch -s <"$patch" 2>&1) || { echo "patch -p1 refuses $(series_name "$patch")"; return 1; }
	done < <(series_list "$list")
	echo "$number patches"
}

# series_git PATCHES DIR: applies the same patches with git am and compares the files after each.
series_git() {
	local list=$1 dir=$2 number=0 patch
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
		git -C "$dir/git" am -q "$patch" 2>&1 || { echo "git am refuses $(series_name "$patch")"; return 1; }
		diff -r -q -x .git "$dir/git" "$dir/$number" || { echo "git am and patch differ after $(series_name "$patch")"; return 1; }
	done < <(series_list "$list")
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

# series_key BEFORE STATE NAME TARGET...: prints what identifies the build of these targets in that state with the configuration
# of kernel NAME.
series_key() {
	local before=$1 state=$2 name=$3
	shift 3
	{
		cat "$SRC_DIR.stamp" "$CACHE/build/$name/.config" "$REPO/scripts/lib/check-series.sh"
		in_root sh -c 'rustc --version; bindgen --version; clang-22 --version' 2>/dev/null || :
		echo "$@"
		# What is built depends on what the patch changes.
		(cd "$CACHE/check/state" && find "$before" "$state" -type f -print0 | sort -z | xargs -0 sha256sum)
		# Other targets do not read this repository, although it is wired up in all later states.
		case " $* " in *" mm/vmap_rust/ "*) sources rust kunit bench Kconfig Kbuild | xargs -r -d '\n' sha256sum ;; esac
	} | sha256sum | cut -c 1-24
}

# series_changed BEFORE STATE: prints the files that differ.
series_changed() { (cd "$CACHE/check/state" && diff -rqN "$1" "$2" || :) | sed -n "s,^Files $1/\(.*\) and .* differ\$,\1,p"; }

# series_subdirs BEFORE STATE MAKEFILE: prints the folders that the change of that Makefile adds; its own folder if it adds none.
series_subdirs() {
	local dir
	dir=$(dirname "$3")
	(cd "$CACHE/check/state" && diff "$1/$3" "$2/$3" || :) | sed -n "s,^> obj-.*[[:space:]]\([a-z_]*/\)\$,$dir/\1,p" | grep . ||
		echo "$dir/"
}

# series_targets BEFORE STATE on|off DIR: prints what to build in that state, nothing when it changes nothing that is compiled: the
# objects of all C files of the series, of which make compiles those that the patch affects; for a header also what includes it
# in mm/, as far as kernel DIR has it (the rest of the kernel, and for patches after the allocator is wired up all of it, sees it
# in the last state, which is built whole); for a Makefile the folder that it adds, or its own; with "on", for a file of rust/, and
# for headers, which Rust reads too, the Rust code, which make prepares before anything else.
series_targets() {
	local changed file name
	changed=$(series_changed "$1" "$2" | grep -E '\.[chS]$|\.rs$|(^|/)(Makefile|Kbuild|Kconfig)[^/]*$' || :)
	[ "$3" = on ] || changed=$(grep -v '^rust/' <<<"$changed" || :)
	[ -n "$changed" ] || return 0
	{
		echo prepare
		(cd "$CACHE/check/state/$2" && find . -name '*.c' ! -path './rust/*') | sed 's,^\./,,; s,\.c$,.o,' |
			awk -v own="arch/$(series_arch)/" '!/^arch\// || index($0, own) == 1'
		while read -r file; do
			name=$(basename "$file")
			case $file in
			rust/*) ;;
			*.h) series_wired "$2" || (cd "$CACHE/check/tree" && grep -lE "^#include [<\"]([a-z_]+/)*${name}[>\"]" mm/*.c) | sed 's,\.c$,.o,' |
				while read -r name; do [ ! -e "$4/$name" ] || echo "$name"; done ;;
			*/Makefile|*/Kbuild) series_subdirs "$1" "$2" "$file" ;;
			esac
		done <<<"$changed"
	} | sort -u
}

# series_folder on|off: makes that build folder, a copy of the one it begins with, unless it is there. Make then compiles only what
# differs in a state.
series_folder() {
	local dir=$CACHE/check/$KERNEL/$1
	if [ ! -e "$dir" ]; then
		rm -rf "$dir.new"
		mkdir -p "$CACHE/check/$KERNEL"
		cp -a --reflink=auto "$CACHE/build/$(series_base "$1")" "$dir.new" || return 1
		rm -f "$dir.new"/vmlinux*
		mv "$dir.new" "$dir"
	fi
	# Objects of another clone can be newer than the files of this one, and different.
	[ "$(cat "$dir/.vmap-rust-repo")" = "$REPO" ] || rm -rf "$dir/mm/vmap_rust"
	echo "$REPO" >"$dir/.vmap-rust-repo"
}

# series_wired STATE: true when the allocator is part of the kernel in that state.
series_wired() { grep -q vmap_rust/ "$CACHE/check/state/$1/mm/Makefile"; }

# series_config STATE on|off OPTION=VALUE: prints the configuration for that state, with that option unless it is empty, and a sum
# of the Kconfig files. As long as the allocator is not wired up, "on" means the hook without it.
series_config() {
	local changed=(CONFIG_COMPILE_TEST CONFIG_WERROR) lines=()
	if [ "$2" = off ]; then
		changed+=(CONFIG_VMAP_AREA_OPS CONFIG_VMAP_RUST)
	elif ! series_wired "$1"; then
		changed+=(CONFIG_VMAP_AREA_OPS)
		lines+=(CONFIG_COMPILE_TEST=y '# CONFIG_WERROR is not set' CONFIG_VMAP_AREA_OPS=y)
	fi
	[ -z "$3" ] || { changed+=("${3%%=*}"); lines+=("$3"); }
	grep -vwFf <(printf '%s\n' "${changed[@]}") "$CACHE/build/$(series_base "$2")/.config"
	printf '%s\n' "${lines[@]}" "# $(cat "$CACHE/check/state/$1/mm/Kconfig" "$REPO/Kconfig" | sha256sum)"
}

# series_make on|off ARG...: make on the tree that walks through the series, in that build folder. Both are seen under the paths of
# the originals, or every command would be another and everything be built again.
series_make() {
	local dir=$CACHE/check/$KERNEL/$1 original
	original=$CACHE/build/$(series_base "$1")
	shift
	# shellcheck disable=SC2034 # read by in_root
	ENTER_BINDS=(--bind "$CACHE/check/tree" "$TREE" --bind "$dir" "$original")
	in_root make "ARCH=$(series_arch)" "O=$original" "${MAKE_OPTS[@]}" KBUILD_BUILD_TIMESTAMP=2026-01-01 KBUILD_BUILD_USER=vmap \
		KBUILD_BUILD_HOST=rust "$@"
}

# series_build STATE on|off OPTION=VALUE TARGET...: builds the targets in that state, with that option unless it is empty.
series_build() {
	local state=$1 tree=$CACHE/check/tree dir=$CACHE/check/$KERNEL/$2 option=$2 extra=$3 target
	shift 3
	# More than one command runs here, so in_root must not replace this shell.
	# shellcheck disable=SC2034 # read by in_root
	STEP_EXEC=0
	series_tree "$tree" "$CACHE/check/state/$state"
	series_folder "$option" || return 1
	cd "$TREE" || return 1
	# Make takes three times as long when it has to read all Kconfig files, so the configuration of the state before stays if it can.
	series_config "$state" "$option" "$extra" >"$dir/.config.wanted"
	if ! cmp -s "$dir/.config.wanted" "$dir/.config.given"; then
		rm -f "$dir/.config.given"
		cp "$dir/.config.wanted" "$dir/.config"
		series_make "$option" olddefconfig || return 1
		mv "$dir/.config.wanted" "$dir/.config.given"
	fi
	if [ "$option" = on ] && grep -q '^config VMAP_AREA_OPS' "$tree/mm/Kconfig" && ! grep -qx CONFIG_VMAP_AREA_OPS=y "$dir/.config"; then
		echo "error: CONFIG_VMAP_AREA_OPS cannot be switched on"
		return 1
	fi
	if [ -n "$extra" ] && ! grep -qxF "$extra" "$dir/.config"; then
		echo "error: $extra cannot be chosen"
		return 1
	fi
	# Make must really build this state: it makes a removed archive again, if it enters the folder.
	for target in "$@"; do
		[ "${target%/}" = "$target" ] || rm -f "$dir/${target}built-in.a"
	done
	series_make "$option" "--jobs=${JOBS:-$(nproc)}" "$@" || return 1
	for target in "$@"; do
		case $target in
		*.o) [ "$dir/$target" -nt "$tree/${target%.o}.c" ] || { echo "error: $target was not built"; return 1; } ;;
		*/) [ -s "$dir/${target}built-in.a" ] || { echo "error: $target was not built"; return 1; } ;;
		esac
	done
}

# series_step BEFORE STATE LABEL on|off [OPTION=VALUE]: one build, or its remembered success. LABEL names the log. With an
# option, builds only mm/vmalloc.o.
series_step() {
	local log=$LOGS/series-$KERNEL-$3-$4.log extra=${5:-} memory targets base
	base=$(series_base "$4")
	mapfile -t targets < <(series_targets "$1" "$2" "$4" "$CACHE/build/$base")
	if [ ${#targets[@]} = 0 ]; then
		echo "it changes nothing that is compiled"
		return
	fi
	[ -z "$extra" ] || targets=(mm/vmalloc.o)
	memory=$CACHE/check/built/$(series_key "$1" "$2" "$base" "$4 $extra" "${targets[@]}")
	if [ "$FRESH" = 0 ] && [ -e "$memory" ]; then
		echo "unchanged since it built on $(cat "$memory")"
		return
	fi
	step "$KERNEL, $3, option $4" "$log" series_build "$2" "$4" "$extra" "${targets[@]}" || return 1
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
		rm -rf "$tree" "$tree.source" "$CACHE"/check/*/on "$CACHE"/check/*/off
		cp -al "$SRC_DIR" "$tree"
		while read -r file; do
			[ ! -e "$tree/$file" ] || { rm "$tree/$file" && cp "$SRC_DIR/$file" "$tree/$file"; }
		done < <(series_files "$PATCHES")
		cat "$SRC_DIR.stamp" >"$tree.source"
	fi
	ln -sfnT "$REPO" "$tree/mm/vmap_rust"
}

# series_has_on STATE: true if the option can be on in that state: without the allocator it needs CONFIG_COMPILE_TEST, which user-mode
# Linux lacks.
series_has_on() { series_wired "$1" || grep -qx CONFIG_HAS_IOMEM=y "$CACHE/build/$KERNEL/.config"; }

# series_kernels: builds the last state, whole.
series_kernels() {
	result "kernel $KERNEL builds, all patches, option on" "$REPO/scripts/build" "$KERNEL"
	[ "$KERNEL" != arm64 ] || result "kernel arm64 builds, all patches, option off" "$REPO/scripts/build" arm64-off
}

# series_walk: all of the above. Each patch of area is built with the option on and off, the last one together with the allocator. A
# patch of mapping, whose code does not depend on the option, is built with it off only, and mapping without area in one step.
# The last state is what scripts/build builds, whole; with the option off arm64 has a configuration for that.
series_walk() {
	local number=0 count patch name label last before
	SRC_DIR=$(find_source)
	# shellcheck disable=SC2154 # counted by "result"
	before=$passed
	result "patch -p1 applies without fuzz: area, mapping" series_states "$PATCHES" "$CACHE/check/state" "$SRC_DIR"
	result "patch -p1 applies without fuzz: mapping alone" series_states "$PATCHES/mapping" "$CACHE/check/state/mapping" "$SRC_DIR"
	# Without the states there is nothing to build.
	[ "$passed" = $((before + 2)) ] || return 0
	result "git am gives the same files: area, mapping" series_git "$PATCHES" "$CACHE/check/state"
	result "git am gives the same files: mapping alone" series_git "$PATCHES/mapping" "$CACHE/check/state/mapping"
	# Under one lock: between the two, another run would build another kernel.
	with_lock series_kernels
	count=$(series_list "$PATCHES" | wc -l)
	series_scratch
	while read -r patch; do
		number=$((number + 1))
		[ "$number" -lt "$count" ] || break
		name=$(series_name "$patch")
		# area-0001
		label=${name%%-*}
		label=${label/\//-}
		case $name in
		area/*) ! series_has_on "$number" || result "builds, option on: $name" series_step "$((number - 1))" "$number" "$label" on ;;
		esac
		result "builds, option off: $name" series_step "$((number - 1))" "$number" "$label" off
	done < <(series_list "$PATCHES")
	last=mapping/$(series_list "$PATCHES/mapping" | wc -l)
	result "builds, mapping without area" series_step mapping/0 "$last" mapping-alone off
	# No other build of mapping on arm64 has it.
	[ "$KERNEL" != arm64 ] || result "builds, mapping without area, CONFIG_HUGETLBFS=y" \
		series_step mapping/0 "$last" mapping-alone-hugetlb off CONFIG_HUGETLBFS=y
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
