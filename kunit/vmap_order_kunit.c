// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_order": the order of free, purge and reuse, as the
 * tracepoints of mm/vmalloc.c report it.
 */
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#ifdef CONFIG_TRACEPOINTS
#include <trace/events/vmalloc.h>
#endif

#include "vmap_area_kunit.h"

#ifdef CONFIG_TRACEPOINTS

/* Maximum number of areas, of recorded ranges, and number of steps. */
#define NR_LIVE		128
#define NR_TRACKED	512
#define NR_STEPS	4000

enum state { UNUSED, BUSY, LAZY, CLEAN };

struct seen {
	struct vm_struct *vm;
	unsigned long start;
	unsigned long end;
	enum state state;
};

/* State that the probes share with the case. */
struct watch {
	/* Protects @seen. Probes take it, so nothing is called under it. */
	spinlock_t lock;
	const struct task_struct *task;
	/* Ignore purges of the case itself, see is_still_lazy(). */
	bool ignore_own_purge;
	struct seen seen[NR_TRACKED];
	/* The last events of the case, and their numbers. */
	unsigned long alloc_addr;
	unsigned long free_addr;
	unsigned long nr_alloc;
	unsigned long nr_free;
	unsigned long nr_purge;
};

static void on_alloc(void *data, unsigned long addr, unsigned long size,
		     unsigned long align, unsigned long vstart,
		     unsigned long vend, int failed)
{
	struct watch *w = data;

	if (w->task != current || failed)
		return;
	w->alloc_addr = addr;
	w->nr_alloc++;
}

static void on_free(void *data, unsigned long va_start, unsigned long nr_lazy,
		    unsigned long nr_lazy_max)
{
	struct watch *w = data;

	if (w->task != current)
		return;
	w->free_addr = va_start;
	w->nr_free++;
}

static void on_purge(void *data, unsigned long start, unsigned long end,
		     unsigned int npurged)
{
	struct watch *w = data;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&w->lock, flags);
	w->nr_purge++;
	if (w->task != current || !w->ignore_own_purge) {
		for (i = 0; i < NR_TRACKED; i++) {
			struct seen *r = &w->seen[i];

			if (r->state == LAZY && start <= r->start &&
			    r->end <= end)
				r->state = CLEAN;
		}
	}
	spin_unlock_irqrestore(&w->lock, flags);
}

static void unwatch(void *data)
{
	struct watch *w = data;

	unregister_trace_alloc_vmap_area(on_alloc, w);
	unregister_trace_free_vmap_area_noflush(on_free, w);
	unregister_trace_purge_vmap_area_lazy(on_purge, w);
	tracepoint_synchronize_unregister();
	kfree(w);
}

static struct watch *watch(struct kunit *test)
{
	struct watch *w = kzalloc_obj(*w);

	KUNIT_ASSERT_NOT_NULL(test, w);
	spin_lock_init(&w->lock);
	w->task = current;
	KUNIT_ASSERT_EQ(test, 0, register_trace_alloc_vmap_area(on_alloc, w));
	KUNIT_ASSERT_EQ(test, 0,
			register_trace_free_vmap_area_noflush(on_free, w));
	KUNIT_ASSERT_EQ(test, 0,
			register_trace_purge_vmap_area_lazy(on_purge, w));
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, unwatch, w));

	return w;
}

static void set_state(struct watch *w, struct seen *r, enum state state)
{
	spin_lock_irq(&w->lock);
	r->state = state;
	spin_unlock_irq(&w->lock);
}

/*
 * A lazy range was reused although no purge event was seen. A purge frees its
 * ranges before its event, so another task may be between the two: wait for it
 * with a purge of our own, whose event is ignored.
 */
static bool is_still_lazy(struct watch *w, const struct seen *r)
{
	bool lazy;

	spin_lock_irq(&w->lock);
	w->ignore_own_purge = true;
	spin_unlock_irq(&w->lock);

	vm_unmap_aliases();

	spin_lock_irq(&w->lock);
	w->ignore_own_purge = false;
	lazy = r->state == LAZY;
	spin_unlock_irq(&w->lock);

	return lazy;
}

