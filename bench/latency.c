// SPDX-License-Identifier: GPL-2.0
/*
 * How long others wait while areas are freed and purged. On each CPU a task of
 * high real-time priority sleeps, with a timer, for a short random time, again
 * and again; "wake" is the longest time from the expiry of a timer to the run of
 * its task. The longest run of softirqs comes from bench/plugin/softirq.c, which
 * sees what runs between the marks.
 */
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <uapi/linux/sched/types.h>

#include "bench.h"

/*
 * Mean time that a task sleeps, in ns, for each CPU: with -icount all CPUs share
 * one clock. Longer while nothing is watched.
 */
#define SLEEP_NS 8000
#define IDLE_SLEEP_NS 125000

struct latency {
	struct bench_run *run;
	struct vm_struct **vms;
	u32 areas;
	/* Areas are being freed or purged: what the tasks see counts. */
	bool is_watched;
};

struct sleeper {
	struct latency *l;
	struct task_struct *task;
	struct rnd_state rnd;
	s64 longest;
};

static int sleep_and_wake(void *arg)
{
	struct sleeper *s = arg;

	sched_set_fifo(current);
	while (!kthread_should_stop()) {
		bool counts = READ_ONCE(s->l->is_watched);
		u32 mean = (counts ? SLEEP_NS : IDLE_SLEEP_NS) * num_online_cpus();
		u32 ns = mean / 2 + prandom_u32_state(&s->rnd) % mean;
		ktime_t expiry = ktime_add_ns(ktime_get(), ns);

		set_current_state(TASK_IDLE);
		if (!schedule_hrtimeout(&expiry, HRTIMER_MODE_ABS) && counts)
			s->longest = max(s->longest, ktime_get() - expiry);
	}
	return 0;
}

/*
 * With real-time priority: no purge comes before the last area is freed. What
 * a purge leaves to RCU and to workers counts, what requests leave does not.
 */
static int free_and_settle(void *arg)
{
	struct latency *l = arg;

	bench_settle();
	WRITE_ONCE(l->is_watched, true);
	bench_mark_begin(l->run->c->name, "", l->areas);
	bench_free_areas(l->vms, l->areas);
	vm_unmap_aliases();
	bench_settle();
	bench_mark_end();
	WRITE_ONCE(l->is_watched, false);
	return 0;
}

/* A purge that finds none of the areas freed: nothing asks for as much room any more. */
static int purge_another(void)
{
	struct vm_struct *vm;

	if (!bench_get_areas(&vm, 1, 1))
		return -ENOMEM;
	free_vm_area(vm);
	vm_unmap_aliases();
	return 0;
}

static int run_round(struct latency *l)
{
	int err = bench_get_areas(l->vms, l->areas, l->run->c->arg) ? 0 : -ENOMEM;

	if (!err)
		err = purge_another();
	if (!err)
		err = bench_first_cpu(free_and_settle, l);
	bench_free_areas(l->vms, l->areas);
	return err;
}

static void stop_sleepers(struct sleeper *sleepers)
{
	unsigned int cpu;

	for_each_online_cpu(cpu) {
		if (sleepers[cpu].task)
			kthread_stop(sleepers[cpu].task);
		sleepers[cpu].task = NULL;
	}
}

static int start_sleepers(struct latency *l, struct sleeper *sleepers)
{
	unsigned int cpu;

	for_each_online_cpu(cpu) {
		struct sleeper *s = &sleepers[cpu];
		struct task_struct *task;

		s->l = l;
		prandom_seed_state(&s->rnd, l->run->seed * BENCH_MAX_THREADS + cpu);
		task = kthread_run_on_cpu(sleep_and_wake, s, cpu, "vmap_bench_rt/%u");
		if (IS_ERR(task))
			return PTR_ERR(task);
		s->task = task;
	}
	return 0;
}

static int latency_measure(struct bench_run *run)
{
	struct latency l = { .run = run, .areas = run->workers[0].ops };
	struct sleeper *sleepers = kcalloc(nr_cpu_ids, sizeof(*sleepers), GFP_KERNEL);
	int err = -ENOMEM;
	s64 longest = 0;
	unsigned int cpu;

	l.vms = kvcalloc(l.areas, sizeof(*l.vms), GFP_KERNEL);
	if (sleepers && l.vms) {
		err = start_sleepers(&l, sleepers) ?: run_round(&l);
		stop_sleepers(sleepers);
		/* Once more without the tasks: runs of softirqs end early if one waits. */
		err = err ?: run_round(&l);
	}
	for_each_online_cpu(cpu)
		longest = err ? 0 : max(longest, sleepers[cpu].longest);
	if (!err)
		bench_report_one(run, "wake", "ns", longest, l.areas);
	kvfree(l.vms);
	kfree(sleepers);
	return err;
}

#define LATENCY(label, text, areas, pages) \
	{ .name = label, .what = text, .ops = areas, .arg = pages, .max_threads = 1, \
	  .need = bench_areas_need, .measure = latency_measure }

const struct bench_case bench_latency_cases[] = {
	LATENCY("latency_1", "longest wake-up while 60,000 areas of a page are purged", 60000, 1),
	LATENCY("latency_64", "longest wake-up while 4,000 areas of 64 pages are purged", 4000, 64),
	LATENCY("latency_4096", "longest wake-up while 40 areas of 16 MiB are purged", 40, 4096),
	{ }
};
