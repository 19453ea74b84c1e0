#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs loads from user space at the same time, while readers of /proc and debugfs never pause and CPU 1 goes offline and
# online. From the kernel command line: STRESS_SECONDS; ALLOCATOR, rbtree or rust.
#
# Prints a line "sample: NAME=VALUE..." every 10 s, which harness/boot/scenarios/stress.py reads.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

SMALL=/sys/fs/cgroup/small
CPU1=/sys/devices/system/cpu/cpu1/online
# The seconds of one round of a load.
ROUND=5

# repeat WHAT CMD...: repeats a command for ROUND seconds, and prints how often it ran.
repeat() {
	local what=$1 end=$((SECONDS + ROUND)) n=0
	shift
	while [ "$SECONDS" -lt "$end" ]; do
		"$@" || return
		n=$((n + 1))
	done
	echo "$n $what"
}

# stress: runs stress-ng for STRESS_SECONDS; the last line has the numbers of operations.
stress() {
	local rc=0
	timeout -k 5 $((STRESS_SECONDS + 90)) stress-ng --timeout "${STRESS_SECONDS}s" --metrics-brief --temp-path /tmp \
		--vm 1 --vm-bytes 64M --mmap 1 --mmap-bytes 16M --fork 1 --vfork 1 --seccomp 1 --xattr 1 --iomix 1 \
		--iomix-bytes 4M >/tmp/ng.log 2>&1 || rc=$?
	cat /tmp/ng.log
	# 3: one stressor found no resources.
	awk '/metrc/ && $5 ~ /^[0-9]+$/ { printf "%s%s %s", n++ ? ", " : "", $4, $5 }
		END { print n ? " operations" : "nothing measured"; exit !n }' /tmp/ng.log && { [ $rc = 0 ] || [ $rc = 3 ]; }
}

# The loads, each for ROUND seconds. modules: loads and unloads a module.
modules() { repeat "loads and unloads" eval "insmod /test_module.ko && rmmod test_module"; }

# bpf: loads programs of many sizes.
bpf() { bpf-load $ROUND; }

# vmalloc: runs the kernel's tests of vmalloc, except the case whose failure is expected (mask 0x40). The module never
# stays.
vmalloc() { repeat "rounds of 12 tests" vmalloc_tests; }
vmalloc_tests() {
	dmesg -c >/dev/null
	insmod /test_vmalloc.ko "run_test_mask=$((0x1fff & ~0x40))" test_loop_count=10 nr_pcpu_objects=100 2>/dev/null
	dmesg >/tmp/vmalloc.log
	grep -q 'Summary:' /tmp/vmalloc.log && ! grep 'Summary:.*failed: [1-9]' /tmp/vmalloc.log
}

# memcg: makes a memory group run out of memory.
memcg() {
	echo +memory >/sys/fs/cgroup/cgroup.subtree_control && mkdir -p $SMALL && echo 16M >$SMALL/memory.max || return
	repeat "rounds, each with a task killed" memcg_oom
}
memcg_oom() {
	local before
	before=$(oom_kills)
	(echo $BASHPID >$SMALL/cgroup.procs; stress-ng -q --no-oom-adjust --fork 1 --xattr 1 --timeout 2s) >/dev/null 2>&1
	(echo $BASHPID >$SMALL/cgroup.procs; exec tail /dev/zero) >/dev/null 2>&1
	[ "$(oom_kills)" -gt "$before" ]
}
oom_kills() { awk '$1 == "oom_kill" { print $2 }' $SMALL/memory.events; }

# values FILE NAME|NAME...: prints " NAME=VALUE" for lines that begin with one of the names and a number.
values() { awk -F '[: ]+' -v names="^($2)$" '$1 ~ names { printf " %s=%s", $1, $2 }' "$1"; }

# sample_loop: prints a sample every 10 s, in kB, pages or pieces. Areas that wait for a purge are in lazy_pages.
sample_loop() {
	local values
	while going; do
		values=$(values /proc/meminfo 'PageTables|VmallocUsed|SUnreclaim|MemFree')
		[ "$ALLOCATOR" != rust ] || values+=$(values $DEBUGFS/stats 'stuck|lazy_pages|blocks')
		echo "sample: areas=$(live_areas)$values"
		sleep 10
	done
}

# hotplug_loop: takes CPU 1 offline and online.
hotplug_loop() {
	local off=0 refused=0
	while going; do
		if echo 0 2>/dev/null >$CPU1; then off=$((off + 1)); else refused=$((refused + 1)); fi
		sleep 1
		echo 1 2>/dev/null >$CPU1 || refused=$((refused + 1))
		sleep 2
	done
	echo 1 2>/dev/null >$CPU1
	check hotplug "$off -gt 0 -a $(cat $CPU1) -eq 1" "$off times off and on, $refused refused"
}

# start NAME, ended NAME PID: runs a round of a load in the background, or waits for it. The output of the first round that
# fails is printed.
start() { $1 >"/tmp/load.$1" 2>&1 & }
ended() { wait "$2" || [ -e "/tmp/failed.$1" ] || sed "s/^/$1| /" "/tmp/load.$1" | tee "/tmp/failed.$1"; }

drgn_check drgn-before
invariants_check 1 -before
report "start, $(nproc) CPUs, $STRESS_SECONDS s"
before=$(live_areas)
start_readers
hotplug_loop &
sample_loop &
start stress
stress=$! rounds=0
while [ "$SECONDS" -lt "$STRESS_SECONDS" ]; do
	declare -A pids=()
	for name in modules bpf memcg; do start $name; pids[$name]=$!; done
	for name in "${!pids[@]}"; do ended "$name" "${pids[$name]}"; done
	# Alone, since it reads the kernel's messages.
	start vmalloc
	ended vmalloc $!
	rounds=$((rounds + 1))
	report "round $rounds: $(tail -n 1 /tmp/load.bpf)"
done
ended stress $stress
for name in stress modules bpf memcg vmalloc; do
	check $name "$rounds -gt 0 -a ! -e /tmp/failed.$name" "$rounds rounds, the last one: $(tail -n 1 /tmp/load.$name)"
done
stop_readers
wait
areas_check "$before"
invariants_check 1001
drgn_check drgn
finish
