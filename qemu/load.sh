#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# User-space load on the vmap area allocator, which init.sh runs in the guest: loads and unloads a module while other
# processes fork, read /proc/vmallocinfo and read vmalloc memory through /proc/kcore.
#
# Prints "user load: ok NAME DETAIL" or "user load: FAIL NAME DETAIL" per check, snapshots of /proc/vmallocinfo
# between markers (harness/vmallocinfo.py judges them), and "user load: done" at the end.
# From the kernel command line: LOAD_LOOPS, module loads (default 200); LOAD_ALLOCATOR, rbtree, rust or none.

LOAD_LOOPS=${LOAD_LOOPS:-200}
LOAD_ALLOCATOR=${LOAD_ALLOCATOR:-none}

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

report() { echo "user load: $*"; }

# module_loop: loads and unloads the module LOAD_LOOPS times.
module_loop() {
	local i=0 bad=0
	while [ $i -lt "$LOAD_LOOPS" ]; do
		insmod /test_module.ko && rmmod test_module || bad=$((bad + 1))
		i=$((i + 1))
	done
	[ $bad = 0 ] && report "ok modules $i loads and unloads" || report "FAIL modules $bad of $i failed"
}

# ptdump_file: prints the path of the kernel's dump of its page tables, if there is one.
ptdump_file() { ls /sys/kernel/debug/kernel_page_tables /sys/kernel/debug/page_tables/kernel 2>/dev/null; }

# ptdump_loop FILE: reads it until /tmp/stop exists. Meanwhile no table may be freed for a larger entry.
ptdump_loop() {
	while [ ! -e /tmp/stop ]; do
		add ptdump.lines "$(grep -ci 'vmalloc() area' "$1")"
		add ptdump.reads 1
	done
}

# map_loop: reads the allocator's list of ranges until /tmp/stop exists, and appends lines of an unknown shape, and those that are not
# above the line before, to /tmp/map.bad. Addresses have the same number of digits or compare by their length first.
map_loop() {
	while [ ! -e /tmp/stop ]; do
		cat $DEBUGFS/map >/tmp/map.read
		awk 'NR == 1 { if ($0 !~ /^vmap_rust map 1 page [0-9]+ home 0x[0-9a-f]+-0x[0-9a-f]+$/) print; next }
			!/^0x[0-9a-f]+-0x[0-9a-f]+ (area [a-z]+|block changing|block cpu [0-9]+ (current|pool) slot [0-9]+ [.Bulf?]+)$/ { print; next }
			{ split($1, range, "-")
			  if (length(range[1]) == length(last) ? range[1] "" < last "" : length(range[1]) < length(last)) print
			  last = range[2] }
			# A block is a power of two of pages, and as many slots as fit in it have a letter.
			$2 == "block" && NF > 3 { for (pages = 512; pages < length($NF) * $7; pages *= 2);
			  if (pages >= (length($NF) + 1) * $7) print }' /tmp/map.read >>/tmp/map.bad
		add map.reads 1
		add map.lines "$(wc -l </tmp/map.read)"
	done
}

# debugfs_check WHEN: checks that the debugfs files name the allocator of this boot and have counters.
debugfs_check() {
	local name
	if [ "$LOAD_ALLOCATOR" = none ]; then
		check "debugfs-$1" "! -e $DEBUGFS" "no vmap_rust folder without the option"
		return
	fi
	name=$(cat $DEBUGFS/allocator)
	check "debugfs-$1" "x$name = x$LOAD_ALLOCATOR" "allocator says \"$name\""
	cat $DEBUGFS/stats >/tmp/stats
	sed 's/^/stats| /' /tmp/stats
	[ "$LOAD_ALLOCATOR" = rbtree ] || check "stats-$1" "$(grep -c '[1-9]' /tmp/stats) -gt 0" "$(wc -l </tmp/stats) lines"
}

# banner_check: checks that one of the areas of the kernel image contains the kernel's banner. Only arm64 maps the image as
# areas; they exist before the allocator does.
banner_check() {
	local area bytes found=0
	grep 'declare_kernel_vmas' /proc/vmallocinfo >/tmp/image.areas || return 0
	while read -r area bytes _; do
		kcore_read "$area" "$bytes" &&
			grep -q "Linux version $(uname -r)" /tmp/kcore.data && found=$((found + 1))
	done </tmp/image.areas
	check kcore-banner "$found -gt 0" "$found of $(wc -l </tmp/image.areas) image areas hold \"Linux version $(uname -r)\""
}

