#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# First process of the guest image: mounts file systems, runs the script that GUEST_RUN on the kernel command line names, ends
# the guest.

export PATH=/usr/sbin:/usr/bin:/opt/bin:/opt/busybox HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts /dev/hugepages
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts 2>/dev/null
mount -t hugetlbfs huge /dev/hugepages 2>/dev/null
mount -t debugfs debugfs /sys/kernel/debug
mount -t cgroup2 cgroup /sys/fs/cgroup 2>/dev/null
mkdir -p /opt/busybox && /usr/bin/busybox --install -s /opt/busybox
ldconfig
# Root reads true addresses in /proc/vmallocinfo: 0 would hash them.
echo 1 >/proc/sys/kernel/kptr_restrict
# At its priority of 19, khugepaged would not run for 30 s under load, and RCU waits for it.
pid=$(pgrep -x khugepaged) && renice 0 -p "$pid" >/dev/null
# Reports of stalls print the backtraces of tasks at level 6.
dmesg -n 7
cd /tmp && bash "/guest/${GUEST_RUN:-stress}.sh"
# The emulator runs with -no-reboot, so this ends it.
busybox reboot -f
