# SPDX-License-Identifier: GPL-2.0
"""The machine that builds: folders, settings, command lines, locks, long commands, results, tables."""
