# SPDX-License-Identifier: GPL-2.0
"""What tools/vmap-map is made of: snapshot (reading), figures, tiles (layout); page.html draws, and picture for documents."""
