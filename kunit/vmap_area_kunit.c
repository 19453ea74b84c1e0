// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_area": guarantees to callers of mm/vmalloc.c.
 *
 * All cases run with every vmap area allocator. To compare two allocators,
 * boot one image with each of them.
 *
 * Reading order: vmap_area_kunit.h, vmap_help_kunit.c, then any file. The
 * comment above each case says what it checks.
 */
#include <linux/moduleparam.h>
#include <linux/random.h>

#include "vmap_area_kunit.h"

static unsigned long long seed_param;
module_param_named(seed, seed_param, ullong, 0444);
MODULE_PARM_DESC(seed, "seed of the random cases, 0: choose one and print it");

/**
 * vmap_seed() - seed the generator of a random case
 * @test: the running case
 * @rnd: generator to seed
 *
 * Prints the parameter that repeats the random numbers.
 *
 * Return: the seed, never 0.
 */
u64 vmap_seed(struct kunit *test, struct rnd_state *rnd)
{
	u64 seed = seed_param;

	while (!seed)
		seed = get_random_u64();

	kunit_info(test, "repeat with vmap_area_kunit.seed=%llu\n", seed);
	prandom_seed_state(rnd, seed);

	return seed;
}

static struct kunit_case vmap_area_cases[] = {
	KUNIT_CASE(vmap_node_cpus),
	KUNIT_CASE(vmap_node_areas),

	KUNIT_CASE(vmap_vmalloc_sizes),
	KUNIT_CASE(vmap_vzalloc_zeroes),
	KUNIT_CASE(vmap_vmap_pages),
	KUNIT_CASE(vmap_vmap_put_pages),
	KUNIT_CASE(vmap_map_ram_small),
	KUNIT_CASE(vmap_map_ram_large),
	KUNIT_CASE(vmap_map_ram_churn),
	KUNIT_CASE(vmap_vrealloc),
	KUNIT_CASE(vmap_vmalloc_huge),
	KUNIT_CASE(vmap_vfree_atomic),

	KUNIT_CASE_SLOW(vmap_pte_runs),
	KUNIT_CASE(vmap_pte_random),
	KUNIT_CASE(vmap_pte_null_page),
	KUNIT_CASE(vmap_pte_no_table),
	KUNIT_CASE(vmap_pte_one_page),
	KUNIT_CASE(vmap_pte_huge),
	KUNIT_CASE(vmap_pte_ioremap),
	KUNIT_CASE(vmap_pte_ioremap_pmd),
	KUNIT_CASE(vmap_pte_reset_perms),
	KUNIT_CASE(vmap_pte_set_memory),

	KUNIT_CASE(vmap_percpu_objects),
	KUNIT_CASE(vmap_percpu_congruent),

	KUNIT_CASE(vmap_get_vm_area),
	KUNIT_CASE(vmap_find_bounds),
	KUNIT_CASE(vmap_find_large),
	KUNIT_CASE(vmap_find_after_free),
	KUNIT_CASE(vmap_free_interior),
	KUNIT_CASE(vmap_free_twice),
	KUNIT_CASE(vmap_free_unknown),

	KUNIT_CASE(vmap_window_exact),
	KUNIT_CASE(vmap_window_too_small),
	KUNIT_CASE(vmap_window_inside),
	KUNIT_CASE(vmap_window_ends),
	KUNIT_CASE(vmap_window_foreign),
	KUNIT_CASE(vmap_window_exhaust),
	KUNIT_CASE(vmap_window_exhaust_mapped),
	KUNIT_CASE(vmap_window_reuse_lazy),

	KUNIT_CASE(vmap_align_powers),
	KUNIT_CASE(vmap_align_window),
	KUNIT_CASE(vmap_align_mapped),
	KUNIT_CASE(vmap_align_refused),
	KUNIT_CASE(vmap_size_refused),

	KUNIT_CASE(vmap_atomic_requests),
	KUNIT_CASE(vmap_purge_notifier),
	KUNIT_CASE(vmap_fail_each_alloc),
	KUNIT_CASE(vmap_fail_each_free),
	KUNIT_CASE_SLOW(vmap_failed_leaks_nothing),
	KUNIT_CASE(vmap_inject_one_in_2),
	KUNIT_CASE(vmap_inject_one_in_10),
	KUNIT_CASE(vmap_inject_one_in_100),
	KUNIT_CASE(vmap_inject_one_in_1000),

	KUNIT_CASE(vmap_tlb_window),
	KUNIT_CASE(vmap_tlb_vmap),
	KUNIT_CASE(vmap_tlb_map_ram),
	KUNIT_CASE(vmap_tlb_unmap),
	KUNIT_CASE(vmap_order_window),
	KUNIT_CASE(vmap_order_std),

	KUNIT_CASE(vmap_attack_foreign),
	KUNIT_CASE(vmap_attack_race),
	KUNIT_CASE(vmap_attack_ops),

	KUNIT_CASE(vmap_view_vmallocinfo),
	KUNIT_CASE(vmap_view_vread),
	KUNIT_CASE(vmap_view_dump_obj),

	KUNIT_CASE_SLOW(vmap_random_disjoint),
	KUNIT_CASE_SLOW(vmap_random_window),
	KUNIT_CASE_SLOW(vmap_leak_rounds),
	KUNIT_CASE_SLOW(vmap_concurrent),
	KUNIT_CASE_SLOW(vmap_refill_fragmented),
	KUNIT_CASE_SLOW(vmap_refill_migrating),
	KUNIT_CASE(vmap_refill_offline),
	{}
};

/* After each case all invariants of the allocator hold. */
static void vmap_area_exit(struct kunit *test)
{
	KUNIT_EXPECT_TRUE_MSG(test, vmap_rust_validate(), "see the kernel log");
}

static struct kunit_suite vmap_area_suite = {
	.name = "vmap_area",
	.exit = vmap_area_exit,
	.test_cases = vmap_area_cases,
};

kunit_test_suite(vmap_area_suite);

MODULE_DESCRIPTION("KUnit tests for vmap area allocators");
MODULE_LICENSE("GPL");
