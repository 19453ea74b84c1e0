# SPDX-License-Identifier: GPL-2.0
"""The tools: packages of Debian, the toolchain root, guest images, and how commands get there."""
