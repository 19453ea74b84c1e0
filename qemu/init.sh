#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# First process of the busybox guests: mounts file systems, runs LOAD_SCRIPT (default /load.sh), ends the guest.

/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t debugfs debugfs /sys/kernel/debug
# Root reads true addresses in /proc/vmallocinfo: 0 would hash them.
echo 1 >/proc/sys/kernel/kptr_restrict
sh "${LOAD_SCRIPT:-/load.sh}"
# User-mode Linux would start again after a reboot.
! grep -q 'User Mode Linux' /proc/cpuinfo || poweroff -f
# The emulator runs with -no-reboot, so this ends it on every architecture.
reboot -f
