// SPDX-License-Identifier: GPL-2.0
/*
 * What a purge costs for each page that was freed, and for how long it keeps
 * the most urgent thread of its CPU from running.
 */
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "bench.h"

/* @arg: pages of an area; the areas of a pass are: */
#define LAZY_PAGES 8000
/* Areas and pages of a drain: many small ones, or 1M pages in large ones. */
#define DRAIN_AREAS 100000
#define DRAIN_PAGES (1024 * 1024)

struct drain {
	struct bench_run *run;
	unsigned long areas;
	unsigned long pages;
	struct vm_struct **vms;
	u64 ns;
	/* The first purge of a case may only be there to warm up. */
	bool counts;
};

static int fill(struct drain *drain)
{
	return bench_get_areas(drain->vms, drain->areas, drain->pages) ? 0 : -ENOMEM;
}

/*
 * Called ahead of all ordinary threads of the CPU, or the worker that purges by
 * itself at some thousand pages would have done it before all are freed.
 */
static int free_and_purge(void *arg)
{
	struct drain *drain = arg;
	u64 start;

	bench_free_areas(drain->vms, drain->areas);
	if (drain->counts)
		bench_mark_begin(drain->run->c->name, "per_page",
				 drain->areas * (drain->pages + 1));
	start = ktime_get_ns();
	vm_unmap_aliases();
	drain->ns = ktime_get_ns() - start;
	if (drain->counts)
		bench_mark_end();
	return 0;
}

/* Thousandths of a nanosecond for each page, guard pages included. */
static u64 per_page(const struct drain *drain)
{
	return div_u64(drain->ns * 1000, drain->areas * (drain->pages + 1));
}

static int drain_alloc(struct drain *drain, struct bench_run *run,
		       unsigned long areas, unsigned long pages)
{
	drain->run = run;
	drain->areas = areas;
	drain->pages = pages;
	drain->vms = kvcalloc(areas, sizeof(*drain->vms), GFP_KERNEL);
	return drain->vms ? 0 : -ENOMEM;
}

/* Small purges as they come up every now and then. */
static int purge_measure(struct bench_run *run)
{
	u64 values[BENCH_PASSES];
	struct drain drain = {};
	int pass, err;

	err = drain_alloc(&drain, run, LAZY_PAGES / (run->c->arg + 1), run->c->arg);
	for (pass = 0; !err && pass <= BENCH_PASSES; pass++) {
		drain.counts = pass;
		vm_unmap_aliases();
		err = fill(&drain) ?: bench_on_cpu(0, free_and_purge, &drain, true);
		if (!err && pass)
			values[pass - 1] = per_page(&drain);
	}
	if (!err)
		bench_report(run, "per_page", "mns", values, BENCH_PASSES,
			     drain.areas * (drain.pages + 1));
	bench_free_areas(drain.vms, drain.areas);
	kvfree(drain.vms);
	return err;
}

/* How often the probe wants to run. */
#define PROBE_NS 20000

struct probe {
	struct task_struct *task;
	s64 worst;
};

/* The longest time between the moment a timer was set for and running. */
static int probe_thread(void *arg)
{
	struct probe *probe = arg;
	s64 late;

	while (!kthread_should_stop()) {
		ktime_t when = ktime_add_ns(ktime_get(), PROBE_NS);

		set_current_state(TASK_UNINTERRUPTIBLE);
		schedule_hrtimeout_range(&when, 0, HRTIMER_MODE_ABS);
		late = ktime_to_ns(ktime_sub(ktime_get(), when));
		/* Being asked to stop wakes it early. */
		probe->worst = max(probe->worst, late);
	}
	return 0;
}

/* Nothing of the CPU comes before it but interrupts and sections without preemption. */
static int probe_start(struct probe *probe)
{
	probe->worst = 0;
	probe->task = kthread_create(probe_thread, probe, "vmap_bench/probe");
	if (IS_ERR(probe->task))
		return PTR_ERR(probe->task);
	kthread_bind(probe->task, 0);
	sched_set_fifo(probe->task);
	wake_up_process(probe->task);
	return 0;
}

/* One large drain, with the probe on the same CPU. */
static int drain_measure(struct bench_run *run)
{
	u64 cost[BENCH_PASSES], worst[BENCH_PASSES];
	struct drain drain = {};
	struct probe probe;
	int pass, err;

	err = drain_alloc(&drain, run, run->c->arg, run->c->arg == DRAIN_AREAS ? 1 :
			  DRAIN_PAGES / run->c->arg - 1);
	for (pass = 0; !err && pass < BENCH_PASSES; pass++) {
		vm_unmap_aliases();
		drain.counts = true;
		err = fill(&drain) ?: probe_start(&probe);
		if (err)
			break;
		err = bench_on_cpu(0, free_and_purge, &drain, true);
		kthread_stop(probe.task);
		cost[pass] = per_page(&drain);
		worst[pass] = probe.worst;
	}
	if (!err) {
		bench_report(run, "per_page", "mns", cost, BENCH_PASSES,
			     drain.areas * (drain.pages + 1));
		bench_report(run, "preempt_off", "ns", worst, BENCH_PASSES, 1);
	}
	bench_free_areas(drain.vms, drain.areas);
	kvfree(drain.vms);
	return err;
}

/*
 * Areas that are given back, of two sizes in turns: ranges cached of one size do
 * not serve the other.
 */
#define GIVEN_BACK 64

static int give_back_measure(struct bench_run *run)
{
	u64 values[BENCH_PASSES];
	struct drain drain = {};
	int pass, err;

	err = drain_alloc(&drain, run, GIVEN_BACK, run->c->arg);
	for (pass = 0; !err && pass <= BENCH_PASSES; pass++) {
		drain.counts = pass;
		drain.pages = run->c->arg + pass % 2;
		err = fill(&drain) ?: bench_on_cpu(0, free_and_purge, &drain, true);
		if (!err && pass)
			values[pass - 1] = per_page(&drain);
	}
	if (!err)
		bench_report(run, "per_page", "mns", values, BENCH_PASSES,
			     drain.areas * (drain.pages + 1));
	bench_free_areas(drain.vms, drain.areas);
	kvfree(drain.vms);
	return err;
}

static u64 drain_need(const struct bench_case *c, unsigned int threads)
{
	return c->arg * 512ULL;
}

const struct bench_case bench_purge_cases[] = {
	{ .name = "purge_1", .arg = 1, .max_threads = 1, .measure = purge_measure },
	{ .name = "purge_16", .arg = 16, .max_threads = 1, .measure = purge_measure },
	{ .name = "purge_512", .arg = 512, .max_threads = 1, .measure = purge_measure },
	{ .name = "give_back", .arg = 2048, .max_threads = 1, .measure = give_back_measure },
	{ .name = "drain_100k_areas", .arg = DRAIN_AREAS, .max_threads = 1, .need = drain_need,
	  .measure = drain_measure },
	{ .name = "drain_1m_pages", .arg = 2048, .max_threads = 1, .need = drain_need,
	  .measure = drain_measure },
	{ }
};
