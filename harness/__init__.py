# SPDX-License-Identifier: GPL-2.0
"""Boots kernels, runs suites on them and judges what they print. Each file of scripts/ starts one command of it:
__main__.py.

Its rooms, of which each uses only those above it: machine (folders, settings, locks, commands), toolchain (the tools), patches
(the kernel's source with the patches), boot (kernels, guests and scenarios), allocator (what runs without a kernel), checks (of
the sources) and bench, which the scenario demo uses, too. suites.toml, suites.py and test.py run what tests them."""
