// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_reclaim": calls by those who hold a lock that reclaim takes,
 * frees inside reclaim, and requests that must not fail.
 */
#include <linux/completion.h>
#include <linux/debug_locks.h>
#include <linux/err.h>
#include <linux/io.h>
#include <linux/kthread.h>
#include <linux/lockdep.h>
#include <linux/notifier.h>
#include <linux/percpu.h>
#include <linux/sched/mm.h>
#include <linux/stop_machine.h>
#include <linux/uio.h>

#include "vmap_area_kunit.h"

#define NR_PAGES	100

/* What the calls use: @win is full. */
struct env {
	struct kunit *test;
	struct page **pages;
	struct vmap_win win;
};

/*
 * Calls that end with something to free, or NULL if they fail, and those that
 * free it.
 */
struct calls {
	const char *name;
	void *(*get)(struct env *env);
	void (*put)(struct env *env, void *p);
	/* Whatever is free already, get() allocates with GFP_KERNEL. */
	bool allocates;
};

static void *get_memory(struct env *env)
{
	return vmalloc(3 * PAGE_SIZE);
}

/* Its array of pages is an area, too. */
static void *get_large(struct env *env)
{
	return vmalloc((PAGE_SIZE / sizeof(void *) + 1) * PAGE_SIZE);
}

static void put_memory(struct env *env, void *p)
{
	vfree(p);
}

static void put_memory_soon(struct env *env, void *p)
{
	vfree_atomic(p);
}

/* Looks at memory in all ways before it is freed. */
static void look_and_put(struct env *env, void *p)
{
	const char *from = kasan_reset_tag(p);
	struct iov_iter iter;
	struct kvec vec;
	u64 word;

	KUNIT_EXPECT_NOT_NULL(env->test, find_vm_area(p + 2 * PAGE_SIZE));
	KUNIT_EXPECT_NOT_NULL(env->test, vmalloc_to_page(p));
	vec = (struct kvec){ .iov_base = &word, .iov_len = sizeof(word) };
	iov_iter_kvec(&iter, ITER_DEST, &vec, 1, sizeof(word));
	KUNIT_EXPECT_EQ(env->test, vread_iter(&iter, from, sizeof(word)), sizeof(word));
	vfree(p);
}

static void *get_resized(struct env *env)
{
	void *p = vmalloc(PAGE_SIZE), *more;

	more = vrealloc(p, 9 * PAGE_SIZE, GFP_KERNEL);
	if (!more) {
		vfree(p);
		return NULL;
	}
	return vrealloc(more, 2 * PAGE_SIZE, GFP_KERNEL);
}

static void *get_mapping(struct env *env)
{
	return vmap(env->pages, NR_PAGES, VM_MAP, PAGE_KERNEL);
}

static void put_mapping(struct env *env, void *p)
{
	vunmap(p);
}

static void *get_area(struct env *env)
{
	return get_vm_area(5 * PAGE_SIZE, VM_MAP);
}

static void *get_area_of_new_block(struct env *env)
{
	vmap_drain(env->test);
	return get_area(env);
}

/* As ioremap() does. */
static void *get_io(struct env *env)
{
	struct vm_struct *vm = get_vm_area(PAGE_SIZE, VM_IOREMAP);
	unsigned long addr;

	if (!vm)
		return NULL;
	addr = vmap_start(vm);
	KUNIT_EXPECT_EQ(env->test, 0,
			vmap_page_range(addr, addr + PAGE_SIZE, page_to_phys(env->pages[0]),
					PAGE_KERNEL));
	return vm;
}

static void put_area(struct env *env, void *p)
{
	free_vm_area(p);
}

/* Purges, asks the notifiers, and fails. Returns what put_nothing() gets. */
static void *get_refused(struct env *env)
{
	vmap_area_refused(env->test, &env->win, PAGE_SIZE, 1, 0, VMAP_GFP);
	return env;
}

