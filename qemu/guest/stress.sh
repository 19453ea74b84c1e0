#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs loads from user space, one kind after the other and then all at the same time, while readers of /proc and debugfs never
# pause and CPU 1 goes offline and online. Prints "stress: ok|FAIL|skip NAME DETAIL" per phase and "stress: done" at the end.
# From the kernel command line: STRESS_SECONDS, the time of all phases together.

# shellcheck source-path=SCRIPTDIR source=common.sh
. /guest/common.sh
# shellcheck source-path=SCRIPTDIR source=phases.sh
. /guest/phases.sh

STRESS_SECONDS=${STRESS_SECONDS:-180}
# 13 phases, two of which run twice PHASE seconds. The start and the end take additional time.
PHASE=$((STRESS_SECONDS / 15))
[ "$PHASE" -ge 4 ] || PHASE=4

# all: runs the loads at the same time.
all() {
	local rc=0 pids=() pid
	bpf >/tmp/all.bpf 2>&1 & pids+=($!)
	modules >/tmp/all.modules 2>&1 & pids+=($!)
	memcg >/tmp/all.memcg 2>&1 & pids+=($!)
	ng --vm 1 --vm-bytes 64M --mmap 1 --mmap-bytes 16M --fork 1 --vfork 1 --seccomp 1 --xattr 1 --iomix 1 --iomix-bytes 4M || rc=$?
	for pid in "${pids[@]}"; do
		wait "$pid" || [ $? = 77 ] || rc=1
	done
	[ $rc = 0 ] || tail -n 3 /tmp/all.*
	return $rc
}

report "start, $(nproc) CPUs, $STRESS_SECONDS s, $PHASE s each phase"
before=$(live_areas)
start_readers
phase vm ng --vm 2 --vm-bytes 64M
phase mmap ng --mmap 2 --mmap-bytes 32M
phase fork ng --fork 2 --vfork 1 --clone 1
phase xattr ng --xattr 2
phase iomix ng --iomix 2 --iomix-bytes 8M
phase seccomp ng --seccomp 2
phase module-ng ng --module 1 --module-name test_module
phase modules modules
phase bpf bpf
phase vmalloc vmalloc
phase memcg memcg
phase suspend suspend
phase all all
stop_readers
sleep 3
after=$(live_areas)
check areas "$after -le $((before + 24 + 8 * $(nproc)))" "$before live areas before the load, $after after it"
allocator_checks
report "done"
