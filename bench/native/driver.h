/* SPDX-License-Identifier: GPL-2.0 */
/* Between driver.c and the cases of each side. */
#ifndef _NATIVE_DRIVER_H
#define _NATIVE_DRIVER_H

#include <string.h>
#include <time.h>

enum { RING = 8, INNER = 1 << 16, BATCH = 2048, OTHERS = 2 << 20 };

/* A worker on one side. */
struct worker {
	uint64_t random;
	unsigned long at;
	/* What a loop has done, and for how long. */
	unsigned long ops;
	double ns, ms, ns_of_tick, ns_of_fences;
	/* The part of that time for which the thread had its CPU. */
	double had_cpu;
	/* Time of each operation, in ticks. */
	uint32_t *each;
	unsigned long nr_each;
	struct vm_struct **live, **ring;
	unsigned long nr_live;
	const unsigned long *inner;
	/* Memory of others, as much as a CPU has caches of its own. */
	char *others;
} __attribute__((aligned(128)));

static __always_inline unsigned long next_random(struct worker *w)
{
	w->random = w->random * 6364136223846793005UL + 1442695040888963407UL;
	return w->random >> 33;
}

/* Sizes of areas of a booted system, as in bench/mixed.c, in percent. */
static __always_inline unsigned long random_pages(struct worker *w)
{
	static const struct {
		unsigned char percent;
		unsigned short pages;
	} sizes[] = { { 82, 4 }, { 6, 1 }, { 3, 3 }, { 5, 16 }, { 2, 64 }, { 1, 96 }, { 1, 368 } };
	unsigned int percent = next_random(w) % 100, size = 0;

	while (percent >= sizes[size].percent)
		percent -= sizes[size++].percent;
	return sizes[size].pages;
}

static inline double clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static inline double now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* The time stamp counter, between operations and not beside them. */
static __always_inline uint64_t ticks(void)
{
	uint64_t t;

	__builtin_ia32_lfence();
	t = __builtin_ia32_rdtsc();
	__builtin_ia32_lfence();
	return t;
}

/*
 * In a build with CHECK, each page that is handed out is marked in a bitmap: two
 * owners of a page, a wrong size and an area that is not found end the program.
 */
#ifdef CHECK
void mark_area(struct vm_struct *vm, unsigned long pages, struct vm_struct *(*find)(unsigned long));
void unmark_area(struct vm_struct *vm);
#else
#define mark_area(vm, pages, find) do { } while (0)
#define unmark_area(vm) do { } while (0)
#endif

static __always_inline struct vm_struct *checked_get(struct vm_struct *(*get)(unsigned long),
						     struct vm_struct *(*find)(unsigned long),
						     unsigned long pages)
{
	struct vm_struct *vm = get(pages * PAGE_SIZE);

	if (unlikely(!vm))
		broken("no room for an area");
	mark_area(vm, pages, find);
	return vm;
}

static __always_inline void checked_put(void (*put)(struct vm_struct *), struct vm_struct *vm)
{
	unmark_area(vm);
	put(vm);
}

#endif
