#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# User-space load on the vmap area allocator, run by init.sh in the guest: loads and unloads a module while other
# processes fork, read /proc/vmallocinfo and read vmalloc memory through /proc/kcore.
#
# Prints "user load: ok NAME DETAIL" or "user load: FAIL NAME DETAIL" per check, snapshots of /proc/vmallocinfo
# between markers (qemu/vmallocinfo judges them), and "user load: done" at the end.
# From the kernel command line: LOAD_LOOPS, module loads (default 200); LOAD_ALLOCATOR, rbtree, rust or none.

LOAD_LOOPS=${LOAD_LOOPS:-200}
LOAD_ALLOCATOR=${LOAD_ALLOCATOR:-none}
DEBUGFS=/sys/kernel/debug/vmap_rust
LINE='^0x[0-9a-f]+-0x[0-9a-f]+ +[0-9]+'
SYMBOL='( ([A-Za-z0-9_.$]+\+0x[0-9a-f]+/0x[0-9a-f]+( \[[a-z0-9_]+\])?|0x[0-9a-f]+))?'
DETAIL='( pages=[0-9]+)?( phys=0x[0-9a-f]+)?( ioremap)?( sparse)?( vmalloc)?( vmap)?( user)?( dma-coherent)?( vpages)?( N[0-9]+=[0-9]+)*'
SHAPE="$LINE($SYMBOL$DETAIL| vm_map_ram| unpurged vm_area)\$"

report() { echo "user load: $*"; }

# add FILE N: adds N to the counter in FILE. Each counter has one writer.
add() { echo $(($(cat "/tmp/$1" 2>/dev/null || echo 0) + $2)) >"/tmp/$1"; }
count() { cat "/tmp/$1" 2>/dev/null || echo 0; }

# info_loop: reads /proc/vmallocinfo until /tmp/stop exists and keeps every line of an unknown shape.
info_loop() {
	while [ ! -e /tmp/stop ]; do
		cat /proc/vmallocinfo >/tmp/info.read
		grep -Ev "$SHAPE" /tmp/info.read >>/tmp/info.bad
		add info.reads 1
		add info.lines "$(wc -l </tmp/info.read)"
	done
}

# kcore_map: writes "START END OFFSET" (16 or 8 hex digits each) per loadable segment of /proc/kcore to /tmp/kcore.map.
kcore_map() {
	local phoff phnum type offset vaddr memsz
	dd if=/proc/kcore of=/tmp/kcore.head bs=65536 count=1 2>/dev/null
	# The fifth byte tells 32 from 64 bits.
	if [ "$(od -A n -t u1 -j 4 -N 1 /tmp/kcore.head | tr -d ' ')" = 1 ]; then
		phoff=$(od -A n -t u4 -j 28 -N 4 /tmp/kcore.head | tr -d ' ')
		phnum=$(od -A n -t u2 -j 44 -N 2 /tmp/kcore.head | tr -d ' ')
		# A program header is eight 4-byte words: type, offset, vaddr, paddr, filesz, memsz, flags, align.
		od -A n -v -t x4 -j "$phoff" -N $((phnum * 32)) /tmp/kcore.head | tr -s ' ' '\n' | grep . |
		while read -r type; do
			read -r offset; read -r vaddr; read -r _; read -r _; read -r memsz; read -r _; read -r _
			case $type in 00000001) printf '%s %08x %s\n' "$vaddr" $((0x$vaddr + 0x$memsz)) "$offset" ;; esac
		done >/tmp/kcore.map
		return
	fi
	phoff=$(od -A n -t u8 -j 32 -N 8 /tmp/kcore.head | tr -d ' ')
	phnum=$(od -A n -t u2 -j 56 -N 2 /tmp/kcore.head | tr -d ' ')
	# A program header is seven 8-byte words: flags and type, offset, vaddr, paddr, filesz, memsz, align.
	od -A n -v -t x8 -j "$phoff" -N $((phnum * 56)) /tmp/kcore.head | tr -s ' ' '\n' | grep . |
	while read -r type; do
		read -r offset; read -r vaddr; read -r _; read -r _; read -r memsz; read -r _
		case $type in *00000001) printf '%s %016x %s\n' "$vaddr" $((0x$vaddr + 0x$memsz)) "$offset" ;; esac
	done >/tmp/kcore.map
}

