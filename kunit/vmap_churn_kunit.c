// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_churn": allocations of all kinds in random order, by one
 * task with and without failing memory, and on all CPUs at the same time.
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/slab.h>

#include "vmap_area_kunit.h"

#define MAX_SLOTS	128
#define MAX_WORKERS	8

/* With faults: at least NR_STEPS, and more until MIN_HITS allocations have failed. */
#define NR_STEPS	1500
#define MAX_STEPS	60000
#define MIN_HITS	5

enum kind { AREA, AREA_IN_WINDOW, MEMORY, MEMORY_IN_WINDOW, MAPPED, RAM, PERCPU, NR_KINDS };

/* An allocation, written by one task and freed by any. */
struct piece {
	enum kind how;
	unsigned int nr_pages;
	u64 stamp;
	void *mem;
};

/* What tasks share. */
struct arena {
	struct piece *slot[MAX_SLOTS];
	unsigned int nr_slots;
	unsigned int nr_kinds;
	struct vmap_win win;
	bool win_may_be_full;
	unsigned int one_in_purges;
	struct page **pages;
	unsigned int nr_pages;
	unsigned long until;
	bool failed;
};

struct churn {
	struct kunit *test;
	struct arena *arena;
	struct task_struct *task;
	struct rnd_state rnd;
	u64 id;
	gfp_t gfp;
	/* Number of allocations until the next failure; 0: none fails. */
	unsigned int left;
	unsigned int nr_hits;
	unsigned long nr_taken;
	unsigned long nr_refused;
};

/* Expects that @good holds for a piece. After a failure, threads stop. */
static void expect(struct churn *c, bool good, const struct piece *p, const char *what)
{
	if (good || READ_ONCE(c->arena->failed))
		return;
	WRITE_ONCE(c->arena->failed, true);
	KUNIT_FAIL(c->test, "%s: kind %d, %u pages at %#lx", what, p->how, p->nr_pages,
		   (unsigned long)p->mem);
}

static const size_t percpu_sizes[] = { SZ_64K, SZ_64K };

static void *get(struct churn *c, enum kind how, unsigned int nr_pages)
{
	const unsigned long size = nr_pages * PAGE_SIZE;
	/* Every second time in a block, if there is room; else in the tree. */
	const unsigned long offsets[] = { 0, nr_pages % 2 ? SZ_1M : VMAP_FAR };
	const struct vmap_win std = vmap_std_win();
	struct arena *arena = c->arena;

	switch (how) {
	case AREA:
		return vmap_area_get(&std, size, 1, 0, c->gfp);
	case AREA_IN_WINDOW:
		return vmap_area_get(&arena->win, size, 1, 0, c->gfp);
	case MEMORY:
		return __vmalloc(size, c->gfp);
	case MEMORY_IN_WINDOW:
		return vmap_mem_get(&arena->win, size, c->gfp);
	case MAPPED:
		return vmap(arena->pages, nr_pages, VM_MAP, PAGE_KERNEL);
	case RAM:
		return vm_map_ram(arena->pages, nr_pages, NUMA_NO_NODE);
	default:
		return pcpu_get_vm_areas(offsets, percpu_sizes, ARRAY_SIZE(percpu_sizes), SZ_64K,
					 c->gfp);
	}
}

static struct piece *piece_get(struct churn *c)
{
	const struct arena *arena = c->arena;
	struct piece *p = kzalloc_obj(*p);

	if (!p)
		return NULL;

	p->how = prandom_u32_state(&c->rnd) % arena->nr_kinds;
	/* Without SMP, percpu memory does not use areas. */
	if (p->how == PERCPU && !IS_ENABLED(CONFIG_SMP))
		p->how = AREA;
	p->nr_pages = 1 + prandom_u32_state(&c->rnd) % arena->nr_pages;
	p->mem = get(c, p->how, p->nr_pages);
	if (!p->mem) {
		bool in_window = p->how == AREA_IN_WINDOW || p->how == MEMORY_IN_WINDOW;

		expect(c, (in_window && arena->win_may_be_full) || (c->left && !vmap_fault_left()),
		       p, "refused without a reason");
		c->nr_refused++;
		kfree(p);
		return NULL;
	}

