# SPDX-License-Identifier: GPL-2.0
"""Boots kernels, runs suites on them and judges what they print. Each file of scripts/ starts one command of it:
__main__.py."""
