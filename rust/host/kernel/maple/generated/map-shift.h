/* SPDX-License-Identifier: GPL-2.0 */
/* Nodes of the XArray, of which lib/maple_tree.c uses only the names for internal entries. */
#define XA_CHUNK_SHIFT 6
