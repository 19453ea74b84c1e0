// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_percpu": congruent areas for the percpu allocator.
 */
#include <linux/percpu.h>

#include "vmap_area_kunit.h"

#define NR_OBJECTS	64
#define OBJECT_SIZE	SZ_16K

/*
 * More percpu objects than fit in the first chunk, so that pcpu_get_vm_areas()
 * allocates chunks. Every CPU has its own copy of each object, and every copy
 * is in one area.
 */
static void vmap_percpu_objects(struct kunit *test)
{
	void __percpu **obj;
	unsigned int i, in_areas = 0;
	int cpu;

	if (!IS_ENABLED(CONFIG_SMP))
		kunit_skip(test, "percpu memory does not use areas without CONFIG_SMP");

	obj = vmap_array(test, NR_OBJECTS, sizeof(*obj));
	for (i = 0; i < NR_OBJECTS; i++) {
		obj[i] = __alloc_percpu(OBJECT_SIZE, sizeof(u64));
		KUNIT_ASSERT_NOT_NULL_MSG(test, obj[i], "percpu object %u", i);
		for_each_possible_cpu(cpu) {
			u64 *copy = per_cpu_ptr(obj[i], cpu);

			copy[0] = ((u64)i << 32) | cpu;
			copy[OBJECT_SIZE / sizeof(u64) - 1] = copy[0];
		}
	}

	for (i = 0; i < NR_OBJECTS; i++) {
		for_each_possible_cpu(cpu) {
			u64 *copy = per_cpu_ptr(obj[i], cpu);
			u64 *last = &copy[OBJECT_SIZE / sizeof(u64) - 1];
			u64 want = ((u64)i << 32) | cpu;
			const struct vm_struct *vm = find_vm_area(copy);
			bool in_area = is_vmalloc_addr(copy);

			KUNIT_EXPECT_TRUE_MSG(test, *copy == want && *last == want,
					      "object %u of CPU %d has wrong contents", i, cpu);
			KUNIT_EXPECT_TRUE_MSG(test, !in_area || (vm && vm == find_vm_area(last)),
					      "object %u of CPU %d is not in one area", i, cpu);
			in_areas += in_area;
		}
	}

	for (i = 0; i < NR_OBJECTS; i++)
		free_percpu(obj[i]);

	KUNIT_EXPECT_GT_MSG(test, in_areas, 0, "all %u objects fit into the first chunk",
			    NR_OBJECTS);
}

/* A group of congruent areas of different sizes at fixed offsets. */
static const size_t group_sizes[] = { SZ_256K, SZ_128K, SZ_64K, SZ_1M };

#define NR_PIECES	ARRAY_SIZE(group_sizes)
#define NR_GROUPS	12

/* Expects that all areas of a group have their offsets and are sound. */
static bool group_is_sound(struct kunit *test, struct vm_struct **vms,
			   const unsigned long *offsets, size_t align)
{
	const struct vmap_win std = vmap_std_win();
	unsigned long base = vmap_start(vms[0]) - offsets[0];
	unsigned int i;

	for (i = 0; i < NR_PIECES; i++) {
		if (vmap_start(vms[i]) != base + offsets[i] || vms[i]->size != group_sizes[i]) {
			KUNIT_FAIL(test, "piece %u: %#lx + %#lx instead of %#lx + %#zx", i,
				   vmap_start(vms[i]), vms[i]->size, base + offsets[i],
				   group_sizes[i]);
			return false;
		}
		if (!vmap_area_is_sound(test, vms[i], &std, align))
			return false;
	}

	return true;
}

static const struct distance {
	const char *name;
	bool far;
} distances[] = {
	{ "near", false },	/* a block may have room for a group */
	{ "far", true },	/* too far from each other for a block */
};

KUNIT_ARRAY_PARAM_DESC(distances, distances, name);

/*
 * Groups do not overlap: each area is found at all its pages, while all of them
 * exist. Freed ones leave room for new ones.
 */
static void vmap_percpu_groups(struct kunit *test)
{
	const bool far = ((const struct distance *)test->param_value)->far;
	const unsigned long offsets[] = {
		far ? VMAP_FAR : SZ_1M, 0, SZ_4M, SZ_2M + SZ_512K,
	};
	struct vm_struct **vms[NR_GROUPS] = {};
	unsigned int round, i;

	if (!IS_ENABLED(CONFIG_SMP))
		kunit_skip(test, "pcpu_get_vm_areas() needs CONFIG_SMP");

	/* Lazy areas of earlier cases take the top of a small space. */
	vmap_drain(test);
	for (round = 0; round < 4; round++) {
		for (i = 0; i < NR_GROUPS; i++) {
			if (vms[i])
				continue;
			vms[i] = pcpu_get_vm_areas(offsets, group_sizes, NR_PIECES, SZ_64K,
						   GFP_KERNEL);
			KUNIT_ASSERT_NOT_NULL_MSG(test, vms[i], "round %u: group %u", round, i);
			if (!group_is_sound(test, vms[i], offsets, SZ_64K))
				return;
		}
		for (i = 0; i < NR_GROUPS * NR_PIECES; i++)
			vmap_area_is_whole(test, vms[i / NR_PIECES][i % NR_PIECES]);

		/* Leave every second group, then fill the holes. */
		for (i = round % 2; i < NR_GROUPS; i += 2) {
			unsigned long addr = vmap_start(vms[i][0]);

			pcpu_free_vm_areas(vms[i], NR_PIECES);
			vms[i] = NULL;
			KUNIT_EXPECT_NULL_MSG(test, find_vmap_area(addr), "group %u after free", i);
		}
		if (round % 2)
			vm_unmap_aliases();
	}

	for (i = 0; i < NR_GROUPS; i++)
		if (vms[i])
			pcpu_free_vm_areas(vms[i], NR_PIECES);
}

static struct kunit_case vmap_percpu_cases[] = {
	KUNIT_CASE(vmap_percpu_objects),
	KUNIT_CASE_PARAM(vmap_percpu_groups, distances_gen_params),
	{}
};

VMAP_SUITE(vmap_percpu);
