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

	obj = kunit_kcalloc(test, NR_OBJECTS, sizeof(*obj), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, obj);

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
			u64 want = ((u64)i << 32) | cpu;
			void *last = &copy[OBJECT_SIZE / sizeof(u64) - 1];

			KUNIT_EXPECT_EQ_MSG(test, want, copy[0],
					    "object %u of CPU %d", i, cpu);
			KUNIT_EXPECT_EQ_MSG(test, want, *(u64 *)last,
					    "end of object %u of CPU %d", i,
					    cpu);
			if (!is_vmalloc_addr(copy))
				continue;
			in_areas++;
			KUNIT_EXPECT_NOT_NULL_MSG(test, find_vm_area(copy),
						  "object %u of CPU %d at %#lx: no area",
						  i, cpu, (unsigned long)copy);
			KUNIT_EXPECT_PTR_EQ_MSG(test, find_vm_area(copy),
						find_vm_area(last),
						"object %u of CPU %d is not in one area",
						i, cpu);
		}
	}

	for (i = 0; i < NR_OBJECTS; i++)
		free_percpu(obj[i]);

	if (!in_areas)
		kunit_skip(test, "all %u objects fit into the first chunk",
			   NR_OBJECTS);
}

/* A group of congruent areas of different sizes at fixed offsets. */
static const size_t group_sizes[] = { SZ_256K, SZ_128K, SZ_64K, SZ_1M };

#define NR_PIECES	ARRAY_SIZE(group_sizes)
#define NR_GROUPS	12

/* Expects that all areas of a group have their offsets and are sound. */
static bool group_is_sound(struct kunit *test, struct vm_struct **vms,
			   const unsigned long *offsets, unsigned int group,
			   size_t align)
{
	const struct vmap_win std = vmap_std_win();
	unsigned long base = vmap_start(vms[0]) - offsets[0];
	unsigned int i;

	for (i = 0; i < NR_PIECES; i++) {
		if (vmap_start(vms[i]) != base + offsets[i] ||
		    vms[i]->size != group_sizes[i]) {
			KUNIT_FAIL(test,
				   "group %u piece %u: %#lx + %#lx instead of %#lx + %#zx",
				   group, i, vmap_start(vms[i]), vms[i]->size,
				   base + offsets[i], group_sizes[i]);
			return false;
		}
		if (!vmap_area_is_sound(test, vms[i], &std, align))
			return false;
	}

	return true;
}

/* Reports the first two areas that overlap; returns false if none do. */
static bool groups_overlap(struct kunit *test, struct vm_struct ***vms)
{
	unsigned int i, j;

	for (i = 0; i < NR_GROUPS * NR_PIECES; i++) {
		for (j = 0; j < i; j++) {
			struct vm_struct **gi = vms[i / NR_PIECES];
			struct vm_struct **gj = vms[j / NR_PIECES];
			struct vm_struct *a, *b;

			if (!gi || !gj)
				continue;
			a = gi[i % NR_PIECES];
			b = gj[j % NR_PIECES];
			if (vmap_start(a) < vmap_end(b) &&
			    vmap_start(b) < vmap_end(a)) {
				KUNIT_FAIL(test,
					   "piece %u at %#lx-%#lx overlaps piece %u at %#lx-%#lx",
					   i, vmap_start(a), vmap_end(a), j,
					   vmap_start(b), vmap_end(b));
				return true;
			}
		}
	}

	return false;
}

/* Groups do not overlap, and freed ones leave room for new ones. */
static void congruent(struct kunit *test, const unsigned long *offsets)
{
	const size_t align = SZ_64K;
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
			vms[i] = pcpu_get_vm_areas(offsets, group_sizes,
						   NR_PIECES, align,
						   GFP_KERNEL);
			KUNIT_ASSERT_NOT_NULL_MSG(test, vms[i],
						  "round %u: group %u", round,
						  i);
			if (!group_is_sound(test, vms[i], offsets, i, align))
				return;
		}
		if (groups_overlap(test, vms))
			return;

		/* Leave every second group, then fill the holes. */
		for (i = round % 2; i < NR_GROUPS; i += 2) {
			unsigned long addr = vmap_start(vms[i][0]);

			pcpu_free_vm_areas(vms[i], NR_PIECES);
			vms[i] = NULL;
			KUNIT_EXPECT_NULL_MSG(test, find_vmap_area(addr),
					      "group %u: %#lx is found after free",
					      i, addr);
		}
		if (round % 2)
			vm_unmap_aliases();
	}

	for (i = 0; i < NR_GROUPS; i++)
		if (vms[i])
			pcpu_free_vm_areas(vms[i], NR_PIECES);
}

/* Areas that are close to each other: a block may have room for a group. */
static void vmap_percpu_near(struct kunit *test)
{
	static const unsigned long offsets[] = {
		SZ_1M, 0, SZ_4M, SZ_2M + SZ_512K,
	};

	congruent(test, offsets);
}

/* Areas that are too far from each other for a block. */
static void vmap_percpu_far(struct kunit *test)
{
	const unsigned long offsets[] = {
		VMAP_FAR, 0, SZ_4M, SZ_2M + SZ_512K,
	};

	congruent(test, offsets);
}

static struct kunit_case vmap_percpu_cases[] = {
	KUNIT_CASE(vmap_percpu_objects),
	KUNIT_CASE(vmap_percpu_near),
	KUNIT_CASE(vmap_percpu_far),
	{}
};

VMAP_SUITE(vmap_percpu);
