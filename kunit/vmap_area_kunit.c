// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suites vmap_*: guarantees to callers of mm/vmalloc.c. Here is what all of
 * them have in common.
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

/**
 * vmap_suite_exit() - check all invariants of the allocator after a case
 * @test: the case
 */
void vmap_suite_exit(struct kunit *test)
{
	KUNIT_EXPECT_TRUE_MSG(test, vmap_rust_validate(), "see the kernel log");
}
