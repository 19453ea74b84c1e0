// SPDX-License-Identifier: GPL-2.0
/*
 * What one reservation of a vmap area costs, with whichever allocator was
 * booted.
 *
 * Runs once at boot, on one CPU, if vmap_bench.loops= is not 0, and prints a
 * line for each case:
 *
 *   vmap_bench: allocator=rust case=area_pair loops=10000 ns_min=1100 ns_med=1120
 *
 * Each case is repeated REPEATS times; the least and the middle are printed, in
 * nanoseconds for one pair. With qemu -icount shift=0 a nanosecond is an
 * instruction.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>
#include <linux/vmap_area_ops.h>

#define REPEATS 9

static uint loops;
module_param(loops, uint, 0444);
MODULE_PARM_DESC(loops, "Pairs in each repetition, 0 to do nothing (default), 10000000 at most");

/* Reserve one page of address space and its guard page, and give it back. */
static bool area_pair(void)
{
	struct vm_struct *vm = get_vm_area(PAGE_SIZE, VM_ALLOC);

	if (!vm)
		return false;
	free_vm_area(vm);
	return true;
}

/* The same with memory behind it. */
static bool vmalloc_pair(void)
{
	void *p = vmalloc(PAGE_SIZE);

	if (!p)
		return false;
	vfree(p);
	return true;
}

/* What allocating any object costs, as a floor. */
static bool kmalloc_pair(void)
{
	void *p = kmalloc_obj(struct vm_struct, GFP_KERNEL);

	if (!p)
		return false;
	/* Keep the compiler from removing the pair. */
	barrier_data(p);
	kfree(p);
	return true;
}

static const struct {
	const char *name;
	bool (*pair)(void);
} cases[] = {
	{ "area_pair", area_pair },
	{ "vmalloc_pair", vmalloc_pair },
	{ "kmalloc_pair", kmalloc_pair },
};

static int compare_u64(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static void run_case(const char *name, bool (*pair)(void))
{
	u64 ns[REPEATS];
	uint repeat, i;

	for (repeat = 0; repeat < REPEATS; repeat++) {
		u64 start = ktime_get_ns();

		for (i = 0; i < loops; i++) {
			if (!pair()) {
				pr_err("%s: no memory after %u pairs\n", name, i);
				return;
			}
		}
		ns[repeat] = div_u64(ktime_get_ns() - start, loops);
		cond_resched();
	}

	sort(ns, REPEATS, sizeof(ns[0]), compare_u64, NULL);
	pr_info("allocator=%s case=%s loops=%u ns_min=%llu ns_med=%llu\n",
		vmap_area_ops_enabled() ? vmap_area_ops->name : "rbtree",
		name, loops, ns[0], ns[REPEATS / 2]);
}

static int __init vmap_bench_init(void)
{
	int i;

	if (!loops)
		return 0;
	if (loops > 10000000) {
		pr_err("loops=%u is more than 10000000: nothing done\n", loops);
		return -EINVAL;
	}

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		run_case(cases[i].name, cases[i].pair);
	return 0;
}
late_initcall(vmap_bench_init);
