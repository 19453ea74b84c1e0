// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_inject": allocations that fail at random while areas of all
 * kinds are allocated and freed.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "vmap_area_kunit.h"

/* At least NR_STEPS, and more until MIN_HITS allocations have failed. */
#define NR_STEPS	1500
#define MAX_STEPS	60000
#define MIN_HITS	5
#define NR_SLOTS	48
#define MAX_PAGES	8

/* The kind of allocation in a slot. */
enum kind { NOTHING, AREA, IN_WINDOW, MEMORY, RAM, PERCPU, NR_KINDS };

struct slot {
	enum kind how;
	unsigned int nr_pages;
	void *what;
};

struct trial {
	struct kunit *test;
	struct rnd_state rnd;
	struct vmap_win win;
	struct page **pages;
	/* Number of allocations until the next failure. */
	unsigned int left;
	unsigned int nr_steps;
	unsigned int nr_hits;
	unsigned int nr_refused;
};

static const size_t sizes[] = { SZ_64K, SZ_64K };

static void *get(struct trial *t, enum kind how, unsigned int nr_pages)
{
	const struct vmap_win std = vmap_std_win();
	/* Every second time in a block, if there is room; else in the tree. */
	const unsigned long offsets[] = { 0, nr_pages % 2 ? SZ_1M : VMAP_FAR };

	switch (how) {
	case AREA:
		return vmap_area_get(&std, nr_pages * PAGE_SIZE, 1, 0, VMAP_GFP_FAILING);
	case IN_WINDOW:
		return vmap_area_get(&t->win, nr_pages * PAGE_SIZE, 1, 0,
				     VMAP_GFP_FAILING);
	case MEMORY:
		return __vmalloc(nr_pages * PAGE_SIZE, VMAP_GFP_FAILING);
	case RAM:
		return vm_map_ram(t->pages, nr_pages, NUMA_NO_NODE);
	case PERCPU:
		return pcpu_get_vm_areas(offsets, sizes, ARRAY_SIZE(sizes),
					 SZ_64K, VMAP_GFP_FAILING);
	default:
		return NULL;
	}
}

static void put(struct trial *t, const struct slot *s)
{
	switch (s->how) {
	case AREA:
	case IN_WINDOW:
		vmap_area_put(t->test, s->what);
		break;
	case MEMORY:
		KUNIT_EXPECT_EQ_MSG(t->test, -1,
				    vmap_pages_bad(s->what, s->nr_pages,
						   (unsigned long)s->what),
				    "contents at %#lx", (unsigned long)s->what);
		vfree(s->what);
		break;
	case RAM:
		vm_unmap_ram(s->what, s->nr_pages);
		break;
	case PERCPU:
		pcpu_free_vm_areas(s->what, ARRAY_SIZE(sizes));
		break;
	default:
		break;
	}
}

/*
 * Fills an empty slot or empties a full one. Over all steps, one in @one_in
 * allocations fails on average.
 */
static void step(struct trial *t, struct slot *s, unsigned int one_in)
{
	struct slot next = {
		.how = 1 + prandom_u32_state(&t->rnd) % (NR_KINDS - 1),
		.nr_pages = 1 + prandom_u32_state(&t->rnd) % MAX_PAGES,
	};
	bool hit;

	/* Without SMP, percpu memory does not use areas. */
	if (next.how == PERCPU && !IS_ENABLED(CONFIG_SMP))
		next.how = AREA;

	/* The rb-tree warns and recovers if it cannot split a range. */
	kunit_warning_suppress(t->test) {
		if (!t->left)
			t->left = 1 + prandom_u32_state(&t->rnd) % (2 * one_in - 1);
		vmap_fault_arm(t->left);
		if (s->how)
			put(t, s);
		else
			next.what = get(t, next.how, next.nr_pages);
		if (prandom_u32_state(&t->rnd) % 64 == 0)
			vm_unmap_aliases();
		t->left = vmap_fault_left();
		hit = vmap_fault_disarm();
	}
	t->nr_steps++;
	t->nr_hits += hit;

	if (s->how || !next.what) {
		t->nr_refused += !s->how;
		if (!s->how && !hit)
			KUNIT_FAIL(t->test, "%u pages of kind %u: refused without a fault",
				   next.nr_pages, next.how);
		s->how = NOTHING;
		return;
	}

	*s = next;
	if (s->how == MEMORY)
		vmap_pages_fill(s->what, s->nr_pages, (unsigned long)s->what);
	else if (s->how == IN_WINDOW)
		vmap_area_is_sound(t->test, s->what, &t->win, 1);
}

/*
 * Each request succeeds or is refused, contents do not change, and at the end
 * the whole window is free.
 */
static void inject(struct kunit *test, unsigned int one_in)
{
	struct trial t = { .test = test };
	struct slot *slots;
	unsigned int i;

	vmap_fault_need(test);
	t.win = vmap_win_get(test, VMAP_PAGES_OF(SZ_4M));
	t.pages = vmap_pages_get(test, MAX_PAGES);
	slots = kunit_kcalloc(test, NR_SLOTS, sizeof(*slots), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, slots);
	vmap_seed(test, &t.rnd);

	while (t.nr_steps < NR_STEPS ||
	       (t.nr_hits < MIN_HITS && t.nr_steps < MAX_STEPS))
		step(&t, &slots[prandom_u32_state(&t.rnd) % NR_SLOTS], one_in);
	for (i = 0; i < NR_SLOTS; i++)
		put(&t, &slots[i]);
	vm_unmap_aliases();

	kunit_info(test, "%u faults, %u of %u steps refused\n", t.nr_hits,
		   t.nr_refused, t.nr_steps);
	KUNIT_EXPECT_GE_MSG(test, t.nr_hits, MIN_HITS, "faults in %u steps",
			    t.nr_steps);
	vmap_win_expect_free(test, &t.win);
}

/* On average one allocation in 2 fails. */
static void vmap_inject_one_in_2(struct kunit *test)
{
	inject(test, 2);
}

/* On average one allocation in 10 fails. */
static void vmap_inject_one_in_10(struct kunit *test)
{
	inject(test, 10);
}

/* On average one allocation in 100 fails. */
static void vmap_inject_one_in_100(struct kunit *test)
{
	inject(test, 100);
}

/* On average one allocation in 1,000 fails. */
static void vmap_inject_one_in_1000(struct kunit *test)
{
	inject(test, 1000);
}

static struct kunit_case vmap_inject_cases[] = {
	KUNIT_CASE(vmap_inject_one_in_2),
	KUNIT_CASE(vmap_inject_one_in_10),
	KUNIT_CASE(vmap_inject_one_in_100),
	KUNIT_CASE(vmap_inject_one_in_1000),
	{}
};

VMAP_SUITE(vmap_inject);