static void put_nothing(struct env *env, void *p)
{
}

/* In a block of vm_map_ram(). */
static void *get_ram(struct env *env)
{
	return vm_map_ram(env->pages, 4, NUMA_NO_NODE);
}

static void put_ram(struct env *env, void *p)
{
	vm_unmap_ram(p, 4);
}

/* In an area of its own. */
static void *get_large_ram(struct env *env)
{
	return vm_map_ram(env->pages, NR_PAGES, NUMA_NO_NODE);
}

static void put_large_ram(struct env *env, void *p)
{
	vm_unmap_ram(p, NR_PAGES);
}

static void *get_lazy(struct env *env)
{
	void *p = get_memory(env), *ram = get_ram(env);

	vfree(p);
	if (ram)
		put_ram(env, ram);
	return p && ram ? env : NULL;
}

static void purge(struct env *env, void *p)
{
	vm_unmap_aliases();
}

#ifdef CONFIG_SMP
static const size_t percpu_sizes[] = { SZ_64K, SZ_64K };

static void *get_percpu_areas(const unsigned long *offsets)
{
	return pcpu_get_vm_areas(offsets, percpu_sizes, ARRAY_SIZE(percpu_sizes), SZ_64K,
				 GFP_KERNEL);
}

static void *get_near(struct env *env)
{
	static const unsigned long offsets[] = { 0, SZ_1M };

	return get_percpu_areas(offsets);
}

static void *get_far(struct env *env)
{
	const unsigned long offsets[] = { 0, VMAP_FAR };

	return get_percpu_areas(offsets);
}

static void put_percpu_areas(struct env *env, void *p)
{
	pcpu_free_vm_areas(p, ARRAY_SIZE(percpu_sizes));
}
#endif

static const struct calls all_calls[] = {
	{ "vmalloc", get_memory, put_memory, true },
	{ "vmalloc_large", get_large, put_memory, true },
	{ "vfree_atomic", get_memory, put_memory_soon, true },
	{ "find_and_vread", get_memory, look_and_put, true },
	{ "vrealloc", get_resized, put_memory, true },
	{ "vmap", get_mapping, put_mapping, true },
	{ "get_vm_area", get_area, put_area, true },
	{ "get_vm_area_of_new_block", get_area_of_new_block, put_area, true },
	{ "ioremap", get_io, put_area, true },
	{ "refused", get_refused, put_nothing, true },
	{ "vm_map_ram", get_ram, put_ram },
	{ "vm_map_ram_large", get_large_ram, put_large_ram },
	{ "vm_unmap_aliases", get_lazy, purge, true },
#ifdef CONFIG_SMP
	{ "percpu_near", get_near, put_percpu_areas, true },
	{ "percpu_far", get_far, put_percpu_areas, true },
#endif
};

/* A lock of which only lockdep knows, with a class of its own. */
struct lock {
	struct lock_class_key key;
	struct lockdep_map map;
	bool is_reported;
};

static struct lock *lock_get(struct kunit *test)
{
	struct lock *lock = kunit_kzalloc(test, sizeof(*lock), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, lock);
	lockdep_register_key(&lock->key);
	lockdep_init_map(&lock->map, "vmap_reclaim_lock", &lock->key, 0);
	return lock;
}

/*
 * Takes the lock as reclaim would, and notes whether lockdep reports that. With a
 * report, lockdep turns itself off: turn it on again before another CPU, all of
 * which wait meanwhile, takes or releases a lock without its knowledge.
 */
static int take_in_reclaim(void *data)
{
	struct lock *lock = data;

	debug_locks_silent = 1;
	fs_reclaim_acquire(GFP_KERNEL);
	lock_map_acquire(&lock->map);
	lock->is_reported = !debug_locks;
	debug_locks = 1;
	debug_locks_silent = 0;
	/* A lock whose taking is reported does not count as held. */
	if (!lock->is_reported)
		lock_map_release(&lock->map);
	fs_reclaim_release(GFP_KERNEL);
	return 0;
}

