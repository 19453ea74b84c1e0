#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs tests of the kernel, one after the other: those of the function that TESTS on the kernel command line names.
# CHECKER_LEAST there: answers that the checker must have compared.
# Prints "result: NAME TEXT" for each, which scripts/run same compares with a boot of the other allocator.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

# kasan: KASAN's KUnit suite, a module. KUnit prints the results. The console is behind then, and would break the lines
# of checks.
kasan() { insmod /kasan_test.ko && sleep 10; }

# module NAME RE ARG...: loads a module that tests while it is loaded, for up to 900 s. The result is the text of the kernel
# log that matches RE.
module() {
	local name=$1 re=$2 text
	shift 2
	dmesg -C
	timeout -k 5 900 insmod "/$name.ko" "$@" >/tmp/out 2>&1
	rmmod "$name" 2>/dev/null
	text=$(dmesg | grep -oE "$re" | sort | paste -sd';')
	echo "result: $name ${text:-fail, no result: $(tail -n 1 /tmp/out)}"
}

# modules: test_bpf and test_maple_tree.
modules() {
	# The tests after number 860 try all magnitudes of all operands, which takes half an hour in an emulator.
	module test_bpf 'test_bpf: .*Summary: .*' test_suite=test_bpf test_range=0,860
	module test_maple_tree 'maple_tree: [0-9]+ of [0-9]+ tests passed'
}

# messages: prints what the kernel log reports of a misuse in one line, without addresses, CPUs and times.
messages() {
	local wanted='lkdtm: |usercopy: |BUG: |kernel BUG at|WARNING: |Oops|guard page|unable to handle|^RIP: 0010|#PF: '
	dmesg | sed -E 's/^\[ *[0-9.]+\] //' |
		grep -v 'Performing direct entry' | grep -E "$wanted|stack overflow|KASAN" |
		sed -E 's/0x[0-9a-f]+/H/g; s/\b[0-9a-f]{12,16}\b/H/g; s/\[#[0-9]+\]/[#N]/' |
		sed -E 's/(CPU|PID|pid)(: | )[0-9]+/\1 N/g' | uniq | paste -sd';'
}

# lkdtm: misuses of stacks and copies from and to user space, which the kernel must notice. Each case runs in a process
# of its own, which the kernel may kill.
lkdtm() {
	local name direct=/sys/kernel/debug/provoke-crash/DIRECT text
	dmesg -n 1
	echo 0 >/proc/sys/kernel/panic_on_oops
	echo 0 2>/dev/null >/proc/sys/kernel/oops_limit
	insmod /lkdtm.ko
	for name in USERCOPY_{SLAB_SIZE,SLAB_WHITELIST,STACK_FRAME}_{TO,FROM} USERCOPY_{STACK_BEYOND,VMALLOC,FOLIO,KERNEL} \
		STACK_GUARD_PAGE_{LEADING,TRAILING} REPORT_STACK_CANARY KSTACK_ERASE VMALLOC_LINEAR_OVERFLOW EXEC_STACK \
		EXEC_VMALLOC; do
		grep -qx "$name" $direct || { echo "result: $name skip, not in this kernel"; continue; }
		dmesg -C
		# shellcheck disable=SC2016 # the inner shell expands it
		timeout -k 2 60 bash -c 'echo "$1" | cat >"$2"' sh "$name" $direct >/dev/null 2>&1
		sleep 0.2
		text=$(messages)
		echo "result: $name ${text:-printed nothing}"
	done
}

report start
$TESTS
invariants_check "$CHECKER_LEAST"
finish
