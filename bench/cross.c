// SPDX-License-Identifier: GPL-2.0
/*
 * Areas that are freed on another CPU than the one that allocated them: each
 * worker hands its areas to the next one.
 */
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "bench.h"

#define SLOTS 64

/* One writer, one reader. A slot is empty when it is NULL. */
struct ring {
	struct vm_struct *slots[SLOTS];
};

static void cross_teardown(struct bench_worker *w)
{
	struct ring *ring = w->data;

	if (ring)
		bench_free_areas(ring->slots, SLOTS);
	kfree(ring);
	w->data = NULL;
}

static int cross_setup(struct bench_worker *w)
{
	w->data = kzalloc_obj(struct ring, GFP_KERNEL);
	return w->data ? 0 : -ENOMEM;
}

/* Allocate for the next worker, free what the one before allocated, until both are through. */
static int cross_phase(struct bench_worker *w, unsigned int phase)
{
	struct bench_run *run = w->run;
	struct ring *out = w->data;
	struct ring *in = run->workers[(w->index + run->threads - 1) % run->threads].data;
	u32 put = 0, taken = 0;

	while (put < w->ops || taken < w->ops) {
		bool moved = false;

		/* Paired with the release of the reader: the slot is ours again. */
		if (put < w->ops && !smp_load_acquire(&out->slots[put % SLOTS])) {
			struct vm_struct *vm = get_vm_area(PAGE_SIZE, VM_ALLOC);

			if (!vm)
				return -ENOMEM;
			/* The reader sees all of the area. */
			smp_store_release(&out->slots[put++ % SLOTS], vm);
			moved = true;
		}
		if (taken < w->ops) {
			/* Paired with the release of the writer. */
			struct vm_struct *vm = smp_load_acquire(&in->slots[taken % SLOTS]);

			if (vm) {
				free_vm_area(vm);
				/* The writer may use the slot again. */
				smp_store_release(&in->slots[taken++ % SLOTS], NULL);
				moved = true;
			}
		}
		/* A worker that failed hands over nothing more. */
		if (!moved) {
			unsigned int i;

			for (i = 0; i < run->threads; i++) {
				if (READ_ONCE(run->workers[i].err))
					return -ECANCELED;
			}
			cond_resched();
			cpu_relax();
		}
	}
	return 0;
}

const struct bench_case bench_cross_cases[] = {
	{ .name = "cross_cpu", .ops = 10000, .min_threads = 2, .worker_setup = cross_setup,
	  .worker_teardown = cross_teardown, .phase = cross_phase },
	{ }
};
