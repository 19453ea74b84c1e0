// SPDX-License-Identifier: GPL-2.0
/*
 * Creates the tracepoints of the allocator, and the functions through which
 * rust/sys/trace.rs calls them.
 */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "vmap_rust_events.h"
