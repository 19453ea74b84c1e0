# SPDX-License-Identifier: GPL-2.0
"""Measures the allocators, stores what was measured, shows and compares it. scripts/bench starts it."""
