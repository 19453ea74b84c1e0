#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# bench_lines: shows which cache lines move between CPUs when many CPUs use the allocators. Sourced by scripts/bench.

lines_usage() {
	cat <<-TEXT
	usage: scripts/bench lines [OPTION...]

	Executes the functions of the kernel arm64-bench in an emulator of a CPU, for up to 256 CPUs that take turns after whole
	operations, and models which cache lines move between the CPUs' caches. Prints, for each case, number of CPUs and
	allocator and per operation: coherence misses, atomic read-modify-writes, barriers, lines and instructions; and the
	lines that move most, by structure and field.

	  --cases LIST     $(lines_cases | paste -sd,)
	  --cpus LIST      numbers of CPUs (default: 8,128)
	  --allocator X    rbtree, rust or both (default)
	  --line BYTES     size of a cache line: 64 (default) or 128
	  --seed N         of the order in which CPUs take turns (default: 1)
	  --worst N        lines to list for each run (default: 10; 0: none)
	  --vmlinux FILE   a kernel that scripts/build made (default: that of arm64-bench, built if necessary)
	  -o FILE          write the figures to FILE as JSON instead
	TEXT
}

# bench_lines ARG...: "scripts/bench lines".
bench_lines() {
	local args=() vmlinux=''
	case ${1:-} in
	-h|--help) lines_usage; exit 0 ;;
	esac
	while [ $# -gt 0 ]; do
		case $1 in
		--vmlinux) [ $# -ge 2 ] || die "--vmlinux needs a file"; vmlinux=$(realpath -m -- "$2"); shift ;;
		*) args+=("$1") ;;
		esac
		shift
	done
	"$REPO/scripts/prepare" root
	# Wrong use is reported before anything is built.
	in_root "$REPO/bench/host/cachelines/run.py" --parse "${args[@]}"
	prepare_cachelines "$vmlinux"
	in_root "$REPO/bench/host/cachelines/run.py" --model "${LINES_FILES[0]}" --types "${LINES_FILES[1]}" \
		--vmlinux "${LINES_FILES[2]}" "${args[@]}"
}
