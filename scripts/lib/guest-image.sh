#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes the guest images: the Debian user space of the guests that run stress-ng and the kernel's own tests (x86_64), and that of
# "scripts/bench programs" (arm64). Sourced by scripts/prepare.
#
# root_apt of lib/root.sh downloads the packages, and they are only unpacked: no script of a package runs. The tree is made in
# $CACHE/guest-image.new and renamed to $CACHE/guest-image when it and its archive $CACHE/guest-image.cpio.zst are complete.

IMAGE_TREE=$CACHE/guest-image
IMAGE_ARCH=amd64
# Programs that are compiled for the image, and what find leaves out of the archive.
IMAGE_SOURCES=("$REPO"/qemu/guest/*.c)
IMAGE_PRUNED=(-path ./usr/include -prune -o ! -name '*.a')
IMAGE_PACKAGES=(
	# programs that scripts in the guest run
	base-files bash coreutils util-linux mount kmod procps grep sed gawk findutils gzip libc-bin busybox-static
	stress-ng
	# tools/vmap in the guest, on /proc/kcore
	python3-drgn
	# libraries that the kernel's selftests link with; their headers stay out of the guest
	libcap-dev libnuma-dev liburing-dev
)
# Dependencies that only graphics stressors load.
IMAGE_WITHOUT='^(libllvm|mesa-|libz3|libxml2|libegl-mesa|libx11|libxcb|libxau|libxdmcp|libxshmfence|libwayland|libsensors|libdrm-'
IMAGE_WITHOUT+='|libpciaccess|openssl-provider|debconf|libedit|libpam-runtime|init-system)'
# Folders of packages that no guest reads.
IMAGE_UNREAD=(usr/share/doc usr/share/man usr/share/locale usr/share/info usr/share/i18n usr/share/common-licenses usr/share/lintian
	usr/share/bash-completion usr/share/zoneinfo usr/lib/x86_64-linux-gnu/gconv usr/lib/x86_64-linux-gnu/perl-base)

# use_programs_image: makes all functions below work on the image of "scripts/bench programs". Its compiler needs headers.
use_programs_image() {
	IMAGE_TREE=$CACHE/programs-image
	IMAGE_ARCH=arm64
	IMAGE_SOURCES=()
	IMAGE_PRUNED=(-true)
	IMAGE_PACKAGES=(
		base-files bash coreutils util-linux bsdutils mount kmod procps grep sed gawk findutils libc-bin libc6-dev linux-libc-dev tcc make
		ethtool iproute2 iptables bubblewrap stress-ng rt-tests xfsprogs attr erofs-utils bpftool
	)
	# Half of the tree, which each boot would unpack. tcc needs libtcc1.a and libc_nonshared.a.
	IMAGE_UNREAD+=(usr/lib/python3.13 usr/bin/python3.13 usr/lib/aarch64-linux-gnu/{gconv,security,libc.a,libm-2.41.a,libcrypt.a,libmvec.a}
		usr/lib/aarch64-linux-gnu/lib{icudata,icui18n}.so.76.1)
}

# Parts of the work run in a shell of their own.
[ "${VMAP_RUST_IMAGE:-}" != programs ] || use_programs_image

# image_hash: prints the hash of the recipe; another hash means another tree.
image_hash() {
	printf '%s\n' "$ROOT_SUITE" "${IMAGE_PACKAGES[@]}" "$IMAGE_WITHOUT" "${IMAGE_UNREAD[@]}" |
		cat - "$REPO/scripts/lib/guest-image.sh" "${IMAGE_SOURCES[@]}" | sha256sum | cut -c 1-16
}

# image_ready: true when the tree of this recipe and its archive are complete.
image_ready() { [ "$(cat "$IMAGE_TREE/.stamp" 2>/dev/null)" = "$(image_hash)" ] && [ -s "$IMAGE_TREE.cpio.zst" ]; }

# image_download: downloads the packages and their dependencies to $IMAGE_TREE.debs.
image_download() {
	local packages debs=$IMAGE_TREE.debs
	ls "$CACHE/apt/$IMAGE_ARCH"/state/lists/*Packages* >/dev/null 2>&1 || { root_apt_setup && root_apt "$IMAGE_ARCH" update; }
	packages=$(root_apt "$IMAGE_ARCH" install -s -y --no-install-recommends "${IMAGE_PACKAGES[@]}") ||
		{ root_apt "$IMAGE_ARCH" update && packages=$(root_apt "$IMAGE_ARCH" install -s -y --no-install-recommends "${IMAGE_PACKAGES[@]}"); }
	rm -rf "$debs"
	mkdir -p "$debs"
	cd "$debs" || exit
	awk '$1 == "Inst" { gsub(/[()]/, "", $3); print $2 "=" $3 }' <<<"$packages" | grep -vE "$IMAGE_WITHOUT" >list
	mapfile -t packages <list
	root_apt "$IMAGE_ARCH" download "${packages[@]}"
}

# image_unpack: makes $IMAGE_TREE.new from the packages, without IMAGE_UNREAD, and adds the programs of qemu/guest.
image_unpack() {
	local new=$IMAGE_TREE.new deb file
	rm -rf --one-file-system "$new"
	mkdir -p "$new"
	for deb in "$IMAGE_TREE.debs"/*.deb; do
		dpkg-deb -x "$deb" "$new"
	done
	(cd "$new" && rm -rf "${IMAGE_UNREAD[@]}" && mkdir -p dev proc sys tmp run root mnt opt/bin)
	# Files that the scripts of the packages would have made.
	[ -e "$new/etc/passwd" ] || echo 'root:x:0:0:root:/root:/bin/bash' >"$new/etc/passwd"
	[ -e "$new/etc/group" ] || echo 'root:x:0:' >"$new/etc/group"
	[ -e "$new/usr/bin/sh" ] || ln -s bash "$new/usr/bin/sh"
	[ -e "$new/usr/bin/awk" ] || ln -s gawk "$new/usr/bin/awk"
	for file in "${IMAGE_SOURCES[@]}"; do
		in_root gcc -O2 -Wall -Werror -static -o "$new/opt/bin/$(basename "$file" .c)" "$file"
	done
}

# image_pack: writes the archive of the tree.
image_pack() {
	local new=$IMAGE_TREE.new
	cd "$new" || exit
	# shellcheck disable=SC2016 # the inner shell expands it
	in_root bash -o pipefail -c 'cd "$1" && archive=$2 && shift 2 && find . "$@" ! -name .stamp -print0 |
		cpio --quiet -o -0 -H newc -R 0:0 | zstd -q -T0 -9 -f -o "$archive"' sh "$new" "$IMAGE_TREE.cpio.zst.new" "${IMAGE_PRUNED[@]}"
}

# prepare_guest_image: makes the tree and its archive unless they are ready.
prepare_guest_image() {
	image_ready && return 0
	[ "$(uname -m)" = x86_64 ] || [ ${#IMAGE_SOURCES[@]} = 0 ] || die "the guest image has programs for x86_64; use an x86_64 build host"
	[ -f "$CACHE/root/.vmap-rust-stamp" ] || die "the toolchain is not ready; run scripts/prepare"
	need_tool apt-get apt
	need_space 600 "the guest image"
	mkdir -p "$CACHE/log"
	step "guest image: download" "$CACHE/log/guest-image-download.log" "${PART[@]}" image_download ||
		die "packages of the guest image could not be downloaded; see $CACHE/log/guest-image-download.log"
	step "guest image: unpack" "$CACHE/log/guest-image-unpack.log" "${PART[@]}" image_unpack || die "the guest image could not be unpacked"
	step "guest image: pack" "$CACHE/log/guest-image-pack.log" "${PART[@]}" image_pack || die "the guest image could not be packed"
	rm -rf --one-file-system "$IMAGE_TREE" "$IMAGE_TREE.cpio.zst"
	mv "$IMAGE_TREE.cpio.zst.new" "$IMAGE_TREE.cpio.zst"
	image_hash >"$IMAGE_TREE.new/.stamp"
	mv "$IMAGE_TREE.new" "$IMAGE_TREE"
	rm -rf --one-file-system "$IMAGE_TREE.debs"
}
