#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# Loads the allocator for PICTURE_SECONDS (from the kernel command line), and prints a line "sample: t=SECONDS
# NAME=VALUE..." each second. At the end it sends the files that tools/vmap-map draws.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

# stack_loop: keeps some processes and starts and ends others: stacks of all ages.
stack_loop() {
	local i
	while going; do
		i=0
		while [ $i -lt 30 ]; do sleep $((i % 3)) & i=$((i + 1)); done
		sleep 1
	done
}

# vmalloc_loop: allocates and frees areas of random sizes, with as many threads as CPUs. Loading the module runs its
# tests and fails then, as the module wants.
vmalloc_loop() {
	while going && [ -e /test_vmalloc.ko.gz ]; do
		insmod /test_vmalloc.ko.gz run_test_mask=25 nr_threads="$(nproc)" test_loop_count=3000 2>/dev/null
	done
}

# sample_loop: prints the samples. The rb-trees show lazy pages only in /proc/vmallocinfo.
sample_loop() {
	local t=0 values
	while going; do
		values=$(values /proc/meminfo 'PageTables|VmallocUsed')
		if [ "$ALLOCATOR" = rust ]; then
			values="$values$(values $DEBUGFS/counters 'lazy_pages|blocks')"
		else
			values="$values$(awk '/unpurged/ { sum += $2 / 4096 } END { printf " lazy_pages=%d", sum }' /proc/vmallocinfo)"
		fi
		echo "sample: t=$t$values"
		t=$((t + 1))
		sleep 1
	done
}

stack_loop & module_loop 2>/dev/null & vmalloc_loop & sample_loop &
sleep "$PICTURE_SECONDS"
# A message of the kernel in the middle of a line would break it.
dmesg -n 1
snapshot picture
touch /tmp/stop
finish