static bool take(struct kunit *test, struct watch *w, struct rnd_state *rnd,
		 const struct vmap_win *win, struct seen *new)
{
	unsigned long pages = 1 + prandom_u32_state(rnd) % 8;
	unsigned long nr_alloc = w->nr_alloc;
	unsigned int i;

	new->vm = vmap_area_get(win, pages * PAGE_SIZE, PAGE_SIZE, 0, VMAP_GFP);
	if (!new->vm) {
		KUNIT_FAIL(test, "no %lu pages in %#lx-%#lx", pages, win->start,
			   win->end);
		return false;
	}
	new->start = vmap_start(new->vm);
	new->end = vmap_end(new->vm);
	set_state(w, new, BUSY);

	if (w->nr_alloc != nr_alloc + 1 || w->alloc_addr != new->start) {
		KUNIT_FAIL(test, "area %#lx-%#lx: %lu alloc events, the last for %#lx",
			   new->start, new->end, w->nr_alloc - nr_alloc,
			   w->alloc_addr);
		return false;
	}

	for (i = 0; i < NR_TRACKED; i++) {
		struct seen *old = &w->seen[i];

		if (old == new || old->start >= new->end ||
		    new->start >= old->end)
			continue;
		if (READ_ONCE(old->state) == BUSY) {
			KUNIT_FAIL(test, "%#lx-%#lx overlaps %#lx-%#lx",
				   new->start, new->end, old->start, old->end);
			return false;
		}
		if (READ_ONCE(old->state) == LAZY && is_still_lazy(w, old)) {
			KUNIT_FAIL(test,
				   "%#lx-%#lx was handed out, but %#lx-%#lx was freed and not purged",
				   new->start, new->end, old->start, old->end);
			return false;
		}
	}

	return true;
}

static bool drop(struct kunit *test, struct watch *w, struct seen *r)
{
	unsigned long nr_free = w->nr_free;

	/* Before the call: once the range is lazy, a purge may free it. */
	set_state(w, r, LAZY);
	vmap_area_put(test, r->vm);
	r->vm = NULL;

	if (w->nr_free == nr_free + 1 && w->free_addr == r->start)
		return true;
	KUNIT_FAIL(test, "area %#lx-%#lx: %lu free events, the last for %#lx",
		   r->start, r->end, w->nr_free - nr_free, w->free_addr);

	return false;
}

/* Returns a free record. Records of freed ranges are in use until a purge. */
static struct seen *unused_range(struct watch *w)
{
	unsigned int i;

	for (i = 0; i < NR_TRACKED; i++)
		if (w->seen[i].state == UNUSED || w->seen[i].state == CLEAN)
			return &w->seen[i];
	vm_unmap_aliases();

	for (i = 0; i < NR_TRACKED; i++)
		if (w->seen[i].state == UNUSED || w->seen[i].state == CLEAN)
			return &w->seen[i];

	return NULL;
}

static void random_order(struct kunit *test, const struct vmap_win *win)
{
	struct watch *w = watch(test);
	struct seen *live[NR_LIVE] = {};
	struct rnd_state rnd;
	unsigned int step, i;

	vmap_seed(test, &rnd);
	for (step = 0; step < NR_STEPS; step++) {
		i = prandom_u32_state(&rnd) % NR_LIVE;

		if (live[i]) {
			if (!drop(test, w, live[i]))
				break;
			live[i] = NULL;
		} else {
			struct seen *r = unused_range(w);

			if (!r) {
				KUNIT_FAIL(test,
					   "step %u: %u freed ranges and a purge that covers none",
					   step, NR_TRACKED - NR_LIVE);
				break;
			}
			if (!take(test, w, &rnd, win, r))
				break;
			live[i] = r;
		}
	}

	for (i = 0; i < NR_TRACKED; i++)
		if (w->seen[i].vm)
			vmap_area_put(test, w->seen[i].vm);
	kunit_info(test, "%u steps: %lu areas taken, %lu freed, %lu purges\n",
		   step, w->nr_alloc, w->nr_free, w->nr_purge);
	KUNIT_EXPECT_GT_MSG(test, w->nr_purge, 0, "no purge in %u steps", step);
}

#endif /* CONFIG_TRACEPOINTS */

/*
 * Random requests in a nearly full window reuse addresses all the time. Each
 * reuse comes after a purge whose range covers the address, and every area has
 * one alloc and one free event with its address.
 */
static void vmap_order_window(struct kunit *test)
{
#ifdef CONFIG_TRACEPOINTS
	const struct vmap_win win = vmap_win_get(test, NR_LIVE * 9 * PAGE_SIZE);

	random_order(test, &win);
	vmap_win_expect_free(test, &win);
#else
	kunit_skip(test, "needs CONFIG_TRACEPOINTS");
#endif
}

/* The same order holds where requests are served from blocks. */
static void vmap_order_std(struct kunit *test)
{
#ifdef CONFIG_TRACEPOINTS
	const struct vmap_win std = vmap_std_win();

	random_order(test, &std);
#else
	kunit_skip(test, "needs CONFIG_TRACEPOINTS");
#endif
}

static struct kunit_case vmap_order_cases[] = {
	KUNIT_CASE(vmap_order_window),
	KUNIT_CASE(vmap_order_std),
	{}
};

VMAP_SUITE(vmap_order);
