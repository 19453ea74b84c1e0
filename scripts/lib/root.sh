#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The Debian 13 toolchain root with the toolchain. Sourced by scripts/prepare.
#
# The packages are downloaded first, by the host's apt with a configuration of its own, into $CACHE/apt-archives, so
# that a run that was killed does not download twice. mmdebstrap then makes $CACHE/root.new from them, which becomes
# $CACHE/root when all is in place: a root that exists is complete.

ROOT_SUITE=trixie
ROOT_PACKAGES=(
	# kernel build
	make gcc libc6-dev clang-22 lld-22 llvm-22 libclang-22-dev flex bison bc libelf-dev libdw-dev libssl-dev
	python3 cpio xz-utils zstd kmod rsync perl git pahole ccache patch file gawk procps util-linux sparse
	ca-certificates
	# emulators
	qemu-system-arm qemu-system-x86 qemu-system-data
	# checks and reports
	shellcheck codespell ripgrep python3-ply python3-git python3-rich python3-scipy python3-matplotlib
	# tests of harness/
	python3-pytest
	# the instrument "lines"
	python3-unicorn
	# debuggers
	python3-drgn gdb-multiarch
)
ROOT_BACKPORTS=(rustc rust-src rustfmt rust-clippy cargo)
ROOT_BACKPORTS_DEPS=("libstd-rust-*" linux-libc-dev)
# Debian $ROOT_SUITE has 0.71.1, which libclang 22 makes mistakes with.
BINDGEN_VERSION=0.72.1
BINDGEN_SUITE=forky

# root_hash: prints the hash of the recipe; another hash means another root.
root_hash() {
	printf '%s\n' 2 "$ROOT_SUITE" "${ROOT_PACKAGES[@]}" "${ROOT_BACKPORTS[@]}" "$BINDGEN_VERSION" \
		"$ROOT_KERNEL" | sha256sum | cut -c 1-16
}

# root_mirror: prints the URI of the Debian mirror that this machine's apt uses.
# shellcheck disable=SC2016 # $(REPO_URI) is for apt
root_mirror() {
	local uri
	# Without downloaded lists there is no label yet; the release's own name is enough.
	uri=$(apt-get indextargets --format '$(REPO_URI) $(LABEL) $(RELEASE)' 'Identifier: Packages' |
		awk -v "name=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" '$2 == "Debian" && !label { label = $1 }
			$NF == name && !release { release = $1 } END { print label ? label : release }')
	case $uri in
	mirror+file:*) uri=$(awk '/^[a-z]/ { print $1; exit }' "${uri#mirror+file:}") ;;
	esac
	[ -n "$uri" ] || die "no Debian mirror in this machine's apt configuration (see apt-get indextargets);" \
		"add one, or use TOOLCHAIN=host"
	printf '%s\n' "$uri"
}

# root_apt ARCH ARGS...: the host's apt-get, or the program in ROOT_APT, working on files in the cache only.
root_apt() {
	local arch=$1 dir=$CACHE/apt/$1
	shift
	"${ROOT_APT:-apt-get}" -q -o "Dir::State=$dir/state" -o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir/cache" \
		-o "Dir::Cache::archives=$CACHE/apt-archives" -o "Dir::Etc::sourcelist=$CACHE/apt/sources.list" \
		-o Dir::Etc::sourceparts=/dev/null -o "Dir::Etc::preferences=$CACHE/apt/preferences" -o Dir::Etc::preferencesparts=/dev/null \
		-o "APT::Architecture=$arch" -o "APT::Architectures::=$arch" -o APT::Sandbox::User="$(id -un)" \
		-o APT::Install-Recommends=false -o APT::Default-Release= -o Acquire::Languages=none -o Acquire::Retries=3 \
		"$@"
}

