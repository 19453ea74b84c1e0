#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs the commands that "scripts/run shell" has packed with it, or else a shell on the console.

echo 4 >/proc/sys/kernel/printk
# From here on, scripts/run judges nothing.
echo "shell: begin"
if [ -e /commands ]; then
	sh /commands
else
	echo "$(dmesg | grep -o 'vmap allocator: .*'); files: /sys/kernel/debug/vmap_rust, /proc/vmallocinfo"
	echo "exit or Ctrl-D ends the guest; in QEMU also Ctrl-A x."
	setsid cttyhack sh
fi
echo "shell: exit code $?"
