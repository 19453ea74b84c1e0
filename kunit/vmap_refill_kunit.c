// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_refill": many areas at a time, so that per-CPU blocks are
 * refilled, also without memory, during migration and across CPU hotplug.
 */
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/sched.h>
#include <linux/workqueue.h>

#include "vmap_area_kunit.h"

/* Enough areas to fill one block of each size at least. */
#define NR_AREAS	800
#define NR_ROUNDS	6
#define MAX_WORKERS	8

/* Allocates without reclaim and without the reserves. */
#define POOR_GFP	(__GFP_NOWARN | __GFP_NORETRY | __GFP_NOMEMALLOC)

/* Sizes of areas in pages, guard page included. */
static const unsigned int sizes[] = {
	2, 2, 2, 2, 2, 2, 5, 5, 5, 9, 9, 20, 32, 40, 101, 300,
};

struct batch {
	struct vm_struct *vm[NR_AREAS];
};

static unsigned int size_of(unsigned int i)
{
	unsigned int size = sizes[i % ARRAY_SIZE(sizes)];

	/* With many threads, 32-bit machines have room only for small areas. */
	return VMAP_IS_SMALL ? min(size, 5U) : size;
}

/* Returns the number of failed requests. */
static unsigned int batch_get(struct batch *batch, unsigned int from, unsigned int step)
{
	unsigned int i, missing = 0;

	for (i = from; i < NR_AREAS; i += step) {
		batch->vm[i] = get_vm_area((size_of(i) - 1) * PAGE_SIZE, VM_MAP);
		missing += !batch->vm[i];
	}
	return missing;
}

/* Returns the number of areas that were not found or have wrong sizes. */
static unsigned int batch_put(struct batch *batch, unsigned int from, unsigned int step)
{
	unsigned int i, wrong = 0;

	for (i = from; i < NR_AREAS; i += step) {
		struct vm_struct *vm = batch->vm[i];

		if (!vm)
			continue;
		/* If areas overlapped, one of them would not be found. */
		wrong += find_vm_area(vm->addr) != vm ||
			 find_vm_area(vm->addr + vm->size - 1) != vm ||
			 vm->size != size_of(i) * PAGE_SIZE;
		free_vm_area(vm);
		batch->vm[i] = NULL;
	}
	return wrong;
}

static void free_held(struct list_head *held, unsigned int order)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, held, lru) {
		list_del(&page->lru);
		__free_pages(page, order);
	}
}

/*
 * All free memory is in single pages without free neighbours, and allocations
 * of metadata succeed. The test also holds the few larger pages that are left
 * in the page lists of CPUs.
 */
static void vmap_refill_fragmented(struct kunit *test)
{
	struct batch *batch = vmap_array(test, 1, sizeof(*batch));
	unsigned long nr = 0, nr_large = 0, nr_free = 0;
	unsigned int missing, poor = 0, wrong, i;
	struct page *page, *next;
	LIST_HEAD(held);
	LIST_HEAD(large);
	void *mem;

	while ((page = alloc_page(POOR_GFP))) {
		list_add(&page->lru, &held);
		if (++nr % 1024 == 0)
			cond_resched();
	}
	list_for_each_entry_safe(page, next, &held, lru) {
		if (page_to_pfn(page) % 2)
			continue;
		list_del(&page->lru);
		__free_page(page);
		if (++nr_free % 1024 == 0)
			cond_resched();
	}
	while ((page = alloc_pages(POOR_GFP, 1))) {
		list_add(&page->lru, &large);
		nr_large++;
	}

	missing = batch_get(batch, 0, 1);
	wrong = batch_put(batch, 0, 2);
	vm_unmap_aliases();
	missing += batch_get(batch, 0, 2);
	/*
	 * Requests that must not wait succeed, too. Areas above 128 pages are
	 * left out: with KASAN their list of pages needs two adjacent pages.
	 */
	for (i = 0; i < 64; i++) {
		mem = __vmalloc(min(size_of(i), 128U) * PAGE_SIZE, GFP_NOWAIT | __GFP_NOWARN);
		poor += !mem;
		vfree(mem);
	}
	wrong += batch_put(batch, 0, 1);

	free_held(&large, 1);
	free_held(&held, 0);
	kunit_info(test, "%lu pages, %lu of them free, and %lu pairs held\n",
		   nr, nr_free, nr_large);
	KUNIT_EXPECT_EQ(test, missing, 0);
	KUNIT_EXPECT_EQ(test, wrong, 0);
	KUNIT_EXPECT_EQ_MSG(test, poor, 0, "%u of %u without waiting", poor, i);
	vmap_drain(test);
}

