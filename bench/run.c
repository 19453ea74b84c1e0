// SPDX-License-Identifier: GPL-2.0
/*
 * Runs one case: workers in step, one pass that does not count and five that
 * do.
 *
 * What is reported as "cost" is the time from the first worker's start to the
 * last one's end, divided by the operations of all workers together. With one
 * worker that is the time of one operation; with more it falls as they work in
 * parallel. With qemu -icount, where all CPUs share one clock of instructions,
 * it is the instructions of all CPUs for one operation, waiting included.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <uapi/linux/sched/types.h>

#include "bench.h"

/* In this time workers do what RCU callbacks have put off. */
#define SETTLE_MS 20

/* What one phase or one pass needs to go on. */
struct bench_step {
	struct completion done;
	atomic_t running;
	unsigned int phase;
	/* The first pass does not count. */
	unsigned int pass;
	bool stop;
};

struct bench_thread {
	struct bench_worker *w;
	struct bench_step *step;
	/* Its turn has come. */
	struct completion turn;
	struct task_struct *task;
};

/* Operations of a case after scaling, at least one. */
static u32 scaled(const struct bench_run *run, u32 ops)
{
	return max_t(u64, 1, div_u64((u64)ops * run->scale, 100));
}

/**
 * bench_mark_begin() - what this CPU runs from now on is measured
 * @name: of the case
 * @part: of the case: a phase, or a metric; empty if it has only one
 * @ops: operations up to bench_mark_end()
 *
 * Does nothing. The plugin of scripts/bench profile reads the arguments, so
 * they must be in their registers, and the functions must stay functions.
 */
noinline void bench_mark_begin(const char *name, const char *part, u32 ops)
{
	asm volatile("" : : "r" (name), "r" (part), "r" (ops) : "memory");
}

/* What this CPU runs from now on is not measured any more. */
noinline void bench_mark_end(void)
{
	asm volatile("" : : : "memory");
}

static void worker_phase(struct bench_worker *w, const struct bench_step *step)
{
	const struct bench_case *c = w->run->c;

	if (step->pass)
		bench_mark_begin(c->name, c->phases[step->phase] ?: "", w->ops);
	w->start = ktime_get_ns();
	w->err = c->phase(w, step->phase);
	w->end = ktime_get_ns();
	if (step->pass)
		bench_mark_end();
}

static int worker_thread(void *arg)
{
	struct bench_thread *thread = arg;
	struct bench_step *step = thread->step;

	for (;;) {
		wait_for_completion(&thread->turn);
		if (step->stop)
			return 0;
		if (!thread->w->err)
			worker_phase(thread->w, step);
		if (atomic_dec_and_test(&step->running))
			complete(&step->done);
	}
}

/* One phase on all workers. Returns how long it took, or 0 if a worker failed. */
static u64 run_phase(struct bench_run *run, struct bench_thread *threads,
		     struct bench_step *step, unsigned int phase)
{
	u64 first = U64_MAX, last = 0;
	unsigned int i;

	step->phase = phase;
	atomic_set(&step->running, run->threads);
	reinit_completion(&step->done);
	for (i = 0; i < run->threads; i++)
		complete(&threads[i].turn);
	wait_for_completion(&step->done);

	for (i = 0; i < run->threads; i++) {
		if (run->workers[i].err)
			return 0;
		first = min(first, run->workers[i].start);
		last = max(last, run->workers[i].end);
	}
	return max_t(u64, last - first, 1);
}

static int first_error(const struct bench_run *run)
{
	unsigned int i;

	for (i = 0; i < run->threads; i++) {
		if (run->workers[i].err)
			return run->workers[i].err;
	}
	return 0;
}

/* All passes; the threads are there. Reports. */
static int run_passes(struct bench_run *run, struct bench_thread *threads,
		      struct bench_step *step)
{
	const struct bench_case *c = run->c;
	u64 values[BENCH_MAX_PHASES][BENCH_PASSES];
	unsigned int phases = c->phases[0] ? (c->phases[1] ? 2 : 1) : 1;
	unsigned int pass, phase;
	u32 total = run->threads * run->workers[0].ops;

	for (pass = 0; pass <= BENCH_PASSES; pass++) {
		step->pass = pass;
		for (phase = 0; phase < phases; phase++) {
			u64 ns = run_phase(run, threads, step, phase);

			if (!ns)
				return first_error(run);
			/* Thousandths: some operations take a few nanoseconds. */
			if (pass)
				values[phase][pass - 1] = div_u64(ns * 1000, total);
		}
	}
	for (phase = 0; phase < phases; phase++)
		bench_report(run, c->phases[phase] ?: "cost", "mns", values[phase],
			     BENCH_PASSES, total);
	return 0;
}

static int run_workers(struct bench_run *run)
{
	struct bench_thread *threads;
	struct bench_step step = {};
	unsigned int started, i;
	int err = 0;

	threads = kcalloc(run->threads, sizeof(*threads), GFP_KERNEL);
	if (!threads)
		return -ENOMEM;
	init_completion(&step.done);
	for (started = 0; started < run->threads; started++) {
		struct bench_thread *thread = &threads[started];

		thread->w = &run->workers[started];
		thread->step = &step;
		init_completion(&thread->turn);
		thread->task = kthread_create(worker_thread, thread, "vmap_bench/%u", started);
		if (IS_ERR(thread->task)) {
			err = PTR_ERR(thread->task);
			break;
		}
		kthread_bind(thread->task, started);
		/* It ends by itself; the reference keeps it until kthread_stop_put(). */
		get_task_struct(thread->task);
		wake_up_process(thread->task);
	}
	if (!err)
		err = run_passes(run, threads, &step);

	step.stop = true;
	for (i = 0; i < started; i++)
		complete(&threads[i].turn);
	for (i = 0; i < started; i++)
		kthread_stop_put(threads[i].task);
	kfree(threads);
	return err;
}

