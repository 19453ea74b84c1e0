# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Functions for scripts that run cargo: they fetch crates, run cargo, and count the tests. Sourced by these scripts.

# Logs go to the folder of a whole test run, or to the cache's.
LOGS=${VMAP_RUST_LOGS:-$CACHE/log}

# Build folders of this clone: in a common one, cargo takes the files of one clone for those of another.
# shellcheck disable=SC2034 # for the scripts that source this file
BUILDS=$CACHE/build/cargo-$(sha256sum <<<"$REPO" | cut -c 1-8)

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

# prepare_cargo: makes the toolchain and downloads the crates of rust/Cargo.lock that are missing; later runs are offline. cargo reads
# the whole lock file, so the host tests need the list of crates too, although they use none.
prepare_cargo() {
	[ -n "${VMAP_RUST_IN_ROOT:-}" ] || "$REPO/scripts/prepare" root
	step "crates of rust/Cargo.lock" "$LOGS/crates.log" fetch_crates ||
		die "the crates of rust/Cargo.lock cannot be downloaded; check that cargo can reach its registry, and see $LOGS/crates.log"
}

# fetch_crates: downloads these crates.
fetch_crates() {
	cd "$REPO/rust" || exit
	# More than one command runs here, so in_root must not replace this shell.
	# shellcheck disable=SC2034 # read by in_root
	STEP_EXEC=0
	in_root cargo fetch --locked --offline 2>/dev/null || in_root cargo fetch --locked
}

# cargo_in DIR [VAR=VALUE...] COMMAND ARG...: runs a command of cargo in a folder of the workspace, as its lock file says and without
# a network. The caller gives it a --target-dir in the cache, so that the repository stays clean. CARGO_SECONDS: its time limit, if any.
cargo_in() {
	local variables=()
	cd "$1" || exit
	while [[ $2 == *=* ]]; do variables+=("$2"); shift; done
	in_root env "${variables[@]}" ${CARGO_SECONDS:+timeout "$CARGO_SECONDS"} cargo "$2" --locked --offline "${@:3}"
}