# lost_check: kmemleak reports what the module vmap_leak loses, and nothing else, while processes come and go. A stale pointer on
# a stack or in a cache hides a lost area for some scans, so they are repeated until enough areas are reported, five times at
# most. It may hide a few even then (false negatives, Documentation/dev-tools/kmemleak.rst): nine of ten of each size are enough.
#
# The rb-trees hide an area that follows a free range: kmemleak scans the whole vmap_area that va_clip() makes for that range,
# and its va_end is the address of the area. So half of the reports are enough there.
lost_check() {
	local parameters=/sys/module/vmap_leak/parameters pages found lost='' few='' sum=0 all=0 wanted fork scans=0 enough rest
	[ -e /vmap_leak.ko ] || return 0
	insmod /vmap_leak.ko || { report "FAIL kmemleak-lost the module cannot be loaded"; return; }
	wanted=$(cat $parameters/lost_areas)
	enough=$wanted
	[ "$LOAD_ALLOCATOR" = rust ] || enough=$((wanted / 2))
	rm -f /tmp/stop
	fork_loop & fork=$!
	while [ "$all" -lt "$enough" ] && [ $scans -lt 5 ]; do
		kmemleak_scan
		all=$(grep -c 'unreferenced object' /tmp/kmemleak)
		scans=$((scans + 1))
		echo "kmemleak: $all reports after scan $scans"
	done
	touch /tmp/stop
	wait $fork
	head -n 20 /tmp/kmemleak
	rest=$(cat $parameters/lost)-
	for pages in 1 64 1500; do
		found=$(grep -c "^unreferenced object .* (size $((pages * $(cat $parameters/page_bytes)))):" /tmp/kmemleak)
		if [ "$found" -lt $((${rest%%-*} * 9 / 10)) ] || [ "$found" -gt "${rest%%-*}" ]; then few="$few $pages"; fi
		rest=${rest#*-}
		lost=$lost-$found
		sum=$((sum + found))
	done
	if [ "$LOAD_ALLOCATOR" = rust ]; then
		check kmemleak-lost "x$few = x" "of $(cat $parameters/lost) lost areas of 1, 64 and 1,500 pages reported: $lost"
	else
		check kmemleak-lost "$sum -ge $enough" "reports of areas of 1, 64 and 1,500 pages: $lost"
	fi
	check kmemleak-others "$all -eq $sum" "$((all - sum)) reports of something else"
}

# sleepers CPU N: forks N sleeping processes on CPU 0 or 1, which allocates their stacks. Prints their ids.
sleepers() {
	# shellcheck disable=SC2016 # for the inner shell
	taskset $((1 << $1)) sh -c 'i=0; while [ $i -lt "$0" ]; do sleep 1000 & echo $!; i=$((i + 1)); done' "$2"
}

# hotplug_check: CPU 1 goes offline while its current blocks have areas. CPU 0 frees half of these and allocates others. CPU 1
# allocates again when it is back, and then all areas are freed.
hotplug_check() {
	local online=/sys/devices/system/cpu/cpu1/online round=0 off=0
	[ -e $online ] || return 0
	while [ $round -lt 3 ]; do
		sleepers 1 40 >/tmp/sleepers
		echo 0 >$online
		[ "$(cat $online)" = 1 ] || off=$((off + 1))
		# shellcheck disable=SC2046 # a list of numbers
		kill $(awk 'NR % 2' /tmp/sleepers)
		sleepers 0 40 >>/tmp/sleepers
		echo 1 >$online
		sleepers 1 40 >>/tmp/sleepers
		# shellcheck disable=SC2046
		kill $(awk 'NR > 40 || NR % 2 == 0' /tmp/sleepers)
		round=$((round + 1))
	done
	check hotplug "$off -eq 3 -a $(cat $online) -eq 1" "$off of 3 times off with 40 stacks, and on"
}

report "start, allocator $LOAD_ALLOCATOR, $(nproc) CPUs, $LOAD_LOOPS module loads"
debugfs_check before
before=$(live_areas)
snapshot before
info_loop & INFO=$!
fork_loop & FORK=$!
KCORE='' PTDUMP='' MAP=''
[ "$LOAD_ALLOCATOR" != rust ] || { map_loop & MAP=$!; }
DUMP=$(ptdump_file)
[ -z "$DUMP" ] || { ptdump_loop "$DUMP" & PTDUMP=$!; }
# 32-bit arm has no /proc/kcore.
[ ! -e /proc/kcore ] || { kcore_map; kcore_loop & KCORE=$!; }
module_loop
while [ -n "$PTDUMP" ] && [ "$(count ptdump.reads)" -lt 3 ]; do usleep 100000; done
while [ -n "$KCORE" ] && [ "$(count kcore.rounds)" -lt 5 ]; do usleep 100000; done
touch /tmp/stop
wait $INFO $KCORE $FORK $PTDUMP $MAP
bad=$(wc -l </tmp/info.bad)
head -n 3 /tmp/info.bad | sed 's/^/bad line| /'
check info-shape "$bad -eq 0" "$bad bad lines"
check info-reads "$(count info.reads) -gt 0" "$(count info.reads) reads, $(count info.lines) lines"
if [ -n "$KCORE" ]; then
	check kcore-bytes "$(count kcore.bytes) -gt 4096" "$(count kcore.bytes) bytes of vmalloc memory that are not zero"
	check kcore-segments "$(count kcore.unknown) -eq 0" "$(count kcore.unknown) areas outside of all segments"
	check kcore-stacks "$(count kcore.magic) -gt 0" "$(count kcore.magic) of $(count kcore.stacks) stacks had their magic number"
	banner_check
fi
[ -z "$PTDUMP" ] ||
	check ptdump "$(count ptdump.lines) -ge $(count ptdump.reads)" "$(count ptdump.reads) dumps of the page tables, whole ones"
if [ -n "$MAP" ]; then
	head -n 3 /tmp/map.bad | cut -c 1-200 | sed 's/^/bad line| /'
	check map-shape "$(wc -l </tmp/map.bad) -eq 0" "$(wc -l </tmp/map.bad) bad lines"
	check map-reads "$(count map.lines) -gt $(count map.reads)" "$(count map.reads) reads, $(count map.lines) lines"
fi
hotplug_check
check forks "$(count forks) -gt 0" "$(count forks) processes"
sleep 1
# Each CPU caches two stacks; a leak would show as hundreds of areas.
after=$(live_areas)
check areas "$after -le $((before + 16 + 4 * $(nproc)))" "$before live areas before the load, $after after it"
debugfs_check after
invariants_check 1001
kmemleak_check
lost_check
snapshot after
report "done"
