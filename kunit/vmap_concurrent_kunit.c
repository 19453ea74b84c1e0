// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_concurrent": all CPUs concurrently.
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/slab.h>

#include "vmap_area_kunit.h"

#define NR_SLOTS	128
#define MAX_WORKERS	8

enum kind { KIND_VMALLOC, KIND_VMAP, KIND_MAP_RAM, KIND_WINDOW, NR_KINDS };

/* An allocation, written by one worker and freed by any. */
struct piece {
	enum kind kind;
	unsigned int nr_pages;
	u64 stamp;
	void *mem;
};

struct shared {
	struct piece *slot[NR_SLOTS];
	struct vmap_win win;
	struct page **pages;
	unsigned int nr_pages;
	unsigned long until;
};

struct worker {
	struct shared *shared;
	struct task_struct *task;
	struct rnd_state rnd;
	u64 id;
	unsigned long nr_taken;
	unsigned long nr_refused;
	/* The first failure. */
	const char *what;
	struct piece bad;
	long bad_page;
};

/* The pages of vmap() and vm_map_ram() are shared: all carry stamp 0. */
static bool owns_pages(const struct piece *p)
{
	return p->kind == KIND_VMALLOC || p->kind == KIND_WINDOW;
}

static void fail(struct worker *w, const char *what, const struct piece *p,
		 long page)
{
	if (w->what)
		return;
	w->what = what;
	w->bad = *p;
	w->bad_page = page;
}

static struct piece *piece_get(struct worker *w)
{
	const struct vmap_win *win = &w->shared->win;
	struct piece *p = kzalloc_obj(*p);

	if (!p)
		return NULL;

	p->kind = prandom_u32_state(&w->rnd) % NR_KINDS;
	p->nr_pages = 1 + prandom_u32_state(&w->rnd) % w->shared->nr_pages;

	switch (p->kind) {
	case KIND_VMALLOC:
		p->mem = vmalloc(p->nr_pages * PAGE_SIZE);
		break;
	case KIND_VMAP:
		p->mem = vmap(w->shared->pages, p->nr_pages, VM_MAP,
			      PAGE_KERNEL);
		break;
	case KIND_MAP_RAM:
		p->mem = vm_map_ram(w->shared->pages, p->nr_pages,
				    NUMA_NO_NODE);
		break;
	default:
		p->mem = __vmalloc_node_range(p->nr_pages * PAGE_SIZE, 1,
					      win->start, win->end, VMAP_GFP,
					      PAGE_KERNEL, 0, NUMA_NO_NODE,
					      __func__);
	}

	if (!p->mem) {
		/* Only the window is so small that it may be full. */
		if (p->kind != KIND_WINDOW)
			fail(w, "refused", p, -1);
		w->nr_refused++;
		kfree(p);
		return NULL;
	}

	w->nr_taken++;
	if (owns_pages(p)) {
		p->stamp = (w->id << 32) | w->nr_taken;
		vmap_pages_fill(p->mem, p->nr_pages, p->stamp);
	}

	return p;
}

static void piece_put(struct worker *w, struct piece *p)
{
	const struct vm_struct *vm = find_vm_area(p->mem);
	long page;

	page = vmap_pages_bad(p->mem, p->nr_pages, p->stamp);
	if (page != -1)
		fail(w, "wrong contents", p, page);

	switch (p->kind) {
	case KIND_VMALLOC:
	case KIND_WINDOW:
		if (!vm || vm->nr_pages != p->nr_pages)
			fail(w, "not found, or another size", p, -1);
		vfree(p->mem);
		break;
	case KIND_VMAP:
		if (!vm || get_vm_area_size(vm) != p->nr_pages * PAGE_SIZE)
			fail(w, "not found, or another size", p, -1);
		vunmap(p->mem);
		break;
	default:
		if (vm || !find_vmap_area((unsigned long)p->mem))
			fail(w, "block not found, or with a vm_struct", p, -1);
		vm_unmap_ram(p->mem, p->nr_pages);
	}

	kfree(p);
}

