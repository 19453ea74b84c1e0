#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# First process of all guests: mounts file systems, runs /GUEST_RUN.sh (a variable on the kernel command line), ends the
# guest.

export PATH=/usr/sbin:/usr/bin:/bin:/opt/bin:/opt/busybox HOME=/tmp
/bin/busybox mkdir -p /opt/busybox
/bin/busybox --install -s /opt/busybox
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t debugfs debugfs /sys/kernel/debug
# Root reads true addresses in /proc/vmallocinfo: 0 would hash them.
echo 1 >/proc/sys/kernel/kptr_restrict
shell="sh"
if [ -x /bin/bash ]; then
	# The guest image, not just busybox.
	shell="bash"
	mkdir -p /dev/shm /dev/pts
	mount -t tmpfs shm /dev/shm
	mount -t devpts pts /dev/pts 2>/dev/null
	mount -t cgroup2 cgroup /sys/fs/cgroup 2>/dev/null
	ldconfig
	# At its priority of 19, khugepaged would not run for 30 s under load, and RCU waits for it.
	pid=$(pgrep -x khugepaged) && renice 0 -p "$pid" >/dev/null
fi
cd /tmp && $shell "/$GUEST_RUN.sh"
# User-mode Linux would start again after a reboot.
! grep -q 'User Mode Linux' /proc/cpuinfo || poweroff -f
# The emulator runs with -no-reboot, so this ends it on every architecture.
busybox reboot -f
