# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What cargo test printed. Sourced by scripts that run it.

# count_tests LOG RC: sets passed, failed and skipped by the log of a cargo test that ended with RC, and prints what failed. An exit
# code that no test explains, and a log without a test, count as a failure.
# shellcheck disable=SC2034 # skipped is for the script that sources this file
count_tests() {
	grep -E '^test .* FAILED$|panicked at|^error|minimal failing input' "$1" || :
	read -r passed failed skipped <<<"$(awk '/^test result:/ { p += $4; f += $6; s += $8 } END { print p + 0, f + 0, s + 0 }' "$1")"
	if [ "$2" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
	if [ "$((passed + failed))" = 0 ]; then failed=1; say "no test ran; see $1"; fi
}
