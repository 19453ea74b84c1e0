#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs one function of the prepare scripts as a process of its own, so that "set -e" works in it and step can end it.
# usage: part.sh FUNCTION [ARG...]

# shellcheck source-path=SCRIPTDIR source=../lib.sh
. "$(dirname "$0")/../lib.sh"
for part in root source series tree host guest-image; do
	# shellcheck disable=SC1090 # each of them is checked on its own
	. "$REPO/scripts/lib/$part.sh"
done
# When the script that started this is killed, TERM arrives here (see step_exec): pass it on to everything in this process
# group, or a download would go on, and hold the lock, for nobody.
trap 'trap - TERM; kill -TERM 0' TERM
"$@" &
wait $!
