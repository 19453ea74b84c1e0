// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_node": metadata is on the NUMA node of the CPU that uses it.
 */
#include <linux/cpumask.h>
#include <linux/nodemask.h>
#include <linux/sched.h>
#include <linux/topology.h>

#include "vmap_area_kunit.h"

/* Enough areas of one page to fill more than two blocks. */
#define NR_AREAS	600

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

/* Returns the number of areas whose object is not on @node. */
static unsigned int count_remote(struct vm_struct **vms, int node)
{
	unsigned int i, remote = 0;

	for (i = 0; i < NR_AREAS; i++)
		if (vms[i])
			remote += !is_on_node(find_vmap_area(vmap_start(vms[i])), node);
	return remote;
}

/*
 * Area objects, which are allocated with a block. This case is one of the first:
 * without memory or room for a new block, a CPU keeps a block of another node.
 */
static void vmap_node_areas(struct kunit *test)
{
	struct vm_struct **vms;
	unsigned int cpu, i;

	need_nodes(test);
	vms = vmap_array(test, NR_AREAS, sizeof(*vms));
	for_each_online_cpu(cpu) {
		int node = cpu_to_node(cpu);
		unsigned int missing = 0;

		if (!node_state(node, N_MEMORY) || set_cpus_allowed_ptr(current, cpumask_of(cpu)))
			continue;
		for (i = 0; i < NR_AREAS; i++) {
			vms[i] = get_vm_area(PAGE_SIZE, VM_MAP);
			missing += !vms[i];
		}
		KUNIT_EXPECT_EQ_MSG(test, missing, 0, "CPU %u", cpu);
		KUNIT_EXPECT_EQ_MSG(test, count_remote(vms, node), 0,
				    "area objects of CPU %u are not on node %d",
				    cpu, node);
		for (i = 0; i < NR_AREAS; i++)
			if (vms[i])
				free_vm_area(vms[i]);
	}
}

static struct kunit_case vmap_node_cases[] = {
	KUNIT_CASE(vmap_node_cpus),
	KUNIT_CASE(vmap_node_areas),
	{}
};

VMAP_SUITE(vmap_node);
