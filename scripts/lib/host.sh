#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# TOOLCHAIN=host: checks the tools of the build host. Sourced by scripts/prepare.

# host_check: prints each missing tool with its Debian package, then dies if there was one.
host_check() {
	local pair suffix='' missing=0
	case ${MAKE_OPTS[0]#LLVM=} in -*) suffix=${MAKE_OPTS[0]#LLVM=} ;; esac
	for pair in make:make patch:patch xz:xz-utils python3:python3 flex:flex bison:bison bc:bc rustc:rustc \
		bindgen:bindgen "clang$suffix:clang$suffix" "ld.lld$suffix:lld$suffix" "llvm-ar$suffix:llvm$suffix" \
		"llvm-nm$suffix:llvm$suffix" "llvm-objcopy$suffix:llvm$suffix" qemu-system-aarch64:qemu-system-arm \
		qemu-system-x86_64:qemu-system-x86; do
		command -v "${pair%:*}" >/dev/null && continue
		say "missing tool: ${pair%:*} (Debian package ${pair#*:})"
		missing=$((missing + 1))
	done
	[ "$missing" -eq 0 ] || die "TOOLCHAIN=host: $missing tools are missing; install them, or leave TOOLCHAIN unset to use the toolchain root"
	command -v pahole >/dev/null || say "note: pahole is missing; kernels are built without BTF"
}

# host_check_rust: dies unless the kernel's make rustavailable accepts these rustc and bindgen.
host_check_rust() {
	make -s -C "$TREE" O="$BUILDS/.rustavailable" "${MAKE_OPTS[@]}" rustavailable >&2 ||
		die "TOOLCHAIN=host: the kernel cannot use these Rust tools (make ${MAKE_OPTS[*]} rustavailable)"
}
