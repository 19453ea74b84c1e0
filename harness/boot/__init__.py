# SPDX-License-Identifier: GPL-2.0
"""Kernels that are built and booted, and the scenarios that run on them."""
