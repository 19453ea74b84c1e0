#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs one function of scripts/lib/ as a separate process, so that "set -e" works in it and step can end it.
# usage: part.sh FUNCTION [ARG...]

# shellcheck source-path=SCRIPTDIR source=../lib.sh
. "$(dirname "$0")/../lib.sh"
for part in root source series tree host guest-image; do
	# shellcheck disable=SC1090 # each of them is checked on its own
	. "$REPO/scripts/lib/$part.sh"
done
# When the script that started this is killed, step_exec makes the kernel send TERM. It must reach all of this process
# group: a download that goes on would hold the lock.
trap 'trap - TERM; kill -TERM 0' TERM
"$@" &
wait $!