	c->nr_taken++;
	if (p->how == MEMORY || p->how == MEMORY_IN_WINDOW) {
		p->stamp = (c->id << 32) | c->nr_taken;
		vmap_pages_fill(p->mem, p->nr_pages, p->stamp);
	} else if (p->how == AREA_IN_WINDOW) {
		expect(c, vmap_area_is_sound(c->test, p->mem, &arena->win, 1), p, "not sound");
	}

	return p;
}

static void piece_put(struct churn *c, struct piece *p)
{
	bool has_memory = p->how >= MEMORY && p->how <= RAM;
	struct vm_struct *vm = has_memory ? find_vm_area(p->mem) : NULL;

	if (has_memory)
		expect(c, vmap_pages_bad(p->mem, p->nr_pages, p->stamp) == -1, p, "wrong contents");

	switch (p->how) {
	case AREA:
	case AREA_IN_WINDOW:
		vmap_area_put(c->test, p->mem);
		break;
	case MEMORY:
	case MEMORY_IN_WINDOW:
		expect(c, vm && vm->nr_pages == p->nr_pages, p, "not found, or another size");
		vfree(p->mem);
		break;
	case MAPPED:
		expect(c, vm && get_vm_area_size(vm) == p->nr_pages * PAGE_SIZE, p,
		       "not found, or another size");
		vunmap(p->mem);
		break;
	case RAM:
		expect(c, !vm && find_vmap_area((unsigned long)kasan_reset_tag(p->mem)), p,
		       "block not found, or with a vm_struct");
		vm_unmap_ram(p->mem, p->nr_pages);
		break;
	default:
		pcpu_free_vm_areas(p->mem, ARRAY_SIZE(percpu_sizes));
	}

	kfree(p);
}

/* Fills an empty slot or empties a full one. */
static void step(struct churn *c)
{
	struct piece **slot = &c->arena->slot[prandom_u32_state(&c->rnd) % c->arena->nr_slots];
	struct piece *p = NULL;

	if (!READ_ONCE(*slot))
		p = piece_get(c);
	p = xchg(slot, p);
	if (p)
		piece_put(c, p);
	if (prandom_u32_state(&c->rnd) % c->arena->one_in_purges == 0)
		vm_unmap_aliases();
}

/* Like step(). Over all steps, one in @one_in allocations fails on average. */
static void failing_step(struct churn *c, unsigned int one_in)
{
	if (!c->left)
		c->left = 1 + prandom_u32_state(&c->rnd) % (2 * one_in - 1);

	/* The rb-tree warns and recovers if it cannot split a range. */
	kunit_warning_suppress(c->test) {
		vmap_fault_arm(c->left);
		step(c);
		c->left = vmap_fault_left();
		c->nr_hits += vmap_fault_disarm();
	}
}

static struct arena *arena_get(struct kunit *test, unsigned int nr_slots, unsigned int nr_pages,
			       unsigned long win_size)
{
	struct arena *arena = vmap_array(test, 1, sizeof(*arena));

	arena->nr_slots = nr_slots;
	arena->nr_pages = nr_pages;
	arena->pages = vmap_pages_get(test, nr_pages);
	arena->win = vmap_win_get(test, win_size);
	return arena;
}

/* Frees what is left, and expects that all of the window is free. */
static void arena_put(struct churn *c)
{
	unsigned int i;

	for (i = 0; i < c->arena->nr_slots; i++)
		if (c->arena->slot[i])
			piece_put(c, c->arena->slot[i]);
	vm_unmap_aliases();
	vmap_win_expect_free_soon(c->test, &c->arena->win);
}

static const struct failing {
	const char *name;
	unsigned int one_in;
} failing[] = {
	{ "none_fails" },
	{ "one_in_2_fails", 2 },
	{ "one_in_10_fails", 10 },
	{ "one_in_100_fails", 100 },
	{ "one_in_1000_fails", 1000 },
};

KUNIT_ARRAY_PARAM_DESC(failing, failing, name);

/*
 * Each request succeeds, or is refused after a fault; contents do not change.
 * At the end the whole window is free, and no memory is left.
 */
