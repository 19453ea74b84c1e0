#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# First process of the guests of "scripts/bench programs". Each line below that begins with "program" is one row of the table: how
# many operations the command does, its name, what comes before it, and the command. The command runs twice; the second run is
# measured, between two marks for the plugin of QEMU (harness/bench/programs.py). From the kernel command line: PROGRAMS, the rows to
# run, separated by commas.

# The root of an initramfs cannot be exchanged, as bwrap does: move the tree to a mount of its own.
if [ -z "${MOVED:-}" ]; then
	export PATH=/usr/sbin:/usr/bin:/opt/bin HOME=/root TMPDIR=/tmp MOVED=1
	mkdir -p /moved && mount --bind / /moved && cd /moved && mount --move . / && exec chroot . /init
fi
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
mount -t debugfs debugfs /sys/kernel/debug
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
exec >/dev/console 2>&1
echo 5 >/proc/sys/kernel/printk
mkfifo /tmp/never && exec 9<>/tmp/never
taskset -p 1 $$ >/dev/null
# A parameter of the kernel that only the marks use. The kernel refuses the value.
MARK=/sys/module/workqueue/parameters/default_affinity_scope
CPUS=$(nproc --all)

# counted: prints how many areas the allocator in Rust has handed out.
counted() {
	local file=/sys/kernel/debug/vmap_rust/counters
	if [ -e $file ]; then awk '/^(hit|refill|steal|alloc_)/ { n += $2 } END { print n + 0 }' $file; else echo 0; fi
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

# latency NAME TEXT COMMAND...: prints how late a thread of the highest priority runs after its timer while the command runs again and
# again on the same CPU, in ns of the guest's clock: the mean and the maximum of 6,000 times.
latency() {
	local name=$1 load line
	shift 2
	wanted "$name" || return
	(while "$@"; do :; done) >/dev/null 2>&1 &
	load=$!
	line=$(cyclictest -q -N -m -t 1 -a 0 -p 99 -i 500 -l 6000 -D 10 2>&1 | tail -n 1)
	kill $load && wait $load 2>/dev/null
	case $line in
	*Max:*) tell "latency: $name $(sed 's/.*Avg: *\([0-9]*\) .*Max: *\([0-9]*\).*/mean=\1 max=\2/' <<<"$line")" ;;
	*) tell "program: $name FAIL $line" ;;
	esac
}

# times N COMMAND...: runs a command N times.
times() {
	local i n=$1
	shift
	for ((i = 0; i < n; i++)); do "$@" || return; done
}

# compile NAME: builds the C program of that name.
compile() { [ -e "/opt/bin/$1" ] || tcc -o "/opt/bin/$1" "/programs/$1.c" -lpthread; }

# rules: prints 2,000 rules for iptables-restore.
rules() {
	local i
	echo "*filter"
	for ((i = 0; i < 2000; i++)); do echo "-A INPUT -s 10.0.$((i / 250)).$((i % 250)) -p tcp -j DROP"; done
	echo COMMIT
}

# make_xfs: mounts a new XFS, and prepares values of attributes. xattrs: writes and reads them.
make_xfs() {
	truncate -s 400M /tmp/xfs.img && mkfs.xfs -q /tmp/xfs.img && mount -o loop /tmp/xfs.img /mnt && touch /mnt/file
	local i
	for i in 10000 20000 40000 60000; do head -c "$i" /dev/zero | od -An -v -tx1 | tr -d ' \n' >/tmp/value$i; done
}

xattrs() {
	local i
	for i in 10000 20000 40000 60000; do
		setfattr -n "user.a$i" -v "0x$(</tmp/value$i)" /mnt/file && sync && getfattr -n "user.a$i" /mnt/file || return
	done
}

# make_erofs: mounts a new EROFS with two programs. erofs_read: reads it, without what is cached.
make_erofs() {
	umount /mnt
	mkdir -p /tmp/e && cp /usr/bin/stress-ng /usr/bin/bash /tmp/e && mkfs.erofs -zlz4hc -C65536 /tmp/erofs.img /tmp/e &&
		mount -o loop,ro /tmp/erofs.img /mnt
}

