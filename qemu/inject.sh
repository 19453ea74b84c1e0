#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# Allocations of the kernel fail on purpose, slab and pages, one in N, while areas come and go; run by init.sh in the
# guest instead of the load. First only for tasks that ask for it (module loads, forks, readers), then for everybody.
#
# This script and what it waits for must not fail: it forks nothing while everybody's allocations fail.
#
# Prints "inject: ok NAME DETAIL" or "inject: FAIL NAME DETAIL" per check, and "inject: done" at the end. From the kernel
# command line: INJECT_SECONDS for each rate (default 8); LOAD_ALLOCATOR, rbtree or rust.

INJECT_SECONDS=${INJECT_SECONDS:-8}
DEBUGFS=/sys/kernel/debug
MANY=1000000000

report() { echo "inject: $*"; }

# check NAME CONDITION DETAIL: one report line; CONDITION is a test expression.
check() {
	local name=$1 condition=$2
	shift 2
	# shellcheck disable=SC2086 # the expression is split on purpose
	if [ $condition ]; then report "ok $name $*"; else report "FAIL $name $*"; fi
}

# set_faults N WHOM: lets one allocation in N fail, of marked tasks (Y) or of all (N); 0 ends it. Forks nothing.
set_faults() {
	local kind
	for kind in failslab fail_page_alloc; do
		echo 0 >$DEBUGFS/$kind/probability
		[ "$1" != 0 ] || continue
		echo "$2" >$DEBUGFS/$kind/task-filter
		echo 0 >$DEBUGFS/$kind/verbose
		echo N >$DEBUGFS/$kind/ignore-gfp-wait
		[ ! -e $DEBUGFS/$kind/ignore-gfp-highmem ] || echo N >$DEBUGFS/$kind/ignore-gfp-highmem
		[ ! -e $DEBUGFS/$kind/min-order ] || echo 0 >$DEBUGFS/$kind/min-order
		echo "$1" >$DEBUGFS/$kind/interval
		echo $MANY >$DEBUGFS/$kind/times
		echo 100 >$DEBUGFS/$kind/probability
	done
}

# injected: sets INJECTED to the number of faults since set_faults. Forks nothing.
injected() {
	local left
	INJECTED=0
	for kind in failslab fail_page_alloc; do
		read -r left <$DEBUGFS/$kind/times
		INJECTED=$((INJECTED + MANY - left))
	done
}

# pause SECONDS: waits without forking; nothing ever comes out of the pipe.
# shellcheck disable=SC3045 # busybox has read -t
pause() { read -r -t "$1" _ <>/tmp/pipe; }

# marked COMMAND...: runs it as a task whose allocations may fail.
# shellcheck disable=SC2016 # $$ of that shell
marked() { (echo 1 >/proc/self/make-it-fail 2>/dev/null; exec "$@") >/dev/null 2>&1; }

# module_loop, fork_loop, read_loop: until /tmp/stop exists; each counts what it tried and what worked in /tmp/NAME.
module_loop() {
	local tried=0 worked=0
	while [ ! -e /tmp/stop ]; do
		tried=$((tried + 1))
		if marked insmod /test_module.ko; then worked=$((worked + 1)); rmmod test_module; fi
		echo "$worked of $tried module loads" >/tmp/modules
	done
}
fork_loop() {
	local tried=0 worked=0
	while [ ! -e /tmp/stop ]; do
		tried=$((tried + 1))
		# shellcheck disable=SC2034 # only forks
		(echo 1 >/proc/self/make-it-fail; for i in 1 2 3 4 5 6 7 8; do (:) & done; wait) 2>/dev/null && worked=$((worked + 1))
		echo "$worked of $tried rounds of forks" >/tmp/forks
	done
}
read_loop() {
	local tried=0 worked=0
	while [ ! -e /tmp/stop ]; do
		tried=$((tried + 1))
		marked cat /proc/vmallocinfo && worked=$((worked + 1))
		echo "$worked of $tried reads" >/tmp/reads
	done
}

# book_check NAME: all invariants hold, and no answer differed from the second book, if there is one.
book_check() {
	local state
	[ "$LOAD_ALLOCATOR" = rust ] && [ -e $DEBUGFS/vmap_rust/validate ] || return 0
	state=$(cat $DEBUGFS/vmap_rust/validate)
	check "validate-$1" "x${state%%:*} = xok" "$state"
	cat $DEBUGFS/vmap_rust/shadow >/tmp/shadow
	grep -q '^wrong ' /tmp/shadow || return 0
	check "shadow-$1" "$(awk '$1 == "wrong" { print $2 }' /tmp/shadow) -eq 0" "$(awk '{ printf "%s %s, ", $2, $1 }' /tmp/shadow)"
}

# rate N WHOM NAME: all loops at that rate.
rate() {
	rm -f /tmp/stop /tmp/modules /tmp/forks /tmp/reads
	touch /tmp/modules /tmp/forks /tmp/reads
	module_loop 2>/dev/null & MODULE=$!
	fork_loop 2>/dev/null & FORK=$!
	read_loop 2>/dev/null & READ=$!
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
	book_check "$3"
}

# live_areas: number of areas in use.
live_areas() { grep -vc 'unpurged vm_area$' /proc/vmallocinfo; }

mkfifo /tmp/pipe
report "start, allocator $LOAD_ALLOCATOR"
insmod /test_module.ko && rmmod test_module
before=$(live_areas)
for n in 1000 300 100 30 10 5 2; do rate $n Y "marked-$n"; done
for n in 1000 300 100; do rate $n N "all-$n"; done
i=0 bad=0
while [ $i -lt 20 ]; do
	insmod /test_module.ko && rmmod test_module || bad=$((bad + 1))
	i=$((i + 1))
done
check modules-after "$bad -eq 0" "$bad of $i module loads failed without a fault"
sleep 1
after=$(live_areas)
check areas "$after -le $((before + 16 + 4 * $(nproc)))" "$before live areas before, $after after all faults"
if [ -e $DEBUGFS/kmemleak ]; then
	echo scan >$DEBUGFS/kmemleak
	sleep 6
	echo scan >$DEBUGFS/kmemleak
	cat $DEBUGFS/kmemleak
	check kmemleak "$(grep -c 'unreferenced object' $DEBUGFS/kmemleak) -eq 0" "unreferenced objects"
fi
report "done"
