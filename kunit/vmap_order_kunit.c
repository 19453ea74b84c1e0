// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_order": random areas do not overlap, and the order of free,
 * purge and reuse is right, as the tracepoints of mm/vmalloc.c report it.
 */
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/vmap_rust.h>
#include <trace/events/kmem.h>
#include <trace/events/vmalloc.h>

#include "vmap_area_kunit.h"

static const struct order {
	const char *name;
	bool in_window;
	/* Each fourth is aligned to up to 4 MiB, and they have up to 64 pages, not 8. */
	bool aligned;
} orders[] = {
	{ "window", true },
	{ "window_aligned", true, true },
	{ "std" },
	{ "std_aligned", false, true },
};

KUNIT_ARRAY_PARAM_DESC(orders, orders, name);

/* Maximum number of areas, of recorded ranges, and number of steps. */
#define NR_LIVE		256
#define NR_TRACKED	1024
#define NR_STEPS	4000

enum state { UNUSED, BUSY, LAZY, CLEAN };

struct seen {
	struct vm_struct *vm;
	unsigned long start;
	unsigned long end;
	unsigned long align;
	enum state state;
};

/* State that the probes share with the case. */
struct watch {
	/* Protects @seen. Probes take it, so nothing is called under it. */
	spinlock_t lock;
	const struct task_struct *task;
	/* Not clean by a purge of the case itself, see is_still_lazy(). */
	const struct seen *suspect;
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

static void on_purge(void *data, unsigned long start, unsigned long end, unsigned int npurged)
{
	struct watch *w = data;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&w->lock, flags);
	w->nr_purge++;
	for (i = 0; i < NR_TRACKED; i++) {
		struct seen *r = &w->seen[i];

		if (r->state == LAZY && start <= r->start && r->end <= end &&
		    (w->task != current || r != w->suspect))
			r->state = CLEAN;
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
}

static struct watch *watch(struct kunit *test)
{
	struct watch *w = vmap_array(test, 1, sizeof(*w));

	spin_lock_init(&w->lock);
	w->task = current;
	KUNIT_ASSERT_EQ(test, 0, register_trace_alloc_vmap_area(on_alloc, w));
	KUNIT_ASSERT_EQ(test, 0, register_trace_free_vmap_area_noflush(on_free, w));
	KUNIT_ASSERT_EQ(test, 0, register_trace_purge_vmap_area_lazy(on_purge, w));
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
 * with a purge of our own, whose event does not count for this range.
 */
static bool is_still_lazy(struct watch *w, const struct seen *r)
{
	bool lazy;

	spin_lock_irq(&w->lock);
	w->suspect = r;
	spin_unlock_irq(&w->lock);

	vm_unmap_aliases();

	spin_lock_irq(&w->lock);
	w->suspect = NULL;
	lazy = r->state == LAZY;
	spin_unlock_irq(&w->lock);

	return lazy;
}

static bool take(struct kunit *test, struct watch *w, struct rnd_state *rnd,
		 const struct vmap_win *win, struct seen *new)
{
	const struct order *p = test->param_value;
	unsigned long pages = 1 + prandom_u32_state(rnd) % (p->aligned ? 64 : 8);
	unsigned long flags = p->aligned && prandom_u32_state(rnd) % 4 == 0 ? VM_NO_GUARD : 0;
	unsigned long nr_alloc = w->nr_alloc;
	unsigned int i;

	new->align = PAGE_SIZE;
	if (p->aligned && prandom_u32_state(rnd) % 4 == 0)
		new->align = 1UL << (prandom_u32_state(rnd) % 23);
	new->vm = vmap_area_get(win, pages * PAGE_SIZE, new->align, flags, VMAP_GFP);
	if (!new->vm) {
		KUNIT_FAIL(test, "no %lu pages in %#lx-%#lx", pages, win->start, win->end);
		return false;
	}
	new->start = vmap_start(new->vm);
	new->end = vmap_end(new->vm);
	set_state(w, new, BUSY);

	if (w->nr_alloc != nr_alloc + 1 || w->alloc_addr != new->start) {
		KUNIT_FAIL(test, "area %#lx-%#lx: %lu alloc events, the last for %#lx",
			   new->start, new->end, w->nr_alloc - nr_alloc, w->alloc_addr);
		return false;
	}

	for (i = 0; i < NR_TRACKED; i++) {
		struct seen *old = &w->seen[i];
		enum state state = READ_ONCE(old->state);

		if (old == new || old->start >= new->end || new->start >= old->end)
			continue;
		if (state == BUSY || (state == LAZY && is_still_lazy(w, old))) {
			KUNIT_FAIL(test, "%#lx-%#lx was handed out, but %#lx-%#lx is %s",
				   new->start, new->end, old->start, old->end,
				   state == BUSY ? "busy" : "freed and not purged");
			return false;
		}
	}

	return vmap_area_is_sound(test, new->vm, win, new->align);
}

static bool drop(struct kunit *test, struct watch *w, struct seen *r)
{
	/* Only the rb-trees have this event. */
	const unsigned long nr_free = w->nr_free + !vmap_rust_enabled();

	/* Before the call: once the range is lazy, a purge may free it. */
	set_state(w, r, LAZY);
	vmap_area_put(test, r->vm);
	r->vm = NULL;

	if (w->nr_free == nr_free && (vmap_rust_enabled() || w->free_addr == r->start))
		return true;
	KUNIT_FAIL(test, "area %#lx-%#lx: %lu free events, not %lu, the last for %#lx",
		   r->start, r->end, w->nr_free, nr_free, w->free_addr);

	return false;
}

/* Returns a free record. Records of freed ranges are in use until a purge. */
static struct seen *unused_range(struct watch *w)
{
	unsigned int i, round;

