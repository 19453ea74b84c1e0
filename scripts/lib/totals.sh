#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The last line of every suite: "N passed, N failed", with ", N skipped" if there are any. Sourced by scripts/lib.sh.
#
# shellcheck disable=SC2034 # P, F and S are for the caller

# read_counts LOG: sets P (passed), F (failed) and S (skipped) from the last such line; returns 1 if there is none.
read_counts() {
	local counts
	P=0 F=0 S=0
	counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$1" | tail -n 1)
	[ -n "$counts" ] || return 1
	read -r P F S <<<"$(awk '{ print $1, $3, $5 + 0 }' <<<"$counts")"
}

# print_totals PASSED FAILED [SKIPPED]: prints that line; returns 1 if anything failed.
print_totals() {
	printf '%s passed, %s failed%s\n' "$1" "$2" "$([ "${3:-0}" = 0 ] || printf ', %s skipped' "$3")"
	[ "$2" = 0 ]
}
