// SPDX-License-Identifier: GPL-2.0
/*
 * A load as users make it: random use of the whole interface of mm/vmalloc.c by
 * two threads for each worker.
 *
 * All threads share an array of slots. One operation makes an object and puts
 * it into a random slot; the object that was there, which mostly another thread
 * has made, is checked and freed. A mismatch ends the case.
 *
 * A pass takes a fixed time, because a preempted holder of a lock can make one
 * operation a thousand times as slow as the next.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "bench.h"
#include "objects.h"

/* Threads of a worker, slots for each thread, and pages that their objects may have. */
#define THREADS 2
#define SLOTS 64
#define MAX_PAGES (SZ_8M / PAGE_SIZE)

/* What all workers share. */
struct load {
	struct objects all;
	struct bench_readers *readers;
	unsigned int n;
	/* Of the objects in the slots, only for the readers: an object may be gone already. */
	unsigned long *addresses;
	struct object *slots[];
};

/* One of the threads of a worker. */
struct loader {
	struct load *load;
	struct rnd_state rnd;
	u64 end;
	u32 ops;
	struct completion done;
};

static int operate(struct loader *l)
{
	struct load *load = l->load;
	unsigned int nr = prandom_u32_state(&l->rnd) % load->n;
	struct object *o = object_make(&load->all, &l->rnd);

	if (IS_ERR(o))
		return PTR_ERR(o);
	WRITE_ONCE(load->addresses[nr], o ? object_addr(o) : 0);
	o = xchg(&load->slots[nr], o);
	return o ? object_end(o) : 0;
}

static int load_thread(void *arg)
{
	struct loader *l = arg;
	int err;

	do {
		err = operate(l);
		if (err)
			cmpxchg(&l->load->all.err, 0, err);
		l->ops++;
		cond_resched();
	} while (!READ_ONCE(l->load->all.err) && ktime_get_ns() < l->end);
	complete(&l->done);
	return 0;
}

/* Starts the threads of this worker, on its CPU, and waits for them. */
static int load_phase(struct bench_worker *w, unsigned int nr)
{
	struct load *load = w->run->data;
	struct loader loaders[THREADS] = {};
	int i, started, err = 0;

	for (started = 0; started < THREADS; started++) {
		struct loader *l = &loaders[started];
		struct task_struct *task;

		l->load = load;
		l->end = w->start + w->run->pass_ns;
		prandom_seed_state(&l->rnd, prandom_u32_state(&w->rnd));
		init_completion(&l->done);
		task = kthread_create(load_thread, l, "vmap_bench/%u", w->index);
		if (IS_ERR(task)) {
			err = PTR_ERR(task);
			break;
		}
		kthread_bind(task, w->index);
		wake_up_process(task);
	}
	for (w->done = 0, i = 0; i < started; i++) {
		wait_for_completion(&loaders[i].done);
		w->done += loaders[i].ops;
	}
	return err ?: READ_ONCE(load->all.err);
}

static void load_teardown(struct bench_run *run)
{
	struct load *load = run->data;
	unsigned int i;

	if (!load)
		return;
	if (load->readers)
		bench_readers_stop(load->readers);
	for (i = 0; i < load->n; i++) {
		if (load->slots[i])
			object_end(load->slots[i]);
	}
	kvfree(load->addresses);
	kvfree(load);
	run->data = NULL;
}

static int load_setup(struct bench_run *run)
{
	unsigned int n = THREADS * SLOTS * run->threads;
	struct load *load = kvzalloc_flex(*load, slots, n, GFP_KERNEL);
	struct bench_readers *readers;

	run->data = load;
	if (!load)
		return -ENOMEM;
	load->all.run = run;
	load->all.max_pages = THREADS * run->threads * MAX_PAGES;
	load->n = n;
	load->addresses = kvcalloc(n, sizeof(*load->addresses), GFP_KERNEL);
	if (!load->addresses)
		return -ENOMEM;
	if (run->c->arg) {
		readers = bench_readers_start(run, load->addresses, n, &load->all.err);
		if (IS_ERR(readers))
			return PTR_ERR(readers);
		load->readers = readers;
	}
	return objects_check_parameter(run);
}

/* Stacks, page tables and what vrealloc() copies from come on top of the pages. */
static u64 load_need(const struct bench_case *c, unsigned int threads)
{
	return 2ULL * THREADS * threads * MAX_PAGES * PAGE_SIZE;
}

const struct bench_case bench_whole_cases[] = {
	{ .name = "whole_api", .timed = true, .need = load_need, .setup = load_setup,
	  .teardown = load_teardown, .phase = load_phase },
#ifdef CONFIG_PROC_KCORE
	/* @arg: with readers of /proc. */
	{ .name = "whole_api_readers", .timed = true, .arg = 1, .need = load_need,
	  .setup = load_setup, .teardown = load_teardown, .phase = load_phase },
#endif
	{ }
};
