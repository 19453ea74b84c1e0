#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# Allocations of the kernel fail on purpose, slab and pages, one in N, while areas come and go; run by init.sh in the
# guest instead of the load. First only for tasks that ask for it (module loads, forks, readers), then for everybody, last
# while lib/test_vmalloc.c runs, if it is a module: its cases fail then, but nothing else may.
#
# This script and what it waits for must not fail: it forks nothing while everybody's allocations fail.
#
# Prints "inject: ok NAME DETAIL" or "inject: FAIL NAME DETAIL" per check, and "inject: done" at the end. From the kernel
# command line: INJECT_SECONDS for each rate (default 8); LOAD_ALLOCATOR, rbtree or rust.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

INJECT_SECONDS=${INJECT_SECONDS:-8}
MANY=1000000000

report() { echo "inject: $*"; }

# set_faults N WHOM: lets one allocation in N fail, of marked tasks (Y) or of all (N); 0 ends it. Forks nothing.
set_faults() {
	local kind dir
	for kind in failslab fail_page_alloc; do
		dir=/sys/kernel/debug/$kind
		# Opening it may fail as well.
		until echo 0 >$dir/probability; do :; done 2>/dev/null
		[ "$1" != 0 ] || continue
		echo "$2" >$dir/task-filter
		echo 0 >$dir/verbose
		echo N >$dir/ignore-gfp-wait
		[ ! -e $dir/ignore-gfp-highmem ] || echo N >$dir/ignore-gfp-highmem
		[ ! -e $dir/min-order ] || echo 0 >$dir/min-order
		echo "$1" >$dir/interval
		echo $MANY >$dir/times
		echo 100 >$dir/probability
	done
}

# injected: sets INJECTED to the number of faults since set_faults. Forks nothing.
injected() {
	local kind left
	INJECTED=0
	for kind in failslab fail_page_alloc; do
		until read -r left </sys/kernel/debug/$kind/times; do :; done 2>/dev/null
		INJECTED=$((INJECTED + MANY - left))
	done
}

# pause SECONDS: waits without forking; nothing ever comes out of the pipe.
# shellcheck disable=SC3045 # busybox has read -t
pause() { read -r -t "$1" _ <>/tmp/pipe; }

# marked COMMAND...: runs it as a task whose allocations may fail.
# shellcheck disable=SC2016 # $$ of that shell
marked() { (echo 1 >/proc/self/make-it-fail 2>/dev/null; exec "$@") >/dev/null 2>&1; }

# try_loop FILE WHAT COMMAND...: runs COMMAND until /tmp/stop exists; /tmp/FILE says how often it was tried and how often it
# worked.
try_loop() {
	local file=$1 what=$2 tried=0 worked=0
	shift 2
	while [ ! -e /tmp/stop ]; do
		tried=$((tried + 1))
		"$@" && worked=$((worked + 1))
		echo "$worked of $tried $what" >"/tmp/$file"
	done
}

# load_module, forks, read_info: what is tried, as tasks whose allocations may fail.
load_module() { marked insmod /test_module.ko && rmmod test_module; }
# shellcheck disable=SC2034 # only forks
forks() { (echo 1 >/proc/self/make-it-fail; for i in 1 2 3 4 5 6 7 8; do (:) & done; wait); }
read_info() { marked cat /proc/vmallocinfo; }

# rate N WHOM NAME: all loops at that rate.
rate() {
	rm -f /tmp/stop /tmp/modules /tmp/forks /tmp/reads
	touch /tmp/modules /tmp/forks /tmp/reads
	try_loop modules "module loads" load_module 2>/dev/null & MODULE=$!
	try_loop forks "rounds of forks" forks 2>/dev/null & FORK=$!
	try_loop reads reads read_info 2>/dev/null & READ=$!
	set_faults "$1" "$2"
	tries=0
	INJECTED=0
	# A slow kernel needs longer until one in a thousand has failed.
	while [ $INJECTED = 0 ] && [ $tries -lt 10 ]; do
		pause "$INJECT_SECONDS"
		injected
		tries=$((tries + 1))
	done
	set_faults 0
	touch /tmp/stop
	wait $MODULE $FORK $READ
	rmmod test_module 2>/dev/null
	check "$3" "$INJECTED -gt 0" "$INJECTED faults, $(cat /tmp/modules), $(cat /tmp/forks), $(cat /tmp/reads)"
	book_check 0 "-$3"
}

# vmalloc_tests N: lib/test_vmalloc.c while one allocation in N fails for everybody: its threads cannot be marked. With one
# in 2, this shell gets no memory either. Without vm_map_ram_test (mask 0x400), which writes to what it got without looking.
vmalloc_tests() {
	local tries=0 cases passed
	INJECTED=0
	# It may have ended before the first fault.
	while [ $INJECTED = 0 ] && [ $tries -lt 5 ]; do
		dmesg -c >/dev/null
		insmod /test_vmalloc.ko.gz run_test_mask=$((0x1fff & ~0x400)) test_loop_count=20 test_repeat_count=4 nr_pcpu_objects=200 2>/dev/null &
		pause 1
		set_faults "$1" N
		# Until it has ended, without forking.
		wait $!
		injected
		set_faults 0
		tries=$((tries + 1))
	done
	cases=$(dmesg | grep -c 'Summary: ')
	passed=$(dmesg | sed -nE 's/.*Summary: .* passed: ([0-9]+) .*/\1/p' | awk '{ n += $1 } END { print n + 0 }')
	check "vmalloc-$1" "$INJECTED -gt 0 -a $cases -gt 0" "$INJECTED faults, $cases cases ended, of which $passed runs had none of them"
	book_check 0 "-vmalloc-$1"
}

mkfifo /tmp/pipe
report "start, allocator $LOAD_ALLOCATOR"
insmod /test_module.ko && rmmod test_module
before=$(live_areas)
for n in 1000 300 100 30 10 5 2; do rate $n Y "marked-$n"; done
for n in 1000 300 100; do rate $n N "all-$n"; done
if [ -e /test_vmalloc.ko.gz ]; then
	for n in 1000 100 10; do vmalloc_tests $n; done
fi
i=0 bad=0
while [ $i -lt 20 ]; do
	insmod /test_module.ko && rmmod test_module || bad=$((bad + 1))
	i=$((i + 1))
done
check modules-after "$bad -eq 0" "$bad of $i module loads failed without a fault"
sleep 1
after=$(live_areas)
check areas "$after -le $((before + 16 + 4 * $(nproc)))" "$before live areas before, $after after all faults"
kmemleak_scan
report "done"