# root_suites DIR ARCH SUITE...: prepares DIR for "CACHE=DIR root_apt ARCH", with the packages of these Debian suites.
root_suites() {
	local dir=$1 key=/usr/share/keyrings/debian-archive-keyring.gpg mirror
	[ -r "$key" ] || die "$key is missing; install the Debian package debian-archive-keyring"
	mirror=$(root_mirror) || return 1
	mkdir -p "$dir/apt/$2/state/lists/partial" "$dir/apt/$2/cache" "$dir/apt-archives/partial"
	: >"$dir/apt/$2/status"
	printf "deb [signed-by=$key] $mirror %s main\n" "${@:3}" >"$dir/apt/sources.list"
	[ -e "$dir/apt/preferences" ] || : >"$dir/apt/preferences"
}

# root_other_suite DIR SUITE [ARCH]: downloads the lists of a suite that is not that of the root, or of another
# architecture, to DIR.
root_other_suite() {
	local arch=${3:-$(dpkg --print-architecture)}
	root_suites "$1" "$arch" "$2" && CACHE=$1 root_apt "$arch" update
}

# root_apt_setup: writes the configuration of root_apt and of the root: suites, and which packages come from backports.
root_apt_setup() {
	local arch tested
	tested=$(PATCHES=$REPO/kernel-patches/v$ROOT_KERNEL meta Linux-Tested)
	for arch in amd64 arm64; do root_suites "$CACHE" "$arch" "$ROOT_SUITE" "$ROOT_SUITE-backports"; done
	{
		printf 'Package: linux-source-%s\nPin: version %s-*\nPin-Priority: 1001\n\n' "$ROOT_KERNEL" "$tested"
		printf 'Package: %s linux-source-%s\nPin: release n=%s-backports\nPin-Priority: 990\n' \
			"${ROOT_BACKPORTS[*]} ${ROOT_BACKPORTS_DEPS[*]}" "$ROOT_KERNEL" "$ROOT_SUITE"
	} >"$CACHE/apt/preferences"
}

# root_update: downloads the lists of packages.
root_update() { root_apt amd64 update && root_apt arm64 update; }

# root_source_check: dies unless the lists have a package of the kernel source. Another release of the series than the
# tested one will do; prepare_source says so.
root_source_check() {
	local arch name=linux-source-$ROOT_KERNEL have
	[ -z "${KERNEL_TARBALL:-}" ] || return 0
	arch=$(dpkg --print-architecture)
	! root_apt "$arch" download --print-uris "$name" >/dev/null 2>&1 || return 0
	# apt-get update succeeds without a connection.
	compgen -G "$CACHE/apt/$arch/state/lists/*Release" >/dev/null ||
		die "the package lists could not be downloaded; the next run goes on; see $CACHE/log/root-lists.log"
	have=$(ROOT_APT=apt-cache root_apt "$arch" search --names-only '^linux-source-[0-9]' | sort -V | sed 's/ .*//' | xargs || :)
	die "the Debian archive has no package $name any more${have:+, only $have}, and the patches are for Linux $ROOT_KERNEL;" \
		"give KERNEL_TARBALL=/path/to/linux-$KVER_TESTED.tar.xz"
}

# root_packages: prints the packages of the root.
root_packages() {
	printf '%s\n' "${ROOT_PACKAGES[@]}" "${ROOT_BACKPORTS[@]}"
	[ -n "${KERNEL_TARBALL:-}" ] || echo "linux-source-$ROOT_KERNEL"
}

# root_download: downloads all packages into $CACHE/apt-archives; what is there already is not fetched again.
root_download() {
	local packages
	mapfile -t packages < <(root_packages)
	root_apt "$(dpkg --print-architecture)" install --download-only -y --no-install-recommends \
		'?essential' '?priority(required)' apt "${packages[@]}"
}

