/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A space of each allocator that is made by hand, for test_vmap.py. The fields of Rust structures have an order of their
 * own here, as the compiler of Rust gives them one. Only what the readers look at is there.
 */
#include <stddef.h>

typedef unsigned int u32;
typedef unsigned long word;
#include "include/linux/vmap_rust_debug.h"

#define HOME	0xffffc90000000000UL
#define ENTRY	(2UL << 20)
#define PART	(1UL << 30)
#define START	(HOME + (64UL << 20))
#define WHOLE	(HOME + PART)
#define LAST	(WHOLE + 11 * (80UL << 20))

/* Types of the kernel. */
enum constants { PAGE_SHIFT = 12 } constants;
struct cpumask { word bits[2]; } __cpu_possible_mask = { { 3 } };
struct list_head { struct list_head *next, *prev; };
struct rb_node { word __rb_parent_color; struct rb_node *rb_right, *rb_left; };
struct rb_root { struct rb_node *rb_node; };
struct vm_struct { void *addr; word size, flags; struct page **pages; u32 nr_pages; word phys_addr; void *caller; };
struct head { word va_start, va_end; struct vm_struct *vm; word flags; };
struct vmap_area {
	word va_start, va_end;
	struct vm_struct *vm;
	word flags;
	struct rb_node rb_node;
	struct list_head list;
};
struct maple_range_64 {
	void *parent;
	word pivot[15];
	union { void *slot[16]; struct { void *pad[15]; struct { unsigned char end, gap; } meta; }; };
};
struct maple_arange_64 {
	void *parent;
	word pivot[9];
	void *slot[10];
	word gap[10];
	struct { unsigned char end, gap; } meta;
};
struct maple_node { union { struct maple_range_64 mr64; struct maple_arange_64 ma64; }; };
struct maple_tree { u32 lock, ma_flags; void *ma_root; };
struct static_key { struct { int counter; } enabled; };
struct static_key_false { struct static_key key; };

/* A block of slots of two pages: busy areas in slots 0 and 2, a lazy slot 1, an unlinked area in slot 3. */
enum { VACANT, BUSY = 1 << 16, UNLINKED = 3 << 16, LAZY = 4 << 16, IN_BLOCK = 1 << 19 };
struct node {
	unsigned char pad, class;
	word flushing[8], place, lazy[8], slot_pages, free[8], first_page;
	struct head *chunks[8];
	word start;
};
struct vm_struct stack = { (void *)START, 0x2000, 2, NULL, 1, 0, (void *)0xabc };
struct head small[256] = {
	{ START, START + 0x2000, &stack, BUSY | IN_BLOCK },
	{ START + 0x2000, START + 0x3000, NULL, VACANT | IN_BLOCK },
	{ START + 0x4000, START + 0x6000, NULL, BUSY | IN_BLOCK | 1 },
	{ START + 0x6000, START + 0x8000, NULL, UNLINKED | IN_BLOCK },
};
struct node block = {
	.class = 1, .slot_pages = 2, .first_page = START >> 12, .place = 2, .free = { ~0xfUL, ~0UL, ~0UL, ~0UL }, .lazy = { 2 },
	.chunks = { small, small + 64, small + 128, small + 192, small, small, small, small },
};

/* A block that fills a part, with slots of 80 MiB: a busy area in the last one, and a rest. */
struct head large[64] = { [11] = { LAST, LAST + (70 << 20), NULL, BUSY | IN_BLOCK } };
struct node whole = {
	.class = 40, .slot_pages = 20 << 10, .first_page = WHOLE >> 12, .free = { 0x7ff },
	.chunks = { large, large, large, large, large, large, large, large },
};

/* The directory. The blocks are in parts that follow each other. */
struct part { struct node *whole, **table; word dirty[8], number; };
struct node *tables[2][512] = { { [(START - HOME) / ENTRY] = &block } };
struct part parts[2] = {
	{ .number = HOME / PART, .table = tables[0], .dirty = { 1UL << (START - HOME) / ENTRY } },
	{ .number = WHOLE / PART, .table = tables[1], .whole = &whole },
};
struct part *places[512] = { parts, parts + 1 };

