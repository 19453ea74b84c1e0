// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_pte_early": what others see of an area of vmap() before all
 * of it is mapped.
 */
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/slab.h>

#ifdef CONFIG_TRACEPOINTS
#include <trace/events/kmem.h>
#include <trace/events/vmalloc.h>
#endif

#include "vmap_area_kunit.h"

#ifdef CONFIG_TRACEPOINTS

/**
 * struct watch - what the probes see of the last area of a task
 * @task: the task
 * @addr: the address of the area, 0: none since it was cleared
 * @nr_seen: pages that the task allocated or freed when the area could be found
 *	and its last page was not mapped
 * @nr_readable: those of them when readers would have looked into it
 */
struct watch {
	const struct task_struct *task;
	unsigned long addr;
	unsigned int nr_seen;
	unsigned int nr_readable;
};

static void on_area(void *data, unsigned long addr, unsigned long size,
		    unsigned long align, unsigned long vstart,
		    unsigned long vend, int failed)
{
	struct watch *w = data;

	if (w->task == current && in_task() && !failed)
		w->addr = addr;
}

static void look(struct watch *w)
{
	struct vm_struct *vm;

	/* An interrupt may have come while this task holds a lock. */
	if (w->task != current || !in_task() || !w->addr)
		return;
	vm = find_vm_area((void *)w->addr);
	if (!vm || vmap_walk(vmap_end(vm) - 2 * PAGE_SIZE, NULL).level != VMAP_NONE)
		return;
	w->nr_seen++;
	w->nr_readable += !(vm->flags & VM_UNINITIALIZED);
}

static void on_page_alloc(void *data, struct page *page, unsigned int order,
			  gfp_t gfp, int migratetype)
{
	look(data);
}

static void on_page_free(void *data, struct page *page, unsigned int order)
{
	look(data);
}

static void unwatch(void *data)
{
	unregister_trace_alloc_vmap_area(on_area, data);
	unregister_trace_mm_page_alloc(on_page_alloc, data);
	unregister_trace_mm_page_free(on_page_free, data);
	tracepoint_synchronize_unregister();
	kfree(data);
}

static struct watch *watch(struct kunit *test)
{
	struct watch *w = kzalloc_obj(*w);

	KUNIT_ASSERT_NOT_NULL(test, w);
	w->task = current;
	KUNIT_ASSERT_EQ(test, 0, register_trace_alloc_vmap_area(on_area, w));
	KUNIT_ASSERT_EQ(test, 0, register_trace_mm_page_alloc(on_page_alloc, w));
	KUNIT_ASSERT_EQ(test, 0, register_trace_mm_page_free(on_page_free, w));
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, unwatch, w));

	return w;
}

/*
 * vmap() may free a table of PTEs when a PMD entry takes its place, and readers
 * of /proc/kcore walk tables without a lock. So an area must not be readable
 * when vmap() allocates or frees tables.
 */
static void unreadable_until_mapped(struct kunit *test)
{
	const unsigned int nr = 2 * PTRS_PER_PTE;
	unsigned int i, nr_reserved;
	struct vm_struct **reserved;
	struct page **pages;
	struct watch *w;
	void *mem;

	/* vmap() refuses more pages than there are. */
	if (nr > totalram_pages())
		kunit_skip(test, "needs %lu MiB of memory", (nr * PAGE_SIZE) >> 20);
	reserved = kunit_kcalloc(test, VMAP_MAX_RESERVED, sizeof(*reserved),
				 GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, reserved);
	pages = kunit_kmalloc_array(test, nr, sizeof(*pages), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, pages);
	/* One page again and again needs tables of PTEs. */
	pages[0] = vmap_pages_get(test, 1)[0];
	for (i = 1; i < nr; i++)
		pages[i] = pages[0];

	w = watch(test);
	nr_reserved = vmap_walk_skip_tables(test, nr, reserved, 0);
	w->addr = 0;
	w->nr_seen = 0;
	w->nr_readable = 0;
	mem = vmap(pages, nr, VM_MAP, PAGE_KERNEL);
	KUNIT_EXPECT_EQ(test, w->addr, (unsigned long)kasan_reset_tag(mem));
	w->addr = 0;

	KUNIT_EXPECT_NOT_NULL(test, mem);
	KUNIT_EXPECT_GE_MSG(test, w->nr_seen, 2, "tables allocated");
	KUNIT_EXPECT_EQ_MSG(test, w->nr_readable, 0, "of %u", w->nr_seen);
	if (mem)
		KUNIT_EXPECT_FALSE(test, find_vm_area(mem)->flags & VM_UNINITIALIZED);

	vunmap(mem);
	for (i = 0; i < nr_reserved; i++)
		free_vm_area(reserved[i]);
}
#endif /* CONFIG_TRACEPOINTS */

static void vmap_pte_early_is_unreadable(struct kunit *test)
{
#ifdef CONFIG_TRACEPOINTS
	/* The probes look for areas under a spinlock, with preemption off. */
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		kunit_skip(test, "probes cannot look for areas with PREEMPT_RT");
	unreadable_until_mapped(test);
#else
	kunit_skip(test, "needs CONFIG_TRACEPOINTS");
#endif
}

static struct kunit_case vmap_pte_early_cases[] = {
	KUNIT_CASE(vmap_pte_early_is_unreadable),
	{}
};

VMAP_SUITE(vmap_pte_early);
