#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# TOOLCHAIN=host: checks the tools of the build host. Sourced by scripts/prepare.

# host_check: prints each missing tool with its Debian package, then dies if there was one.
host_check() {
	local tool package suffix='' missing=0
	case ${MAKE_OPTS[0]#LLVM=} in -*) suffix=${MAKE_OPTS[0]#LLVM=} ;; esac
	while read -r tool package; do
		command -v "$tool" >/dev/null && continue
		say "missing tool: $tool (Debian package $package)"
		missing=$((missing + 1))
	done <<-LIST
		make make
		patch patch
		xz xz-utils
		python3 python3
		flex flex
		bison bison
		bc bc
		rustc rustc
		bindgen bindgen
		clang$suffix clang$suffix
		ld.lld$suffix lld$suffix
		llvm-ar$suffix llvm$suffix
		llvm-nm$suffix llvm$suffix
		llvm-objcopy$suffix llvm$suffix
		qemu-system-aarch64 qemu-system-arm
		qemu-system-x86_64 qemu-system-x86
	LIST
	[ "$missing" -eq 0 ] || die "TOOLCHAIN=host: $missing tools are missing; install them, or leave TOOLCHAIN unset to use the toolchain root"
	command -v pahole >/dev/null || say "note: pahole is missing; kernels are built without BTF"
}

# host_check_rust: dies unless the kernel's make rustavailable accepts these rustc and bindgen.
host_check_rust() {
	local out
	out=$(make -s -C "$TREE" O="$CACHE/build/.rustavailable" "${MAKE_OPTS[@]}" rustavailable 2>&1) || {
		printf '%s\n' "$out" | tail -n 15 >&2
		die "TOOLCHAIN=host: the kernel cannot use these Rust tools (make ${MAKE_OPTS[*]} rustavailable)"
	}
}
