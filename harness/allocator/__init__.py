# SPDX-License-Identifier: GPL-2.0
"""The allocator by itself: what runs without a kernel."""
