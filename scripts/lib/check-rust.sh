#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks of the Rust code: unsafe, rustfmt, clippy. Sourced by scripts/check.

# Modules that bind C, or own memory that C may see: only they have unsafe code.
UNSAFE_MODULES="area dir ffi grace lock maple mm objects pins table"

# unsafe_elsewhere: prints the unsafe code of modules that are not in UNSAFE_MODULES; fails if there is any.
unsafe_elsewhere() {
	local file module bad=0
	for file in rust/*.rs; do
		module=$(basename "$file" .rs)
		[ "$module" != vmap_rust ] || continue
		case " $UNSAFE_MODULES " in *" $module "*) continue ;; esac
		if grep -nHw unsafe "$file" | grep -vE '^[^:]*:[0-9]*:[[:space:]]*//'; then bad=1; fi
		# With this attribute the compiler refuses unsafe code. The module tests is only in kernels that run KUnit.
		if ! grep -B 1 -E "^(pub(\(crate\))? )?mod $module;" rust/vmap_rust.rs | grep -q 'forbid(unsafe_code)' && [ "$module" != tests ]; then
			echo "rust/vmap_rust.rs: mod $module lacks #[forbid(unsafe_code)]"
			bad=1
		fi
	done
	return "$bad"
}

# check_unsafe: policy modules have no unsafe code.
check_unsafe() { result "unsafe code in $(wc -w <<<"$UNSAFE_MODULES") binding modules only" unsafe_elsewhere; }

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