# root_unpack: makes $CACHE/root.new from the downloaded packages.
root_unpack() {
	local new=$CACHE/root.new args arch
	rm -rf --one-file-system "$new"
	args=(--variant=minbase --dpkgopt=force-unsafe-io --aptopt='Acquire::Languages "none"'
		--skip=essential/unlink --skip=download/empty
		--setup-hook="mkdir -p \"\$1/var/cache/apt/archives\" \"\$1/etc/apt\""
		--setup-hook="sync-in $CACHE/apt-archives /var/cache/apt/archives"
		--setup-hook="copy-in $CACHE/apt/preferences /etc/apt"
		--include="$(root_packages | paste -sd,)"
		"$ROOT_SUITE")
	if [ "$(id -u)" = 0 ]; then
		# In a mount namespace of its own: whatever ends it, no mount stays behind.
		unshare --mount --propagation private mmdebstrap --mode=root --format=directory "${args[@]}" "$new" "$CACHE/apt/sources.list"
	else
		# The files must belong to this user, not to the ids of a user namespace: they travel as a tar stream.
		mkdir "$new"
		TMPDIR=/var/tmp mmdebstrap --mode=unshare --format=tar "${args[@]}" - "$CACHE/apt/sources.list" |
			tar -x --no-same-owner --exclude='./dev/*' -C "$new"
		chmod -R u+rwX "$new"
	fi
	rm -f "$new"/var/cache/apt/archives/*.deb "$new"/etc/resolv.conf "$new"/etc/hosts
	touch "$new/etc/resolv.conf" "$new/etc/hosts"
	for arch in amd64 arm64; do root_busybox "$CACHE" "$arch" "$new/opt/busybox-${arch/amd64/x86_64}"; done
}

# root_file LISTS ARCH PACKAGE NAME FILE: downloads a package, and puts its file of that name into FILE. LISTS has the lists.
root_file() {
	local debs=$5.debs
	rm -rf "$debs"
	mkdir -p "$debs"
	(cd "$debs" && CACHE=$1 root_apt "$2" download "$3") &&
		dpkg-deb --fsys-tarfile "$debs"/*.deb | tar -x -O --wildcards "$4" >"$debs/file" &&
		[ -s "$debs/file" ] && mv "$debs/file" "$5" || { rm -r "$debs"; return 1; }
	rm -r "$debs"
}

# root_busybox LISTS ARCH DIR: puts the static busybox for initramfs archives into DIR/bin.
root_busybox() {
	rm -rf "$3"
	root_file "$1" "$2" busybox-static './*bin/busybox' "$3/bin/busybox"
	chmod 755 "$3/bin/busybox"
}

# root_busybox_arm: puts the static busybox for 32-bit arm, which only the test matrix needs, into $CACHE/busybox-arm.
root_busybox_arm() {
	local new=$CACHE/busybox-arm.new
	root_other_suite "$new" "$ROOT_SUITE" armhf
	root_busybox "$new" armhf "$new/made"
	rm -rf "$CACHE/busybox-arm"
	mv "$new/made" "$CACHE/busybox-arm"
	rm -rf "$new"
}

# root_bindgen_package DIR: takes bindgen from the package of $BINDGEN_SUITE, with DIR for its files. Fails if there is
# none, or if it is of another version or does not run in root.new.
root_bindgen_package() {
	local new=$CACHE/root.new dir=$1
	rm -rf "$dir"
	root_other_suite "$dir" "$BINDGEN_SUITE" || return 1
	(cd "$dir" && CACHE=$dir root_apt "$(dpkg --print-architecture)" download bindgen && dpkg-deb -x ./*.deb deb) || return 1
	cp "$dir/deb/usr/bin/bindgen" "$new/opt/cargo/bin/bindgen" || return 1
	[ "$(in_root_at "$new" bindgen --version)" = "bindgen $BINDGEN_VERSION" ]
}

# root_bindgen: puts bindgen into root.new: the package's, which takes seconds, or one built from source. Downloads and
# the build folder stay in the cache until the root is complete.
root_bindgen() {
	local new=$CACHE/root.new
	mkdir -p "$new/opt/cargo/bin" "$CACHE/bindgen-build"
	! root_bindgen_package "$CACHE/bindgen-build/package" || return 0
	rm -f "$new/opt/cargo/bin/bindgen"
	ENTER_WRITABLE=1 in_root_at "$new" env CARGO_TARGET_DIR="$CACHE/bindgen-build" \
		cargo install bindgen-cli --version "$BINDGEN_VERSION" --locked --root /opt/cargo
}

# root_host_tools: makes sure that the build host has what makes the root. As root it installs missing packages; as
# another user it dies with what to ask an administrator for.
root_host_tools() {
	local tool missing=() ids=''
	need_tool apt-get apt
	for tool in newuidmap mmdebstrap bwrap; do
		[ "$(id -u) $tool" = "0 newuidmap" ] || command -v "$tool" >/dev/null ||
			missing+=("$(sed 's/newuidmap/uidmap/; s/bwrap/bubblewrap/' <<<"$tool")")
	done
	if [ "$(id -u)" = 0 ]; then
		[ ${#missing[@]} = 0 ] || step "installing ${missing[*]}" "$CACHE/log/host-tools.log" sh -c '
			export DEBIAN_FRONTEND=noninteractive
			apt-get install -y --no-install-recommends "$@" || { apt-get update &&
				apt-get install -y --no-install-recommends "$@"; }' sh "${missing[@]}"
		return
	fi
	grep -q "^\($(id -un)\|$(id -u)\):" /etc/subuid 2>/dev/null ||
		ids="for a line such as \"$(id -un):100000:65536\" in /etc/subuid and in /etc/subgid"
	[ -z "${missing[*]}$ids" ] || die "the toolchain root needs more for a user who is not root; ask an administrator" \
		"${missing[*]:+to run \"apt-get install ${missing[*]}\"${ids:+, and }}$ids"
}

# root_check_bwrap: dies when this machine does not let bubblewrap work.
root_check_bwrap() {
	local out
	out=$(bwrap --dev-bind / / --unshare-pid true 2>&1) || die "bubblewrap does not work here ($out);" \
		"user namespaces must be allowed (in a container: more privileges), or use TOOLCHAIN=host"
}

# root_ready: true when the root of this recipe is complete.
root_ready() {
	[ "$(cat "$CACHE/root/.vmap-rust-stamp" 2>/dev/null)" = "$(root_hash)" ] && [ -x "$CACHE/root/usr/bin/make" ] &&
		[ -x "$CACHE/root/opt/cargo/bin/bindgen" ]
}

# prepare_root: makes the toolchain root unless it is ready.
prepare_root() {
	local new=$CACHE/root.new
	if root_ready; then
		return 0
	fi
	[ ! -e "$CACHE/root/.vmap-rust-stamp" ] || say "the toolchain root is damaged or of an older recipe: making it again"
	root_host_tools
	root_check_bwrap
	need_space 4500 "the toolchain root"
	[ "$(id -u)" = 0 ] || need_space 3500 "the toolchain root, while it is made," /var/tmp
	root_apt_setup
	step "toolchain root: package lists" "$CACHE/log/root-lists.log" "${PART[@]}" root_update ||
		die "the package lists could not be downloaded; the next run goes on"
	root_source_check
	step "toolchain root: download" "$CACHE/log/root-download.log" "${PART[@]}" root_download ||
		die "packages could not be downloaded; the next run goes on where this one stopped"
	step "toolchain root: unpack" "$CACHE/log/root-unpack.log" "${PART[@]}" root_unpack || die "the toolchain root could not be made"
	step "toolchain root: bindgen $BINDGEN_VERSION" "$CACHE/log/root-bindgen.log" "${PART[@]}" root_bindgen ||
		die "bindgen could not be downloaded or built; the next run goes on where this one stopped"
	root_hash >"$new/.vmap-rust-stamp"
	rm -rf --one-file-system "$CACHE/root.old"
	[ ! -e "$CACHE/root" ] || mv "$CACHE/root" "$CACHE/root.old"
	mv "$new" "$CACHE/root"
	rm -rf --one-file-system "$CACHE/root.old" "$CACHE/bindgen-build"
}
