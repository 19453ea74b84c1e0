#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# First process of the guests of "scripts/bench programs". Each line below that begins with "program" is one row of the table: how
# many operations the command does, its name, what comes before it, and the command. The command runs twice; the second run is
# measured, between two marks for the plugin of QEMU (harness/bench/programs.py). From the kernel command line: PROGRAMS, the rows to
# run, separated by commas.

export PATH=/usr/sbin:/usr/bin:/opt/bin HOME=/root TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
mount -t debugfs debugfs /sys/kernel/debug
exec >/dev/console 2>&1
echo 5 >/proc/sys/kernel/printk
mkfifo /tmp/never && exec 9<>/tmp/never
taskset -p 1 $$ >/dev/null
# A parameter of the kernel that only the marks use. The kernel refuses the value.
MARK=/sys/module/workqueue/parameters/default_affinity_scope

# counted: prints how many areas the allocator in Rust has handed out.
counted() {
	local file=/sys/kernel/debug/vmap_rust/stats
	if [ -e $file ]; then awk '/^(hit|alloc_tree|alloc_congruent) / { n += $2 } END { print n + 0 }' $file; else echo 0; fi
}

# wanted NAME: true if the row is to run.
wanted() { [ -z "${PROGRAMS:-}" ] || [[ ,$PROGRAMS, == *,"$1",* ]]; }

# tell WORDS...: a line for the log, which no message of the kernel can break.
tell() { echo "<3>$*" >/dev/kmsg; }

# settle: sleeps for a quarter of a second, in which the kernel frees what RCU and work queues have put off. Sleeping costs nothing.
settle() { read -rt 0.25 _ <&9 || :; }

# program OPERATIONS NAME TEXT SETUP COMMAND: runs a command twice, has the second run counted, and prints a line for the log.
# The build host reads TEXT: what one operation is.
program() {
	local ops=$1 name=$2 setup=$4 command=$5 before areas
	wanted "$name" || return
	if ! { eval "$setup" && eval "$command"; } </dev/null >/tmp/out 2>&1; then
		tell "program: $name FAIL $(tail -n 1 /tmp/out)"
		return
	fi
	before=$(counted)
	settle
	printf %s "$name" 2>/dev/null >$MARK
	if ! eval "$command" </dev/null >/tmp/out 2>&1; then
		tell "program: $name FAIL $(tail -n 1 /tmp/out)"
		return
	fi
	settle
	read -r _ <$MARK
	areas=$(($(counted) - before))
	tell "program: $name ops=$ops areas=$areas"
}

# times N COMMAND...: runs a command N times.
times() {
	local i n=$1
	shift
	for ((i = 0; i < n; i++)); do "$@" || return; done
}

# compile NAME: builds the C program of that name.
compile() { [ -e "/opt/bin/$1" ] || tcc -o "/opt/bin/$1" "/programs/$1.c"; }

# rules: prints 2,000 rules for iptables-restore.
rules() {
	local i
	echo "*filter"
	for ((i = 0; i < 2000; i++)); do echo "-A INPUT -s 10.0.$((i / 250)).$((i % 250)) -p tcp -j DROP"; done
	echo COMMIT
}

# modules NAME: loads and unloads a module.
modules() { modprobe "$1" && modprobe -r "$1"; }

# net_namespaces N: makes N network namespaces, then removes them.
net_namespaces() {
	local i
	for ((i = 0; i < $1; i++)); do ip netns add "n$i" || return; done
	for ((i = 0; i < $1; i++)); do ip netns del "n$i" || return; done
}

# stress NAME OPERATIONS OPTION...: runs that many operations of a stressor of stress-ng.
stress() { stress-ng --quiet --no-rand-seed --temp-path /tmp "--$1" 1 "--$1-ops" "$2" "${@:3}"; }

ip link set lo up
ip link add v0 type veth peer name v1
program 5000 ethtool-loop "strings and statistics of a veth, in a loop" "compile ethloop" "ethloop v0 5000"
program 5000 bpf-array "create and close a BPF array that can be mapped" "compile bpfmaps" "bpfmaps array 5000"
program 500 bpf-prog "load and close a BPF program" "compile bpfmaps" "bpfmaps prog 500"
program 20 bpf-ringbuf-8m "create and close a BPF ring buffer of 8 MiB" "compile bpfmaps" "bpfmaps ringbuf 20 8388608"
program 20 stress-pty "stress-ng --pty, 64 at once" "" "stress pty 20 --pty-max 64"
program 1000 stress-fork-100 "stress-ng --fork, 100 at once" "" "stress fork 1000 --fork-max 100"
program 40 hackbench "hackbench, for each of 40 tasks" "" "hackbench -s 100 -l 20 -g 1"
program 5 modprobe-nf_tables "load and unload nf_tables.ko" "" "times 5 modules nf_tables"
program 10 unshare "unshare -muinpC --fork true" "" "times 10 unshare -muinpC --fork true"
program 20 netns-20 "ip netns add and del, 20 at once" "" "net_namespaces 20"
program 1 iptables-restore "iptables-legacy-restore, 2,000 rules" "rules >/tmp/rules" "iptables-legacy-restore /tmp/rules"
tell "programs: done"
settle
echo b >/proc/sysrq-trigger
exec sleep 1
