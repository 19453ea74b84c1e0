// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_reclaim": requests that must not fail.
 */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/notifier.h>
#include <linux/sched.h>

#include "vmap_area_kunit.h"

/* A task that waits in a full window. */
struct waiter {
	struct notifier_block nb;
	struct task_struct *task;
	struct vmap_win win;
	/* Its attempts that have failed. */
	atomic_t nr_failed;
	struct completion done;
	void *mem;
};

static int wait_for_room(void *data)
{
	struct waiter *w = data;

	w->mem = vmap_mem_get(&w->win, 3 * PAGE_SIZE, VMAP_GFP | __GFP_NOFAIL);
	complete(&w->done);
	return 0;
}

/* Each attempt asks the notifiers once, after it has purged and not found room. */
static int note_attempt(struct notifier_block *nb, unsigned long action, void *freed)
{
	struct waiter *w = container_of(nb, struct waiter, nb);

	if (w->task == current)
		atomic_inc(&w->nr_failed);
	return NOTIFY_DONE;
}

/* Expects that the task fails twice more: the second attempt begins after this call. */
static void expect_waiting(struct kunit *test, struct waiter *w, const char *when)
{
	int before = atomic_read(&w->nr_failed);

	while (atomic_read(&w->nr_failed) < before + 2 && !completion_done(&w->done))
		schedule_timeout_uninterruptible(1);
	KUNIT_EXPECT_FALSE_MSG(test, completion_done(&w->done), "%s: got %#lx", when,
			       (unsigned long)w->mem);
}

/*
 * With __GFP_NOFAIL, vmalloc() in a full window waits while the ranges that are
 * freed are too small, also if their sum is not, and gets two neighbours.
 */
static void vmap_reclaim_nofail(struct kunit *test)
{
	struct waiter w = { .nb.notifier_call = note_attempt };
	struct vm_struct *vm[5];
	unsigned int i;
	int before;

	w.win = vmap_win_get(test, 2 * ARRAY_SIZE(vm) * PAGE_SIZE);
	init_completion(&w.done);
	for (i = 0; i < ARRAY_SIZE(vm); i++)
		vm[i] = vmap_area_need(test, &w.win, PAGE_SIZE, 1, 0);
	w.task = kthread_create(wait_for_room, &w, "vmap_nofail");
	KUNIT_ASSERT_FALSE(test, IS_ERR(w.task));
	KUNIT_EXPECT_EQ(test, 0, register_vmap_purge_notifier(&w.nb));
	wake_up_process(w.task);

	expect_waiting(test, &w, "in a full window");
	vmap_area_put(test, vm[3]);
	expect_waiting(test, &w, "one area is free");
	vmap_area_put(test, vm[1]);
	expect_waiting(test, &w, "two areas are free");
	before = atomic_read(&w.nr_failed);
	vmap_area_put(test, vm[2]);
	wait_for_completion(&w.done);
	unregister_vmap_purge_notifier(&w.nb);

	/* One attempt may have looked before the last area was freed. */
	KUNIT_EXPECT_LE_MSG(test, atomic_read(&w.nr_failed), before + 1,
			    "attempts after there was room");
	KUNIT_EXPECT_NOT_NULL(test, w.mem);
	if (w.mem) {
		vmap_area_is_sound(test, find_vm_area(w.mem), &w.win, 1);
		vmap_pages_fill(w.mem, 3, 1);
		vmap_pages_expect(test, w.mem, 3, 1);
		vfree(w.mem);
	}
	vmap_area_put(test, vm[0]);
	vmap_area_put(test, vm[4]);
	vmap_win_expect_free(test, &w.win);
}

static struct kunit_case vmap_reclaim_cases[] = {
	KUNIT_CASE(vmap_reclaim_nofail),
	{}
};

VMAP_SUITE(vmap_reclaim);
