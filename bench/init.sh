#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# First process of the guests of "scripts/bench profile --tables": prints what the page tables have for each mapping that
# vmap_bench.keep=1 has left.

/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t debugfs debug /sys/kernel/debug

# tell WORDS...: one line for the log.
tell() { echo "vmap_bench: $*" >/dev/kmsg; }

# All addresses have 16 digits.
dmesg | sed -n 's/.*vmap_bench: kept case=\(.*\) start=\(.*\) end=\(.*\)/\1 \2 \3/p' | while read -r case start end; do
	awk -v first="x$start" -v last="x$end" '{ split($1, at, "-"); sub("0x", "x", at[1]); sub("0x", "x", at[2]) }
		at[1] < last && at[2] > first { print }' /sys/kernel/debug/kernel_page_tables |
		while read -r line; do tell "table $case $line"; done
done
tell "guest end"
reboot -f
