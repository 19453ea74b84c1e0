#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Calls the kernel at random for FUZZ_SECONDS. From the kernel command line: FUZZ, what does: trinity as "user" or as "root",
# or the stressors of stress-ng ("stress"); FUZZ_SEED; ALLOCATOR, rbtree or rust.
#
# Prints a line "N s" every 10 s: root may break the guest.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

CLASSES=vm,os,device,filesystem,interrupt

# spent: prints for how many seconds this script has run: root sets the time of day.
# Without /proc, which root may have broken, all of its time is over.
spent() {
	local now

	now=$(sed 's/\..*//' /proc/uptime 2>/dev/null)
	echo $((now ? now - start : FUZZ_SECONDS))
}
start=0
start=$(spent)

# clock_loop: prints it every 10 s.
clock_loop() { while going; do report "$(spent) s"; sleep 10; done; }

# trinity_loop CMD...: runs trinity with the words in front of it, some minutes each time, with another seed.
trinity_loop() {
	local seed=$((FUZZ_SEED * 1000)) calls=0 left dangerous=""
	[ "$FUZZ" = user ] || dangerous=--dangerous
	mkdir -p /tmp/fuzz
	chmod 777 /tmp/fuzz
	cd /tmp/fuzz || return
	while left=$((FUZZ_SECONDS - $(spent))) && [ $left -gt 0 ]; do
		[ $left -lt 300 ] || left=300
		"$@" timeout -s INT -k 10 $left trinity $dangerous -q -q -l off -C $((2 * $(nproc))) -s $seed >/tmp/trinity.log 2>&1 </dev/null
		pkill -9 -x 'trinity.*'
		calls=$((calls + $(sed -n 's/.*Ran \([0-9]*\) syscalls.*/\1/p' /tmp/trinity.log | tail -n 1 | grep . || echo 0)))
		seed=$((seed + 1))
		find /tmp/fuzz -mindepth 1 -delete 2>/dev/null
	done
	cd /tmp || return
	[ $calls -gt 0 ] || tail -n 20 /tmp/trinity.log
	check "$FUZZ-calls" "$calls -gt 1000" "$calls system calls, $((seed - FUZZ_SEED * 1000)) runs"
}

# stress_loop: runs the stressors of all classes, one after the other, for the same time each, one second at least.
stress_loop() {
	local n time
	n=$(for class in ${CLASSES//,/ }; do stress-ng --class "$class?"; done 2>&1 | tr ' ' '\n' | sort -u | grep -c .)
	time=$((FUZZ_SECONDS / n))
	timeout -s INT -k 60 $((FUZZ_SECONDS + 300)) stress-ng --class "$CLASSES" --sequential 1 --temp-path /tmp --oomable \
		--timeout "$((time > 0 ? time : 1))s" --metrics-brief >/tmp/ng.log 2>&1
	n=$(awk '/metrc/ && $5 ~ /^[0-9]+$/ && $5 > 0' /tmp/ng.log | wc -l)
	[ "$n" -gt 50 ] || tail -n 20 /tmp/ng.log
	check stress-calls "$n -gt 50" "$n stressors"
}

report "start, $(nproc) CPUs, $FUZZ, $FUZZ_SECONDS s"
clock_loop &
# What root would end the guest with at once.
for file in /proc/sysrq-trigger /proc/sys/kernel/sysrq; do
	[ ! -e $file ] || mount --bind /dev/null $file
done
case $FUZZ in
user) trinity_loop setpriv --reuid 65534 --regid 65534 --clear-groups ;;
root) trinity_loop ;;
stress) stress_loop ;;
esac
touch /tmp/stop
invariants_check 101
finish
