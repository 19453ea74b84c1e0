#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs the kernel's tests of KASAN, a module, in the guest. init.sh runs this script instead of the load.

insmod /kasan_test.ko || echo "kasan: FAIL the module was refused"
echo "kasan: done"
