#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The Debian user space of the guests that run stress-ng and the kernel's own tests. Sourced by qemu/user-root.
#
# The packages are fetched by root_apt of lib/root.sh and only unpacked: no script of a package runs, nothing is installed.
# $CACHE/user-root.new becomes $CACHE/user-root, and $CACHE/user-root.cpio.zst its archive, when all is in place.

USER_TREE=$CACHE/user-root
USER_PACKAGES=(
	# what scripts in the guest use
	base-files bash coreutils util-linux mount kmod procps grep sed gawk findutils gzip libc-bin busybox-static
	stress-ng
	# what the kernel's selftests link with; headers stay out of the guest
	libcap-dev libnuma-dev liburing-dev
)
# Dependencies that only a graphics stressor would load.
USER_WITHOUT='^(libllvm|mesa-|libz3|libxml2|libegl-mesa|libx11|libxcb|libxau|libxdmcp|libxshmfence|libwayland|libsensors|libdrm-'
USER_WITHOUT+='|libpciaccess|openssl-provider|debconf|libedit|libpam-runtime|init-system)'
# Parts of packages that no guest reads.
USER_UNREAD=(usr/share/doc usr/share/man usr/share/locale usr/share/info usr/share/i18n usr/share/common-licenses usr/share/lintian
	usr/share/bash-completion usr/share/zoneinfo usr/lib/x86_64-linux-gnu/gconv usr/lib/x86_64-linux-gnu/perl-base)

# user_hash: prints the hash of the recipe; another hash means another tree.
user_hash() {
	printf '%s\n' "$ROOT_SUITE" "${USER_PACKAGES[@]}" "$USER_WITHOUT" "${USER_UNREAD[@]}" |
		cat - "$REPO/scripts/lib/user-root.sh" "$REPO"/qemu/user/*.c | sha256sum | cut -c 1-16
}

# user_ready: true when the tree of this recipe and its archive are complete.
user_ready() { [ "$(cat "$USER_TREE/.stamp" 2>/dev/null)" = "$(user_hash)" ] && [ -s "$USER_TREE.cpio.zst" ]; }

# user_download: fetches the packages and what they depend on into $USER_TREE.debs.
user_download() {
	local packages debs=$USER_TREE.debs
	ls "$CACHE"/apt/amd64/state/lists/*Packages* >/dev/null 2>&1 || { root_apt_setup && root_apt amd64 update; }
	packages=$(root_apt amd64 install -s -y --no-install-recommends "${USER_PACKAGES[@]}") ||
		{ root_apt amd64 update && packages=$(root_apt amd64 install -s -y --no-install-recommends "${USER_PACKAGES[@]}"); }
	rm -rf "$debs"
	mkdir -p "$debs"
	cd "$debs" || exit
	awk '$1 == "Inst" { gsub(/[()]/, "", $3); print $2 "=" $3 }' <<<"$packages" | grep -vE "$USER_WITHOUT" >list
	mapfile -t packages <list
	root_apt amd64 download "${packages[@]}"
}

# user_unpack: makes $USER_TREE.new from the packages, without what nobody reads, and adds the helpers of qemu/user.
user_unpack() {
	local new=$USER_TREE.new deb file
	rm -rf --one-file-system "$new"
	mkdir -p "$new"
	for deb in "$USER_TREE.debs"/*.deb; do
		dpkg-deb -x "$deb" "$new"
	done
	(cd "$new" && rm -rf "${USER_UNREAD[@]}" && mkdir -p dev proc sys tmp run root mnt opt/bin)
	# What dpkg would have made.
	[ -e "$new/etc/passwd" ] || echo 'root:x:0:0:root:/root:/bin/bash' >"$new/etc/passwd"
	[ -e "$new/etc/group" ] || echo 'root:x:0:' >"$new/etc/group"
	[ -e "$new/usr/bin/sh" ] || ln -s bash "$new/usr/bin/sh"
	[ -e "$new/usr/bin/awk" ] || ln -s gawk "$new/usr/bin/awk"
	for file in "$REPO"/qemu/user/*.c; do
		in_root gcc -O2 -Wall -Werror -static -o "$new/opt/bin/$(basename "$file" .c)" "$file"
	done
}

# user_pack: writes the archive of the tree, without headers and static libraries.
user_pack() {
	local new=$USER_TREE.new
	cd "$new" || exit
	# shellcheck disable=SC2016 # the inner shell expands it
	in_root bash -o pipefail -c 'cd "$1" && find . -path ./usr/include -prune -o ! -name "*.a" ! -name .stamp -print0 |
		cpio --quiet -o -0 -H newc -R 0:0 | zstd -q -T0 -9 -f -o "$2"' sh "$new" "$USER_TREE.cpio.zst.new"
}

# prepare_user_root: makes tree and archive unless they are ready.
prepare_user_root() {
	user_ready && return 0
	[ "$(uname -m)" = x86_64 ] || die "this user space has programs built for x86_64; it needs an x86_64 machine"
	[ -f "$CACHE/root/.vmap-rust-stamp" ] || die "the toolchain is not ready; run scripts/prepare"
	need_tool apt-get apt
	need_space 600 "the user space of the guest"
	mkdir -p "$CACHE/log"
	step "user space: download" "$CACHE/log/user-root-download.log" "${PART[@]}" user_download ||
		die "packages of the user space could not be fetched; see $CACHE/log/user-root-download.log"
	step "user space: unpack" "$CACHE/log/user-root-unpack.log" "${PART[@]}" user_unpack || die "the user space could not be unpacked"
	step "user space: pack" "$CACHE/log/user-root-pack.log" "${PART[@]}" user_pack || die "the user space could not be packed"
	rm -rf --one-file-system "$USER_TREE" "$USER_TREE.cpio.zst"
	mv "$USER_TREE.cpio.zst.new" "$USER_TREE.cpio.zst"
	user_hash >"$USER_TREE.new/.stamp"
	mv "$USER_TREE.new" "$USER_TREE"
	rm -rf --one-file-system "$USER_TREE.debs"
}
