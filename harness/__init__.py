# SPDX-License-Identifier: GPL-2.0
"""Boots kernels, runs suites on them and judges what they print. scripts/run and scripts/test start it."""
