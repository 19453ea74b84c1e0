#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks of the Rust code: unsafe, rustfmt, clippy. Sourced by scripts/check.

# Layers of rust/, the lowest first: a layer uses only itself and those before it. The crate root, ffi.rs and debugfs.rs use all.
LAYERS="base sys state policy check"

# unsafe_modules: prints the files that may have unsafe code: those of sys/ and state/ for which mod.rs does not forbid it, and ffi.rs.
unsafe_modules() {
	local dir
	echo rust/ffi.rs
	for dir in state sys; do
		awk -v dir="$dir" '/forbid\(unsafe_code\)/ { getline; next } /^pub\(crate\) mod / { sub(/;/, ""); print "rust/" dir "/" $3 ".rs" }' "rust/$dir/mod.rs"
	done
}

# unsafe_elsewhere: prints the unsafe code of other modules, and the modules for which the compiler does not forbid it; fails if
# there is any.
unsafe_elsewhere() {
	local file module allowed bad=0
	allowed=$(unsafe_modules)
	for file in rust/*.rs rust/{base,check,check/tests,policy,state,sys}/*.rs; do
		[ "$file" != rust/vmap_rust.rs ] || continue
		! grep -qx "$file" <<<"$allowed" || continue
		if grep -nHw unsafe "$file" | grep -vE '^[^:]*:[0-9]*:[[:space:]]*//'; then bad=1; fi
	done
	for module in base check debugfs policy; do
		if ! grep -A 1 'forbid(unsafe_code)' rust/vmap_rust.rs | grep -qx "mod $module;"; then
			echo "rust/vmap_rust.rs: mod $module lacks #[forbid(unsafe_code)]"
			bad=1
		fi
	done
	return "$bad"
}

# upward: prints the lines by which a layer uses one above it; fails if there is any. What comes after the attribute of KUnit's cases
# does not count: tests use check/.
upward() {
	local layer file lower='' bad=0
	for layer in $LAYERS; do
		lower+=" $layer"
		for file in rust/"$layer"/*.rs; do
			case $file in *tests.rs) continue ;; esac
			awk -v allowed="$lower " -v file="$file" '
				function used(name) { if (index(allowed, " " name " ") == 0) { print file ":" FNR ": uses crate::" name; bad = 1 } }
				/kunit_tests\(/ { exit }
				/^[[:space:]]*\/\// { next }
				/^(pub(\(crate\))? )?use crate::\{$/ { tree = 1; next }
				tree && /^    [a-z_]+(::|,)/ { name = $1; sub(/(::|,).*/, "", name); used(name) }
				/^\};/ { tree = 0 }
				{ rest = $0; while (match(rest, /crate::[a-z_]+/)) { used(substr(rest, RSTART + 7, RLENGTH - 7)); rest = substr(rest, RSTART + RLENGTH) } }
				END { exit bad }' "$file" || bad=1
		done
	done
	return "$bad"
}

# check_unsafe: policy modules have no unsafe code, and layers use only those below.
check_unsafe() {
	result "unsafe code in $(unsafe_modules | wc -l) modules of sys, state and ffi only" unsafe_elsewhere
	result "each of the layers $LAYERS uses only those before it" upward
}

# check_rustfmt: the files follow the kernel's format. The kernel's make target does not follow the link mm/vmap_rust.
check_rustfmt() {
	local files
	mapfile -t files < <(sources '*.rs')
	result "rustfmt, ${#files[@]} files" in_root rustfmt --check --color never --edition 2021 --config-path "$TREE/.rustfmt.toml" -- "${files[@]}"
}

# clippy_crate NAME: runs clippy on the crate: the command that compiled it for kernel NAME, with clippy-driver for rustc.
clippy_crate() {
	local dir=$CACHE/build/$1 cmd out
	# shellcheck disable=SC2016 # make's variables
	cmd=$(sed -n 's/^savedcmd_[^ ]* := //p' "$dir/mm/vmap_rust/rust/.vmap_rust.o.cmd" | sed 's/\$(pound)/#/g; s/\$\$/$/g')
	[ -n "$cmd" ] || { echo "no compile command in $dir"; return 1; }
	# The command may go on after the compiler, for example to merge helpers; only the compiler's part matters.
	cmd=${cmd%%;*}
	cmd=$(sed -E 's#(^|[[:space:]])rustc([[:space:]])#\1clippy-driver\2#; s#--emit=(dep-info|obj|llvm-bc|asm|metadata|link)=[^ ]+##g' <<<"$cmd")
	grep -q clippy-driver <<<"$cmd" || { echo "cannot find the compiler in: $cmd"; return 1; }
	mkdir -p "$CACHE/check"
	out=$(cd "$dir" && in_root env RUSTC_BOOTSTRAP=1 CLIPPY_CONF_DIR="$TREE" sh -c "$cmd --emit=metadata=$CACHE/check/clippy.rmeta" 2>&1) || { echo "$out"; return 1; }
	if grep -q '^warning' <<<"$out"; then
		echo "$out"
		return 1
	fi
	echo "no warning"
}

# check_clippy: clippy prints no warning with the flags that the kernel sets for make CLIPPY=1.
check_clippy() {
	result "kernel arm64 builds, option on" "$REPO/scripts/build" arm64
	result "clippy, arm64" clippy_crate arm64
}
