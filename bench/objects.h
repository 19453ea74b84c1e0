/* SPDX-License-Identifier: GPL-2.0 */
/* Objects of every kind that mm/vmalloc.c makes; see objects.c. */
#ifndef _VMAP_BENCH_OBJECTS_H
#define _VMAP_BENCH_OBJECTS_H

#include <linux/atomic.h>
#include <linux/prandom.h>

struct bench_run;
struct object;

/**
 * struct objects - what all objects of a run share
 * @run: named by reports of errors
 * @err: 0 or the first error; a mismatch is -EIO
 * @max_pages: that the objects may have
 * @pages: that they have
 */
struct objects {
	const struct bench_run *run;
	int err;
	long max_pages;
	atomic_long_t pages;
};

struct object *object_make(struct objects *all, struct rnd_state *rnd);
int object_end(struct object *o);
unsigned long object_addr(const struct object *o);
int objects_check_parameter(const struct bench_run *run);

#endif /* _VMAP_BENCH_OBJECTS_H */
