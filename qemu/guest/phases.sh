#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The kinds of load of stress.sh and soak.sh, each PHASE seconds long. Sourced by them, after common.sh.
#
# The last line that each load prints is its detail. It returns 0 if it passed, 77 if the kernel lacks the feature, else it failed.

# verdict NAME RC DETAIL: reports a phase with exit code RC; 77 is a phase that could not run.
verdict() {
	local name=$1 rc=$2
	shift 2
	case $rc in
	0) report "ok $name $*" ;;
	77) report "skip $name $*" ;;
	*) report "FAIL $name exit code $rc: $*" ;;
	esac
}

# phase NAME CMD...: runs CMD and reports it; its last line of output is the detail.
phase() {
	local name=$1 rc=0
	shift
	"$@" >"/tmp/phase.$name" 2>&1 || rc=$?
	[ "$rc" = 0 ] || sed "s/^/$name| /" "/tmp/phase.$name"
	verdict "$name" "$rc" "$(tail -n 1 "/tmp/phase.$name")"
}

# ng ARG...: runs stress-ng for one phase; its last line has the number of operations.
ng() {
	local rc=0
	timeout -k 5 $((PHASE + 90)) stress-ng --timeout "${PHASE}s" --metrics-brief --temp-path /tmp "$@" >/tmp/ng.log 2>&1 || rc=$?
	cat /tmp/ng.log
	awk '/metrc/ && $5 ~ /^[0-9]+$/ { printf "%s%s %s", n++ ? ", " : "", $4, $5 }
		END { print n ? " operations" : "nothing measured" }' /tmp/ng.log
	# 3: no resources; 4: not implemented.
	case $rc in 3|4) return 77 ;; esac
	return $rc
}

# modules: loads and unloads one module.
modules() { has_module test_module || { echo "no module test_module"; return 77; }; loads test_module $((SECONDS + PHASE)) 2>&1; }

# bpf: loads programs of many sizes, then runs the kernel's tests of the interpreter and the JIT compiler.
bpf() {
	bpf-load "$PHASE" >/tmp/bpf.log || { cat /tmp/bpf.log; grep -q 'not implemented' /tmp/bpf.log && return 77; return 1; }
	if has_module test_bpf; then
		bpf_tests $((SECONDS + PHASE)) >>/tmp/bpf.log || { cat /tmp/bpf.log; return 1; }
	fi
	paste -sd, /tmp/bpf.log
}

# vmalloc: runs the kernel's tests of vmalloc, except the case whose failure is expected (mask 0x40).
vmalloc() {
	local end=$((SECONDS + PHASE)) n=0
	has_module test_vmalloc || { echo "no module test_vmalloc"; return 77; }
	while [ "$SECONDS" -lt "$end" ]; do
		vmalloc_tests $((0x1fff & ~0x40)) 10 || return 1
		n=$((n + 1))
	done
	echo "$n rounds of 12 tests"
}

# memcg: makes a memory group run out of memory repeatedly.
memcg() {
	local end=$((SECONDS + PHASE))
	memcg_setup || { echo "no memory controller"; return 77; }
	while [ "$SECONDS" -lt "$end" ]; do memcg_oom || return 1; done
}

# suspend: runs the stages of a suspend to idle that pm_test offers, then a full suspend if the clock can wake the guest.
suspend() {
	local stage stages='0 stages' n=0 rc=0 end=$((SECONDS + PHASE))
	[ -e /sys/power/state ] && grep -q freeze /sys/power/state || { echo "no suspend to idle"; return 77; }
	# No CPU may come or go meanwhile.
	touch /tmp/stop.hotplug
	sleep $((${HOTPLUG_PAUSE:-1} + 1))
	if [ -e /sys/power/pm_test ]; then
		echo 1 2>/dev/null >/sys/module/suspend/parameters/pm_test_delay
		while [ "$n" = 0 ] || [ "$SECONDS" -lt "$end" ]; do
			for stage in freezer devices platform; do
				echo "$stage" >/sys/power/pm_test && echo freeze >/sys/power/state || { echo "stage $stage"; return 1; }
				n=$((n + 1))
			done
		done
		echo none >/sys/power/pm_test
		stages="$n stages (freezer, devices, platform)"
	fi
	# Without ACPI the clock cannot wake the guest.
	if [ -e /sys/class/rtc/rtc0/device/power/wakeup ]; then
		rtcwake -m freeze -s 3 || { echo "the clock did not wake it"; return 1; }
		stages="$stages, one suspend woken by the clock"
	else
		stages="$stages, no clock that could wake a real one"
	fi
	[ "$n" -gt 0 ] || rc=77
	rm -f /tmp/stop.hotplug
	hotplug_loop &
	echo "$stages"
	return $rc
}
