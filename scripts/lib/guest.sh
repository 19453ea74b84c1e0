#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the scripts share that boot a guest whose checks are lines on its console. Sourced by scripts/user-load, inject and
# stress, which have the totals passed, failed and skipped.

# has_option NAME OPTION: true if the kernel that was built for configuration NAME has CONFIG_OPTION=y.
has_option() { grep -q "^CONFIG_$2=y" "$CACHE/build/$1/.config"; }

# count_checks ALLOCATOR PREFIX LOG CHECK...: prints the line "PREFIX: ok|FAIL|skip CHECK DETAIL" of each check in the log of
# a boot, and counts it; one that was not reported is a failure.
count_checks() {
	local allocator=$1 prefix=$2 log=$3 check line
	shift 3
	for check in "$@"; do
		line=$(grep -m 1 -aE "^$prefix: (ok|FAIL|skip) $check " "$log" | tr -d '\r' || echo "$prefix: FAIL $check not reported")
		printf '%s: %s\n' "$allocator" "$line"
		case $line in
		*": ok "*) passed=$((passed + 1)) ;;
		*": skip "*) skipped=$((skipped + 1)) ;;
		*) failed=$((failed + 1)) ;;
		esac
	done
}
