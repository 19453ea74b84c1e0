#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Settings and functions of all scripts, sourced as:  . "$(dirname "$0")/lib.sh"
#
# Sets REPO, CACHE, KVER_SERIES (the series of Linux that is used), KVER_TESTED, SRC_DIR, TREE, BUILDS (the folder of its
# builds), PATCHES, TOOLCHAIN, MAKE_OPTS and the functions below.
#
# shellcheck disable=SC2034 # the variables are for the scripts that source this file
#
# Messages go to stderr, results (a path, a table) to stdout.

set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
CACHE=${VMAP_RUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vmap-rust}
TOOLCHAIN=${TOOLCHAIN:-root}

# say MSG...: prints one line for the user.
say() { printf '%s\n' "$*" >&2; }

# die MSG...: prints one line for the user and exits with 1.
die() { printf '%s: error: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# make_cache: creates the cache folder.
make_cache() {
	mkdir -p "$CACHE" 2>/dev/null || die "cannot create the cache folder $CACHE; set VMAP_RUST_CACHE to a writable folder"
	[ -w "$CACHE" ] || die "cannot write to the cache folder $CACHE; set VMAP_RUST_CACHE to a writable folder"
}

# check_settings: makes CACHE absolute; dies if kbuild cannot work with a path, or TOOLCHAIN is unknown.
check_settings() {
	case $CACHE in /*) ;; *) CACHE=$PWD/$CACHE ;; esac
	case $CACHE$REPO in
	*[[:space:]:]*) die "kbuild cannot work in a path with spaces or colons: cache $CACHE, repository $REPO;" \
		"move the repository or set VMAP_RUST_CACHE" ;;
	esac
	CACHE=$(realpath -m "$CACHE")
	case $TOOLCHAIN in
	root|host) ;;
	*) die "TOOLCHAIN=$TOOLCHAIN is unknown; use TOOLCHAIN=root (the default) or TOOLCHAIN=host" ;;
	esac
}

# print_totals PASSED FAILED: prints the last line of every suite; returns 1 if anything failed.
print_totals() { echo "$1 passed, $2 failed"; [ "$2" = 0 ]; }

# meta KEY: prints the value of "KEY: value" in the META file of the patches.
meta() { sed -n "s/^$1:[[:space:]]*//p" "$PATCHES/META"; }

# kernel_version DIR: prints the version in DIR/Makefile (7.3.4, or 7.3 without SUBLEVEL); exit 1 when there is none.
kernel_version() {
	[ -r "$1/Makefile" ] || return 1
	awk -F' *= *' '$1 == "VERSION" { v = $2 } $1 == "PATCHLEVEL" { p = $2 } $1 == "SUBLEVEL" { s = $2; exit }
		END { if (v == "" || p == "") exit 1; print v "." p (s > 0 ? "." s : "") }' "$1/Makefile"
}

# use_kernel SERIES: sets what depends on the series of Linux, also for the scripts that this one starts; dies if there are
# no patches for it.
use_kernel() {
	PATCHES=$REPO/kernel-patches/v$1
	[ -r "$PATCHES/META" ] || die "KERNEL=$1 is unknown; there are patches for Linux" \
		"$(find "$REPO/kernel-patches" -name META -printf '%h\n' | sed 's,.*/v,,' | sort -V | xargs)"
	KVER_SERIES=$(meta Linux-Series)
	KVER_TESTED=$(meta Linux-Tested)
	TREE=$CACHE/tree/v$KVER_SERIES BUILDS=$CACHE/build
	[ "$KVER_SERIES" = "$ROOT_KERNEL" ] || BUILDS=$CACHE/build/v$KVER_SERIES
	export VMAP_RUST_KERNEL=$KVER_SERIES VMAP_RUST_BUILDS=$BUILDS
}

# check_version VERSION WHAT [HINT]: dies, with the hint, unless a kernel is of the supported series.
check_version() {
	case $1 in
	"$KVER_TESTED") ;;
	"$KVER_SERIES"|"$KVER_SERIES".*) say "note: $2 is $1; the patches were tested with $KVER_TESTED" ;;
	*) die "Linux $1 is not supported: the patches are for $KVER_SERIES (tested with $KVER_TESTED)${3:-}" ;;
	esac
}

# need_tool TOOL [PACKAGE]: dies unless TOOL is in PATH; PACKAGE is the Debian package that has it.
need_tool() {
	command -v "$1" >/dev/null 2>&1 || die "$1 is missing; install it (Debian package ${2:-$1})"
}

