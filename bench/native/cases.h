/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cases of one side, whose get(), put(), find() and purge() the C file that
 * includes this has defined: each is compiled into its loops, as the callers in
 * a kernel are.
 */
#include "driver.h"

static __always_inline void pair(unsigned long pages)
{
	checked_put(put, checked_get(get, find, pages));
}

/* Replaces one of the live areas of this worker by one of another size. */
static __always_inline void replace(struct worker *w)
{
	struct vm_struct **slot = &w->live[next_random(w) % w->nr_live];

	checked_put(put, *slot);
	*slot = checked_get(get, find, random_pages(w));
}

/* All workers exchange areas through one cache line: most are freed by another one. */
static __always_inline void exchange(struct worker *w)
{
	struct vm_struct *vm = checked_get(get, find, 1);

	vm = __atomic_exchange_n(&w->ring[next_random(w) % RING], vm, __ATOMIC_ACQ_REL);
	if (vm)
		checked_put(put, vm);
}

static __always_inline void look_up(struct worker *w)
{
	struct vm_struct *vm = find(w->inner[w->at++ % INNER]);

	if (unlikely(!vm))
		broken("a live area is not found");
	asm volatile("" :: "r"(vm));
}

/* Two loops of a case: one for the mean, and one that times each operation. */
#define LOOPS(name, operation)						\
static noinline void mean_##name(struct worker *w)			\
{									\
	double start = now_ns();					\
									\
	w->ops = 0;							\
	do {								\
		for (int i = 0; i < BATCH; i++) {			\
			operation;					\
			poll();						\
		}							\
		w->ops += BATCH;					\
		w->ns = now_ns() - start;				\
	} while (w->ns < w->ms * 1e6);					\
}									\
static noinline void each_##name(struct worker *w)			\
{									\
	for (unsigned long i = 0; i < w->nr_each; i++) {		\
		uint64_t start = ticks();				\
									\
		operation;						\
		w->each[i] = ticks() - start;				\
		poll();							\
	}								\
}

LOOPS(area_pair, pair(1))
LOOPS(area_4, pair(4))
LOOPS(area_64, pair(64))
LOOPS(area_remote, exchange(w))
LOOPS(mixed, replace(w))
LOOPS(find, look_up(w))

/* Pairs of one page, before each of which other memory is written: that time does not count. */
static noinline void cold_pairs(struct worker *w, unsigned long nr)
{
	double until = now_ns() + w->ms * 1e6;

	w->ops = 0;
	w->ns = 0;
	do {
		uint64_t start;

		memset(w->others, w->ops, OTHERS);
		start = ticks();
		pair(1);
		start = ticks() - start;
		if (nr)
			w->each[w->ops] = start;
		w->ns += start * w->ns_of_tick - w->ns_of_fences;
		w->ops++;
		poll();
	} while (nr ? w->ops < nr : now_ns() < until);
}

static void mean_area_cold(struct worker *w)
{
	cold_pairs(w, 0);
}

static void each_area_cold(struct worker *w)
{
	cold_pairs(w, w->nr_each);
}

/* Purges of 512 areas of one page; the areas are made and freed between them. */
static noinline void purges(struct worker *w, unsigned long nr, double until)
{
	w->ops = 0;
	w->ns = 0;
	do {
		double start;

		for (int i = 0; i < 512; i++)
			w->live[i] = checked_get(get, find, 1);
		for (int i = 0; i < 512; i++) {
			checked_put(put, w->live[i]);
			w->live[i] = NULL;
		}
		start = now_ns();
		purge(false);
		start = now_ns() - start;
		if (nr)
			w->each[w->ops] = start / w->ns_of_tick;
		w->ns += start;
		w->ops++;
		poll();
	} while (nr ? w->ops < nr : w->ns < until);
}

static void mean_purge_512(struct worker *w)
{
	purges(w, 0, w->ms * 1e6);
}

static void each_purge_512(struct worker *w)
{
	purges(w, w->nr_each, 0);
}

#define SIDE_LOOPS {							\
	[AREA_PAIR] = { mean_area_pair, each_area_pair },		\
	[AREA_COLD] = { mean_area_cold, each_area_cold },		\
	[AREA_4] = { mean_area_4, each_area_4 },			\
	[AREA_64] = { mean_area_64, each_area_64 },			\
	[AREA_REMOTE] = { mean_area_remote, each_area_remote },		\
	[MIXED_1K] = { mean_mixed, each_mixed },			\
	[MIXED_1M] = { mean_mixed, each_mixed },			\
	[FIND_1K] = { mean_find, each_find },				\
	[FIND_1K_WRITER] = { mean_find, each_find },			\
	[PURGE_512] = { mean_purge_512, each_purge_512 },		\
}
