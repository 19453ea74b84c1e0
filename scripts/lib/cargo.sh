# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Functions for scripts that run cargo: they copy and fetch crates, and count the tests. Sourced by these scripts.

# policy_modules: prints the modules without unsafe code that the build host has, as LAYER/NAME. The others bind the allocator to the
# kernel, or, on the build host, to the stand-in kernel crate.
policy_modules() {
	local dir
	for dir in base policy; do
		(cd "$REPO/rust" && find "$dir" -name '*.rs' ! -name mod.rs ! -name '*tests.rs')
	done | sed 's/\.rs$//' | sort
	for dir in state sys; do
		sed -n "/forbid(unsafe_code)/{n;s,^\(pub(crate) \)*mod \(.*\);,$dir/\2,p}" "$REPO/rust/$dir/mod.rs"
	done | grep -v tests
}
# shellcheck disable=SC2034 # for the scripts that source this file
POLICY=$(policy_modules | paste -sd' ')

# count_tests LOG RC: sets passed, failed and skipped from the log of a cargo test that ended with exit code RC, and prints the
# failed tests. An exit code that no failed test explains is a failure; so is a log without a test.
# shellcheck disable=SC2034 # skipped is for the script that sources this file
count_tests() {
	grep -E '^test .* FAILED$|panicked at|^error|minimal failing input' "$1" || :
	read -r passed failed skipped <<<"$(awk '/^test result:/ { p += $4; f += $6; s += $8 } END { print p + 0, f + 0, s + 0 }' "$1")"
	if [ "$2" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
	if [ "$((passed + failed))" = 0 ]; then failed=1; say "no test ran; see $1"; fi
}

# copy_crates COPY: copies rust/ to the folder COPY unless the copy is up to date. cargo writes Cargo.lock beside the sources,
# so the scripts build the copy and the repository stays clean.
copy_crates() {
	local stamp
	stamp=$(cd "$REPO/rust" && find . -name target -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
	if [ "$(cat "$1/stamp" 2>/dev/null)" != "$stamp" ]; then
		mkdir -p "$1"
		# Files that the repository no longer has must go; cargo's choice of versions stays.
		find "$1" -type f ! -name Cargo.lock -delete
		# With new modification times (-m): cargo compares them with those of its builds.
		(cd "$REPO" && tar -c --exclude=target rust) | tar -x -m -C "$1"
		printf '%s\n' "$stamp" >"$1/stamp"
	fi
}

# fetch_crates DIR: downloads the dependencies of the crate in DIR that are missing.
fetch_crates() {
	cd "$1" || exit
	# More than one command runs here, so in_root must not replace this shell.
	# shellcheck disable=SC2034 # read by in_root
	STEP_EXEC=0
	in_root cargo fetch --offline 2>/dev/null || in_root cargo fetch
}
