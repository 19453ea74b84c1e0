#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# First process of a benchmark guest: runs test_vmalloc as often as bench_sweep= of the kernel command line says, which
# the kernel hands on as a variable: points THREADS:MASK:LOOPS, separated by commas. Prints the page tables there are
# before the first and after each of them. With bench_warm_up=1, a run of a few loops
# comes before each of them and does not count. With bench_tables=1, prints what the page tables have for each mapping
# that vmap_bench.keep=1 has left.

/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
point=0

# tell WORDS...: one line for the log.
tell() { echo "vmap_bench: $*" >/dev/kmsg; }

# page_tables: tells how much page tables take now. What is freed lazily has two seconds to go.
page_tables() {
	sleep 2
	pages=$(sed -n 's/^nr_page_table_pages //p' /proc/vmstat)
	tell "result case=page_tables threads=${1:-1} metric=cycle_$point unit=KiB value=$((pages * 4))"
}

# test_vmalloc THREADS MASK LOOPS: runs it. The module always refuses to stay, so its exit code says nothing.
test_vmalloc() {
	insmod /test_vmalloc.ko.gz nr_threads="$1" run_test_mask="$2" test_loop_count="$3" sequential_test_order=1 \
		nr_pcpu_objects=1000 2>/dev/null
}

# sweep THREADS MASK LOOPS: a point of the measurement.
sweep() {
	point=$((point + 1))
	if [ "${bench_warm_up:-0}" = 1 ]; then
		tell "warm-up"
		test_vmalloc "$1" "$2" 5
	fi
	tell "sweep threads=$1 mask=$2 loops=$3"
	test_vmalloc "$@"
	[ "${bench_page_tables:-0}" = 0 ] || page_tables "$1"
}

# show_tables: tells the lines of the page tables between the addresses of a mapping. All addresses have 16 digits.
show_tables() {
	mount -t debugfs debug /sys/kernel/debug
	dmesg | sed -n 's/.*vmap_bench: kept case=\(.*\) start=\(.*\) end=\(.*\)/\1 \2 \3/p' | while read -r case start end; do
		awk -v first="x$start" -v last="x$end" '{ split($1, at, "-"); sub("0x", "x", at[1]); sub("0x", "x", at[2]) }
			at[1] < last && at[2] > first { print }' /sys/kernel/debug/kernel_page_tables |
			while read -r line; do tell "table $case $line"; done
	done
}

if [ -n "$bench_sweep" ]; then
	[ "${bench_page_tables:-0}" = 0 ] || page_tables "$(echo "$bench_sweep" | cut -d: -f1)"
	for entry in $(echo "$bench_sweep" | tr , ' '); do
		IFS=:
		# shellcheck disable=SC2086 # THREADS:MASK:LOOPS
		set -- $entry
		unset IFS
		sweep "$@"
	done
fi
[ "${bench_tables:-0}" = 0 ] || show_tables
tell "guest end"
reboot -f
