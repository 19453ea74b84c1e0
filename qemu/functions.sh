# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=busybox
#
# Functions of all scripts in guests, for bash and the shell of busybox: checks, files for the build host, and loops
# that read /proc/vmallocinfo, /proc/kcore and debugfs.

DEBUGFS=/sys/kernel/debug/vmap_rust
CPU1=/sys/devices/system/cpu/cpu1/online

report() { echo "guest: $*"; }

# check NAME CONDITION DETAIL: reports "ok NAME DETAIL" if the test expression CONDITION holds, else "FAIL NAME DETAIL".
check() {
	local name=$1 condition=$2
	shift 2
	# shellcheck disable=SC2086 # the expression is split on purpose
	if [ $condition ]; then report "ok $name $*"; else report "FAIL $name $*"; fi
}

# send WHEN NAME FILE: prints a file for harness/console.py. The mark at the end of each line shows that no kernel
# message broke it.
send() {
	cat "$3" >/tmp/send
	echo "file $1 $2: $(wc -l </tmp/send) lines"
	sed "s/.*/file $1 $2| & |/" /tmp/send
}

# snapshot WHEN: sends /proc/vmallocinfo, the allocator's list of ranges, and the numbers of tasks, each of which has a
# stack, and CPUs.
snapshot() {
	local when=$1
	set -- /proc/[0-9]*/task/*
	send "$when" vmallocinfo /proc/vmallocinfo
	echo "$# $(nproc)" >/tmp/tasks
	send "$when" tasks /tmp/tasks
	[ "$(cat $DEBUGFS/allocator 2>/dev/null)" != rust ] || send "$when" map $DEBUGFS/map
}

# add FILE N: adds N to the counter in /tmp/FILE. Each counter has one writer, and a reader never sees an empty file.
# count FILE: prints the counter.
add() {
	local sum=0
	# Like kcore_loop, it starts few processes: with KASAN and lockdep, one takes up to a second under load.
	[ ! -e "/tmp/$1" ] || read -r sum <"/tmp/$1"
	echo $((sum + $2)) >"/tmp/$1.new" && mv "/tmp/$1.new" "/tmp/$1"
}
count() { cat "/tmp/$1" 2>/dev/null || echo 0; }

# going: true until the loops must stop.
going() { [ ! -e /tmp/stop ]; }

# Loops that run until /tmp/stop exists. fork_loop forks 40 processes at a time. The kernel caches fewer stacks, so each
# burst allocates and frees areas.
fork_loop() {
	local i
	while going; do
		i=0
		while [ $i -lt 40 ]; do (:) & i=$((i + 1)); done
		wait
		add forks 40
	done
}

# module_loop: loads and unloads a module.
module_loop() { while going; do insmod /test_module.ko && rmmod test_module; done; }

# hotplug_loop: takes CPU 1 offline and online, also until /tmp/stop.hotplug exists.
hotplug_loop() {
	while going && [ ! -e /tmp/stop.hotplug ]; do
		if echo 0 2>/dev/null >$CPU1; then add hotplug.off 1; else add hotplug.refused 1; fi
		sleep 1
		echo 1 2>/dev/null >$CPU1 || add hotplug.refused 1
		sleep 2
	done
}

# hotplug_check: CPU 1 went offline, and is back.
hotplug_check() {
	check hotplug "$(count hotplug.off) -gt 0 -a $(cat $CPU1) -eq 1" \
		"$(count hotplug.off) times off and on, $(count hotplug.refused) refused"
}

info_loop() {
	while going; do
		add info.lines "$(wc -l </proc/vmallocinfo)"
		add info.reads 1
	done
}

# debugfs_loop: reads all files of the allocator, validate included.
debugfs_loop() {
	local file
	while going; do
		[ "$ALLOCATOR" != rust ] || grep -q '[1-9]' $DEBUGFS/stats || add debugfs.bad 1
		for file in "$DEBUGFS"/*; do
			cat "$file" >/tmp/debugfs.read || add debugfs.bad 1
			[ "${file##*/}" != validate ] || grep -qE '^(ok|the allocator is not)' /tmp/debugfs.read ||
				add debugfs.bad 1
		done
		add debugfs.reads 1
	done
}

# kcore_map: writes "START END OFFSET" (16 hex digits each) of each loadable segment of /proc/kcore to /tmp/kcore.map.
# Only on 64-bit kernels does this file contain vmalloc space.
kcore_map() {
	local phoff phnum type offset vaddr memsz
	dd if=/proc/kcore of=/tmp/kcore.head bs=65536 count=1 2>/dev/null
	phoff=$(od -A n -t u8 -j 32 -N 8 /tmp/kcore.head | tr -d ' ')
	phnum=$(od -A n -t u2 -j 56 -N 2 /tmp/kcore.head | tr -d ' ')
	# A program header is seven 8-byte words: flags and type, offset, vaddr, paddr, filesz, memsz, align.
	od -A n -v -t x8 -j "$phoff" -N $((phnum * 56)) /tmp/kcore.head | tr -s ' ' '\n' | grep . |
	while read -r type; do
		read -r offset; read -r vaddr; read -r _; read -r _; read -r memsz; read -r _
		case $type in *00000001) printf '%s %016x %s\n' "$vaddr" $((0x$vaddr + 0x$memsz)) "$offset" ;; esac
	done >/tmp/kcore.map
}