	for (round = 0; round < 2; round++) {
		for (i = 0; i < NR_TRACKED; i++)
			if (w->seen[i].state == UNUSED || w->seen[i].state == CLEAN)
				return &w->seen[i];
		vm_unmap_aliases();
	}

	return NULL;
}

static void random_order(struct kunit *test, const struct vmap_win *win, unsigned int nr_live)
{
	struct seen **live = vmap_array(test, nr_live, sizeof(*live));
	struct watch *w = watch(test);
	bool good = true;
	struct rnd_state rnd;
	unsigned int step, i;

	vmap_seed(test, &rnd);
	for (step = 0; good && step < NR_STEPS; step++) {
		i = prandom_u32_state(&rnd) % nr_live;

		if (live[i]) {
			good = drop(test, w, live[i]);
			live[i] = NULL;
			continue;
		}
		live[i] = unused_range(w);
		if (!live[i])
			KUNIT_FAIL(test, "step %u: a purge that covers no freed range", step);
		good = live[i] && take(test, w, &rnd, win, live[i]);
	}

	for (i = 0; i < NR_TRACKED; i++) {
		if (!w->seen[i].vm)
			continue;
		vmap_area_is_sound(test, w->seen[i].vm, win, w->seen[i].align);
		vmap_area_put(test, w->seen[i].vm);
	}
	kunit_info(test, "%u steps: %lu areas taken, %lu freed, %lu purges\n",
		   step, w->nr_alloc, w->nr_free, w->nr_purge);
	KUNIT_EXPECT_GT_MSG(test, w->nr_purge, 0, "no purge in %u steps", step);
}

/*
 * Random requests in a nearly full window, or where they are served from blocks,
 * reuse addresses all the time. Each reuse comes after a purge whose range covers
 * the address, and every area has one alloc and one free event with its address.
 */
static void vmap_order_random(struct kunit *test)
{
	const struct order *p = test->param_value;
	struct vmap_win win = vmap_std_win();
	unsigned long size = NR_LIVE * 9 * PAGE_SIZE;

	if (!IS_ENABLED(CONFIG_TRACEPOINTS))
		kunit_skip(test, "needs CONFIG_TRACEPOINTS");
	if (p->aligned)
		size = VMAP_PAGES_OF(VMAP_IS_SMALL ? SZ_32M : SZ_256M);
	if (p->in_window)
		win = vmap_win_get(test, size);
	random_order(test, &win, p->aligned && VMAP_IS_SMALL ? NR_LIVE / 4 : NR_LIVE);
	if (p->in_window)
		vmap_win_expect_free(test, &win);
}

/* When vfree() has done what: numbers from 1 on, 0 is not yet. */
struct vfreed {
	struct task_struct *task;
	unsigned long addr;
	struct page *page;
	unsigned int steps;
	unsigned int lazy;
	unsigned int free;
};

static void on_vfree_lazy(void *data, unsigned long va_start, unsigned long nr_lazy,
			  unsigned long nr_lazy_max)
{
	struct vfreed *f = data;

	if (current == f->task && va_start == f->addr)
		f->lazy = ++f->steps;
}

static void on_page_free(void *data, struct page *page, unsigned int order)
{
	struct vfreed *f = data;

	if (current == f->task && page == f->page)
		f->free = ++f->steps;
}

/*
 * The area is lazy before its first page is free: the next owner of that page
 * may call vm_unmap_aliases(), which must find the area.
 */
static void vmap_order_pages(struct kunit *test)
{
	static const unsigned int pages[] = { 1, 4, 16, 17, 300 };
	/* vfree() is the same with mm/vmap_rust. */
	const unsigned int has_event = !vmap_rust_enabled();
	unsigned int i;

	if (!IS_ENABLED(CONFIG_TRACEPOINTS))
		kunit_skip(test, "needs CONFIG_TRACEPOINTS");
	for (i = 0; i < ARRAY_SIZE(pages); i++) {
		void *mem = vmalloc(pages[i] * PAGE_SIZE);
		struct vfreed f = { .task = current };

		KUNIT_ASSERT_NOT_NULL(test, mem);
		f.addr = (unsigned long)kasan_reset_tag(mem);
		f.page = vmalloc_to_page(mem);
		KUNIT_ASSERT_EQ(test, 0, register_trace_free_vmap_area_noflush(on_vfree_lazy, &f));
		KUNIT_ASSERT_EQ(test, 0, register_trace_mm_page_free(on_page_free, &f));
		vfree(mem);
		unregister_trace_mm_page_free(on_page_free, &f);
		unregister_trace_free_vmap_area_noflush(on_vfree_lazy, &f);
		tracepoint_synchronize_unregister();
		KUNIT_EXPECT_EQ_MSG(test, f.lazy, has_event, "%u pages", pages[i]);
		KUNIT_EXPECT_EQ_MSG(test, f.free, has_event + 1, "%u pages", pages[i]);
	}
}

static struct kunit_case vmap_order_cases[] = {
	KUNIT_CASE_PARAM(vmap_order_random, orders_gen_params),
	KUNIT_CASE(vmap_order_pages),
	{}
};

VMAP_SUITE(vmap_order);
