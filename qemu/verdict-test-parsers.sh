# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of qemu/sweep-parse and qemu/vmallocinfo, sourced by qemu/verdict-test.

# sweep_log [SED-EXPRESSION]: writes the results of one worker and mask 0x1fff, changed by the expression, to $DIR/sweep.
sweep_log() {
	local name xfailed
	for name in fix_size_alloc full_fit_alloc long_busy_list_alloc random_size_alloc fix_align_alloc random_size_align_alloc \
		align_shift_alloc pcpu_alloc kvfree_rcu_1_arg_vmalloc kvfree_rcu_2_arg_vmalloc vm_map_ram no_block_alloc vrealloc; do
		xfailed=0
		[ $name != align_shift_alloc ] || xfailed=1
		printf '[    0.726538] Summary: %s_test passed: %s failed: 0 xfailed: %s repeat: 1 loops: 1000 avg: 4914 usec\r\n' \
			$name $((1 - xfailed)) $xfailed
	done >"$DIR/sweep"
	printf '[    0.726696] All test took worker0=29182096 cycles\r\n' >>"$DIR/sweep"
	sed -i "${1:-}" "$DIR/sweep"
}

# sweep NAME EXPECTED-LAST-LINE [ARG...]: judges $DIR/sweep.
sweep() {
	local name=$1 want=$2 out
	shift 2
	out=$("$REPO/qemu/sweep-parse" --threads 1 --mask 0x1fff "$@" "$DIR/sweep" 2>&1) || :
	result "sweep: $name" "$([ "${out##*$'\n'}" = "$want" ] && echo 0 || echo 1)" "expected \"$want\", got: ${out##*$'\n'}"
}

sweep_log; sweep "good" "13 passed, 0 failed"
sweep_log '/vrealloc/s/passed: 1 failed: 0/passed: 0 failed: 1/'; sweep "a failed case" "12 passed, 1 failed"
sweep_log '/no_block/s/passed: 1 failed: 0 xfailed: 0/passed: 0 failed: 0 xfailed: 1/'
sweep "no_block must pass, although it may fail" "12 passed, 1 failed"
sweep_log '/align_shift/s/passed: 0 failed: 0 xfailed: 1/passed: 1 failed: 0 xfailed: 0/'
sweep "align_shift must fail" "12 passed, 1 failed"
sweep_log '/vm_map_ram/d'; sweep "a case is missing" "12 passed, 1 failed"
sweep_log '/All test/d'; sweep "the worker did not end" "13 passed, 1 failed"
sweep_log; sweep "a worker is missing" "0 passed, 14 failed" --threads 2
sweep_log; sweep "cases outside of the mask" "3 passed, 10 failed" --mask 7
: >"$DIR/sweep"; sweep "empty log" "0 passed, 14 failed"

# info_log [SED-EXPRESSION]: writes two snapshots, changed by the expression, to $DIR/info.
info_log() {
	local when
	for when in before after; do
		cat <<-TEXT
		vmallocinfo: begin $when tasks 2 cpus 1
		vmi| 0xffff800080000000-0xffff8000803d0000 3997696 declare_kernel_vmas+0x34/0xb4 phys=0x0000000040200000 vmap |
		vmi| 0xffff8000806d0000-0xffff8000806e1000   69632 __ioremap_prot+0x88/0x10c phys=0x0000000008000000 ioremap |
		vmi| 0xffff8000806e8000-0xffff8000806ed000   20480 copy_process+0x1e8/0xd3c pages=4 vmalloc |
		vmi| 0xffff8000806f0000-0xffff8000806f5000   20480 copy_process+0x1e8/0xd3c pages=4 vmalloc |
		vmi| 0xffff8000806f8000-0xffff8000806fd000   20480 unpurged vm_area |
		vmi| 0xffff800080700000-0xffff800080702000    8192 vm_map_ram |
		vmallocinfo: end $when
		TEXT
	done | sed "${1:-}" | sed 's/$/\r/' >"$DIR/info"
}

# info NAME EXPECTED-FAILURE [LOG]: judges $DIR/info (and LOG); the failure must be the only one, "" expects none.
info() {
	local name=$1 want=$2 out
	shift 2
	out=$("$REPO/qemu/vmallocinfo" "$DIR/info" "$@" 2>&1 | grep FAIL | sed 's/^vmallocinfo: FAIL [a-z0-9]*: //') || :
	result "vmallocinfo: $name" "$([[ -z $want && -z $out || -n $want && $out == *"$want"* ]] && echo 0 || echo 1)" \
		"expected \"$want\", got: $out"
}

info_log; info "good" ""
info_log 's/0xffff8000806ed000   20480/0xffff8000806f1000   36864/'; info "overlap" "overlap: 1 pairs"
info_log '/806f0000/{p}'; info "an area twice" "overlap: 1 pairs"
info_log '/806f0000/{p;s/copy_process.*/unpurged vm_area |/}'; info "freed while the file is read" ""
info_log '/806f8000/{p}'; info "unpurged twice" "overlap: 1 pairs"
info_log 's/^vmi.*ioremap/&[    1.762081] tsc: Refined TSC/'; info "a message at the end of a line" ""
info_log 's/^vmi.*69632/&[   12.762081] tsc: Refined TSC\n/'; info "a message in the middle of a line" ""
info_log 's/ 69632 / 69633 /'; info "wrong size" "sizes: 1 areas"
info_log 's/ pages=4 vmalloc/ vmalloc pages=4/'; info "another order of words" "shape: 2 lines"
info_log '/begin after/,/end after/{/ioremap/d}'; info "a lost mapping" "fixed mappings: 1 lost"
info_log '/806f0000/d'; info "a lost stack" "stacks: 1 stacks for 2 tasks"
info_log '/end after/d'; info "cut off" "after: complete"
info_log '/begin after/,/end after/d'; info "no second snapshot" "after: snapshot"
info_log; cp "$DIR/info" "$DIR/other"; info "two good logs" "" "$DIR/other"
info_log 's/ phys=0x0000000008000000 ioremap/ ioremap/'; info "another shape" "only in" "$DIR/other"