# kcore_read AREA BYTES: writes the start of the area "0xSTART-0xEND" to /tmp/kcore.data; fails when no segment has it.
kcore_read() {
	local start=$((${1%-*})) first end offset
	while read -r first end offset; do
		# To the shell, addresses of the kernel are negative numbers. Their order is the same.
		[ "$start" -ge $((0x$first)) ] && [ "$start" -lt $((0x$end)) ] || continue
		offset=$((0x$offset + start - 0x$first))
		dd if=/proc/kcore of=/tmp/kcore.data bs=4096 skip=$((offset / 4096)) count=$(($2 / 4096)) 2>/dev/null
		return
	done </tmp/kcore.map
	return 1
}

# kcore_loop: reads areas that have pages. The content of task stacks is known: they start with a magic number. Skips
# areas with a KASAN tag in the first byte of their address: KASAN reports a read of the unused part of their last page,
# with the rb-trees as well.
kcore_loop() {
	local area bytes caller unknown stacks magic
	while going; do
		unknown=0 stacks=0 magic=0
		grep '^0xff.* pages=' /proc/vmallocinfo | shuf -n 16 >/tmp/kcore.areas
		while read -r area bytes caller _; do
			[ "$bytes" -le 1048576 ] || bytes=1048576
			kcore_read "$area" "$bytes" || { unknown=$((unknown + 1)); continue; }
			case $caller in dup_task_struct*|copy_process*|alloc_thread_stack*|kernel_clone*)
				stacks=$((stacks + 1))
				case $(od -A n -t x4 -N 4 /tmp/kcore.data) in *57ac6e9d*) magic=$((magic + 1)) ;; esac ;;
			esac
		done </tmp/kcore.areas
		add kcore.unknown $unknown
		add kcore.stacks $stacks
		add kcore.magic $magic
		add kcore.rounds 1
	done
}

# start_readers: starts the loops that read. stop_readers: ends all loops and reports the checks of those that read.
start_readers() {
	rm -f /tmp/stop*
	info_loop & READERS=$!
	[ ! -d $DEBUGFS ] || { debugfs_loop & READERS="$READERS $!"; }
	# 32-bit arm has no /proc/kcore.
	[ ! -e /proc/kcore ] || { kcore_map; kcore_loop & READERS="$READERS $!"; }
}
stop_readers() {
	while [ -e /proc/kcore ] && [ "$(count kcore.rounds)" -lt 5 ]; do sleep 1; done
	touch /tmp/stop
	# shellcheck disable=SC2086 # a list of numbers
	wait $READERS
	check info "$(count info.lines) -gt $(count info.reads)" "$(count info.reads) reads, $(count info.lines) lines"
	if [ "$ALLOCATOR" = none ]; then
		check debugfs "! -e $DEBUGFS" "no vmap_rust folder without the option"
	else
		check debugfs "x$(cat $DEBUGFS/allocator) = x$ALLOCATOR -a $(count debugfs.bad) -eq 0" \
			"$(count debugfs.reads) reads of all files, $(count debugfs.bad) wrong"
	fi
	[ ! -e /proc/kcore ] || check kcore "$(count kcore.unknown) -eq 0 -a $(count kcore.magic) -gt 0" \
		"$(count kcore.magic) of $(count kcore.stacks) stacks had their magic number," \
		"$(count kcore.unknown) areas in no segment"
}

# values FILE NAME|NAME...: prints " NAME=VALUE" for lines that begin with one of the names and a number.
values() { awk -F '[: ]+' -v names="^($2)$" '$1 ~ names { printf " %s=%s", $1, $2 }' "$1"; }

# live_areas: prints the number of areas in use.
live_areas() { grep -vc 'unpurged vm_area$' /proc/vmallocinfo; }

# areas_check BEFORE: as many areas are in use as before, and two cached stacks of each CPU and some tasks; a leak would
# show as hundreds. kvfree_rcu() frees areas after up to five seconds.
areas_check() {
	local after most=$(($1 + 16 + 4 * $(nproc))) tries=0
	while after=$(live_areas) && [ "$after" -gt $most ] && [ $tries -lt 15 ]; do
		sleep 1
		tries=$((tries + 1))
	done
	check areas "$after -le $most" "$1 live areas before, $after after"
}

# invariants_check LEAST [SUFFIX]: does nothing unless the allocator in Rust is active with CONFIG_VMAP_RUST_DEBUG.
# Check "validate": all invariants hold. Check "checker", with vmap_rust.check=1: it has compared at least LEAST
# answers, and none was wrong. SUFFIX is appended to these names.
invariants_check() {
	local state least=$1 suffix=${2:-}
	[ "$(cat $DEBUGFS/allocator 2>/dev/null)" = rust ] && [ -e $DEBUGFS/validate ] || return 0
	state=$(cat $DEBUGFS/validate)
	check "validate$suffix" "x${state%%:*} = xok" "$state"
	cat $DEBUGFS/checker >/tmp/checker
	grep -q '^wrong ' /tmp/checker || return 0
	check "checker$suffix" "$(checker_value wrong) -eq 0 -a $(checker_value compared) -ge $least" \
		"$(awk '{ printf "%s %s, ", $2, $1 }' /tmp/checker)"
}
checker_value() { awk -v name="$1" '$1 == name { print $2 }' /tmp/checker; }

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
