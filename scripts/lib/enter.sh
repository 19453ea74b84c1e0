#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# in_root: runs a command with the toolchain, in the toolchain root or on the host. Sourced by lib.sh.

# root_env: adds the --setenv arguments of variables that are let in to the array ENTER.
root_env() {
	local var
	ENTER+=(--clearenv)
	for var in TERM COLUMNS NO_COLOR CI SOURCE_DATE_EPOCH \
		http_proxy https_proxy no_proxy ftp_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY all_proxy; do
		[ -z "${!var:-}" ] || ENTER+=(--setenv "$var" "${!var}")
	done
	for var in $(compgen -e | grep -E '^(KBUILD_|VMAP_RUST_|KUNIT_|CARGO_(HTTP|NET|REGISTRIES|SOURCE)_)' || :); do
		ENTER+=(--setenv "$var" "${!var}")
	done
	# A site's own certificate bundle is let in together with the variable that names it.
	for var in SSL_CERT_FILE CARGO_HTTP_CAINFO GIT_SSL_CAINFO CURL_CA_BUNDLE; do
		if [ -n "${!var:-}" ] && [ -r "${!var}" ]; then
			ENTER+=(--setenv "$var" "${!var}")
			case $(realpath "${!var}") in
			/etc/ssl/certs/*) ;;
			*) ENTER+=(--ro-bind "$(realpath "${!var}")" "${!var}") ;;
			esac
		fi
	done
	ENTER+=(
		--setenv PATH "/usr/lib/ccache:/opt/cargo/bin:/usr/lib/llvm-22/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
		--setenv LIBCLANG_PATH /usr/lib/llvm-22/lib
		--setenv HOME "$CACHE/home" --setenv CARGO_HOME "$CACHE/home/.cargo"
		--setenv CCACHE_DEPEND 1
		--setenv CCACHE_DIR "$CACHE/ccache" --setenv CCACHE_MAXSIZE "${CCACHE_MAXSIZE:-5G}"
		--setenv LANG C.UTF-8 --setenv LC_ALL C.UTF-8
		--setenv TOOLCHAIN root --setenv VMAP_RUST_CACHE "$CACHE" --setenv VMAP_RUST_IN_ROOT 1
	)
}

# root_binds ROOT: fills the array ENTER with the mounts: ROOT as /, then the folders that stay visible under their own
# path.
root_binds() {
	local dir common
	ENTER+=(--bind "$1" / --dev /dev --dev-bind-try /dev/kvm /dev/kvm
		--proc /proc --ro-bind /sys /sys
		--perms 1777 --tmpfs /tmp --perms 1777 --tmpfs /var/tmp --tmpfs /run
		--ro-bind-try /etc/resolv.conf /etc/resolv.conf --ro-bind-try /etc/hosts /etc/hosts)
	[ ! -s /etc/ssl/certs/ca-certificates.crt ] || ENTER+=(--ro-bind /etc/ssl/certs /etc/ssl/certs)
	ENTER_CWD=$(pwd -P)
	case $ENTER_CWD/ in
	"$REPO"/*|"$CACHE"/*|/tmp/|/run/|/dev/*|/proc/*|/sys/*) ;;
	# A folder of the host must not hide files of the root, which also has those in which former calls were, without
	# files.
	*) [ -n "$(find "$1$ENTER_CWD" ! -type d -print -quit 2>/dev/null)" ] ||
		ENTER+=(--bind "$ENTER_CWD" "$ENTER_CWD") ;;
	esac
	# A git worktree keeps its objects elsewhere.
	common=$(git -C "$REPO" rev-parse --path-format=absolute --git-common-dir 2>/dev/null || :)
	for dir in "$REPO" "$CACHE" "$common"; do
		[ ! -d "$dir" ] || ENTER+=(--bind "$dir" "$dir")
	done
	ENTER+=("${ENTER_BINDS[@]}")
}

# Further bwrap arguments, for scripts that need one more folder; and what replaces a process by a command (in_root).
ENTER_BINDS=() BECOME=()

# in_root_at ROOT CMD...: runs CMD in the toolchain root ROOT; the current folder, REPO and CACHE are visible, / is
# read-only.
in_root_at() {
	local root=$1 ENTER=() ENTER_CWD
	shift
	need_tool bwrap bubblewrap
	mkdir -p "$CACHE/home" "$CACHE/ccache"
	root_binds "$root"
	root_env
	[ "${ENTER_WRITABLE:-0}" = 1 ] || ENTER+=(--remount-ro /)
	# It gets no lock of the cache: the child of a bwrap that is killed before it let the child go on would hold it
	# for ever.
	"${BECOME[@]}" bwrap "${ENTER[@]}" --die-with-parent --unshare-pid --chdir "$ENTER_CWD" "$@" 9>&-
}

# in_root CMD...: runs CMD with the toolchain: in the toolchain root, directly with TOOLCHAIN=host or when already
# inside.
in_root() {
	local BECOME=()
	[ "${STEP_EXEC:-0}" = 0 ] || BECOME=(exec setpriv --pdeathsig TERM --)
	if [ "${VMAP_RUST_IN_ROOT:-0}" = 1 ]; then
		"${BECOME[@]}" "$@"
	elif [ "$TOOLCHAIN" = host ]; then
		# ccache takes part when the system has its wrapper folder.
		PATH=/usr/lib/ccache:$PATH CCACHE_DEPEND=1 CCACHE_DIR=$CACHE/ccache "${BECOME[@]}" env "$@"
	else
		[ -f "$CACHE/root/.vmap-rust-stamp" ] || die "the toolchain is not ready; run scripts/prepare"
		in_root_at "$CACHE/root" "$@"
	fi
}
