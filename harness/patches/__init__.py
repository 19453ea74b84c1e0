# SPDX-License-Identifier: GPL-2.0
"""The kernel's source with the patches: in the cache, in trees of users, and for other series of Linux."""
