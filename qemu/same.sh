#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs tests of the kernel, one after the other: those of the function that TESTS on the kernel command line names.
# Prints "result: NAME TEXT" for each, which scripts/run same compares with a boot of the other allocator.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

# What harness/scenarios/same.py builds of tools/testing/selftests/mm.
PROGRAMS="hugetlb-mmap hugetlb-shm hugetlb-mremap hugetlb-madvise hugetlb_dio hugetlb_madv_vs_map thuge-gen map_populate
	memfd_secret mremap_test mremap_dontunmap madv_populate guard-regions mdwe_test droppable mlock2-tests merge gup_longterm
	cow hugetlb-read-hwpoison hugetlb-soft-offline memory-failure hugetlb_fault_after_madv gup_test"

# kasan: KASAN's KUnit suite, a module. KUnit prints the results. The console is behind then, and would break the lines
# of checks.
kasan() { insmod /kasan_test.ko && sleep 10; }

# try NAME RE FILE ARG...: runs a program of selftests/mm, or loads a module that tests while it is loaded, for up to
# LIMIT seconds. The result is the text of the kernel log that matches RE; without RE, what the exit code means, and the
# counts of the TAP lines that it prints.
try() {
	local name=$1 re=$2 file=$3 rc=0 word text
	shift 3
	cd /selftests/mm && [ -e "$file" ] || { echo "result: $name skip, it was not built"; return; }
	case $file in
	*.ko) set -- insmod "$file" "$@" ;;
	*) set -- "./$file" "$@" ;;
	esac
	dmesg -C
	timeout -k 5 "$LIMIT" "$@" >/tmp/out 2>&1 </dev/null || rc=$?
	[ "$1" != insmod ] || rmmod "$name" 2>/dev/null
	if [ -n "$re" ]; then
		text=$(dmesg | grep -oE "$re" | sort | paste -sd';')
		echo "result: $name ${text:-fail, no result: $(tail -n 1 /tmp/out)}"
		return
	fi
	case $rc in
	0) word=pass ;;
	4) word=skip ;;
	124|137) word=timeout ;;
	*) word="fail($rc)" ;;
	esac
	[ "$word" = pass ] || tail -n 8 /tmp/out | sed "s/^/$name| /"
	echo "result: $name $word, ok $(grep -c '^ok ' /tmp/out), not ok $(grep -c '^not ok ' /tmp/out)," \
		"skip $(grep -ci '^ok .*# skip' /tmp/out)"
}

# selftests: selftests/mm, test_vmalloc.sh, test_bpf, test_maple_tree.
selftests() {
	local name LIMIT=300
	echo 192 >/proc/sys/vm/nr_hugepages
	for name in $PROGRAMS; do
		case $name in
		# Its ten thousand threads need too much time in an emulator.
		hugetlb_fault_after_madv) LIMIT=60 try "$name" '' "$name" ;;
		gup_test)
			try gup_test-u '' gup_test -u -n 1
			try gup_test-a '' gup_test -a -n 1
			try gup_test-dump '' gup_test -ct -F 0x1 0 19 0x1000 ;;
		*) try "$name" '' "$name" ;;
		esac
	done
	echo 0 >/proc/sys/vm/nr_hugepages
	try page_frag '' test_page_frag.sh smoke
	LIMIT=900
	# With fewer loops than its "smoke" test, which takes hours in an emulator; the result has no times.
	try test_vmalloc.sh 'Summary: .* xfailed: [0-9]+' test_vmalloc.sh run_test_mask=8191 test_loop_count=20 \
		test_repeat_count=2 nr_pcpu_objects=500
	# The tests after number 860 try all magnitudes of all operands, which takes half an hour in an emulator.
	try test_bpf 'test_bpf: .*Summary: .*' /test_bpf.ko test_suite=test_bpf test_range=0,860
	try test_maple_tree 'maple_tree: [0-9]+ of [0-9]+ tests passed' /test_maple_tree.ko
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
[ "$TESTS" = lkdtm ] || exit
# The guard page below the stack ends this guest. The build host replaces the result by what the kernel then prints.
echo "result: EXHAUST_STACK fail, not reported"
dmesg -n 8
sleep 0.5
echo EXHAUST_STACK >/sys/kernel/debug/provoke-crash/DIRECT
sleep 2
