#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# First process of the guests of "scripts/bench programs". Each line below "program" is one row of the table: how many operations the
# command does, its name, what comes before it, and the command. The command runs twice; the second run is measured. With
# QEMU's -icount, a microsecond of the guest's clock is 1,000 instructions. PROGRAMS is a pattern of the rows to run.

export PATH=/usr/sbin:/usr/bin:/opt/bin HOME=/root TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
mount -t debugfs debugfs /sys/kernel/debug
mount -t cgroup2 cgroup /sys/fs/cgroup
exec >/dev/console 2>&1
echo 4 >/proc/sys/kernel/printk

# counted: prints how many areas the allocator in Rust has handed out.
counted() { awk '/^(hit|refill|alloc_)/ { n += $2 } END { print n + 0 }' /sys/kernel/debug/vmap_rust/counters 2>/dev/null || echo 0; }

# program OPERATIONS NAME SETUP COMMAND
program() {
	local ops=$1 name=$2 setup=$3 command=$4 before areas start end
	# shellcheck disable=SC2254 # it is a pattern
	case $name in ${PROGRAMS:-*}) ;; *) return ;; esac
	if ! { eval "$setup" && eval "$command"; } </dev/null >/tmp/out 2>&1; then
		echo "program: $name FAIL $(tail -n 1 /tmp/out)"
		return
	fi
	before=$(counted)
	start=$EPOCHREALTIME
	eval "$command" </dev/null >/dev/null 2>&1
	end=$EPOCHREALTIME
	areas=$(($(counted) - before))
	echo "program: $name ops=$ops us=$((${end/./} - ${start/./})) areas=$areas"
}

# times N COMMAND...: runs a command N times.
times() {
	local i n=$1
	shift
	for ((i = 0; i < n; i++)); do "$@" || return; done
}

# compile NAME: builds the C program of that name.
compile() { mkdir -p /opt/bin && tcc -o "/opt/bin/$1" "/programs/$1.c" -lpthread; }

rules() {
	local i
	echo "*filter"
	for ((i = 0; i < 2000; i++)); do echo "-A INPUT -s 10.0.$((i / 250)).$((i % 250)) -p tcp -j DROP"; done
	echo COMMIT
}

xattrs() {
	local i
	for i in 10000 20000 40000 60000; do
		setfattr -n "user.a$i" -v "0x$(head -c "$i" /dev/zero | od -An -v -tx1 | tr -d ' \n')" /mnt/file || return
		sync
		getfattr -n "user.a$i" /mnt/file >/dev/null || return
	done
}

remount() { umount /mnt; mount -o loop,ro "$1" /mnt; }
erofs_read() { remount /tmp/erofs.img && cat /mnt/*; }
modules() { modprobe "$1" && modprobe -r "$1"; }
cgroups() { mkdir /sys/fs/cgroup/a && rmdir /sys/fs/cgroup/a; }
container() { bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp true; }
project() { make -s -C /tmp/project -j2 clean all; }
make_project() {
	local i
	mkdir -p /tmp/project && cd /tmp/project || return
	for i in {1..12}; do printf '#include <stdio.h>\nint f%d(int x) { return printf("%%d", x + %d); }\n' "$i" "$i" >"f$i.c"; done
	printf 'OBJ = $(patsubst %%.c,%%.o,$(wildcard *.c))\nall: $(OBJ)\n%%.o: %%.c\n\ttcc -c $<\nclean:\n\trm -f *.o\n' >Makefile
	cd /
}
# areas N: keeps a process with N threads, each of which has an area for its stack.
areas() { kill "$sleeper" 2>/dev/null; wait "$sleeper"; threads "$1" & sleeper=$!; sleep 2; }
stress() { stress-ng --quiet "--$1" 1 "--$1-ops" "$2" --temp-path /tmp; }

ip link set lo up
program 50 ethtool-S "ip link add v0 type veth peer name v1" "times 50 ethtool -S v0"
program 500 ethtool-loop "compile ethloop" "ethloop v0 500"
program 300 bpf-array "compile bpfmaps" "bpfmaps array 300"
program 100 bpf-ringbuf-64k "compile bpfmaps" "bpfmaps ringbuf 100 65536"
program 5 bpf-ringbuf-8m "compile bpfmaps" "bpfmaps ringbuf 5 8388608"
program 10 script-pty "true" "times 10 script -qc true /dev/null"
program 100 stress-clone "true" "stress clone 100"
program 200 stress-pthread "true" "stress pthread 200"
program 10 stress-pty "true" "stress pty 10"
program 50 stress-seccomp "true" "stress seccomp 50"
program 100 stress-fork "true" "stress fork 100"
program 40 hackbench "true" "hackbench -s 100 -l 20 -g 1"
program 5 modprobe-nf_tables "true" "times 5 modules nf_tables"
program 10 modprobe-dummy "true" "times 10 modules dummy"
program 5 modprobe-overlay "true" "times 5 modules overlay"
program 1 iptables-restore "rules >/tmp/rules" "iptables-legacy-restore /tmp/rules"
program 1 iptables-save "iptables-legacy-restore /tmp/rules" "iptables-legacy-save"
program 5 unshare "true" "times 5 unshare -muinpC --fork true"
program 5 bwrap "true" "times 5 container"
program 50 cgroup "true" "times 50 cgroups"
program 10 netns "true" "times 10 unshare -n true"
program 1 make "make_project" "project"
program 4 xfs-xattr "truncate -s 400M /tmp/xfs.img && mkfs.xfs -q /tmp/xfs.img && mount -o loop /tmp/xfs.img /mnt && touch /mnt/file" "xattrs"
program 1 erofs-lz4hc "mkdir -p /tmp/e && cp /usr/bin/stress-ng /usr/bin/bash /tmp/e && mkfs.erofs -zlz4hc -C65536 /tmp/erofs.img /tmp/e" "erofs_read"
program 1 vmallocinfo "true" "cat /proc/vmallocinfo"
program 1 vmallocinfo-1300 "compile threads && areas 1250" "cat /proc/vmallocinfo"
program 1 vmallocinfo-10k "areas 9950" "cat /proc/vmallocinfo"
echo "programs: done"
umount /mnt 2>/dev/null
echo b >/proc/sysrq-trigger
busybox reboot -f 2>/dev/null || exec sleep 1
