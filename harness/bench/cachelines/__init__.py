# SPDX-License-Identifier: GPL-2.0
"""The instrument "lines": which cache lines move between CPUs, in an emulator."""