static void vmap_churn_alone(struct kunit *test)
{
	const unsigned int one_in = ((const struct failing *)test->param_value)->one_in;
	struct churn c = {
		.test = test, .id = 1, .gfp = one_in ? VMAP_GFP_FAILING : VMAP_GFP,
	};
	unsigned int i, min_steps = one_in ? NR_STEPS : 4 * NR_STEPS, tries = 3000;
	long before;

	if (one_in)
		vmap_fault_need(test);
	c.arena = arena_get(test, 48, 32, VMAP_PAGES_OF(SZ_16M));
	c.arena->nr_kinds = NR_KINDS;
	c.arena->one_in_purges = 64;
	vmap_seed(test, &c.rnd);

	before = vmap_pages_count();
	for (i = 0; i < min_steps || (one_in && c.nr_hits < MIN_HITS && i < MAX_STEPS); i++) {
		if (one_in)
			failing_step(&c, one_in);
		else
			step(&c);
		cond_resched();
	}
	c.left = 0;
	arena_put(&c);
	/* A work item frees what a failed vmalloc() has allocated. */
	while (vmap_pages_count() - before > VMAP_MAX_OTHERS && --tries)
		msleep(20);

	kunit_info(test, "%u faults, %lu areas, %lu refused in %u steps\n", c.nr_hits, c.nr_taken,
		   c.nr_refused, i);
	if (one_in)
		KUNIT_EXPECT_GE(test, c.nr_hits, MIN_HITS);
	KUNIT_EXPECT_LE_MSG(test, vmap_pages_count() - before, VMAP_MAX_OTHERS, "lost pages");
}

static int work(void *data)
{
	struct churn *c = data;

	while (!kthread_should_stop()) {
		if (READ_ONCE(c->arena->failed) || time_after(jiffies, READ_ONCE(c->arena->until)))
			msleep(20);
		else
			step(c);
		cond_resched();
	}

	return 0;
}

/*
 * For about a second, threads on every CPU allocate, check and free through
 * all interfaces. They also free areas of other threads, and find a full window.
 */
static void vmap_churn_cpus(struct kunit *test)
{
	unsigned int nr = clamp(2 * num_online_cpus(), 2, MAX_WORKERS), i;
	unsigned long nr_taken = 0, nr_refused = 0;
	struct churn *workers;
	struct rnd_state rnd;
	struct arena *arena;
	u64 seed;
	int cpu = -1;

	seed = vmap_seed(test, &rnd);
	workers = vmap_array(test, nr, sizeof(*workers));
	arena = arena_get(test, MAX_SLOTS, 24, SZ_1M);
	/* Percpu areas could take the window. */
	arena->nr_kinds = PERCPU;
	arena->win_may_be_full = true;
	arena->one_in_purges = 256;
	arena->until = jiffies - 1;

	for (i = 0; i < nr; i++) {
		struct churn *c = &workers[i];

		*c = (struct churn){
			.test = test, .arena = arena, .id = i + 1, .gfp = VMAP_GFP,
		};
		prandom_seed_state(&c->rnd, seed + i);
		cpu = cpumask_next_wrap(cpu, cpu_online_mask);
		c->task = kthread_run_on_cpu(work, c, cpu, "vmap_churn/%u");
		KUNIT_EXPECT_FALSE_MSG(test, IS_ERR(c->task), "worker %u: error %ld", i,
				       PTR_ERR(c->task));
	}

	/* Only now: on a busy host, starting the threads can take that long. */
	WRITE_ONCE(arena->until, jiffies + msecs_to_jiffies(1200));
	while (time_before(jiffies, arena->until))
		msleep(20);

	for (i = 0; i < nr; i++) {
		if (!IS_ERR(workers[i].task))
			kthread_stop(workers[i].task);
		nr_taken += workers[i].nr_taken;
		nr_refused += workers[i].nr_refused;
	}
	arena_put(&workers[0]);
	kunit_info(test, "%u threads took %lu areas, %lu requests found a full window\n",
		   nr, nr_taken, nr_refused);
	KUNIT_EXPECT_GT(test, nr_taken, nr_refused);
}

static struct kunit_case vmap_churn_cases[] = {
	KUNIT_CASE_PARAM(vmap_churn_alone, failing_gen_params),
	KUNIT_CASE_SLOW(vmap_churn_cpus),
	{}
};

VMAP_SUITE(vmap_churn);
