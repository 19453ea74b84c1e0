// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_node": metadata is on the NUMA node of the CPU that uses it.
 */
#include <linux/cpumask.h>
#include <linux/nodemask.h>
#include <linux/sched.h>
#include <linux/topology.h>

#include "vmap_area_kunit.h"

/* A block of areas of one page, with a guard page each: see ../rust/state/class.rs. */
#define BYTES_IN_BLOCK	(512 * PAGE_SIZE)
#define AREAS_IN_BLOCK	256

/* New blocks to fill, and most areas for that: partial blocks are filled first. */
#define NR_BLOCKS	2
#define MAX_AREAS	(64 * AREAS_IN_BLOCK)

/* Skips the case unless nodes differ and the allocator in Rust is active. */
static void need_nodes(struct kunit *test)
{
	if (num_node_state(N_MEMORY) < 2)
		kunit_skip(test, "there is one node with memory only");
	if (!vmap_rust_cpu_memory(0, 0))
		kunit_skip(test, "the allocator in Rust is not active");
}

static bool is_on_node(const void *p, int node)
{
	return page_to_nid(virt_to_page(p)) == node;
}

/* The state of each CPU, which was allocated when the kernel booted. */
static void vmap_node_cpus(struct kunit *test)
{
	unsigned int cpu, nth;
	const void *p;

	need_nodes(test);
	for_each_possible_cpu(cpu) {
		int node = cpu_to_node(cpu);

		if (!node_state(node, N_MEMORY))
			continue;
		for (nth = 0; (p = vmap_rust_cpu_memory(cpu, nth)); nth++)
			KUNIT_EXPECT_TRUE_MSG(test, is_on_node(p, node),
					      "part %u of CPU %u is not on node %d",
					      nth, cpu, node);
		KUNIT_EXPECT_GE(test, nth, 2);
	}
}

/**
 * fill_new_blocks() - reserve all areas of new blocks, on one CPU
 * @vms: for the areas, room for MAX_AREAS, zeroed
 * @node: that of the CPU
 * @nr_blocks: set to how many blocks were filled, at most NR_BLOCKS
 *
 * Return: how many areas of these blocks have an object on another node
 */
static unsigned int fill_new_blocks(struct vm_struct **vms, int node, unsigned int *nr_blocks)
{
	unsigned int i, in_block = 0, remote = 0, all_remote = 0;
	unsigned long block = 0;

	*nr_blocks = 0;
	for (i = 0; i < MAX_AREAS && *nr_blocks < NR_BLOCKS; i++) {
		unsigned long start;

		vms[i] = get_vm_area(PAGE_SIZE, VM_MAP);
		if (!vms[i])
			break;
		start = vmap_start(vms[i]);
		if (ALIGN_DOWN(start, BYTES_IN_BLOCK) != block) {
			block = ALIGN_DOWN(start, BYTES_IN_BLOCK);
			in_block = 0;
			remote = 0;
		}
		remote += !is_on_node(find_vmap_area(start), node);
		if (++in_block == AREAS_IN_BLOCK) {
			++*nr_blocks;
			all_remote += remote;
		}
	}
	return all_remote;
}

/*
 * Area objects, which are allocated with a block. A CPU fills its partial blocks
 * first, which may be of another node: it may have taken them when they were
 * empty, or a task has moved with one. So there are no empty blocks at first, and
 * what counts are blocks of which this case gets all areas.
 */
static void vmap_node_areas(struct kunit *test)
{
	struct vm_struct **vms;
	unsigned int cpu, i;

	need_nodes(test);
	vms = vmap_array(test, MAX_AREAS, sizeof(*vms));
	for_each_online_cpu(cpu) {
		int node = cpu_to_node(cpu);
		unsigned int nr_blocks;

		if (!node_state(node, N_MEMORY) || set_cpus_allowed_ptr(current, cpumask_of(cpu)))
			continue;
		vmap_drain(test);
		KUNIT_EXPECT_EQ_MSG(test, fill_new_blocks(vms, node, &nr_blocks), 0,
				    "area objects of CPU %u are not on node %d",
				    cpu, node);
		KUNIT_EXPECT_EQ_MSG(test, nr_blocks, NR_BLOCKS, "CPU %u", cpu);
		for (i = 0; i < MAX_AREAS && vms[i]; i++) {
			free_vm_area(vms[i]);
			vms[i] = NULL;
		}
	}
}

static struct kunit_case vmap_node_cases[] = {
	KUNIT_CASE(vmap_node_cpus),
	KUNIT_CASE(vmap_node_areas),
	{}
};

VMAP_SUITE(vmap_node);
