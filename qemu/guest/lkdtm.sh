#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Misuses stacks and copies from and to user space with lkdtm, which the kernel must notice. Prints the kernel's messages of
# each case as "lkdtm: CASE| TEXT", without numbers that differ from boot to boot, and "lkdtm: done" before the last case,
# which no kernel survives. scripts/run peers compares two boots.

# shellcheck source-path=SCRIPTDIR source=../functions.sh
. /guest/functions.sh

CASES="USERCOPY_SLAB_SIZE_TO USERCOPY_SLAB_SIZE_FROM USERCOPY_SLAB_WHITELIST_TO USERCOPY_SLAB_WHITELIST_FROM
	USERCOPY_STACK_FRAME_TO USERCOPY_STACK_FRAME_FROM USERCOPY_STACK_BEYOND USERCOPY_VMALLOC USERCOPY_FOLIO USERCOPY_KERNEL
	STACK_GUARD_PAGE_LEADING STACK_GUARD_PAGE_TRAILING REPORT_STACK_CANARY KSTACK_ERASE VMALLOC_LINEAR_OVERFLOW
	EXEC_STACK EXEC_VMALLOC"
DIRECT=/sys/kernel/debug/provoke-crash/DIRECT

# messages: prints the lines of the kernel log that report a misuse, without addresses, CPUs and times.
messages() {
	dmesg | sed -E 's/^\[ *[0-9.]+\] //' |
		grep -v 'Performing direct entry' | grep -E 'lkdtm: |usercopy: |BUG: |kernel BUG at|WARNING: |Oops|guard page|unable to handle|^RIP: 0010|#PF: |stack overflow|KASAN' |
		sed -E 's/0x[0-9a-f]+/H/g; s/\b[0-9a-f]{12,16}\b/H/g; s/\[#[0-9]+\]/[#N]/; s/(CPU|PID|pid)(: | )[0-9]+/\1 N/g' |
		uniq
}

# provoke CASE: runs one case in a separate process, which the kernel may kill.
provoke() {
	dmesg -C
	# shellcheck disable=SC2016 # the inner shell expands it
	timeout -k 2 60 bash -c 'echo "$1" | cat >"$2"' sh "$1" "$DIRECT" >/dev/null 2>&1
	sleep 0.2
	messages | sed "s/^/lkdtm: $1| /"
	echo "lkdtm: $1| end"
}

dmesg -n 1
echo 0 >/proc/sys/kernel/panic_on_oops
echo 0 2>/dev/null >/proc/sys/kernel/oops_limit
modprobe lkdtm || { echo "lkdtm: no module"; exit; }
for name in $CASES; do
	if grep -qx "$name" "$DIRECT"; then provoke "$name"; else echo "lkdtm: $name| not in this kernel"; fi
done
print_validation
echo "lkdtm: done"
# The guard page below the stack ends this guest.
dmesg -n 8
sleep 0.5
echo EXHAUST_STACK >"$DIRECT"
sleep 2
