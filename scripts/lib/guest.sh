#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Functions for guests that report each check as a line on the console. Sourced by scripts/user-load, inject, stress and
# peers, which have the totals passed, failed and skipped.

# The words with which a check may begin its line. A script with checks that some guests cannot do adds "skip".
VERDICTS='ok|FAIL'

# has_option NAME OPTION: true if the kernel that was built for configuration NAME has CONFIG_OPTION=y.
has_option() { grep -q "^CONFIG_$2=y" "$CACHE/build/$1/.config"; }

# count_checks ALLOCATOR PREFIX LOG CHECK...: prints and counts the line "PREFIX: VERDICT CHECK DETAIL" of each CHECK in the log
# of a boot. A check without a line is a failure.
count_checks() {
	local allocator=$1 prefix=$2 log=$3 check line
	shift 3
	for check in "$@"; do
		line=$(grep -m 1 -aE "^$prefix: ($VERDICTS) $check " "$log" | tr -d '\r' || echo "$prefix: FAIL $check not reported")
		printf '%s: %s\n' "$allocator" "$line"
		case $line in
		*": ok "*) passed=$((passed + 1)) ;;
		*": skip "*) skipped=$((skipped + 1)) ;;
		*) failed=$((failed + 1)) ;;
		esac
	done
}

# add_table TEXT: prints the output of a program that judged the logs, and adds its last line, "N passed, N failed", to the
# totals. Output without that line is a failure.
add_table() {
	local P F S
	if read_counts /dev/stdin <<<"$1"; then
		sed '$d' <<<"$1"
		passed=$((passed + P)) failed=$((failed + F)) skipped=$((skipped + S))
	else
		printf '%s\n' "$1"
		failed=$((failed + 1))
	fi
}
