/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints of the allocator: what is rare, and explains a slow request.
 */
#undef TRACE_SYSTEM
#undef TRACE_INCLUDE_FILE
#undef TRACE_INCLUDE_PATH
#define TRACE_SYSTEM vmap_rust
#define TRACE_INCLUDE_FILE vmap_rust_events
#define TRACE_INCLUDE_PATH .

#if !defined(_TRACE_VMAP_RUST_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_VMAP_RUST_H

#include <linux/tracepoint.h>
#include <trace/events/mmflags.h>

#ifndef _TRACE_VMAP_RUST_ENUMS
#define _TRACE_VMAP_RUST_ENUMS
/* What happened to a block. */
enum vmap_rust_block_event {
	VMAP_RUST_BLOCK_OPEN,		/* a CPU has made it */
	VMAP_RUST_BLOCK_CLOSE,		/* it was freed */
	VMAP_RUST_BLOCK_REFILL,		/* a CPU takes it from the pool */
	VMAP_RUST_BLOCK_STEAL,		/* a CPU takes it for lack of room */
};

/* Why empty blocks were freed. */
enum vmap_rust_drain_cause {
	VMAP_RUST_DRAIN_REQUEST,	/* a request found no room */
	VMAP_RUST_DRAIN_PURGE,		/* a purge that has to make room */
	VMAP_RUST_DRAIN_TRIM,		/* a purge found more than is needed */
	VMAP_RUST_DRAIN_RECLAIM,	/* the shrinker asked */
};
#endif

TRACE_DEFINE_ENUM(VMAP_RUST_BLOCK_OPEN);
TRACE_DEFINE_ENUM(VMAP_RUST_BLOCK_CLOSE);
TRACE_DEFINE_ENUM(VMAP_RUST_BLOCK_REFILL);
TRACE_DEFINE_ENUM(VMAP_RUST_BLOCK_STEAL);
TRACE_DEFINE_ENUM(VMAP_RUST_DRAIN_REQUEST);
TRACE_DEFINE_ENUM(VMAP_RUST_DRAIN_PURGE);
TRACE_DEFINE_ENUM(VMAP_RUST_DRAIN_TRIM);
TRACE_DEFINE_ENUM(VMAP_RUST_DRAIN_RECLAIM);

/**
 * vmap_rust_block - a block was made, taken or freed
 * @event:	which of these
 * @start:	its first address
 * @size:	its size in bytes
 * @class:	its class: 0 to 7 for areas of 1 to 8 pages, then four per doubling
 * @owner:	the CPU whose current block it was last
 */
TRACE_EVENT(vmap_rust_block,
	    TP_PROTO(unsigned int event, unsigned long start,
		     unsigned long size, unsigned int class,
		     unsigned int owner),

	    TP_ARGS(event, start, size, class, owner),

	    TP_STRUCT__entry(__field(unsigned int, event)
			     __field(unsigned long, start)
			     __field(unsigned long, size)
			     __field(unsigned int, class)
			     __field(unsigned int, owner)
	    ),

	    TP_fast_assign(__entry->event = event;
			   __entry->start = start;
			   __entry->size = size;
			   __entry->class = class;
			   __entry->owner = owner;
	    ),

	    TP_printk("event=%s start=0x%lx size=%lu class=%u owner=%u",
		      __print_symbolic(__entry->event,
				       { VMAP_RUST_BLOCK_OPEN, "open" },
				       { VMAP_RUST_BLOCK_CLOSE, "close" },
				       { VMAP_RUST_BLOCK_REFILL, "refill" },
				       { VMAP_RUST_BLOCK_STEAL, "steal" }),
		      __entry->start, __entry->size, __entry->class,
		      __entry->owner)
);

/**
 * vmap_rust_purge - a purge has freed what it has flushed
 * @start:	first address that was flushed
 * @end:	end of the range that was flushed
 * @areas:	about how many areas it has freed
 * @ranges:	how many of them had an entry of their own in the tree
 * @pages:	how many pages were reserved for them
 * @ns:		how long it took from the flush on, in nanoseconds; 0 if the
 *		event was off when it began
 */
