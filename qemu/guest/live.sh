#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs tools/vmap on the kernel that it runs on, in the middle of a load and after it, and tools/vmap-report. scripts/run live
# compares what they print with /proc/vmallocinfo.
#
# Prints the snapshots "early" before the load, "before" and "after" the list in the load, and "quiet" after the load. What a
# command prints is between "tool: begin WHEN WORDS" and "tool: end CODE SECONDS"; errors have "!", not "|". At the end,
# "live: done".

# shellcheck source-path=SCRIPTDIR source=../functions.sh
. /guest/functions.sh

MODULES=/usr/lib/modules/$(uname -r)/kernel
STACK=' (dup_task_struct|copy_process|alloc_thread_stack[a-z_]*|kernel_clone)\+'

# tool WHEN PROGRAM WORD...: runs a program of /tools and prints its output.
tool() {
	local when=$1 program=$2 code=0 start=$SECONDS
	shift 2
	echo "tool: begin $when $program $*"
	"/tools/$program" "$@" >/tmp/tool.out 2>/tmp/tool.err || code=$?
	sed 's/^/| /' /tmp/tool.out
	sed 's/^/! /' /tmp/tool.err
	echo "tool: end $code $((SECONDS - start))"
}

# module_loop: loads and unloads the module until /tmp/stop exists.
module_loop() { while [ ! -e /tmp/stop ]; do insmod "$MODULES/test_module.ko" && rmmod test_module; done; }

# Messages would break the lines of the snapshots.
dmesg -n 1
# Compiles the modules of drgn, once: the packages do it when they are installed, and here they are only unpacked.
python3 /tools/vmap --help >/dev/null
# Stacks that stay.
for ((i = 0; i < 300; i++)); do sleep 100000 & done
sleep 1
snapshot early
fork_loop & loops=($!)
module_loop & loops+=($!)
sleep 2
snapshot before
tool busy vmap list
snapshot after
tool busy vmap validate
touch /tmp/stop
wait "${loops[@]}"
sleep 2
snapshot quiet
tool quiet vmap list
stack=$(grep -m 1 -E "$STACK" /tmp/tool.out)
stack=${stack%%-*}
tool quiet vmap owner "$(printf %x $((stack + 0x1234)))"
tool quiet vmap owner 1000
tool quiet vmap pins "${stack#0x}"
for word in users gaps stats validate; do tool quiet vmap $word; done
tool quiet vmap-report -o /tmp/report.tar.gz
[ ! -e $DEBUGFS/callers ] || sed 's/^/callers| /' $DEBUGFS/callers
print_validation
echo "live: done"