/* Frees the lock. Returns whether reclaim would deadlock, after what was done under it. */
static bool lock_put(struct kunit *test, struct lock *lock)
{
	KUNIT_ASSERT_TRUE_MSG(test, debug_locks, "lockdep is off");
	KUNIT_ASSERT_EQ(test, 0, stop_machine(take_in_reclaim, lock, NULL));
	lockdep_unregister_key(&lock->key);
	return lock->is_reported;
}

/* Returns whether calls of get() and put() under a lock that reclaim takes are reported. */
static bool nofs_is_reported(struct env *env, const struct calls *calls, bool scoped)
{
	struct lock *lock = lock_get(env->test);
	unsigned int flags = 0;
	void *p;

	lock_map_acquire(&lock->map);
	if (scoped)
		flags = memalloc_nofs_save();
	p = calls->get(env);
	KUNIT_EXPECT_NOT_NULL_MSG(env->test, p, "%s", calls->name);
	if (p)
		calls->put(env, p);
	if (scoped)
		memalloc_nofs_restore(flags);
	lock_map_release(&lock->map);

	return lock_put(env->test, lock);
}

/* Returns whether put() under a lock that reclaim takes is reported; if not, tries it inside. */
static bool free_is_reported(struct env *env, const struct calls *calls)
{
	struct lock *lock = lock_get(env->test);
	void *p = calls->get(env), *q = calls->get(env);

	KUNIT_EXPECT_TRUE_MSG(env->test, p && q, "%s", calls->name);
	if (p) {
		lock_map_acquire(&lock->map);
		calls->put(env, p);
		lock_map_release(&lock->map);
	}
	if (lock_put(env->test, lock)) {
		if (q)
			calls->put(env, q);
		return true;
	}

	if (q) {
		fs_reclaim_acquire(GFP_KERNEL);
		calls->put(env, q);
		fs_reclaim_release(GFP_KERNEL);
	}
	return false;
}

/*
 * No call deadlocks for those who hold a lock that reclaim takes, if they are in
 * a NOFS scope; without the scope, the same calls are reported, which shows that
 * lockdep would notice. What frees needs no scope, and works inside reclaim.
 */
static void vmap_reclaim_locks(struct kunit *test)
{
	struct env env = { .test = test, .pages = vmap_pages_get(test, NR_PAGES) };
	struct vm_struct *full;
	unsigned int i;

	if (!IS_ENABLED(CONFIG_PROVE_LOCKING))
		kunit_skip(test, "needs CONFIG_PROVE_LOCKING");

	env.win = vmap_win_get(test, 2 * PAGE_SIZE);
	full = vmap_area_need(test, &env.win, PAGE_SIZE, 1, 0);
	for (i = 0; i < ARRAY_SIZE(all_calls); i++) {
		const struct calls *calls = &all_calls[i];

		if (calls->allocates)
			KUNIT_EXPECT_TRUE_MSG(test, nofs_is_reported(&env, calls, false),
					      "%s without a scope: no report", calls->name);
		KUNIT_EXPECT_FALSE_MSG(test, nofs_is_reported(&env, calls, true),
				       "%s deadlocks in a NOFS scope", calls->name);
		KUNIT_EXPECT_FALSE_MSG(test, free_is_reported(&env, calls),
				       "%s: freeing deadlocks in reclaim", calls->name);
	}
	KUNIT_EXPECT_TRUE_MSG(test, debug_locks, "lockdep is off");
	vmap_area_put(test, full);
	vmap_win_expect_free(test, &env.win);
}

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
	vmap_area_put(test, vm[2]);
	before = atomic_read(&w.nr_failed);
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
	KUNIT_CASE(vmap_reclaim_locks),
	KUNIT_CASE(vmap_reclaim_nofail),
	{}
};

VMAP_SUITE(vmap_reclaim);