# start_of AREA: prints the start of the area "0xSTART-0xEND", without the 0x.
start_of() {
	set -- "${1%-*}"
	echo "${1#0x}"
}

# kcore_read START BYTES: writes the memory at START (all hex digits) to /tmp/kcore.data; fails when no segment has it.
kcore_read() {
	local segment offset
	# Fixed-width hexadecimal compares as text.
	segment=$(awk -v a="$1" '(a "") >= ($1 "") && (a "") < ($2 "") { print $1, $3; exit }' /tmp/kcore.map)
	[ -n "$segment" ] || return 1
	offset=$((0x${segment#* } + 0x$1 - 0x${segment% *}))
	dd if=/proc/kcore of=/tmp/kcore.data bs=4096 skip=$((offset / 4096)) count=$(($2 / 4096)) 2>/dev/null
}

# kcore_loop: reads areas that have pages. A task's stack starts with a magic number, so its content is known.
kcore_loop() {
	local area caller bytes
	while [ ! -e /tmp/stop ]; do
		grep ' pages=' /proc/vmallocinfo | shuf -n 16 >/tmp/kcore.areas
		while read -r area _ caller _; do
			bytes=$((0x${area##*-0x} - 0x$(start_of "$area")))
			[ "$bytes" -le 1048576 ] || bytes=1048576
			kcore_read "$(start_of "$area")" "$bytes" || { add kcore.unknown 1; continue; }
			add kcore.bytes "$(tr -d '\000' </tmp/kcore.data | wc -c)"
			case $caller in dup_task_struct*|copy_process*|alloc_thread_stack*|kernel_clone*)
				add kcore.stacks 1
				[ "$(od -A n -t x4 -N 4 /tmp/kcore.data | tr -d ' ')" = 57ac6e9d ] && add kcore.magic 1 ;;
			esac
		done </tmp/kcore.areas
		add kcore.rounds 1
	done
}

# fork_loop: bursts of processes, more than the kernel keeps stacks for, so that each burst allocates and frees areas.
fork_loop() {
	local i
	while [ ! -e /tmp/stop ]; do
		i=0
		while [ $i -lt 40 ]; do (:) & i=$((i + 1)); done
		wait
		add forks 40
	done
}

# module_loop: loads and unloads the module LOAD_LOOPS times.
module_loop() {
	local i=0 bad=0
	while [ $i -lt "$LOAD_LOOPS" ]; do
		insmod /test_module.ko && rmmod test_module || bad=$((bad + 1))
		i=$((i + 1))
	done
	[ $bad = 0 ] && report "ok modules $i loads and unloads" || report "FAIL modules $bad of $i failed"
}

# check NAME CONDITION DETAIL: one report line; CONDITION is a test expression.
check() {
	local name=$1 condition=$2
	shift 2
	# shellcheck disable=SC2086 # the expression is split on purpose
	if [ $condition ]; then report "ok $name $*"; else report "FAIL $name $*"; fi
}

# debugfs_check WHEN: the debugfs files name the allocator of this boot and have counters.
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

# book_check: with CONFIG_VMAP_RUST_DEBUG, all invariants hold, and no answer differed from the second book, if there is one.
book_check() {
	local state
	[ -e $DEBUGFS/validate ] && [ "$LOAD_ALLOCATOR" = rust ] || return 0
	state=$(cat $DEBUGFS/validate)
	check validate "x${state%%:*} = xok" "$state"
	cat $DEBUGFS/shadow >/tmp/shadow
	grep -q '^wrong ' /tmp/shadow || return 0
	sed 's/^/shadow| /' /tmp/shadow
	check shadow "$(awk '$1 == "wrong" { print $2 }' /tmp/shadow) -eq 0 -a $(awk '$1 == "compared" { print $2 }' /tmp/shadow) -gt 1000" \
		"$(awk '{ printf "%s %s, ", $2, $1 }' /tmp/shadow)"
}

# snapshot WHEN: prints /proc/vmallocinfo, and the number of tasks, each of which must have a stack in it.
snapshot() {
	local when=$1
	set -- /proc/[0-9]*/task/*
	cat /proc/vmallocinfo >/tmp/info.rest
	echo "vmallocinfo: begin $when tasks $# cpus $(nproc)"
	# The mark at the end tells a line from one that a message of the kernel has broken off.
	sed 's/^/vmi| /; s/$/ |/' /tmp/info.rest
	echo "vmallocinfo: end $when"
}

# kmemleak_scan: two scans, since a young object is only reported by the second one.
kmemleak_scan() {
	[ -e /sys/kernel/debug/kmemleak ] || return 0
	echo scan >/sys/kernel/debug/kmemleak
	sleep 6
	echo scan >/sys/kernel/debug/kmemleak
	cat /sys/kernel/debug/kmemleak
	check kmemleak "$(grep -c 'unreferenced object' /sys/kernel/debug/kmemleak) -eq 0" "unreferenced objects"
}

# live_areas: number of areas in use.
live_areas() { grep -vc 'unpurged vm_area$' /proc/vmallocinfo; }

# banner_check: arm64 maps the kernel image as areas that exist before the allocator does; finds the kernel's own
# banner in one of them.
banner_check() {
	local area found=0
	grep 'declare_kernel_vmas' /proc/vmallocinfo >/tmp/image.areas || return 0
	while read -r area _; do
		kcore_read "$(start_of "$area")" $((0x${area##*-0x} - 0x$(start_of "$area"))) &&
			grep -q "Linux version $(uname -r)" /tmp/kcore.data && found=$((found + 1))
	done </tmp/image.areas
	check kcore-banner "$found -gt 0" "$found of $(wc -l </tmp/image.areas) image areas hold \"Linux version $(uname -r)\""
}

report "start, allocator $LOAD_ALLOCATOR, $(nproc) CPUs, $LOAD_LOOPS module loads"
debugfs_check before
before=$(live_areas)
snapshot before
info_loop & INFO=$!
fork_loop & FORK=$!
KCORE=''
# 32-bit arm has none.
[ ! -e /proc/kcore ] || { kcore_map; kcore_loop & KCORE=$!; }
module_loop
while [ -n "$KCORE" ] && [ "$(count kcore.rounds)" -lt 5 ]; do usleep 100000; done
touch /tmp/stop
wait $INFO $KCORE $FORK
bad=$(wc -l </tmp/info.bad)
head -n 3 /tmp/info.bad | sed 's/^/bad line| /'
check info-shape "$bad -eq 0" "$bad bad lines"
check info-reads "$(count info.reads) -gt 0" "$(count info.reads) reads, $(count info.lines) lines"
if [ -n "$KCORE" ]; then
	check kcore-bytes "$(count kcore.bytes) -gt 4096" "$(count kcore.bytes) bytes of vmalloc memory that are not zero"
	check kcore-segments "$(count kcore.unknown) -eq 0" "$(count kcore.unknown) areas outside of all segments"
	[ "$(count kcore.stacks)" = 0 ] || check kcore-stacks "$(count kcore.magic) -gt 0" "$(count kcore.magic) of $(count kcore.stacks) stacks had their magic number"
	banner_check
fi
check forks "$(count forks) -gt 0" "$(count forks) processes"
sleep 1
# Each CPU keeps two stacks; a range that is never given back shows as hundreds.
after=$(live_areas)
check areas "$after -le $((before + 16 + 4 * $(nproc)))" "$before live areas before the load, $after after it"
debugfs_check after
book_check
kmemleak_scan
snapshot after
report "done"