/* Refuse what the memory is not enough for, before anything is allocated. */
static bool has_memory(struct bench_run *run)
{
	const struct bench_case *c = run->c;
	u64 need, available;

	if (!c->need)
		return true;
	need = c->need(c, run->threads) >> 20;
	available = max(si_mem_available(), 0L) >> (20 - PAGE_SHIFT);
	/* Half, so that the rest of the system goes on. */
	if (need <= available / 2)
		return true;
	bench_skip(run, "needs %llu MiB of memory, twice that must be free", need);
	return false;
}

static void teardown(struct bench_run *run)
{
	const struct bench_case *c = run->c;
	unsigned int i;

	for (i = run->threads; c->worker_teardown && i--;)
		c->worker_teardown(&run->workers[i]);
	if (c->teardown)
		c->teardown(run);
}

/**
 * bench_run_case() - run one case and report it
 * @run: case, threads, scale and seed are set, the rest is zero
 *
 * Return: 0 if it was measured or skipped with a reason, or the error that has
 * been reported.
 */
int bench_run_case(struct bench_run *run)
{
	const struct bench_case *c = run->c;
	unsigned int i;
	int err = 0;

	if (!has_memory(run))
		return 0;
	for (i = 0; i < run->threads; i++) {
		struct bench_worker *w = &run->workers[i];

		w->run = run;
		w->index = i;
		w->ops = max(scaled(run, c->ops) / run->threads, 1U);
		prandom_seed_state(&w->rnd, run->seed * BENCH_MAX_THREADS + i);
	}

	if (c->setup)
		err = c->setup(run);
	for (i = 0; !err && c->worker_setup && i < run->threads; i++)
		err = c->worker_setup(&run->workers[i]);
	if (!err)
		err = c->measure ? c->measure(run) : run_workers(run);
	teardown(run);
	if (err)
		pr_err("error: case=%s threads=%u: %pe\n", c->name, run->threads, ERR_PTR(err));
	return err;
}

struct on_cpu {
	int (*fn)(void *arg);
	void *arg;
	struct completion done;
	int err;
};

static int on_cpu_thread(void *arg)
{
	struct on_cpu *call = arg;

	call->err = call->fn(call->arg);
	complete(&call->done);
	return 0;
}

/**
 * bench_first_cpu() - call a function ahead of all ordinary threads of CPU 0, and wait for it
 * @fn: called with @arg in process context
 * @arg: of @fn
 *
 * Return: what @fn returned, or an error if there is no thread.
 */
int bench_first_cpu(int (*fn)(void *arg), void *arg)
{
	struct on_cpu call = { .fn = fn, .arg = arg };
	struct task_struct *task;

	init_completion(&call.done);
	task = kthread_create(on_cpu_thread, &call, "vmap_bench/0");
	if (IS_ERR(task))
		return PTR_ERR(task);
	kthread_bind(task, 0);
	sched_set_fifo_low(task);
	wake_up_process(task);
	wait_for_completion(&call.done);
	return call.err;
}

/**
 * bench_get_areas() - reserve many areas
 * @vms: where they go; filled from the front
 * @n: how many
 * @pages: of each, without its guard page
 *
 * Return: false if one could not be had; those before it are in @vms.
 */
bool bench_get_areas(struct vm_struct **vms, unsigned long n, unsigned long pages)
{
	unsigned long i;

	for (i = 0; i < n; i++) {
		vms[i] = get_vm_area(pages * PAGE_SIZE, VM_ALLOC);
		if (!vms[i])
			return false;
		if (!(i & 1023))
			cond_resched();
	}
	return true;
}

/**
 * bench_free_areas() - free those of many areas that are there
 * @vms: areas, NULL where there is none; all NULL afterwards. May be NULL.
 * @n: how many
 */
void bench_free_areas(struct vm_struct **vms, unsigned long n)
{
	unsigned long i;

	for (i = 0; vms && i < n; i++) {
		if (vms[i])
			free_vm_area(vms[i]);
		vms[i] = NULL;
		if (!(i & 1023))
			cond_resched();
	}
}

/**
 * bench_areas_need() - what a case needs that has as many areas at once as it has operations
 * @c: the case
 * @threads: workers
 *
 * Return: bytes, at most.
 */
u64 bench_areas_need(const struct bench_case *c, unsigned int threads)
{
	return c->ops * 512ULL;
}

/**
 * bench_get_pages() - allocate pages one by one
 * @pages: where they go; all NULL before
 * @n: how many
 *
 * Return: false if one could not be had; those before it are in @pages.
 */
bool bench_get_pages(struct page **pages, unsigned long n)
{
	unsigned long i;

	for (i = 0; i < n; i++) {
		pages[i] = alloc_page(GFP_KERNEL);
		if (!pages[i])
			return false;
	}
	return true;
}

/**
 * bench_free_pages() - free pages up to the first NULL
 * @pages: of bench_get_pages(); may be NULL
 * @n: how many at most
 */
void bench_free_pages(struct page **pages, unsigned long n)
{
	unsigned long i;

	for (i = 0; pages && i < n && pages[i]; i++)
		__free_page(pages[i]);
}

/* All that was left to RCU and to workers is done when this returns. */
void bench_settle(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		rcu_barrier();
		msleep(SETTLE_MS);
	}
}