erofs_read() { umount /mnt && mount -o loop,ro /tmp/erofs.img /mnt && cat /mnt/*; }
# load_bpf: loads and unloads a BPF program. modules NAME: does so with a module.
load_bpf() { bpftool prog load /programs/filter.o /sys/fs/bpf/filter && rm /sys/fs/bpf/filter; }
modules() { modprobe "$1" && modprobe -r "$1"; }
# cgroups N, net_namespaces N: make N, then remove them.
cgroups() {
	local i names=()
	for ((i = 0; i < $1; i++)); do names+=("/sys/fs/cgroup/a$i"); done
	mkdir "${names[@]}" && rmdir "${names[@]}"
}
net_namespaces() {
	local i
	for ((i = 0; i < $1; i++)); do ip netns add "n$i" || return; done
	for ((i = 0; i < $1; i++)); do ip netns del "n$i" || return; done
}
# container: runs true in a container. make_project, project: write C files and a Makefile; build them again.
container() { bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp true; }
project() { make -s -C /tmp/project clean && make -s -C /tmp/project -j2; }
make_project() {
	local i
	mkdir -p /tmp/project && cd /tmp/project || return
	for i in {1..12}; do printf '#include <stdio.h>\nint f%d(int x) { return printf("%%d", x + %d); }\n' "$i" "$i" >"f$i.c"; done
	cat >Makefile <<-'TEXT'
		OBJ = $(patsubst %.c,%.o,$(wildcard *.c))
		all: $(OBJ)
		%.o: %.c ; tcc -c $<
		clean: ; rm -f *.o
	TEXT
	cd /
}
# areas N: keeps a process with so many threads that there are N areas: each thread has one for its stack.
areas() {
	compile threads || return
	threads $(($1 - $(grep -c . /proc/vmallocinfo))) &
	sleeper=$!
	sleep 5
	[ "$(grep -c . /proc/vmallocinfo)" -ge $(($1 - 20)) ] || { echo "there are only $(grep -c . /proc/vmallocinfo) areas"; false; }
}
# end_areas: ends that process.
end_areas() { kill "$sleeper" && wait "$sleeper" 2>/dev/null; sleep 5; }
# info N: reads the list of all areas N times.
info() { local i names=(); for ((i = 0; i < $1; i++)); do names+=(/proc/vmallocinfo); done; cat "${names[@]}"; }
# stress NAME OPERATIONS OPTION...: runs that many operations of a stressor of stress-ng.
stress() { stress-ng --quiet --no-rand-seed --temp-path /tmp "--$1" 1 "--$1-ops" "$2" "${@:3}"; }

ip link set lo up
ip link add v0 type veth peer name v1
echo "+memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
if [ "$CPUS" -lt 8 ]; then
	program 50 ethtool-S "ethtool -S of a veth" "" "times 50 ethtool -S v0"
	program 5000 ethtool-loop "strings and statistics of a veth, in a loop" "compile ethloop" "ethloop v0 5000"
	program 5000 bpf-array "create and close a BPF array that can be mapped" "compile bpfmaps" "bpfmaps array 5000"
	program 500 bpf-prog "load and close a BPF program" "compile bpfmaps" "bpfmaps prog 500"
	program 2000 bpf-ringbuf-64k "create and close a BPF ring buffer of 64 KiB" "compile bpfmaps" "bpfmaps ringbuf 2000 65536"
	program 20 bpf-ringbuf-8m "the same with 8 MiB" "compile bpfmaps" "bpfmaps ringbuf 20 8388608"
	program 10 bpftool "bpftool prog load: a program, an array, ring buffers of 64 KiB and 8 MiB" "" "times 10 load_bpf"
	program 10 script-pty "script -c true" "" "times 10 script -qc true /dev/null"
	program 20 stress-clone "stress-ng --clone" "" "stress clone 20"
	program 500 stress-pthread "stress-ng --pthread" "" "stress pthread 500"
	program 20 stress-pty "stress-ng --pty, 64 at once" "" "stress pty 20 --pty-max 64"
	program 20 stress-seccomp "stress-ng --seccomp" "" "stress seccomp 20"
	program 500 stress-fork "stress-ng --fork, one after the other" "" "stress fork 500"
	program 1000 stress-fork-100 "stress-ng --fork, 100 at once" "" "stress fork 1000 --fork-max 100"
	program 40 hackbench "hackbench, for each of 40 tasks" "" "hackbench -s 100 -l 20 -g 1"
	program 5 modprobe-nf_tables "load and unload nf_tables.ko" "" "times 5 modules nf_tables"
	program 10 modprobe-dummy "load and unload dummy.ko" "" "times 10 modules dummy"
	program 5 modprobe-overlay "load and unload overlay.ko" "" "times 5 modules overlay"
	program 1 iptables-restore "iptables-legacy-restore, 2,000 rules" "rules >/tmp/rules" "iptables-legacy-restore /tmp/rules"
	program 5 iptables-save "iptables-legacy-save, 2,000 rules" "iptables-legacy-restore /tmp/rules" "times 5 iptables-legacy-save"
	iptables-legacy -F
	program 10 unshare "unshare -muinpC --fork true" "" "times 10 unshare -muinpC --fork true"
	program 5 bwrap "bwrap --unshare-all: a container that runs true" "" "times 5 container"
	program 50 cgroup "make and remove a memory cgroup" "" "times 50 cgroups 1"
	program 1000 cgroup-1000 "the same, 1,000 at once" "" "cgroups 1000"
	program 20 netns "unshare -n true" "" "times 20 unshare -n true"
	program 20 netns-20 "ip netns add and del, 20 at once" "" "net_namespaces 20"
	program 1 make "make -j2 of 12 files with tcc" make_project project
	program 4 xfs-xattr "XFS: an attribute of 10 to 60 KiB written and read" make_xfs xattrs
	program 1 erofs-lz4hc "EROFS: 7 MiB read from lz4hc clusters of 64 KiB" make_erofs erofs_read
	program 50 vmallocinfo "read /proc/vmallocinfo, 60 areas" "" "info 50"
	program 5 vmallocinfo-1300 "the same with 1,300 areas" "areas 1300" "info 5" && end_areas
	program 1 vmallocinfo-10k "the same with 10,000 areas" "areas 10000" "info 1" && end_areas
	echo 0 >/sys/devices/system/cpu/cpu1/online
	compile bpfmaps
	latency cyclictest-idle "nothing" sleep 1
	latency cyclictest-vfree "BPF ring buffers of 32 MiB are freed" bpfmaps ringbuf 10 33554432
else
	program 500 bpf-prog-8cpu "load a BPF program, 8 CPUs" "compile bpfmaps" "bpfmaps prog 500"
	program 10 modprobe-dummy-8cpu "load and unload dummy.ko, 8 CPUs" "" "times 10 modules dummy"
	program 5 modprobe-nf_tables-8cpu "load and unload nf_tables.ko, 8 CPUs" "" "times 5 modules nf_tables"
	program 10 bpftool-8cpu "bpftool prog load, 8 CPUs" "" "times 10 load_bpf"
fi
tell "programs: done"
umount /mnt 2>/dev/null
settle
echo b >/proc/sysrq-trigger
exec sleep 1
