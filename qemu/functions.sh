# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=busybox
#
# Functions for scripts in guests, for bash and the shell of busybox: checks, loops that read /proc/vmallocinfo and
# /proc/kcore, and reports from the allocator's debugfs files. Sourced by load.sh, inject.sh and guest/common.sh, each of
# which has a report(), and by picture.sh, tools.sh, guest/peers.sh and guest/lkdtm.sh.

DEBUGFS=/sys/kernel/debug/vmap_rust
LINE='^0x([0-9a-f]{8}|[0-9a-f]{16})-0x([0-9a-f]{8}|[0-9a-f]{16}) +[0-9]+'
SYMBOL='( ([A-Za-z0-9_.$]+\+0x[0-9a-f]+/0x[0-9a-f]+( \[[a-z0-9_]+\])?|0x[0-9a-f]+))?'
DETAIL='( pages=[0-9]+)?( phys=0x[0-9a-f]+)?( ioremap)?( sparse)?( vmalloc)?( vmap)?( user)?( dma-coherent)?( vpages)?( N[0-9]+=[0-9]+)*'
SHAPE="$LINE($SYMBOL$DETAIL| vm_map_ram| unpurged vm_area)\$"

# check NAME CONDITION DETAIL: reports "ok NAME DETAIL" if the test expression CONDITION holds, else "FAIL NAME DETAIL".
check() {
	local name=$1 condition=$2
	shift 2
	# shellcheck disable=SC2086 # the expression is split on purpose
	if [ $condition ]; then report "ok $name $*"; else report "FAIL $name $*"; fi
}

# add FILE N: adds N to the counter in /tmp/FILE. Each counter has one writer, and a reader never sees an empty file. count FILE:
# prints the counter.
add() {
	local sum=0
	# Like kcore_loop, it starts few processes: with KASAN and lockdep, one takes up to a second under load.
	[ ! -e "/tmp/$1" ] || read -r sum <"/tmp/$1"
	echo $((sum + $2)) >"/tmp/$1.new" && mv "/tmp/$1.new" "/tmp/$1"
}
count() { cat "/tmp/$1" 2>/dev/null || echo 0; }

# info_loop: reads /proc/vmallocinfo until /tmp/stop exists; appends lines of an unknown shape to /tmp/info.bad.
info_loop() {
	while [ ! -e /tmp/stop ]; do
		cat /proc/vmallocinfo >/tmp/info.read
		grep -Ev "$SHAPE" /tmp/info.read >>/tmp/info.bad
		add info.reads 1
		add info.lines "$(wc -l </tmp/info.read)"
	done
}

# fork_loop: forks 40 processes at a time until /tmp/stop exists. The kernel caches fewer stacks, so each burst allocates and
# frees areas.
fork_loop() {
	local i
	while [ ! -e /tmp/stop ]; do
		i=0
		while [ $i -lt 40 ]; do (:) & i=$((i + 1)); done
		wait
		add forks 40
	done
}

# snapshot WHEN: prints /proc/vmallocinfo and the number of tasks, each of which must have a stack there.
snapshot() {
	local when=$1
	set -- /proc/[0-9]*/task/*
	cat /proc/vmallocinfo >/tmp/info.rest
	echo "vmallocinfo: begin $when tasks $# cpus $(nproc)"
	# A kernel message may break a line; the mark at the end shows that the line is complete.
	sed 's/^/vmi| /; s/$/ |/' /tmp/info.rest
	echo "vmallocinfo: end $when"
}

# kcore_map: writes "START END OFFSET" (16 hex digits each) of each loadable segment of /proc/kcore to /tmp/kcore.map. Only on
# 64-bit kernels does this file contain vmalloc space.
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

# kcore_loop: reads areas that have pages. The content of task stacks is known: they start with a magic number. Skips areas
# with a KASAN tag in the first byte of their address: KASAN reports a read of the unused part of their last page, with the
# rb-trees as well.
kcore_loop() {
	local area bytes caller unknown sum stacks magic
	while [ ! -e /tmp/stop ]; do
		unknown=0 sum=0 stacks=0 magic=0
		grep '^0xff.* pages=' /proc/vmallocinfo | shuf -n 16 >/tmp/kcore.areas
		while read -r area bytes caller _; do
			[ "$bytes" -le 1048576 ] || bytes=1048576
			kcore_read "$area" "$bytes" || { unknown=$((unknown + 1)); continue; }
			sum=$((sum + $(tr -d '\000' </tmp/kcore.data | wc -c)))
			case $caller in dup_task_struct*|copy_process*|alloc_thread_stack*|kernel_clone*)
				stacks=$((stacks + 1))
				case $(od -A n -t x4 -N 4 /tmp/kcore.data) in *57ac6e9d*) magic=$((magic + 1)) ;; esac ;;
			esac
		done </tmp/kcore.areas
		add kcore.unknown $unknown
		add kcore.bytes $sum
		add kcore.stacks $stacks
		add kcore.magic $magic
		add kcore.rounds 1
	done
}

# live_areas: prints the number of areas in use.
live_areas() { grep -vc 'unpurged vm_area$' /proc/vmallocinfo; }

# invariants_check LEAST [SUFFIX]: does nothing unless the allocator in Rust is active with CONFIG_VMAP_RUST_DEBUG. Check
# "validate": all invariants hold. Check "checker", with vmap_rust.check=1: it has compared at least LEAST answers, and none
# was wrong. SUFFIX is appended to these names.
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

# print_validation: prints the lines of validate and checker, each after the file's name, if the allocator in Rust is active.
print_validation() {
	local file
	[ "$(cat $DEBUGFS/allocator 2>/dev/null)" = rust ] || return 0
	for file in validate checker; do
		[ ! -e $DEBUGFS/$file ] || sed "s/^/$file| /" $DEBUGFS/$file
	done
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
