# SPDX-License-Identifier: GPL-2.0
"""What tools/vmap-map is made of: snapshot (reading), figures, tiles (layout), picture."""
