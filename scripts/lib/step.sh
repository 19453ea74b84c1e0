#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# step: runs a long command with a progress line and a log. Sourced by lib.sh.

# step_last LOG: prints the last line of LOG that is not blank, without control characters.
step_last() {
	tail -c 2000 "$1" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 |
		tr -s '[:space:]' ' ' | tr -cd '[:print:]' || :
}

# step_exec CMD...: replaces this process by CMD, which then ends when this script is killed; a function runs in this
# process.
step_exec() {
	if [ "$(type -t "$1")" = function ]; then
		"$@"
	else
		exec setpriv --pdeathsig TERM -- "$@"
	fi
}

# step WHAT LOG CMD...: runs CMD with its output in LOG and shows WHAT, the seconds and the log's last line. Returns
# CMD's exit code; when that is not 0, prints the lines of LOG that name an error. CMD may be a function; it runs in a
# subshell and a new process group.
step() {
	local what=$1 log=$2 start=$SECONDS shown=0 now pid rc=0
	shift 2
	mkdir -p "$(dirname "$log")"
	set -m
	# shellcheck disable=SC2034 # STEP_EXEC is for in_root
	(set +m; STEP_EXEC=1; step_exec "$@") </dev/null >"$log" 2>&1 &
	pid=$!
	set +m
	# shellcheck disable=SC2064 # this process
	trap "kill -TERM -- -$pid 2>/dev/null || :; wait $pid || :; say ''; exit 130" INT TERM HUP
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.2
		now=$((SECONDS - start))
		if [ -t 2 ] && [ "$now" -ge 1 ]; then
			printf '\r\033[K%.*s' "$((${COLUMNS:-$(tput cols 2>/dev/null || echo 80)} - 1))" \
				"$what: $now s  $(step_last "$log")" >&2
		elif [ ! -t 2 ] && [ $((now - shown)) -ge 30 ]; then
			shown=$now
			say "$what: $now s  $(step_last "$log" | cut -c 1-90)"
		fi
	done
	wait "$pid" || rc=$?
	trap - INT TERM HUP
	now=$((SECONDS - start))
	[ ! -t 2 ] || printf '\r\033[K' >&2
	if [ "$rc" = 0 ]; then
		say "$what: done, $now s"
		return
	fi
	say "$what: failed after $now s (exit code $rc)"
	grep -E -A 6 '(^|[^a-z_])(error|Error|ERROR|E)(\[E[0-9]+\])?: |undefined reference|No space left' "$log" |
		head -n 30 >&2 || tail -n 20 "$log" >&2
	say "log: $log"
	return "$rc"
}
