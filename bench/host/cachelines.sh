#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes what bench/host/cachelines/ needs: its model of caches, and debug information. Sourced by scripts/bench.

# build_model: compiles the model of caches to $CACHE/build/plugin/cachelines.so unless that is newer.
build_model() {
	local out=$CACHE/build/plugin/cachelines.so source=$REPO/bench/host/cachelines
	[ "$out" -nt "$source/model.c" ] && [ "$out" -nt "$source/caches.c" ] && [ "$out" -nt "$source/model.h" ] && return 0
	mkdir -p "${out%/*}"
	# A run that uses the old one keeps it.
	in_root gcc -O2 -Wall -Wextra -Wno-unused-parameter -Werror -fPIC -shared -fvisibility=hidden -o "$out.$$" \
		"$source"/{model,caches}.c -l:libunicorn.so.2 || { rm -f "$out.$$"; die "bench/host/cachelines/model.c does not compile"; }
	mv "$out.$$" "$out"
}

# saved_command OBJECT: prints the command by which kbuild made OBJECT of the build folder $PWD.
saved_command() { sed -n 's/^savedcmd_[^ ]* := //p' "$(dirname "$1")/.$(basename "$1").cmd" | head -n 1; }

# build_types BUILD OUT: compiles mm/vmalloc.c and the allocator of the build folder BUILD once more, with debug information, to
# OUT/vmalloc.o and OUT/vmap_rust.o. The kernel itself stays as it is; only the layout of types is read from these objects.
build_types() {
	local build=$1 out=$2 command
	[ "$out/vmap_rust.o" -nt "$build/vmlinux" ] && return 0
	[ -z "$(find "$build/source/mm/vmap_rust/rust/" -maxdepth 2 -name '*.rs' -newer "$build/vmlinux" -print -quit)" ] ||
		say "the sources of the allocator are newer than $build/vmlinux: names of fields may be wrong"
	mkdir -p "$out"
	rm -f "$out/vmap_rust.o"
	cd "$build" || exit
	command=$(saved_command mm/vmalloc.o | sed "s|-Wp,-MMD,[^ ]*||; s|-o mm/vmalloc.o|-g -o $out/vmalloc.o|")
	in_root sh -c "$command" || die "mm/vmalloc.c does not compile with debug information"
	command=$(saved_command mm/vmap_rust/rust/vmap_rust.o | sed "s|;.*||; s|--out-dir [^ ]*||; s|--emit=[^ ]*||g; s|^OBJTREE=[^ ]*|OBJTREE=$build|")
	in_root env RUSTC_BOOTSTRAP=1 sh -c "$command -Cdebuginfo=2 --emit=obj=$out/vmap_rust.o" || die "the allocator does not compile with debug information"
	cd "$REPO" || exit
}

# prepare_cachelines VMLINUX: prepares a run on VMLINUX, by default the one of arm64-bench; sets LINES_FILES: the model, the
# folder of the types, and VMLINUX.
prepare_cachelines() {
	local vmlinux=$1 build types tree
	if [ -z "$vmlinux" ]; then
		"$REPO/scripts/build" arm64-bench >/dev/null
		vmlinux=$CACHE/build/arm64-bench/vmlinux
	fi
	[ -s "$vmlinux" ] || die "there is no $vmlinux"
	build=$(dirname "$vmlinux")
	[ -L "$build/source" ] && [ -e "$build/mm/vmap_rust/rust/.vmap_rust.o.cmd" ] ||
		die "$build is no build folder of a kernel with the allocator, or it is being built"
	# A build folder of another cache is let in with its tree and its repository.
	tree=$(readlink -f "$build/source")
	case $build in
	"$CACHE"/*) ;;
	*) ENTER_BINDS+=(--bind "$build" "$build") ;;
	esac
	case $tree in
	"$CACHE"/*) ;;
	*) ENTER_BINDS+=(--bind "$tree" "$tree") ;;
	esac
	tree=$(readlink -f "$tree/mm/vmap_rust")
	[ "$tree" = "$REPO" ] || ENTER_BINDS+=(--bind "$tree" "$tree")
	types=$CACHE/build/types/$(sha256sum <<<"$build" | cut -c 1-16)
	build_model
	build_types "$build" "$types"
	# shellcheck disable=SC2034 # the caller passes them on
	LINES_FILES=("$CACHE/build/plugin/cachelines.so" "$types" "$vmlinux")
}