struct hopper {
	struct task_struct *task;
	struct batch batch;
	unsigned int missing;
	unsigned int wrong;
	bool done;
};

static int fill_and_empty(void *data)
{
	struct hopper *h = data;
	unsigned int round;

	for (round = 0; round < NR_ROUNDS; round++) {
		h->missing += batch_get(&h->batch, 0, 1);
		h->wrong += batch_put(&h->batch, 0, 2);
		h->missing += batch_get(&h->batch, 0, 2);
		h->wrong += batch_put(&h->batch, 0, 1);
		cond_resched();
	}
	WRITE_ONCE(h->done, true);
	while (!kthread_should_stop())
		msleep(20);
	return 0;
}

/*
 * Tasks migrate between CPUs while they allocate from the current blocks of
 * these CPUs, and while they refill them.
 */
static void vmap_refill_migrating(struct kunit *test)
{
	unsigned int nr = clamp(2 * num_online_cpus(), 2, MAX_WORKERS), i;
	unsigned long moves = 0;
	struct hopper *hoppers;
	struct rnd_state rnd;
	bool busy = true;

	if (num_online_cpus() == 1)
		kunit_skip(test, "there is one CPU only");

	vmap_seed(test, &rnd);
	hoppers = vmap_array(test, nr, sizeof(*hoppers));
	for (i = 0; i < nr; i++) {
		hoppers[i].task = kthread_run(fill_and_empty, &hoppers[i], "vmap_hop/%u", i);
		KUNIT_EXPECT_FALSE(test, IS_ERR(hoppers[i].task));
	}

	while (busy) {
		busy = false;
		for (i = 0; i < nr; i++) {
			struct hopper *h = &hoppers[i];
			unsigned int cpu;

			if (IS_ERR(h->task) || READ_ONCE(h->done))
				continue;
			busy = true;
			cpu = prandom_u32_state(&rnd) % num_online_cpus();
			cpu = cpumask_nth(cpu, cpu_online_mask);
			moves += cpu < nr_cpu_ids &&
				 !set_cpus_allowed_ptr(h->task, cpumask_of(cpu));
		}
		cond_resched();
	}

	for (i = 0; i < nr; i++) {
		struct hopper *h = &hoppers[i];

		if (IS_ERR(h->task))
			continue;
		kthread_stop(h->task);
		KUNIT_EXPECT_EQ_MSG(test, h->missing, 0, "thread %u", i);
		KUNIT_EXPECT_EQ_MSG(test, h->wrong, 0, "thread %u", i);
	}
	kunit_info(test, "%u threads, moved %lu times\n", nr, moves);
	KUNIT_EXPECT_GT(test, moves, 0);
	vmap_drain(test);
}

static long fill(void *data)
{
	struct hopper *h = data;

	h->missing += batch_get(&h->batch, 0, 1);
	return 0;
}

/*
 * A CPU with areas and a current block goes offline. Other CPUs find and free
 * its areas, and it allocates again once it is back online.
 */
static void vmap_refill_offline(struct kunit *test)
{
	unsigned int cpu = cpumask_last(cpu_online_mask);
	struct hopper *h = vmap_array(test, 1, sizeof(*h));
	int err;

	if (!cpu)
		kunit_skip(test, "there is one CPU only");

	work_on_cpu(cpu, fill, h);
	err = remove_cpu(cpu);
	if (!err) {
		KUNIT_EXPECT_FALSE(test, cpu_online(cpu));
		h->wrong += batch_put(&h->batch, 0, 2);
		vm_unmap_aliases();
		h->missing += batch_get(&h->batch, 0, 2);
		h->wrong += batch_put(&h->batch, 0, 1);
		vmap_drain(test);
		KUNIT_EXPECT_EQ(test, add_cpu(cpu), 0);
		work_on_cpu(cpu, fill, h);
	}
	h->wrong += batch_put(&h->batch, 0, 1);
	KUNIT_EXPECT_EQ(test, h->missing, 0);
	KUNIT_EXPECT_EQ(test, h->wrong, 0);
	vmap_drain(test);
	if (err)
		kunit_skip(test, "CPU %u cannot go offline: %d", cpu, err);
}

static struct kunit_case vmap_refill_cases[] = {
	KUNIT_CASE_SLOW(vmap_refill_fragmented),
	KUNIT_CASE_SLOW(vmap_refill_migrating),
	KUNIT_CASE(vmap_refill_offline),
	{}
};

VMAP_SUITE(vmap_refill);