/* The index: an area, a lazy one, the blocks. */
#define BLOCK(start)	((void *)((start) >> 12 << 3 | 5))
struct head area = { HOME, HOME + 0x800000, NULL, BUSY }, lazy = { HOME + 0x900000, HOME + 0xa00000, NULL, LAZY };
struct maple_node node __attribute__((aligned(256))) = { .mr64 = {
	.pivot = { HOME - 1, HOME + 0x7fffff, HOME + 0x8fffff, HOME + 0x9fffff, START - 1, START + ENTRY - 1, WHOLE - 1,
		   WHOLE + PART - 1 },
	.slot = { NULL, &area, NULL, &lazy, NULL, BLOCK(START), NULL, BLOCK(WHOLE), [15] = (void *)8 },
} };
struct maple_tree tree = { .ma_root = (char *)&node + (1 << 3 | 2) };

/* The space and its description. */
struct cpu { word counters[2], lazy; void *current[64]; };
struct cpu cpus[2] = { { { 7, 1 } }, { { 5, 2 }, .current = { [40] = &whole.start } } }, *others[] = { cpus + 1 };
struct space {
	word home_last, home_first;
	struct cpu *cpu_first, **cpu_others;
	struct part **dir_parts;
	struct maple_tree *index;
} space = { HOME + (1UL << 40) - 1, HOME, cpus, others, places, &tree };
const void *pointer = &space;

#define AT(kind, field)	.kind##_##field = offsetof(struct kind, field)
#define AT_NODE(field)	.block_##field = offsetof(struct node, field)
const struct vmap_rust_debug_info vmap_rust_debug_info = {
	.version = 1, .size = sizeof(vmap_rust_debug_info), .space = &pointer, .counter_names = "hit refill ",
	AT(space, index), AT(space, home_first), AT(space, home_last), AT(space, dir_parts), AT(space, cpu_first),
	AT(space, cpu_others), AT(part, number), AT(part, table), AT(part, whole), AT(part, dirty),
	AT_NODE(first_page), AT_NODE(slot_pages), AT_NODE(class), AT_NODE(chunks), AT_NODE(place), AT_NODE(free),
	AT_NODE(lazy), AT_NODE(flushing), AT_NODE(start), AT(cpu, current), AT(cpu, lazy), AT(cpu, counters),
	.entry_size = ENTRY, .classes = 64, .dir_places = 512, .part_entries = 512, .map_bits = 512, .chunk_objects = 64,
	.object_size = sizeof(struct head), .tag_mask = 7, .tag_block = 5, .tag_shift = 3, .state_shift = 16,
	.state_mask = 7 << 16, .flag_in_block = IN_BLOCK, .state_busy = 1, .state_new = 2, .state_unlinked = 3, .state_lazy = 4,
	.state_flushed = 5, .state_leaked = 6,
};
const struct vmap_rust_debug_info *const vmap_rust_debug = &vmap_rust_debug_info;
struct static_key_false vmap_rust_key = { { { 1 } } };

/* The rb-trees: two busy areas in one node. */
struct vmap_list { struct rb_root root; struct list_head head; };
struct vmap_pool { struct list_head head; word len; };
struct vmap_node { struct vmap_list busy, lazy; struct list_head purge_list; struct vmap_pool pool[1]; };
extern struct vmap_node one_node;
struct vmap_area both[2] = {
	{ HOME, HOME + 0x2000, NULL, 1, { 1, &both[1].rb_node }, { &both[1].list, &one_node.busy.head } },
	{ HOME + 0x2000, HOME + 0x4000, NULL, 1, { (word)&both[0].rb_node }, { &one_node.busy.head, &both[0].list } },
};
struct vmap_node one_node = {
	.busy = { { &both[0].rb_node }, { &both[0].list, &both[1].list } },
	.lazy.head = { &one_node.lazy.head, &one_node.lazy.head }, .purge_list = { &one_node.purge_list, &one_node.purge_list },
}, *vmap_nodes = &one_node;
int nr_vmap_nodes = 1;
