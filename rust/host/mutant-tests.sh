#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# bash mutant-tests.sh TESTS ARG...: cargo's runner for the host tests of a mutant. Runs the fast tests, which notice most mutants, and
# the others only if these pass. It ends at the first test that fails. The limits are in CPU time, on which the load of the machine has
# no influence; each is at least four times what the tests need.

ulimit -v 8000000
# libtest has --fail-fast for itself only with the unstable options.
export RUSTC_BOOTSTRAP=1
# A test that sleeps for ever needs no CPU time. On a busy machine, others need many times their CPU time.
set -- timeout -k 5 3600 "$@" -Zunstable-options --fail-fast
(ulimit -t 10 && "$@" --skip small_spaces --skip capacity:: --skip growth:: --skip bitmaps:: --skip one_block:: --skip traces:: --skip threads::) || exit
(ulimit -t 120 && "$@" small_spaces bitmaps:: one_block:: growth::) || exit
(ulimit -t 120 && "$@" traces:: threads::)
