#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of wrong arguments, settings and machines. Sourced by scripts/suites/selftest.

S=$WORK/repo/scripts

for script in prepare build in-root install-into; do
	check "$script --help" "$S/$script" --help
done
refuses "unknown configuration" "unknown configuration 'nosuch'; known: .*arm64" "$S/build" nosuch
refuses "configuration with a path" "unknown configuration '../arm64'" "$S/build" ../arm64
refuses "no configuration" "which configuration\? known: .*arm64" "$S/build"
refuses "two configurations" "one configuration at a time" "$S/build" uml arm64
refuses "unknown part" "unknown part 'rooot'; use root, source, tree or all" "$S/prepare" rooot
refuses "unknown TOOLCHAIN" "TOOLCHAIN=foo is unknown; use" env TOOLCHAIN=foo "$S/prepare"
refuses "cache path with a space" "paths? with spaces or colons.*VMAP_RUST_CACHE" env VMAP_RUST_CACHE="$WORK/a b" "$S/prepare"
refuses "cache that cannot be made" "cannot create the cache folder.*VMAP_RUST_CACHE" env VMAP_RUST_CACHE=/proc/none "$S/prepare"
refuses "in-root without a root" "not ready; run scripts/prepare" env VMAP_RUST_CACHE="$WORK/none" "$S/in-root" true
# Python would take the package in the current folder.
mkdir -p "$WORK/other/harness"
echo 'raise SystemExit("harness/ of another folder")' >"$WORK/other/harness/__init__.py"
check "another clone as the current folder" sh -c "cd '$WORK/other' && '$REPO/scripts/run' --help"

# in-root hands on the exit code, the current folder and the arguments, and protects the rest.
check "in-root keeps the folder" sh -c "cd '$WORK/linux' && [ \"\$('$S/in-root' pwd)\" = '$WORK/linux' ]"
check "in-root passes arguments" sh -c "[ \"\$('$S/in-root' printf '%s.' 'a  b' '\$c')\" = 'a  b.\$c.' ]"
check "in-root passes the exit code" sh -c "'$S/in-root' sh -c 'exit 7'; [ \$? = 7 ]"
check "in-root protects the toolchain root" sh -c "! '$S/in-root' touch /etc/selftest"
check "in-root has the toolchain" "$S/in-root" sh -c 'clang-22 --version && ld.lld-22 --version && rustc --version &&
	bindgen --version && qemu-system-aarch64 --version && test -x /opt/busybox-arm64/bin/busybox'

# A disk of 64 MiB.
no_space() {
	"$(bwrap_tool)" --dev-bind / / --size 67108864 --tmpfs /mnt --setenv VMAP_RUST_CACHE /mnt/cache "$@"
}
refuses "no disk space for the toolchain root" "needs [0-9]+ MiB of disk, .* has 6[0-9] MiB free;.*VMAP_RUST_CACHE" \
	no_space "$S/prepare" root

# A machine with coreutils and the like, but no tool to build a kernel.
mkdir "$WORK/bare"
for tool in bash sh awk sed grep cat ls sort head tail cut tr df flock stat find xargs mkdir rm mv cp ln env dirname basename \
	realpath sleep id git nproc sha256sum cmp setpriv touch readlink tput paste wc make; do
	ln -s "$(command -v "$tool")" "$WORK/bare/$tool"
done
refuses "TOOLCHAIN=host without tools" "[0-9]+ tools are missing; install them, or leave TOOLCHAIN unset" \
	env PATH="$WORK/bare" TOOLCHAIN=host "$S/prepare"
# shellcheck disable=SC2016 # $1 is for the inner shell
check "TOOLCHAIN=host names each missing tool" sh -c 'PATH=$1 TOOLCHAIN=host LLVM=-22 "$2" 2>&1 | {
	out=$(cat); for tool in clang-22 rustc bindgen flex qemu-system-aarch64; do
		echo "$out" | grep -q "^missing tool: $tool (Debian package " || exit 1; done; }' sh "$WORK/bare" "$S/prepare"

# A plain user on a machine that gives nobody subordinate ids: one line names the packages, and nothing else starts.
mkdir "$WORK/plain-user"
# shellcheck disable=SC2016 # $1 is for the new script
printf '#!/bin/sh\n[ "$1" = -u ] && echo 54321 || echo plain-user\n' >"$WORK/plain-user/id"
printf '#!/bin/sh\necho "apt-get must not start"\n' >"$WORK/plain-user/apt-get"
chmod +x "$WORK/plain-user/id" "$WORK/plain-user/apt-get"
# shellcheck disable=SC2016 # the inner shell expands it
check "plain user without subordinate ids: one line names the packages" sh -c '
	out=$(PATH=$1:$2 VMAP_RUST_CACHE=$3 "$4" root 2>&1 </dev/null); [ $? = 1 ] || { echo "$out"; exit 1; }
	[ "$(echo "$out" | wc -l)" = 1 ] && echo "$out" |
		grep -q "ask an administrator to run \"apt-get install uidmap mmdebstrap bubblewrap\", and for a line such as \"plain-user:" ||
		{ echo "$out"; exit 1; }' sh "$WORK/plain-user" "$WORK/bare" "$WORK/plain-cache" "$S/prepare"

# A mirror that does not answer: one line, and nothing that looks like a root.
mkdir "$WORK/noapt"
printf '#!/bin/sh\ncase $* in *indextargets*) echo "http://127.0.0.1:9/debian Debian" ;; *) exec "%s" "$@" ;; esac\n' \
	"$(command -v apt-get)" >"$WORK/noapt/apt-get"
chmod +x "$WORK/noapt/apt-get"
refuses "mirror that cannot be reached" "could not be downloaded; the next run goes on" \
	env PATH="$WORK/noapt:$PATH" VMAP_RUST_CACHE="$WORK/offline" "$S/prepare" root
check "no half root after that" test ! -e "$WORK/offline/root"
