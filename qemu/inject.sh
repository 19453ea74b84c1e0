#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# Makes one in N slab and page allocations of the kernel fail while areas are allocated and freed. Faults first hit only
# marked tasks (module loads, forks, readers), then all tasks.
#
# This script must not fail itself, so it forks nothing while the allocations of all tasks fail.
#
# From the kernel command line: ALLOCATOR, rbtree or rust.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

MANY=1000000000

# probability N: makes N of 100 candidates fail. Opening a file may fail while faults hit all tasks, so it is repeated until
# it works; its errors go to file 3, which is open. Forks nothing.
probability() {
	local kind
	for kind in failslab fail_page_alloc; do
		until echo "$1" >/sys/kernel/debug/$kind/probability; do :; done 2>&3
	done
}

# set_faults N WHOM: makes one allocation in N fail, in marked tasks (WHOM is Y) or in all (N).
set_faults() {
	local kind dir
	for kind in failslab fail_page_alloc; do
		dir=/sys/kernel/debug/$kind
		echo "$2" >$dir/task-filter
		echo 0 >$dir/verbose
		echo N >$dir/ignore-gfp-wait
		[ ! -e $dir/ignore-gfp-highmem ] || echo N >$dir/ignore-gfp-highmem
		[ ! -e $dir/min-order ] || echo 0 >$dir/min-order
		echo "$1" >$dir/interval
		echo $MANY >$dir/times
	done
	probability 100
}

# injected: sets INJECTED to the number of faults since set_faults. Forks nothing.
injected() {
	local kind left
	INJECTED=0
	for kind in failslab fail_page_alloc; do
		until read -r left </sys/kernel/debug/$kind/times; do :; done 2>&3
		INJECTED=$((INJECTED + MANY - left))
	done
}

# pause SECONDS: waits without forking: it reads from a pipe to which nothing is written.
# shellcheck disable=SC3045 # busybox has read -t
pause() { read -r -t "$1" _ <&4; }

# marked COMMAND...: runs COMMAND as a marked task.
# shellcheck disable=SC2016 # $$ of that shell
marked() { (echo 1 >/proc/self/make-it-fail 2>/dev/null; exec "$@") >/dev/null 2>&1; }

# try_loop FUNCTION: repeats a function until /tmp/stop exists; writes to /tmp/FUNCTION how often it was tried and how often
# it worked. A failed fork ends a shell, unless "command" runs the function that forks. The child must not fork in turn:
# after a failure it would continue this loop.
try_loop() {
	local tried=0 worked=0
	while going; do
		tried=$((tried + 1))
		command eval "$1" && worked=$((worked + 1))
		echo "$worked of $tried $1" >"/tmp/$1"
	done
}

# loads, forks, reads: what the loops try, in marked tasks.
loads() { marked insmod /test_module.ko && rmmod test_module; }
# A separate shell forks, which ends at the first fork that fails.
forks() { marked /bin/busybox sh -c 'for i in 1 2 3 4 5 6 7 8; do (:) & done; wait'; }
reads() { marked cat /proc/vmallocinfo; }

# rate N WHOM NAME: runs all loops while one allocation in N fails (see set_faults), and reports check NAME.
rate() {
	local name loops='' tries=0
	rm -f /tmp/stop
	for name in loads forks reads; do
		: >/tmp/$name
		try_loop $name 2>/dev/null & loops="$loops $!"
	done
	set_faults "$1" "$2"
	INJECTED=0
	# On a slow kernel it takes longer until one allocation in a thousand has failed.
	while [ $INJECTED = 0 ] && [ $tries -lt 10 ]; do
		pause 8
		injected
		tries=$((tries + 1))
	done
	probability 0
	touch /tmp/stop
	# shellcheck disable=SC2086 # a list of numbers
	wait $loops
	rmmod test_module 2>/dev/null
	check "$3" "$INJECTED -gt 0" "$INJECTED faults, $(cat /tmp/loads), $(cat /tmp/forks), $(cat /tmp/reads)"
	invariants_check 0 "-$3"
}

mkfifo /tmp/pipe
exec 3>/dev/null 4<>/tmp/pipe
report "start, allocator $ALLOCATOR"
insmod /test_module.ko && rmmod test_module
before=$(live_areas)
for n in 1000 300 100 30 10 5 2; do rate $n Y "marked-$n"; done
for n in 1000 300 100; do rate $n N "all-$n"; done
modules_check modules-after 20
areas_check "$before"
kmemleak_check
finish
