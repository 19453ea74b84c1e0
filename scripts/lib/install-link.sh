#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes and removes mm/vmap_rust of a kernel tree: a link to this repository, or a copy of it. Sourced by install-into.

# Files that a build in the tree leaves; they are removed together with a copy.
LINK_BUILT='\.(o|a|ko|cmd|d|mod|mod\.c|rmeta|so|rsi|s|ll)$|(^|/)(modules\.order|built-in\.a)$'

# link_wanted: true when what is installed uses mm/vmap_rust. Otherwise a mm/vmap_rust is the user's own.
link_wanted() { [[ " ${SERIES[*]} " = *" area "* ]]; }

# link_files: prints the names of the repository's files that belong to a copy, each ended by a zero byte.
link_files() {
	if git -C "$REPO" rev-parse --git-dir >/dev/null 2>&1; then
		git -C "$REPO" ls-files -coz --exclude-standard
	else
		(cd "$REPO" && find . -name .git -prune -o ! -type d -printf '%P\0')
	fi | while IFS= read -r -d '' file; do
		[ ! -e "$REPO/$file" ] || printf '%s\0' "$file"
	done
}

# link_install: makes mm/vmap_rust, if it is wanted. For a copy, writes the sums of its files to the record.
link_install() {
	local dir=$KDIR/mm/vmap_rust
	link_wanted || return 0
	if [ "$COPY" = 0 ]; then
		ln -s "$REPO" "$dir"
		return
	fi
	mkdir "$REC/copy"
	link_files | tar -c -C "$REPO" --null -T - | tar -x --no-same-owner -C "$REC/copy"
	(cd "$REC/copy" && find . -type f -exec sha256sum {} +) >"$REC/copy.sums"
	mv "$REC/copy" "$dir"
}

# link_check: dies when removing mm/vmap_rust would lose changes of the user.
link_check() {
	local dir=$KDIR/mm/vmap_rust changed
	if ! link_wanted || [ -L "$dir" ] || [ ! -e "$dir" ]; then
		return 0
	fi
	[ -r "$REC/copy.sums" ] || die "$dir is not from this script; move it away"
	changed=$({ (cd "$dir" && sha256sum --quiet -c "$REC/copy.sums" 2>/dev/null | sed 's/: .*//'
		find . -type f | grep -Ev "$LINK_BUILT" | grep -vxFf <(sed 's/^[0-9a-f]*  //' "$REC/copy.sums")) || :; } | head -n 3)
	[ -z "$changed" ] || die "$dir was changed since it was installed: $(echo "$changed" | paste -sd' '); move your changes away"
}

# link_remove: removes mm/vmap_rust, if it is ours. Call link_check first.
link_remove() {
	link_wanted || return 0
	if [ -L "$KDIR/mm/vmap_rust" ]; then rm "$KDIR/mm/vmap_rust"; else rm -rf "$KDIR/mm/vmap_rust"; fi
}
