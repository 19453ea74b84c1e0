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
mount -t cgroup2 cgroup /sys/fs/cgroup
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

# modules NAME...: loads and unloads modules.
modules() { modprobe -a "$@" && modprobe -r "$@"; }

# net_namespaces N: makes N network namespaces, then removes them.
net_namespaces() {
	local i
	for ((i = 0; i < $1; i++)); do ip netns add "n$i" || return; done
	for ((i = 0; i < $1; i++)); do ip netns del "n$i" || return; done
}

# container N: runs a command in N containers, one after the other: a cgroup, all namespaces but the user's, and a filter of
# system calls.
container() {
	local i
	for ((i = 0; i < $1; i++)); do
		mkdir /sys/fs/cgroup/one || return
		bash -c 'echo $$ >/sys/fs/cgroup/one/cgroup.procs && exec unshare -muinpC --fork confined true' || return
		rmdir /sys/fs/cgroup/one || return
	done
}

# xfs: mounts a new XFS on /mnt/xfs, with directory blocks of 64 KiB, unless it is there.
xfs() {
	mountpoint -q /mnt/xfs && return
	mkdir -p /mnt/xfs && truncate -s 400M /tmp/xfs.img && mkfs.xfs -q -n size=65536 /tmp/xfs.img &&
		mount -o loop /tmp/xfs.img /mnt/xfs
}

# names N: makes N files with long names in a folder of the XFS, lists them when nothing is cached, and removes them.
names() {
	local -r folder=/mnt/xfs/names
	mkdir $folder && (cd $folder && seq -f "a-name-as-long-as-those-of-packages-%06.0f" "$1" | xargs touch) &&
		echo 3 >/proc/sys/vm/drop_caches && ls -l $folder && rm -r $folder
}

# erofs: mounts an EROFS with the programs of the image on /mnt/erofs, in clusters of 64 KiB, unless it is there.
erofs() {
	mountpoint -q /mnt/erofs && return
	mkdir -p /mnt/erofs && mkfs.erofs -zlz4 -C65536 /tmp/erofs.img /usr/bin && mount -o loop /tmp/erofs.img /mnt/erofs
}

# readers N: N tasks read all files of the EROFS, of which none is cached, on both CPUs.
readers() {
	local i
	echo 1 >/proc/sys/vm/drop_caches
	for ((i = 0; i < $1; i++)); do taskset 3 sh -c 'cat /mnt/erofs/* >/dev/null' & done
	wait
}

# stress NAME OPERATIONS OPTION...: runs that many operations of a stressor of stress-ng.
stress() { stress-ng --quiet --no-rand-seed --temp-path /tmp "--$1" 1 "--$1-ops" "$2" "${@:3}"; }

# For modprobe-20.
# shellcheck disable=SC2034 # the command that is evaluated uses it
MODULES="dummy bridge 8021q macvlan ipvlan vxlan tun overlay fuse nft_limit nft_log nft_quota nft_hash nft_numgen xt_comment
	xt_length xt_limit xt_mark xt_multiport xt_statistic"
ip link set lo up
ip link add v0 type veth peer name v1
program 5000 ethtool-loop "strings and statistics of a veth, in a loop" "compile ethloop" "ethloop v0 5000"
program 5000 bpf-array "create and close a BPF array that can be mapped" "compile bpfmaps" "bpfmaps array 5000"
program 500 bpf-prog "load and close a BPF program" "compile bpfmaps" "bpfmaps prog 500"
program 500 bpf-array-64k "create and close a BPF array of 64 KiB" "compile bpfmaps" "bpfmaps array 500 65536"
program 200 bpf-array-1m "create and close a BPF array of 1 MiB" "compile bpfmaps" "bpfmaps array 200 1048576"
program 1 bpf-agent "200 BPF programs and arrays: load, attach to sockets, close" "compile bpfmaps" "bpfmaps agent 200"
program 20 bpf-ringbuf-8m "create and close a BPF ring buffer of 8 MiB" "compile bpfmaps" "bpfmaps ringbuf 20 8388608"
program 20 stress-pty "stress-ng --pty, 64 at once" "" "stress pty 20 --pty-max 64"
program 1000 stress-fork-100 "stress-ng --fork, 100 at once" "" "stress fork 1000 --fork-max 100"
program 40 hackbench "hackbench, for each of 40 tasks" "" "hackbench -s 100 -l 20 -g 1"
program 40 hackbench-2 "hackbench on both CPUs, for each of 40 tasks" "" "taskset 3 hackbench -s 100 -l 20 -g 1"
program 100 io_uring-16m "an io_uring that registers 16 buffers of 1 MiB" "compile buffers" "buffers 100"
program 5 modprobe-nf_tables "load and unload nf_tables.ko" "" "times 5 modules nf_tables"
program 20 modprobe-20 "load and unload 20 modules, for each" "" "modules \$MODULES"
program 10 container "a container: cgroup, namespaces, filter of calls, true" "compile confined" "container 10"
program 10 unshare "unshare -muinpC --fork true" "" "times 10 unshare -muinpC --fork true"
program 20 netns-20 "ip netns add and del, 20 at once" "" "net_namespaces 20"
program 1 iptables-restore "iptables-legacy-restore, 2,000 rules" "rules >/tmp/rules" "iptables-legacy-restore /tmp/rules"
program 200 xfs-xattr "set, read and remove an attribute of 60 KiB, XFS" "compile xattrs; xfs" "xattrs /mnt/xfs 200"
program 2000 xfs-names "make, list uncached and remove a file, XFS" "xfs" "names 2000"
program 4 erofs-4 "read /usr/bin on EROFS, lz4, each of 4 tasks" "erofs" "readers 4"
tell "programs: done"
settle
echo b >/proc/sysrq-trigger
exec sleep 1
