#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# bench_profile: shows where the instructions of one operation go, function by function. Sourced by scripts/bench.

profile_usage() {
	cat <<-TEXT
	usage: scripts/bench profile CASE [OPTION...]

	Boots a case of the benchmark (scripts/bench list) in QEMU with each allocator, counts with a plugin of QEMU what it
	executes between its first and its last operation, and prints, per operation and function: instructions, atomic
	read-modify-writes, barriers, and loads and stores with acquire or release order.

	  --allocator X    rbtree, rust, both (default) or pristine, which is the kernel without the patches
	  --cpu MODEL      cortex-a72 (default: atomics are loops), neoverse-n1 (atomics are single instructions) ...
	  --threads N      workers (default 1)    --cpus N   CPUs of the guest (default: as many as workers)
	  --scale P        operations in percent of what the case asks for (default 100)
	  --least N        sum up functions that take fewer instructions per operation (default 1)
	  --locks          also show how many instructions each spinlock is held
	  --time FUNCTION  also time each call of a function, by the instructions of the CPU that runs it
	  --tables         instead: print what the page tables have for one mapping of a case of bench/mapping.c, in the kernel
	                   without the patches and with each allocator
	  --kernel NAME    configuration of qemu/kernels.toml (default arm64-bench)

	With one CPU the total must agree with the benchmark's own figure within 1%. Logs: $CACHE/log
	Exit code: 0 shown; 1 a boot failed, the two figures differ, or wrong use.
	TEXT
}

# bench_profile ARG...: "scripts/bench profile".
bench_profile() {
	local kernel=arm64-bench tables=0 pristine=0 i n name
	case ${1:-} in
	-h|--help) profile_usage; exit 0 ;;
	'') die "which case? see --help, or scripts/bench list" ;;
	esac
	guest_cases | grep -xF -- "$1" >/dev/null || die "unknown case \"$1\"; scripts/bench list prints them"
	for ((i = 1; i <= $#; i++)); do
		n=$((i + 1))
		case ${!i} in
		--kernel) kernel=${!n:-} ;;
		--allocator) [ "${!n:-}" != pristine ] || pristine=1 ;;
		--tables) tables=1 ;;
		esac
	done
	"$REPO/scripts/prepare" all
	# Wrong use is reported before anything is built.
	in_root "$REPO/bench/host/profile" --parse "$@"
	mkdir -p "$CACHE/log"
	if [ "$tables" = 1 ]; then
		for name in "$kernel" "$kernel-pristine"; do
			"$REPO/scripts/build" "$name" >/dev/null
			set -- "$@" --initramfs "$name" "$(bench_initramfs "$name")"
		done
	else
		[ "$pristine" = 0 ] || kernel+=-pristine
		"$REPO/scripts/build" "$kernel" >/dev/null
		build_plugin
	fi
	in_root "$REPO/bench/host/profile" "$@" --logs "$CACHE/log"
}