TRACE_EVENT(vmap_rust_purge,
	    TP_PROTO(unsigned long start, unsigned long end,
		     unsigned long areas, unsigned long ranges,
		     unsigned long pages, u64 ns),

	    TP_ARGS(start, end, areas, ranges, pages, ns),

	    TP_STRUCT__entry(__field(unsigned long, start)
			     __field(unsigned long, end)
			     __field(unsigned long, areas)
			     __field(unsigned long, ranges)
			     __field(unsigned long, pages)
			     __field(u64, ns)
	    ),

	    TP_fast_assign(__entry->start = start;
			   __entry->end = end;
			   __entry->areas = areas;
			   __entry->ranges = ranges;
			   __entry->pages = pages;
			   __entry->ns = ns;
	    ),

	    TP_printk("start=0x%lx end=0x%lx areas=%lu ranges=%lu pages=%lu ns=%llu",
		      __entry->start, __entry->end, __entry->areas,
		      __entry->ranges, __entry->pages, __entry->ns)
);

/**
 * vmap_rust_tables - page tables are freed after a grace period
 * @tables:	how many
 */
TRACE_EVENT(vmap_rust_tables,
	    TP_PROTO(unsigned long tables),

	    TP_ARGS(tables),

	    TP_STRUCT__entry(__field(unsigned long, tables)),

	    TP_fast_assign(__entry->tables = tables;),

	    TP_printk("tables=%lu", __entry->tables)
);

/**
 * vmap_rust_drain - empty blocks were freed
 * @cause:	why
 * @blocks:	how many
 */
TRACE_EVENT(vmap_rust_drain,
	    TP_PROTO(unsigned int cause, unsigned long blocks),

	    TP_ARGS(cause, blocks),

	    TP_STRUCT__entry(__field(unsigned int, cause)
			     __field(unsigned long, blocks)
	    ),

	    TP_fast_assign(__entry->cause = cause;
			   __entry->blocks = blocks;
	    ),

	    TP_printk("cause=%s blocks=%lu",
		      __print_symbolic(__entry->cause,
				       { VMAP_RUST_DRAIN_REQUEST, "request" },
				       { VMAP_RUST_DRAIN_PURGE, "purge" },
				       { VMAP_RUST_DRAIN_TRIM, "trim" },
				       { VMAP_RUST_DRAIN_RECLAIM, "reclaim" }),
		      __entry->blocks)
);

/**
 * vmap_rust_refuse - a request got no area
 * @size:	bytes
 * @align:	bytes
 * @start:	first address of the window
 * @end:	end of the window
 * @gfp:	reclaim behaviour of the request
 * @error:	-EBUSY without room, after which mm/vmalloc.c may purge and try
 *		again; -ENOMEM without memory for metadata
 */
TRACE_EVENT(vmap_rust_refuse,
	    TP_PROTO(unsigned long size, unsigned long align,
		     unsigned long start, unsigned long end, gfp_t gfp,
		     int error),

	    TP_ARGS(size, align, start, end, gfp, error),

	    TP_STRUCT__entry(__field(unsigned long, size)
			     __field(unsigned long, align)
			     __field(unsigned long, start)
			     __field(unsigned long, end)
			     __field(unsigned long, gfp)
			     __field(int, error)
	    ),

	    TP_fast_assign(__entry->size = size;
			   __entry->align = align;
			   __entry->start = start;
			   __entry->end = end;
			   __entry->gfp = (__force unsigned long)gfp;
			   __entry->error = error;
	    ),

	    TP_printk("size=%lu align=0x%lx start=0x%lx end=0x%lx gfp=%s error=%d",
		      __entry->size, __entry->align, __entry->start,
		      __entry->end, show_gfp_flags(__entry->gfp),
		      __entry->error)
);

#endif /* _TRACE_VMAP_RUST_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