static int work(void *data)
{
	struct worker *w = data;
	struct shared *shared = w->shared;

	while (!kthread_should_stop()) {
		unsigned int i = prandom_u32_state(&w->rnd) % NR_SLOTS;
		struct piece *p = NULL;

		if (w->what || time_after(jiffies, shared->until)) {
			msleep(20);
			continue;
		}

		if (!READ_ONCE(shared->slot[i]))
			p = piece_get(w);
		p = xchg(&shared->slot[i], p);
		if (p)
			piece_put(w, p);
		if (prandom_u32_state(&w->rnd) % 256 == 0)
			vm_unmap_aliases();
		cond_resched();
	}

	return 0;
}

/*
 * For about a second, threads on every CPU allocate, check and free through
 * all interfaces. They also free areas of other threads. Contents do not
 * change, busy areas are found, and the whole window is free at the end.
 */
static void vmap_concurrent_cpus(struct kunit *test)
{
	unsigned int nr = clamp(2 * num_online_cpus(), 2, MAX_WORKERS), i;
	unsigned long nr_taken = 0, nr_refused = 0;
	struct worker *workers;
	struct shared *shared;
	struct rnd_state rnd;
	u64 seed;
	int cpu = -1;

	seed = vmap_seed(test, &rnd);
	shared = kunit_kzalloc(test, sizeof(*shared), GFP_KERNEL);
	workers = kunit_kcalloc(test, nr, sizeof(*workers), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, shared);
	KUNIT_ASSERT_NOT_NULL(test, workers);

	shared->nr_pages = 24;
	shared->pages = vmap_pages_get(test, shared->nr_pages);
	for (i = 0; i < shared->nr_pages; i++)
		vmap_page_fill(page_address(shared->pages[i]), i, 0);
	shared->win = vmap_win_get(test, SZ_1M);
	shared->until = jiffies + msecs_to_jiffies(1200);

	for (i = 0; i < nr; i++) {
		workers[i].shared = shared;
		workers[i].id = i + 1;
		prandom_seed_state(&workers[i].rnd, seed + i);
		cpu = cpumask_next_wrap(cpu, cpu_online_mask);
		workers[i].task = kthread_run_on_cpu(work, &workers[i], cpu,
						     "vmap_area/%u");
		KUNIT_EXPECT_FALSE_MSG(test, IS_ERR(workers[i].task),
				       "worker %u: error %ld", i,
				       PTR_ERR(workers[i].task));
	}

	while (time_before(jiffies, shared->until))
		msleep(20);

	for (i = 0; i < nr; i++) {
		struct worker *w = &workers[i];

		if (IS_ERR(w->task))
			continue;
		kthread_stop(w->task);
		nr_taken += w->nr_taken;
		nr_refused += w->nr_refused;
		if (w->what)
			KUNIT_FAIL(test,
				   "worker %u: %s: kind %d, %u pages at %#lx, page %ld",
				   i, w->what, w->bad.kind, w->bad.nr_pages,
				   (unsigned long)w->bad.mem, w->bad_page);
	}

	for (i = 0; i < NR_SLOTS; i++)
		if (shared->slot[i])
			piece_put(&workers[0], shared->slot[i]);
	KUNIT_EXPECT_NULL_MSG(test, workers[0].what, "while cleaning up");
	kunit_info(test, "%u threads took %lu areas, %lu requests found a full window\n",
		   nr, nr_taken, nr_refused);
	KUNIT_EXPECT_GT(test, nr_taken, nr_refused);
	vm_unmap_aliases();
	vmap_win_expect_free(test, &shared->win);
}

static struct kunit_case vmap_concurrent_cases[] = {
	KUNIT_CASE_SLOW(vmap_concurrent_cpus),
	{}
};

VMAP_SUITE(vmap_concurrent);
