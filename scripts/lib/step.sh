#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# step: runs a long command with a progress line and a log. Sourced by lib.sh.

# step_show TEXT: replaces the current line of the terminal by TEXT.
step_show() { printf '\r\033[K%.*s' "$((${COLUMNS:-$(tput cols 2>/dev/null || echo 80)} - 1))" "$1" >&2; }

# step_last LOG: prints the last line of LOG that is not blank, without control characters.
step_last() {
	tail -c 2000 "$1" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 |
		tr -s '[:space:]' ' ' | tr -cd '[:print:]' || :
}

# step_stop PID: ends the command of a step, all that it started, and then this script.
step_stop() {
	kill -TERM -- "-$1" 2>/dev/null || :
	wait "$1" 2>/dev/null || :
	say ""
	exit 130
}

# step_why LOG: prints the lines of LOG that name an error, or its last lines if there are none, and the log's path.
step_why() {
	local free
	grep -E -A 6 '(^|[^a-z_])(error|Error|ERROR|E)(\[E[0-9]+\])?: |undefined reference|No space left' "$1" | head -n 30 >&2 ||
		tail -n 20 "$1" >&2
	free=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
	[ "$free" -ge 64 ] || say "the disk of $CACHE is full ($free MiB free); set VMAP_RUST_CACHE to a folder on a larger disk"
	say "log: $1"
}

# step WHAT LOG CMD...: runs CMD with its output in LOG and shows WHAT, the seconds and the log's last line. Returns CMD's
# exit code; when that is not 0, prints the reason. CMD may be a function; it runs in a subshell and a new process group.
step() {
	local what=$1 log=$2 start=$SECONDS shown=$SECONDS pid rc=0 traps pause=0.1
	shift 2
	mkdir -p "$(dirname "$log")"
	traps=$(trap -p INT TERM HUP)
	set -m
	# shellcheck disable=SC2034 # STEP_EXEC is for in_root
	(set +m; STEP_EXEC=1; step_exec "$@") </dev/null >"$log" 2>&1 &
	pid=$!
	set +m
	trap 'step_stop "$pid"' INT TERM HUP
	while kill -0 "$pid" 2>/dev/null; do
		sleep "$pause"
		[ $((SECONDS - start)) -lt 2 ] || pause=0.5
		if [ -t 2 ]; then
			[ $((SECONDS - start)) -lt 1 ] || step_show "$what: $((SECONDS - start)) s  $(step_last "$log")"
		elif [ $((SECONDS - shown)) -ge 30 ]; then
			shown=$SECONDS
			say "$what: $((SECONDS - start)) s  $(step_last "$log" | cut -c 1-90)"
		fi
	done
	wait "$pid" || rc=$?
	trap - INT TERM HUP
	eval "$traps"
	[ ! -t 2 ] || printf '\r\033[K' >&2
	if [ "$rc" -ne 0 ]; then
		say "$what: failed after $((SECONDS - start)) s (exit code $rc)"
		step_why "$log"
		return "$rc"
	fi
	say "$what: done, $((SECONDS - start)) s"
}

# step_exec CMD...: replaces this process by CMD, which then ends when this script is killed; a function runs in this process.
step_exec() {
	if [ "$(type -t "$1")" = function ]; then
		"$@"
	else
		exec setpriv --pdeathsig TERM -- "$@"
	fi
}
