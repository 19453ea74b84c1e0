# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=busybox
#
# Functions of all scripts in guests, for bash and the shell of busybox: checks, files for the build host, and loops
# that read /proc/vmallocinfo, /proc/kcore and debugfs.

DEBUGFS=/sys/kernel/debug/vmap_rust

report() { echo "guest: $*"; }

# check NAME CONDITION DETAIL: reports "ok NAME DETAIL" if the test expression CONDITION holds, else "FAIL NAME DETAIL".
check() {
	local name=$1 condition=$2
	shift 2
	# shellcheck disable=SC2086 # the expression is split on purpose
	if [ $condition ]; then report "ok $name $*"; else report "FAIL $name $*"; fi
}

# send WHEN NAME FILE: prints a file for harness/boot/console.py. The mark at the end of each line shows that no kernel
# message broke it.
send() {
	cat "$3" >/tmp/send
	echo "file $1 $2: $(wc -l </tmp/send) lines"
	sed "s/.*/file $1 $2| & |/" /tmp/send
}

# snapshot WHEN: sends /proc/vmallocinfo, and the allocator's list of ranges if it has one.
snapshot() {
	send "$1" vmallocinfo /proc/vmallocinfo
	[ "$(cat $DEBUGFS/allocator 2>/dev/null)" != rust ] || [ ! -e $DEBUGFS/map ] || send "$1" map $DEBUGFS/map
}

# going: true until the loops must stop.
going() { [ ! -e /tmp/stop ]; }

# Loops that run until /tmp/stop exists; most report a check then. fork_loop forks 40 processes at a time. The kernel
# caches fewer stacks, so each burst allocates and frees areas.
fork_loop() {
	local n=0
	while going; do
		for _ in $(seq 40); do (:) & done
		wait
		n=$((n + 40))
	done
	check forks "$n -gt 0" "$n processes"
}

# module_loop: loads and unloads a module.
module_loop() { while going; do insmod /test_module.ko && rmmod test_module; done; }

# info_loop: reads /proc/vmallocinfo, each time to its end.
info_loop() {
	local reads=0 lines=0
	while going; do
		lines=$((lines + $(wc -l </proc/vmallocinfo))) reads=$((reads + 1))
	done
	check info "$lines -gt $reads" "$reads reads, $lines lines"
}

# debugfs_loop: reads all files of the allocator, validate included. Without the option there is no folder.
debugfs_loop() {
	local file reads=0 bad=0
	[ "$ALLOCATOR" != none ] || { check debugfs "! -e $DEBUGFS" "no vmap_rust folder without the option"; return; }
	while going; do
		[ "$ALLOCATOR" != rust ] || grep -q '[1-9]' $DEBUGFS/stats || bad=$((bad + 1))
		for file in "$DEBUGFS"/*; do
			cat "$file" >/tmp/debugfs.read || bad=$((bad + 1))
			[ "${file##*/}" != validate ] || grep -qE '^(ok|the allocator is not)' /tmp/debugfs.read ||
				bad=$((bad + 1))
		done
		reads=$((reads + 1))
	done
	check debugfs "x$(cat $DEBUGFS/allocator) = x$ALLOCATOR -a $bad -eq 0" "$reads reads of all files, $bad wrong"
}

