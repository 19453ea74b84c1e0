#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# bash mutant-tests.sh TESTS ARG...: cargo's runner for the host tests of a mutant. Runs the fast tests, which notice most mutants, and
# the others only if these pass. The limits are in CPU time, on which the load of the machine has no influence.

ulimit -v 8000000
(ulimit -t 10 && "$@" --skip small_spaces --skip capacity:: --skip bitmaps:: --skip traces:: --skip threads::) || exit
(ulimit -t 40 && "$@" small_spaces bitmaps::) || exit
(ulimit -t 120 && "$@" traces:: threads::)
