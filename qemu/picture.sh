#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# Guest part of scripts/run picture, which init.sh runs: loads the allocator, and meanwhile copies the files that tools/vmap-map draws.
#
# Prints a line "soak: t=SECONDS NAME=VALUE..." each second, which harness/soak.py reads, then the copies as lines
# "picture NAME| text |", and "picture: done" at the end.
# From the kernel command line: PICTURE_SECONDS, seconds of load (default 5).

PICTURE_SECONDS=${PICTURE_SECONDS:-5}

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

# fork_loop: keeps some processes and starts and ends others until /tmp/stop exists: stacks of all ages.
fork_loop() {
	local i
	while [ ! -e /tmp/stop ]; do
		i=0
		while [ $i -lt 30 ]; do sleep $((i % 3)) & i=$((i + 1)); done
		sleep 1
	done
}

# module_loop: loads and unloads the module until /tmp/stop exists.
module_loop() {
	while [ ! -e /tmp/stop ]; do insmod /test_module.ko; rmmod test_module; done 2>/dev/null
}

# vmalloc_loop: allocates and frees areas of random sizes, with as many threads as CPUs, until /tmp/stop exists. Loading the module
# runs its tests and fails then, as the module wants.
vmalloc_loop() {
	[ -e /test_vmalloc.ko.gz ] || return 0
	while [ ! -e /tmp/stop ]; do
		insmod /test_vmalloc.ko.gz run_test_mask=25 nr_threads="$(grep -c ^processor /proc/cpuinfo)" test_loop_count=3000
	done 2>/dev/null
}

# sample_loop: prints a sample each second until /tmp/stop exists. The rb-trees show lazy pages only in /proc/vmallocinfo.
sample_loop() {
	local start values
	start=$(cut -d. -f1 /proc/uptime)
	while [ ! -e /tmp/stop ]; do
		values=$(awk '/^(PageTables|VmallocUsed):/ { sub(/:/, "", $1); printf " %s=%s", $1, $2 }' /proc/meminfo)
		if [ -n "$(cat "$DEBUGFS/counters" 2>/dev/null)" ]; then
			values="$values$(awk '$1 ~ /^(lazy_pages|blocks)$/ { printf " %s=%s", $1, $2 }' "$DEBUGFS/counters")"
		else
			values="$values$(awk '/unpurged/ { sum += $2 / 4096 } END { printf " lazy_pages=%d", sum }' /proc/vmallocinfo)"
		fi
		echo "soak: t=$(($(cut -d. -f1 /proc/uptime) - start))$values"
		sleep 1
	done
}

# copy FILE NAME: copies a file, if there is one, to /tmp/picture.NAME.
copy() { [ ! -e "$1" ] || cat "$1" >"/tmp/picture.$2"; }

fork_loop &
module_loop &
vmalloc_loop &
sample_loop &
sleep "$PICTURE_SECONDS"
copy "$DEBUGFS/map" map
copy /proc/vmallocinfo vmallocinfo
copy /proc/meminfo meminfo
copy "$DEBUGFS/counters" counters
touch /tmp/stop
# A message of the kernel in the middle of a line would break it.
echo 1 >/proc/sys/kernel/printk
for file in /tmp/picture.*; do sed "s/.*/picture ${file##*.}| & |/" "$file"; done
echo "picture: done"
