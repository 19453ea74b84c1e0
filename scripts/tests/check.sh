#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests that scripts/check finds banned words, a long README and dead links in a small repository. Sourced by
# scripts/suites/selftest.

D=$WORK/texts

# planted ITEM WHAT REGEX: passes when "scripts/check ITEM" fails and a line of its report matches REGEX. The repository is
# then as before.
planted() {
	local item=$1 what=$2 regex=$3 out rc=0
	out=$("$D/scripts/check" "$item" 2>&1 </dev/null) || rc=$?
	git -C "$D" checkout -q -- .
	git -C "$D" clean -fdq
	if [ "$rc" = 1 ] && grep -qE -- "$regex" <<<"$out"; then ok "$what"; else not_ok "$what" "exit $rc: $out"; fi
}

fake_repo "$D"
# Texts that break no rule, whatever those of this repository do. The words are put together here, since this file is checked too.
rm -rf "$D/kernel-patches" "$D/qemu" "$D/scripts/tests"
find "$D/scripts" -type f ! -path '*/lib/*' ! -name lib.sh ! -name check ! -name prepare ! -name in-root -delete
mkdir -p "$D/docs" "$D/kernel-patches/v$KVER_SERIES"
# shellcheck disable=SC2016 # backticks of Markdown
printf '# A heading, with `code`\n\nSee [below](docs/more.md#a-second-one-1) and `scripts/check words`.\n' >"$D/README.md"
printf '# More\n\n## A second one\n\n## A second one\n\n| [up](../README.md#a-heading-with-code) |\n|---|\n' >"$D/docs/more.md"
git -C "$D" init -q
git -C "$D" add -A
git -C "$D" -c user.name=t -c user.email=t@localhost commit -q -m texts
check "texts without a fault" "$D/scripts/check" docs

word="root fold""er"
echo "In the $word." >>"$D/README.md"
planted words "a banned word" "README.md:4: \"$word\": use toolchain root"
printf '// In the %s\n// %s of it.\n' "${word% *}" "${word#* }" >"$D/a.rs"
planted words "a banned phrase, across two lines of a comment" "a.rs:1: \"$word\": use toolchain root"
printf ' The %s.\n+The %s.\n' "$word" "$word" >"$D/a.patch"
planted words "a banned word that a patch adds" "a.patch:2: "
yes '' | head -n 147 >>"$D/README.md"
planted docs "a README of 150 lines" "README.md must have fewer than 150"
echo '[gone](docs/gone.md)' >>"$D/README.md"
planted docs "a link to no file" "README.md:4: link docs/gone.md: there is no docs/gone.md"
echo '[gone](../README.md#gone)' >>"$D/docs/more.md"
planted docs "a link to no heading" "link ../README.md#gone: README.md has no such heading"
# shellcheck disable=SC2016 # backticks of Markdown
echo 'Run `scripts/gone 3`.' >>"$D/docs/more.md"
planted docs "the name of no file" "there is no scripts/gone"
