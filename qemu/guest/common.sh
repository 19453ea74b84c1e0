#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Functions of stress.sh and soak.sh: loads other than those of stress-ng, and readers that never pause.

# shellcheck source-path=SCRIPTDIR source=../functions.sh
. /guest/functions.sh

report() { echo "stress: $*"; }

MODULES=/usr/lib/modules/$(uname -r)/kernel
CPU1=/sys/devices/system/cpu/cpu1/online
SMALL=/sys/fs/cgroup/small

# has_module NAME: true when the kernel was built with this module.
has_module() { [ -f "$MODULES/$1.ko" ]; }

# going NAME: true until loop NAME must stop.
going() { [ ! -e /tmp/stop ] && [ ! -e "/tmp/stop.$1" ]; }

# debugfs_loop: reads all debugfs files of the allocator, validate included, until /tmp/stop exists.
debugfs_loop() {
	local file
	while going debugfs; do
		for file in "$DEBUGFS"/*; do
			cat "$file" >/tmp/debugfs.read || add debugfs.bad 1
			case $file in */validate) grep -qE '^(ok|the allocator is not in use)' /tmp/debugfs.read || add debugfs.bad 1 ;; esac
			add debugfs.reads 1
		done
	done
}

# hotplug_loop: takes CPU 1 offline and online until /tmp/stop or /tmp/stop.hotplug exists.
hotplug_loop() {
	[ -e "$CPU1" ] || return 0
	while going hotplug; do
		if echo 0 2>/dev/null >"$CPU1"; then add hotplug.off 1; else add hotplug.refused 1; fi
		sleep 0.3
		echo 1 2>/dev/null >"$CPU1" || add hotplug.refused 1
		sleep "${HOTPLUG_PAUSE:-0.7}"
	done
}

# loads NAME END [ARG...]: loads and unloads a module until SECONDS reaches END; prints how often, fails when a load failed.
loads() {
	local name=$1 end=$2 n=0
	shift 2
	while [ "$SECONDS" -lt "$end" ]; do
		insmod "$MODULES/$name.ko" "$@" || return 1
		rmmod "$name" || return 1
		n=$((n + 1))
	done
	echo "$n loads and unloads"
}

# bpf_tests END: loads test_bpf, which makes and frees a program per test, until SECONDS reaches END. Prints how often, or the
# error when a load failed.
bpf_tests() {
	local end=$1 n=0 first
	while [ "$SECONDS" -lt "$end" ]; do
		# A few tests at a time: all of them take minutes in an emulator.
		first=$((RANDOM % 380))
		insmod "$MODULES/test_bpf.ko" "test_suite=test_bpf" "test_range=$first,$((first + 9))" 2>/tmp/bpf.error ||
			{ cat /tmp/bpf.error; return 1; }
		rmmod test_bpf || return 1
		n=$((n + 1))
	done
	echo "$n loads of 10 tests"
}

# vmalloc_tests MASK LOOPS: runs test_vmalloc once, which always ends with a load error; fails when one of its tests failed.
vmalloc_tests() {
	dmesg -c >/dev/null
	insmod "$MODULES/test_vmalloc.ko" "run_test_mask=$1" "test_loop_count=$2" nr_pcpu_objects=100 2>/dev/null
	dmesg >/tmp/vmalloc.log
	grep -q 'Summary:' /tmp/vmalloc.log && ! grep 'Summary:.*failed: [1-9]' /tmp/vmalloc.log
}

# memcg_oom: makes a memory group run out of memory; prints how many tasks were killed, fails when none was.
memcg_oom() {
	local kills
	mkdir -p "$SMALL" && echo 16M >"$SMALL/memory.max" || return 1
	# shellcheck disable=SC2016 # the inner shells expand it
	bash -c 'echo $$ >"$1/cgroup.procs" && stress-ng -q --no-oom-adjust --fork 1 --xattr 1 --timeout 2s' sh "$SMALL" >/dev/null 2>&1
	# shellcheck disable=SC2016
	bash -c 'echo $$ >"$1/cgroup.procs" && exec tail /dev/zero' sh "$SMALL" >/dev/null 2>&1
	kills=$(awk '$1 == "oom_kill" { print $2 }' "$SMALL/memory.events")
	echo "${kills:-0} kills"
	[ "${kills:-0}" -gt 0 ]
}

# memcg_setup: enables memory limits of groups; fails when the kernel has no memory controller.
memcg_setup() { echo +memory 2>/dev/null >/sys/fs/cgroup/cgroup.subtree_control; }

# start_readers: starts the loops that run during all loads: readers and CPU hotplug.
start_readers() {
	rm -f /tmp/stop /tmp/stop.*
	kcore_map
	info_loop & kcore_loop & debugfs_loop & hotplug_loop &
}

# stop_readers: ends the loops of start_readers and reports their checks.
stop_readers() {
	local bad
	touch /tmp/stop
	wait
	[ ! -e "$CPU1" ] || echo 1 2>/dev/null >"$CPU1"
	bad=$(wc -l </tmp/info.bad)
	head -n 3 /tmp/info.bad | sed 's/^/bad line| /'
	check info-shape "$bad -eq 0" "$bad bad lines"
	check info-reads "$(count info.lines) -gt 0" "$(count info.reads) reads, $(count info.lines) lines"
	check kcore-bytes "$(count kcore.bytes) -gt 4096" "$(count kcore.bytes) bytes of vmalloc memory that are not zero"
	check kcore-segments "$(count kcore.unknown) -eq 0" "$(count kcore.unknown) areas outside of all segments"
	if [ -d "$DEBUGFS" ]; then
		check debugfs "$(count debugfs.bad) -eq 0" "$(count debugfs.reads) reads, $(count debugfs.bad) wrong"
	fi
	if [ ! -e "$CPU1" ]; then
		report "skip hotplug CPU 1 cannot be taken offline"
	else
		check hotplug "$(count hotplug.off) -gt 0" "$(count hotplug.off) times off and on, $(count hotplug.refused) refused"
	fi
}

# allocator_checks: prints the allocator's counters and reports validate and checker.
allocator_checks() {
	[ -d "$DEBUGFS" ] || { report "skip validate no debugfs folder"; return; }
	[ -e "$DEBUGFS/validate" ] || report "skip validate the kernel has no CONFIG_VMAP_RUST_DEBUG"
	sed 's/^/stats| /' "$DEBUGFS/stats"
	invariants_check 1001
}
