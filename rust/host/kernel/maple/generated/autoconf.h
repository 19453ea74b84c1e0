/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel configuration: the nodes of a 64-bit kernel. */
#ifndef VMAP_RUST_AUTOCONF_H
#define VMAP_RUST_AUTOCONF_H

#define CONFIG_64BIT 1
#define CONFIG_PHYS_ADDR_T_64BIT 1

#endif
