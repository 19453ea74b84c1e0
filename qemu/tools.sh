#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# A load for the guest of scripts/run tools, and snapshots of /proc/vmallocinfo: "early" before the load, "before" and
# "after" around what is read in the middle of it, and "quiet" after it. After the lines "tools: busy" and "tools:
# quiet" the build host reads the guest, which goes on when it gets a line. In the guest image, tools/vmap also reads
# the kernel it runs on.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. /functions.sh

# inside WHEN: sends what tools/vmap lists, and checks its validate.
inside() {
	[ -e /tools/vmap ] || return 0
	/tools/vmap list >/tmp/list
	send "$1" list /tmp/list
	drgn_check "$1-validate"
}

# Messages would break the lines of the snapshots.
dmesg -n 1
# Compiles the modules of drgn, once: the packages do it when they are installed, and here they are only unpacked.
[ ! -e /tools/vmap ] || /tools/vmap --help >/dev/null
# Stacks that stay.
i=0
while [ $i -lt 300 ]; do sleep 100000 & i=$((i + 1)); done
sleep 1
snapshot early
fork_loop & FORK=$!
module_loop & MODULES=$!
sleep 3
snapshot before
inside busy
echo "tools: busy"
read -r _
snapshot after
touch /tmp/stop
wait $FORK $MODULES
sleep 2
if [ -e /tools/vmap-report ]; then
	text=$(/tools/vmap-report -o /tmp/report.tar.gz 2>&1)
	check vmap-report "-s /tmp/report.tar.gz" "$text"
	# As on a machine of one's own, but for one case.
	/tools/vmap-bench --cases area_pair --repetitions 1 /tmp/bench.json >/tmp/bench 2>&1
	check vmap-bench "$(grep -Ec '^area_pair +[0-9]+( +-)? +[0-9.,]*[1-9]' /tmp/bench) -eq $(($(nproc) > 1 ? 2 : 1))" "$(tail -n 1 /tmp/bench)"
fi
inside quiet
# Last: each process that ends meanwhile changes which stacks there are.
snapshot quiet
echo "tools: quiet"
read -r _
