#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds the plugin of QEMU that counts instructions, and the archive that guests of the benchmark boot from. Sourced by scripts/bench.

# build_plugin: compiles bench/plugin/count.c to $CACHE/build/plugin/count.so unless that is newer.
build_plugin() {
	local out=$CACHE/build/plugin/count.so source=$REPO/bench/plugin
	[ "$out" -nt "$source/count.c" ] && [ "$out" -nt "$source/qemu-plugin.h" ] && return 0
	mkdir -p "${out%/*}"
	# A run that uses the old one keeps it.
	in_root gcc -O2 -Wall -Wextra -Wno-unused-parameter -Werror -fPIC -shared -fvisibility=hidden -o "$out.$$" "$source/count.c" ||
		{ rm -f "$out.$$"; die "bench/plugin/count.c does not compile"; }
	mv "$out.$$" "$out"
}

# bench_initramfs KERNEL: makes the archive for the benchmark of that kernel, which has been built, and prints its path.
bench_initramfs() { harness initramfs "$1"; }