# need_space MIB WHAT [DIR]: dies unless the disk of DIR (default: the cache folder) has MIB mebibytes free for WHAT.
need_space() {
	local free dir=${3:-$CACHE} hint=
	free=$(df -Pm "$dir" | awk 'NR == 2 { print $4 }')
	[ "$dir" != "$CACHE" ] || hint=", or set VMAP_RUST_CACHE to a folder on a larger disk"
	[ "$free" -ge "$1" ] || die "$2 needs $1 MiB of disk, $dir has $free MiB free; free some$hint"
}

# remove_left DIR: removes what a killed run has left: its processes in the toolchain root, which hold no lock (in_root),
# may still write there for a moment.
remove_left() { rm -rf "$1" 2>/dev/null || { sleep 1; rm -rf "$1"; }; }

# with_lock CMD...: runs CMD while holding the cache's lock, for LOCK_FOR, if that is set; prints one line when it must
# wait. CMD, and the scripts that it starts, may call with_lock again. The kernel releases the lock when the last
# process that inherited it ends.
with_lock() {
	local rc
	if [ "${VMAP_RUST_LOCKED:-}" = "$CACHE" ]; then
		"$@"
		return
	fi
	need_tool flock util-linux
	make_cache
	exec 9>>"$CACHE/lock"
	if ! flock -n 9; then
		say "waiting for another run ($(cat "$CACHE/lock.by" 2>/dev/null || echo unknown))"
		flock 9
	fi
	# Not its process number, which is of a namespace of its own in the toolchain root.
	printf '%s%s, since %(%H:%M)T\n' "${0##*/}" "${LOCK_FOR:+ $LOCK_FOR}" -1 >"$CACHE/lock.by"
	VMAP_RUST_LOCKED=$CACHE
	export VMAP_RUST_LOCKED
	# Not "|| rc=$?": that would switch "set -e" off in CMD.
	"$@"
	rc=$?
	unset VMAP_RUST_LOCKED
	exec 9>&-
	return "$rc"
}

# python ARG...: replaces this process by Python with harness/: outside of the toolchain root, but with its Python if
# there is one. -P: not the harness/ of another clone that is the current folder.
python() {
	local root=$CACHE/root loader
	export PYTHONPATH=$REPO PYTHONDONTWRITEBYTECODE=1 VMAP_RUST_TREE=$TREE
	[ -f "$root/.vmap-rust-stamp" ] || command -v python3 >/dev/null || "$REPO/scripts/prepare" root
	loader=$(find "$root"/usr/lib/*/ -maxdepth 1 -name 'ld-linux*.so.*' -print -quit 2>/dev/null || :)
	if [ "$TOOLCHAIN" = root ] && [ "${VMAP_RUST_IN_ROOT:-0}" = 0 ] && [ -f "$root/.vmap-rust-stamp" ] && [ -n "$loader" ]; then
		PYTHONHOME=$root/usr exec "$loader" --library-path "${loader%/*}" "$root/usr/bin/python3" -P "$@"
	fi
	exec python3 -P "$@"
}

# harness MODULE ARG...: runs a program of harness/ in the toolchain root.
harness() { in_root env "PYTHONPATH=$REPO" PYTHONDONTWRITEBYTECODE=1 "VMAP_RUST_TREE=$TREE" python3 -P -m "harness.$1" "${@:2}"; }

# check_use MODULE ARG...: if help is asked for, replaces this process by that program of harness/, which prints it.
# Ends this script with one line if the program is used wrongly, before anything is downloaded or built. Without a
# Python that can read TOML, the program itself reports it later.
check_use() {
	case " ${*:2} " in *" -h "*|*" --help "*) python -m "harness.$1" "${@:2}" ;; esac
	[ -f "$CACHE/root/.vmap-rust-stamp" ] || python3 -c 'import tomllib' 2>/dev/null || return 0
	(VMAP_RUST_PARSE=1 python -m "harness.$1" "${@:2}") >/dev/null || exit
}

# The root has the source of this one.
ROOT_KERNEL=7.3
check_settings
use_kernel "${VMAP_RUST_KERNEL:-${KERNEL:-$ROOT_KERNEL}}"
# Another make would take it for a variable of its own.
unset KERNEL
if [ "$TOOLCHAIN" = root ]; then
	MAKE_OPTS=("LLVM=-22")
else
	MAKE_OPTS=("LLVM=${LLVM:-1}")
fi
export TOOLCHAIN VMAP_RUST_CACHE=$CACHE

# "${PART[@]}" FUNCTION ARG...: runs a function of scripts/lib/ as a separate process, for step.
PART=(bash "$REPO/scripts/lib/part.sh")

# shellcheck source-path=SCRIPTDIR source=lib/step.sh
. "$REPO/scripts/lib/step.sh"
# shellcheck source-path=SCRIPTDIR source=lib/enter.sh
. "$REPO/scripts/lib/enter.sh"
