#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs loads from user space, one kind after the other and then all at the same time, while readers of /proc and debugfs
# never pause and CPU 1 goes offline and online. From the kernel command line: STRESS_SECONDS, the time of all.
#
# During the last phase it prints a line "sample: t=SECONDS NAME=VALUE..." every 10 s, which harness/samples.py reads.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

SMALL=/sys/fs/cgroup/small
# The seconds of a phase, of which there are 12 before the last.
PHASE=16

# phase NAME CMD...: runs a load and reports it. It returns 0 if it passed, 77 if the kernel lacks the feature, else it
# failed; its last line of output is the detail.
phase() {
	local name=$1 rc=0 word
	shift
	"$@" >"/tmp/phase.$name" 2>&1 || rc=$?
	case $rc in
	0) word=ok ;;
	77) word=skip ;;
	*) word=FAIL; sed "s/^/$name| /" "/tmp/phase.$name" ;;
	esac
	report "$word $name $(tail -n 1 "/tmp/phase.$name")"
}

# ng ARG...: runs stress-ng; its last line has the number of operations.
ng() {
	local rc=0
	timeout -k 5 $((PHASE + 90)) stress-ng --timeout "${PHASE}s" --metrics-brief --temp-path /tmp "$@" \
		>/tmp/ng.log 2>&1 || rc=$?
	cat /tmp/ng.log
	awk '/metrc/ && $5 ~ /^[0-9]+$/ { printf "%s%s %s", n++ ? ", " : "", $4, $5 }
		END { print n ? " operations" : "nothing measured" }' /tmp/ng.log
	# 3: no resources; 4: not implemented.
	case $rc in 3|4) return 77 ;; esac
	return $rc
}

# repeat WHAT CMD...: repeats a command for PHASE seconds, and prints how often it ran.
repeat() {
	local what=$1 end=$((SECONDS + PHASE)) n=0
	shift
	while [ "$SECONDS" -lt "$end" ]; do
		"$@" || return
		n=$((n + 1))
	done
	echo "$n $what"
}

# The loads, each for PHASE seconds. modules: loads and unloads a module.
modules() { repeat "loads and unloads" eval "insmod /test_module.ko && rmmod test_module"; }

# bpf: loads programs of many sizes, then a few tests at a time of the interpreter and the JIT compiler: all of them
# take minutes.
bpf() {
	bpf-load "$PHASE" >/tmp/bpf.log || { cat /tmp/bpf.log; return 1; }
	repeat "loads of 10 tests after $(cat /tmp/bpf.log)" bpf_tests
}
bpf_tests() {
	local first=$((RANDOM % 380))
	insmod /test_bpf.ko test_suite=test_bpf "test_range=$first,$((first + 9))" && rmmod test_bpf
}

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
	echo +memory 2>/dev/null >/sys/fs/cgroup/cgroup.subtree_control || { echo "no memory controller"; return 77; }
	mkdir -p $SMALL && echo 16M >$SMALL/memory.max || return
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

# suspend: runs the stages of a suspend to idle that pm_test offers, then a full suspend if the clock can wake the
# guest. Without ACPI it cannot.
suspend() {
	local rc=0
	grep -qs freeze /sys/power/state && [ -e /sys/power/pm_test ] || { echo "no stages of a suspend to idle"; return 77; }
	# No CPU may come or go meanwhile.
	touch /tmp/pause.hotplug
	sleep 4
	echo 1 2>/dev/null >/sys/module/suspend/parameters/pm_test_delay
	repeat "times freezer, devices, platform" suspend_stages || rc=1
	echo none >/sys/power/pm_test
	[ ! -e /sys/class/rtc/rtc0/device/power/wakeup ] || rtcwake -m freeze -s 3 ||
		{ echo "the clock did not wake it"; rc=1; }
	rm /tmp/pause.hotplug
	return $rc
}
suspend_stages() {
	local stage
	for stage in freezer devices platform; do
		echo "$stage" >/sys/power/pm_test && echo freeze >/sys/power/state || { echo "stage $stage"; return 1; }
	done
}

# sample_loop: prints a sample every 10 s, in kB, pages or pieces. Areas that wait for a purge are in lazy_pages.
sample_loop() {
	local values
	while going && [ ! -e /tmp/stop.samples ]; do
		values=$(values /proc/meminfo 'PageTables|VmallocUsed|SUnreclaim|Slab|MemFree')
		[ "$ALLOCATOR" != rust ] || values+=$(values $DEBUGFS/stats 'stuck|lazy_pages|blocks|blocks_partial|blocks_empty')
		echo "sample: t=$SECONDS areas=$(live_areas)$values"
		sleep 10
	done
}

# all TIME: runs the loads at the same time for TIME seconds: stress-ng throughout, beside it rounds of the others.
all() {
	local end=$((SECONDS + $1)) rc=0 rounds=0 name pid pids stress
	sample_loop >&3 &
	PHASE=$1 ng --vm 1 --vm-bytes 64M --mmap 1 --mmap-bytes 16M --fork 1 --vfork 1 --seccomp 1 --xattr 1 \
		--iomix 1 --iomix-bytes 4M >/tmp/all.ng 2>&1 & stress=$!
	PHASE=5
	while [ "$SECONDS" -lt "$end" ]; do
		pids=()
		for name in modules bpf memcg; do $name >/tmp/all.$name 2>&1 & pids+=($!); done
		for pid in "${pids[@]}"; do
			wait "$pid" || [ $? = 77 ] || rc=1
		done
		for name in vmalloc suspend; do
			$name >/tmp/all.$name 2>&1 || [ $? = 77 ] || rc=1
		done
		[ $rc = 0 ] || break
		rounds=$((rounds + 1))
	done
	wait $stress || [ $? = 77 ] || rc=1
	touch /tmp/stop.samples
	[ $rc = 0 ] || tail -n 3 /tmp/all.*
	echo "$rounds rounds beside $(tail -n 1 /tmp/all.ng)"
	return $rc
}

report "start, $(nproc) CPUs, $STRESS_SECONDS s"
exec 3>&1
before=$(live_areas)
start_readers
hotplug_loop &
phase vm ng --vm 2 --vm-bytes 64M
phase mmap ng --mmap 2 --mmap-bytes 32M
phase fork ng --fork 2 --vfork 1 --clone 1
phase xattr ng --xattr 2
phase iomix ng --iomix 2 --iomix-bytes 8M
phase seccomp ng --seccomp 2
phase module-ng ng --module 1 --module-name test_module
for name in modules bpf vmalloc memcg suspend; do phase $name $name; done
left=$((STRESS_SECONDS - SECONDS))
phase all all $((left > 30 ? left : 30))
stop_readers
wait
areas_check "$before"
invariants_check 1001
finish
