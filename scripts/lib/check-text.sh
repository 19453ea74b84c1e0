#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks that only read text: shell, spelling, words, docs, licence, paths, checkpatch. Sourced by scripts/check, in the
# repository. Each function calls "result" once per test.

# shell_files: prints the shell scripts of the repository.
shell_files() {
	local file
	sources | while read -r file; do
		case $file in
		*.patch) ;;
		*.sh) echo "$file" ;;
		*) ! head -n 1 "$file" | grep -qE '^#!.*\b(bash|sh)$' || echo "$file" ;;
		esac
	done
}

# check_shell: shellcheck reports nothing above the level "style".
check_shell() {
	local files
	mapfile -t files < <(shell_files)
	# One process reads one script after the other, for two minutes.
	# shellcheck disable=SC2016 # the inner shell expands it
	result "shellcheck, ${#files[@]} scripts" in_root sh -c 'printf "%s\n" "$@" | xargs -P "$(nproc)" -n 6 shellcheck -S info --' sh "${files[@]}"
}

# Correct words that codespell reports: "vas" is the kernel's plural of vmap_area.
OUR_WORDS="vas"

# patch_words FILE...: prints the paths of copies of patches, in which all lines are empty but those of the mail and those that it adds.
patch_words() {
	local file folder=$CACHE/check/spelling
	rm -rf "$folder"
	for file; do
		mkdir -p "$folder/${file%/*}"
		sed '/^---$/,${/^[+]/!s/.*//}' "$file" >"$folder/$file"
		printf '%s\n' "$folder/$file"
	done
}

# check_spelling: codespell finds nothing, also in what the patches add. checkpatch could ask codespell's dictionary itself, but takes
# ten times as long with it.
check_spelling() {
	local files mails
	mapfile -t files < <(sources ':!LICENSE*' ':!*.patch' ':!*.png')
	mapfile -t mails < <(sources '*.patch')
	mapfile -t mails < <(patch_words "${mails[@]}")
	result "codespell, ${#files[@]} files and ${#mails[@]} patches" in_root codespell -L "${OUR_WORDS// /,}" -- "${files[@]}" \
		"${mails[@]}"
}

# without_licence: prints the files whose first line (or second, after #!) is no SPDX line; fails if there are any.
without_licence() {
	local file
	while read -r file; do
		head -n 2 "$file" | grep -q 'SPDX-License-Identifier: GPL-2\.0' || echo "no SPDX line: $file"
	done < <(sources ':!LICENSE*' ':!*.patch' ':!*.png') | grep . && return 1
	return 0
}

# check_licence: each file names its licence.
check_licence() { result "SPDX line in each file" without_licence; }

# banned_words: prints each use of a word of scripts/lib/banned-words, with what to use instead; fails if there are any.
banned_words() {
	sources ':!LICENSE*' ':!*.svg' ':!*.png' ':!scripts/lib/banned-words' | in_root "$REPO/scripts/lib/find-words"
}

# check_words: texts and comments keep to the vocabulary.
check_words() { result "one word for each idea" banned_words; }

# readme_length: fails if README.md has 150 lines or more.
readme_length() {
	local lines
	lines=$(wc -l <README.md)
	echo "$lines lines"
	[ "$lines" -lt 150 ] || { echo "README.md must have fewer than 150; move what users rarely need to docs/"; return 1; }
}

# dead_links: prints the links and file names in Markdown files that lead nowhere; fails if there are any.
dead_links() { sources | in_root "$REPO/scripts/lib/check-links"; }

# check_docs: the README is short, and the documents find each other.
check_docs() {
	result "README.md is short" readme_length
	result "links between documents" dead_links
}

# machine_paths: prints lines with paths of one machine, or host names of package registries; fails if there are any.
machine_paths() {
	local files
	mapfile -t files < <(sources)
	grep -nHE "(^|[[:space:]\"'\`=:(])/(wor[k]|roo[t]|hom[e]/[a-z]+|tm[p]/(boo[t]|pla[n]))(/|\$)" "${files[@]}" && return 1
	grep -nHE '\b(deb|ftp|security|snapshot)\.([a-z0-9-]+\.)*[d]ebian\.org|\b(static\.|index\.)?crate[s]\.io\b|\bpyp[i]\.org|\bproxy\.golan[g]' \
		"${files[@]}" && return 1
	return 0
}

# check_paths: no file depends on the machine on which it was written.
check_paths() { result "no path of one machine, no registry's host name" machine_paths; }

# checkpatch ARG...: runs the kernel's checkpatch; fails if it prints anything. By itself it does not fail on a file that it cannot read.
checkpatch() {
	cd "$TREE" && ! in_root perl scripts/checkpatch.pl --strict --no-summary --show-types --terse "$@" </dev/null 2>&1 | grep .
}

# check_checkpatch: the patches and the C files follow the kernel's style.
check_checkpatch() {
	local file files
	mapfile -t files < <(sources "${PATCHES#"$REPO"/}/*.patch" | grep -v '/0000-')
	# A folder without patches must not look like a series without faults.
	[ ${#files[@]} -gt 0 ] || result "checkpatch, patches" false
	for file in "${files[@]}"; do
		result "checkpatch ${file#"${PATCHES#"$REPO"/}"/}" checkpatch "$REPO/$file"
	done
	# The plugin of QEMU and what belongs to the emulator are no kernel code.
	mapfile -t files < <(sources '*.c' '*.h' ':!bench/plugin' ':!bench/host')
	[ ${#files[@]} = 0 ] || result "checkpatch, ${#files[@]} C files" checkpatch -f "${files[@]/#/mm/vmap_rust/}"
}
