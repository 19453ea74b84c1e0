# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What scripts that run cargo have in common: copies of the crates, and what cargo test printed. Sourced by them.

# Modules without unsafe code, which say what is done; the others bind them to the kernel, or are stand-ins on the host.
# shellcheck disable=SC2034 # for the scripts that source this file
POLICY="bits block blocks cache fit flush lazy percpu range space stats"

# count_tests LOG RC: sets passed, failed and skipped by the log of a cargo test that ended with RC, and prints what failed. An exit
# code that no test explains, and a log without a test, count as a failure.
# shellcheck disable=SC2034 # skipped is for the script that sources this file
count_tests() {
	grep -E '^test .* FAILED$|panicked at|^error|minimal failing input' "$1" || :
	read -r passed failed skipped <<<"$(awk '/^test result:/ { p += $4; f += $6; s += $8 } END { print p + 0, f + 0, s + 0 }' "$1")"
	if [ "$2" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
	if [ "$((passed + failed))" = 0 ]; then failed=1; say "no test ran; see $1"; fi
}

# copy_crates COPY: copies rust/ into the folder COPY, if it is not there as it is: cargo writes beside it which versions of crates it
# has chosen, and the repository stays clean.
copy_crates() {
	local stamp
	stamp=$(cd "$REPO/rust" && find . -name target -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
	if [ "$(cat "$1/stamp" 2>/dev/null)" != "$stamp" ]; then
		mkdir -p "$1"
		# What was removed here must not be left there; the choice of versions may.
		find "$1" -type f ! -name Cargo.lock -delete
		# With new times: cargo compares them with those of what it has built.
		(cd "$REPO" && tar -c --exclude=target rust) | tar -x -m -C "$1"
		printf '%s\n' "$stamp" >"$1/stamp"
	fi
}

# fetch_crates DIR: gets the crates that the one in DIR needs and that are not there yet.
fetch_crates() {
	cd "$1" || exit
	# More than one command runs here, so in_root must not replace this shell.
	# shellcheck disable=SC2034 # read by in_root
	STEP_EXEC=0
	in_root cargo fetch --offline 2>/dev/null || in_root cargo fetch
}
