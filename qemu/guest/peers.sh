#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs tests of the kernel, one after the other: selftests/mm, test_vmalloc.sh, test_maple_tree, test_bpf. Prints
# "peers: NAME RESULT" per test, which scripts/run peers compares with another boot, and "peers: done" at the end.

# shellcheck source-path=SCRIPTDIR source=../functions.sh
. /guest/functions.sh

MODULES=/usr/lib/modules/$(uname -r)/kernel

# result NAME RC FILE: prints one line for a test with exit code RC: pass, fail, skip or timeout, and the counts of the TAP lines
# in its output FILE.
result() {
	local name=$1 rc=$2 file=$3 word
	case $rc in
	0) word=pass ;;
	4) word=skip ;;
	124|137) word=timeout ;;
	*) word="fail($rc)" ;;
	esac
	[ "$word" = pass ] || tail -n 8 "$file" | sed "s/^/$name| /"
	echo "peers: $name $word, ok $(grep -cE '^ok ' "$file"), not ok $(grep -cE '^not ok ' "$file"), skip $(grep -ciE '^ok .*# skip' "$file")"
}

# selftest NAME PROGRAM ARG...: runs a program of selftests/mm for up to LIMIT seconds (default 300); skips it if it was not built.
selftest() {
	local name=$1 program=./$2 rc=0
	shift 2
	[ -x "/peers/mm/$program" ] || { no_test "$name" "it was not built"; return; }
	(cd /peers/mm && timeout -k 5 "${LIMIT:-300}" "$program" "$@") >/tmp/selftest.out 2>&1 </dev/null || rc=$?
	result "$name" "$rc" /tmp/selftest.out
}

# no_test NAME REASON: reports a test that this kernel cannot run.
no_test() { echo "peers: $1 skip, $2"; }

# module NAME RE ARG...: loads a module that runs its tests while it is loaded. The result is the text of the kernel log that
# matches RE.
module() {
	local name=$1 re=$2 text
	shift 2
	[ -f "$MODULES/$name.ko" ] || { no_test "$name" "no such module"; return; }
	dmesg -C
	timeout -k 5 900 insmod "$MODULES/$name.ko" "$@" >/tmp/insmod.out 2>&1
	rmmod "$name" 2>/dev/null
	text=$(dmesg | grep -oE "$re" | paste -sd';')
	echo "peers: $name ${text:-fail, no result: $(tail -n 1 /tmp/insmod.out)}"
}

# vmalloc_script: runs test_vmalloc.sh with fewer loops than its "smoke" test, which takes hours in an emulator.
vmalloc_script() {
	[ -f "$MODULES/test_vmalloc.ko" ] || { no_test test_vmalloc.sh "no module test_vmalloc"; return; }
	dmesg -C
	(cd /peers/mm && timeout -k 5 900 bash ./test_vmalloc.sh run_test_mask=8191 test_loop_count=20 test_repeat_count=2 nr_pcpu_objects=500) >/tmp/vmalloc.out 2>&1
	dmesg | grep -oE 'Summary: .* xfailed: [0-9]+' | sort | sed 's/^/vmalloc| /' | tee /tmp/vmalloc.sum
	echo "peers: test_vmalloc.sh $(grep -c ' failed: 0' /tmp/vmalloc.sum) passed," \
		"failed: $(grep -v ' failed: 0' /tmp/vmalloc.sum | awk '{ print $3 }' | paste -sd' ')," \
		"expected failures: $(grep -v 'xfailed: 0' /tmp/vmalloc.sum | awk '{ print $3 }' | paste -sd' ')"
}

# page_frag: runs the test of page_frag, whose module allocates and frees fragments on two CPUs.
page_frag() {
	local rc=0
	[ -f /peers/mm/page_frag/page_frag_test.ko ] || { no_test page_frag "its module was not built"; return; }
	dmesg -C
	(cd /peers/mm && timeout -k 5 300 bash ./test_page_frag.sh smoke) >/tmp/selftest.out 2>&1 || rc=$?
	result page_frag "$rc" /tmp/selftest.out
}

# poison: runs tests that mark memory as broken.
poison() {
	if [ -e /proc/sys/vm/memory_failure_recovery ]; then
		selftest hugetlb-read-hwpoison hugetlb-read-hwpoison
		selftest hugetlb-soft-offline hugetlb-soft-offline
		selftest memory-failure memory-failure
	else
		for name in hugetlb-read-hwpoison hugetlb-soft-offline memory-failure; do
			no_test $name "the kernel has no CONFIG_MEMORY_FAILURE"
		done
	fi
}

echo "peers: start"
echo 192 >/proc/sys/vm/nr_hugepages
for name in hugetlb-mmap hugetlb-shm hugetlb-mremap hugetlb-madvise hugetlb_dio hugetlb_madv_vs_map thuge-gen \
	map_populate memfd_secret mremap_test mremap_dontunmap madv_populate \
	guard-regions mdwe_test droppable mlock2-tests merge gup_longterm cow; do
	selftest $name $name
done
# Its ten thousand threads need too much time in an emulator.
LIMIT=60 selftest hugetlb_fault_after_madv hugetlb_fault_after_madv
selftest gup_test-u gup_test -u -n 1
selftest gup_test-a gup_test -a -n 1
selftest gup_test-dump gup_test -ct -F 0x1 0 19 0x1000
poison
echo 0 >/proc/sys/vm/nr_hugepages
page_frag
vmalloc_script
# The tests after number 860 try all magnitudes of all operands, which takes half an hour in an emulator.
module test_bpf 'test_bpf: .*Summary: .*' test_suite=test_bpf test_range=0,860
module test_maple_tree 'maple_tree: [0-9]+ of [0-9]+ tests passed'
print_validation
echo "peers: done"
