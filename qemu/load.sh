#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# Loads and unloads a module while other processes fork and read /proc/vmallocinfo, /proc/kcore, debugfs and page
# tables. From the kernel command line: LOAD_LOOPS, module loads; ALLOCATOR, rbtree, rust or none.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

# ptdump_loop: reads the kernel's dump of its page tables, if there is one, three times at least. Meanwhile no table may
# be freed for a larger entry.
PTDUMP=/sys/kernel/debug/kernel_page_tables
[ -e $PTDUMP ] || PTDUMP=/sys/kernel/debug/page_tables/kernel
ptdump_loop() {
	local reads=0 lines=0
	while going; do
		lines=$((lines + $(grep -ci 'vmalloc() area' $PTDUMP))) reads=$((reads + 1))
		[ $reads -lt 3 ] || rm -f /tmp/busy.ptdump
	done
	check ptdump "$lines -ge $reads" "$reads dumps of the page tables, whole ones"
}

# lost_check: kmemleak reports what the module vmap_leak loses, and nothing else, while processes come and go. A stale
# pointer on a stack or in a cache hides a lost area for some scans, so they are repeated until enough areas are
# reported, five times at most. It may hide a few even then (false negatives, Documentation/dev-tools/kmemleak.rst):
# nine of ten of each size are enough.
#
# Not with the rb-trees, which hide about half: kmemleak scans the whole vmap_area that va_clip() makes for a free range, and
# its va_end is the address of the area behind it.
lost_check() {
	local parameters=/sys/module/vmap_leak/parameters pages found lost='' few=0 sum=0 all scans loop
	[ -e /vmap_leak.ko ] && [ "$ALLOCATOR" = rust ] || return 0
	insmod /vmap_leak.ko || { report "FAIL kmemleak-lost the module cannot be loaded"; return; }
	rm -f /tmp/stop
	fork_loop & loop=$!
	for scans in 1 2 3 4 5; do
		kmemleak_scan
		all=$(grep -c 'unreferenced object' /tmp/kmemleak)
		[ "$all" -lt "$(cat $parameters/lost_areas)" ] || break
	done
	touch /tmp/stop
	wait $loop
	head -n 20 /tmp/kmemleak
	# The areas that are lost of each size.
	# shellcheck disable=SC2046 # three numbers
	set -- $(tr - ' ' <$parameters/lost)
	for pages in 1 64 1500; do
		found=$(grep -c "^unreferenced object .* (size $((pages * $(cat $parameters/page_bytes)))):" /tmp/kmemleak)
		[ "$found" -ge $(($1 * 9 / 10)) ] && [ "$found" -le "$1" ] || few=1
		lost="$lost $found of $1,"
		sum=$((sum + found))
		shift
	done
	check kmemleak-lost "$few -eq 0" "areas of 1, 64 and 1,500 pages reported:$lost $scans scans"
	check kmemleak-others "$all -eq $sum" "$((all - sum)) reports of something else"
}

# hidden_check: the allocator's list of ranges shows addresses to those to whom /proc/vmallocinfo does.
hidden_check() {
	local restrict shown compare='!='
	[ "$ALLOCATOR" = rust ] && [ -e $DEBUGFS/map ] || return 0
	for restrict in 2 0 1; do
		echo $restrict >/proc/sys/kernel/kptr_restrict
		cp $DEBUGFS/map /tmp/map
		# The start of vmalloc space, which is in the first line.
		shown="$shown x$(sed -n '1s/.* 0x0*\([0-9a-f]*\)-.*/\1/p' /tmp/map)"
	done
	# shellcheck disable=SC2086 # three words
	set -- $shown
	# With CONFIG_SLUB_DEBUG_ON, the kernel hashes none.
	dmesg | grep -q 'shows unhashed kernel memory addresses' && compare='='
	check hidden "$1 = x -a $2 $compare $3 -a $3 != x" "vmalloc space starts at $1, $2 and $3 with kptr_restrict 2, 0 and 1"
}

report "start, allocator $ALLOCATOR, $(nproc) CPUs, $LOAD_LOOPS module loads"
before=$(live_areas)
snapshot before
hidden_check
start_readers
fork_loop & loops=$!
[ ! -e $PTDUMP ] || { touch /tmp/busy.ptdump; ptdump_loop & loops="$loops $!"; }
modules_check modules "$LOAD_LOOPS"
snapshot loaded
while [ -e /tmp/busy.ptdump ]; do sleep 1; done
stop_readers
# shellcheck disable=SC2086 # a list of numbers
wait $loops
areas_check "$before"
invariants_check 1001
kmemleak_check
# Only one of the allocators has the areas that are lost next.
snapshot after
lost_check
finish