# kcore_loop: reads areas that have pages from /proc/kcore. Only on 64-bit kernels does this file contain vmalloc space.
# Skips areas with a KASAN tag in the first byte of their address: KASAN reports a read of the unused part of their last
# page, with the rb-trees as well. Skips areas whose place in the file is negative, where no reader can go: on riscv64, which
# has vmalloc space below PAGE_OFFSET, and computes places by fs/proc/kcore.c's default, all but those of modules.
kcore_loop() {
	local phoff phnum area bytes reads=0 bad=0 below=0
	dd if=/proc/kcore of=/tmp/kcore.head bs=65536 count=1 2>/dev/null
	phoff=$(od -A n -t u8 -j 32 -N 8 /tmp/kcore.head | tr -d ' ')
	phnum=$(od -A n -t u2 -j 56 -N 2 /tmp/kcore.head | tr -d ' ')
	# A program header is seven 8-byte words: flags and type, offset, vaddr, paddr, filesz, memsz, align.
	od -A n -v -t x8 -j "$phoff" -N $((phnum * 56)) /tmp/kcore.head | xargs -n 7 |
		awk '$1 ~ /00000001$/ { print $3, $2 }' | sort -r >/tmp/kcore.map
	while going; do
		grep '^0xff.* pages=' /proc/vmallocinfo | shuf -n 16 >/tmp/kcore.areas
		while read -r area bytes _; do
			area=${area%-*} area=${area#0x}
			# The segment that begins next below it, as text: awk has no numbers of 64 bits.
			# shellcheck disable=SC2046 # two numbers
			set -- $(awk -v area="x$area" '"x" $1 <= area { print; exit }' /tmp/kcore.map)
			[ $# = 2 ] || { bad=$((bad + 1)); continue; }
			[ $((0x$2)) -ge 0 ] || { below=$((below + 1)); continue; }
			[ "$bytes" -le 1048576 ] || bytes=1048576
			dd if=/proc/kcore of=/dev/null bs=4096 skip=$(((0x$2 + 0x$area - 0x$1) / 4096)) \
				count=$((bytes / 4096)) 2>/dev/null && reads=$((reads + 1)) || bad=$((bad + 1))
		done </tmp/kcore.areas
	done
	[ "$(uname -m)" = riscv64 ] || bad=$((bad + below))
	check kcore "$((reads + below)) -gt 0 -a $bad -eq 0" "$reads areas read, $bad not, $below at negative places"
}

# start_readers: starts the loops that read. stop_readers: ends all loops, and waits for those that read.
start_readers() {
	rm -f /tmp/stop
	info_loop & READERS=$!
	debugfs_loop & READERS="$READERS $!"
	# 32-bit arm has no /proc/kcore.
	[ ! -e /proc/kcore ] || { kcore_loop & READERS="$READERS $!"; }
}
stop_readers() {
	touch /tmp/stop
	# shellcheck disable=SC2086 # a list of numbers
	wait $READERS
}

# modules_check NAME N: loads and unloads a module N times; check NAME.
modules_check() {
	local bad=0
	for _ in $(seq "$2"); do
		insmod /test_module.ko && rmmod test_module || bad=$((bad + 1))
	done
	check "$1" "$bad -eq 0" "$2 loads and unloads, $bad failed"
}

# live_areas: prints the number of areas in use.
live_areas() { grep -vc 'unpurged vm_area$' /proc/vmallocinfo; }

# areas_check BEFORE: as many areas are in use as before, and two cached stacks of each CPU and some tasks; a leak would
# show as hundreds. kvfree_rcu() frees areas after up to five seconds, on a busy build host after minutes.
areas_check() {
	local after most=$(($1 + 16 + 4 * $(nproc)))
	for _ in $(seq 240); do
		after=$(live_areas)
		[ "$after" -gt $most ] || break
		sleep 1
	done
	check areas "$after -le $most" "$1 live areas before, $after after"
}

# invariants_check LEAST [SUFFIX]: does nothing unless the allocator in Rust is active with CONFIG_VMAP_RUST_DEBUG.
# Check "validate": all invariants hold. Check "checker", with vmap_rust.check=1: it has compared at least LEAST
# answers, and none was wrong. SUFFIX is appended to these names.
invariants_check() {
	local state wrong compared
	[ "$(cat $DEBUGFS/allocator 2>/dev/null)" = rust ] && [ -e $DEBUGFS/validate ] || return 0
	state=$(cat $DEBUGFS/validate)
	check "validate${2:-}" "x${state%%:*} = xok" "$state"
	cat $DEBUGFS/checker >/tmp/checker
	wrong=$(awk '$1 == "wrong" { print $2 }' /tmp/checker) compared=$(awk '$1 == "compared" { print $2 }' /tmp/checker)
	[ -z "$wrong" ] || check "checker${2:-}" "$wrong -eq 0 -a $compared -ge $1" \
		"$(awk '{ printf "%s %s, ", $2, $1 }' /tmp/checker)"
}

# drgn_check NAME: tools/vmap, if the guest has it, finds nothing wrong in the kernel on which it runs.
drgn_check() {
	local state
	[ -e /tools/vmap ] || return 0
	state=$(/tools/vmap validate 2>&1 | tail -n 1)
	check "$1" "x${state#*: } = xok" "$state"
}

# kmemleak_scan: scans twice, because the first scan skips young objects. The report is in /tmp/kmemleak.
kmemleak_scan() {
	echo scan >/sys/kernel/debug/kmemleak
	sleep 6
	echo scan >/sys/kernel/debug/kmemleak
	cat /sys/kernel/debug/kmemleak >/tmp/kmemleak
}

# kmemleak_check: kmemleak reports nothing.
kmemleak_check() {
	[ -e /sys/kernel/debug/kmemleak ] || return 0
	kmemleak_scan
	cat /tmp/kmemleak
	check kmemleak "$(grep -c 'unreferenced object' /tmp/kmemleak) -eq 0" "unreferenced objects"
}

# finish: ends the load.
finish() {
	[ ! -e $DEBUGFS/stats ] || sed 's/^/stats| /' $DEBUGFS/stats
	report "done"
}
