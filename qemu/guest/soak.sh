#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs the loads of stress.sh at the same time, for long. Every 10 s it prints a line "soak: t=S NAME=VALUE..." with figures of
# memory and of the allocator, which harness/soak.py reads. Prints "stress: done" at the end.
# From the kernel command line: STRESS_SECONDS.

# shellcheck source-path=SCRIPTDIR source=common.sh
. /guest/common.sh
# shellcheck source-path=SCRIPTDIR source=phases.sh
. /guest/phases.sh

STRESS_SECONDS=${STRESS_SECONDS:-1800}
PHASE=5
# Each hotplug stops all other load for a while, so there are few of them.
HOTPLUG_PAUSE=5

# sample: prints one line of values, in kB, pages or pieces.
sample() {
	local values
	values=$(awk -F '[: ]+' '$1 ~ /^(PageTables|VmallocUsed|SUnreclaim|Slab|MemFree)$/ { printf " %s=%s", $1, $2 }' /proc/meminfo)
	# Without areas that wait for a purge, which lazy_pages counts.
	values="$values areas=$(grep -vc 'unpurged vm_area$' /proc/vmallocinfo)"
	if [ "$(cat "$DEBUGFS/allocator" 2>/dev/null)" = rust ]; then
		values="$values$(awk '$1 ~ /^(stuck|lazy_pages|blocks|blocks_partial|blocks_empty)$/ { printf " %s=%s", $1, $2 }' "$DEBUGFS/stats")"
	fi
	echo "soak: t=$SECONDS$values"
}

# sample_loop: prints a sample every 10 s until /tmp/stop exists.
sample_loop() {
	local next=10
	while going sample; do
		if [ "$SECONDS" -ge "$next" ]; then sample; next=$((next + 10)); else sleep 0.5; fi
	done
}

# round NAME: runs one kind of load and counts the result; prints the output of its first failure.
round() {
	local rc=0
	"$1" >"/tmp/round.$1" 2>&1 || rc=$?
	case $rc in
	0) add "$1.rounds" 1 ;;
	77) ;;
	*)
		[ "$(count "$1.failed")" -gt 0 ] || sed "s/^/$1| /" "/tmp/round.$1"
		add "$1.failed" 1 ;;
	esac
}

report "start, $(nproc) CPUs, $STRESS_SECONDS s"
start_readers
sample_loop &
rc=0
stress-ng --timeout "${STRESS_SECONDS}s" --metrics-brief --temp-path /tmp --vm 1 --vm-bytes 64M --mmap 1 --mmap-bytes 16M --fork 1 \
	--vfork 1 --seccomp 1 --xattr 1 --iomix 1 --iomix-bytes 4M >/tmp/ng.log 2>&1 & ng=$!
while [ "$SECONDS" -lt "$STRESS_SECONDS" ]; do
	for name in modules bpf vmalloc memcg suspend; do round "$name"; done
done
wait $ng || rc=$?
tail -n 12 /tmp/ng.log | sed 's/^/ng| /'
verdict stress-ng $rc "$(grep -c metrc /tmp/ng.log) lines of metrics"
for name in modules bpf vmalloc memcg suspend; do
	if [ $(($(count "$name.rounds") + $(count "$name.failed"))) = 0 ]; then
		report "skip $name $(tail -n 1 "/tmp/round.$name")"
	else
		check "$name" "$(count "$name.failed") -eq 0" "$(count "$name.rounds") rounds, $(count "$name.failed") failed;" \
			"last: $(tail -n 1 "/tmp/round.$name")"
	fi
done
stop_readers
allocator_checks
report "done"
