#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# What runs in the guest of scripts/run tools, which init.sh starts: a load, and snapshots of /proc/vmallocinfo. After each
# line "tools: NAME" the host takes a dump.
#
# Prints the snapshot "early" before the load, "tools: busy" in the middle of it, between the snapshots "before" and "after", and
# "tools: quiet" at its end, after the snapshot "quiet". After the second dump the host damages the allocator, so that what follows ends
# in a panic. The lines "trace| " are the events of the allocator.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

TRACE=/sys/kernel/tracing
EVENTS=$TRACE/events/vmap_rust

# module_loop: loads and unloads the module until /tmp/stop exists.
module_loop() { while [ ! -e /tmp/stop ]; do insmod /test_module.ko && rmmod test_module; done; }

# sleepers N: forks N processes, whose stacks stay.
sleepers() {
	local i=0
	while [ $i -lt "$1" ]; do sleep 100000 & i=$((i + 1)); done
}

# Messages would break the lines of the snapshots.
dmesg -n 1
mount -t tracefs trace $TRACE 2>/dev/null
[ ! -e $EVENTS/enable ] || echo 1 >$EVENTS/enable
sleepers 300
sleep 1
snapshot early
fork_loop & FORK=$!
module_loop & MODULES=$!
sleep 3
snapshot before
echo "tools: busy"
# The host takes a dump, and then reads the memory of the running guest.
sleep 15
snapshot after
touch /tmp/stop
wait $FORK $MODULES
[ ! -e $DEBUGFS/stats ] || sed 's/^/stats| /' $DEBUGFS/stats
[ ! -e $TRACE/trace ] || grep -v '^#' $TRACE/trace | head -n 400 | sed 's/^ */trace| /'
sleep 2
snapshot quiet
echo "tools: quiet"
# The dump begins meanwhile.
sleep 10
rm /tmp/stop
# Not in this shell: "wait" would wait for the sleepers, too.
fork_loop & wait $!
