// SPDX-License-Identifier: GPL-2.0
/*
 * How long single calls take: on other CPUs while one CPU purges without pause,
 * and while somebody reads the list of all areas.
 */
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "bench.h"

/* Areas that the purging worker frees before each purge. */
#define BATCH 2048

struct latency {
	struct bench_hist alloc;
	struct bench_hist lookup;
	struct bench_hist free;
};

static void latency_teardown(struct bench_worker *w)
{
	kvfree(w->data);
	w->data = NULL;
}

static int latency_setup(struct bench_worker *w)
{
	w->data = w->index ? kvzalloc_obj(struct latency, GFP_KERNEL) :
			     kvcalloc(BATCH, sizeof(struct vm_struct *), GFP_KERNEL);
	return w->data ? 0 : -ENOMEM;
}

/* The first worker, until all others are through. */
static int keep_purging(struct bench_worker *w)
{
	struct bench_run *run = w->run;
	struct vm_struct **vms = w->data;
	unsigned int i, busy;
	int err = 0;

	do {
		for (i = 0; i < BATCH; i++) {
			vms[i] = get_vm_area(PAGE_SIZE, VM_ALLOC);
			if (!vms[i])
				err = -ENOMEM;
		}
		for (i = 0; i < BATCH; i++) {
			if (vms[i])
				free_vm_area(vms[i]);
		}
		vm_unmap_aliases();
		cond_resched();
		for (busy = 0, i = 1; i < run->threads; i++)
			busy += READ_ONCE(run->workers[i].done) < run->workers[i].ops;
	} while (!err && busy);
	return err;
}

static int time_calls(struct bench_worker *w)
{
	struct latency *latency = w->data;
	int err = 0;
	u32 i;

	for (i = 0; i < w->ops && !err; i++) {
		u64 start = ktime_get_ns(), got, found;
		struct vm_struct *vm = get_vm_area(PAGE_SIZE, VM_ALLOC);

		got = ktime_get_ns();
		if (!vm) {
			err = -ENOMEM;
			break;
		}
		if (find_vm_area(vm->addr) != vm)
			err = -ENOENT;
		found = ktime_get_ns();
		free_vm_area(vm);
		bench_hist_add(&latency->free, ktime_get_ns() - found);
		bench_hist_add(&latency->lookup, found - got);
		bench_hist_add(&latency->alloc, got - start);
		if (!(i & 1023))
			cond_resched();
	}
	WRITE_ONCE(w->done, w->ops);
	return err;
}

static int latency_phase(struct bench_worker *w, unsigned int phase)
{
	return w->index ? time_calls(w) : keep_purging(w);
}

static void latency_reset(struct bench_run *run)
{
	unsigned int i;

	for (i = 0; i < run->threads; i++)
		WRITE_ONCE(run->workers[i].done, 0);
}

/* Report what all workers from @first on have timed. */
static void report_from(struct bench_run *run, unsigned int first)
{
	struct latency *sum = run->workers[first].data;
	unsigned int i;

	for (i = first + 1; i < run->threads; i++) {
		struct latency *more = run->workers[i].data;

		bench_hist_merge(&sum->alloc, &more->alloc);
		bench_hist_merge(&sum->lookup, &more->lookup);
		bench_hist_merge(&sum->free, &more->free);
	}
	bench_hist_report(run, "alloc", &sum->alloc);
	bench_hist_report(run, "lookup", &sum->lookup);
	bench_hist_report(run, "free", &sum->free);
}

static void latency_report(struct bench_run *run)
{
	report_from(run, 1);
}

/* The files that are read meanwhile, and their file system. */
struct pair_watched {
	const char *fs;
	const char *paths[BENCH_WATCHED];
};

static const struct pair_watched pair_watched[] = {
	{ },
	{ "proc", { "vmallocinfo" } },
	{ "debugfs", { "vmap_rust/map", "vmap_rust/stats" } },
};

static int pair_setup(struct bench_run *run)
{
	const struct pair_watched *watched = &pair_watched[run->c->arg];
	struct bench_watch *watch;

	if (!watched->fs)
		return 0;
	watch = bench_watch_start(run, watched->fs, watched->paths);
	/* A kernel without the allocator in Rust has none of its files. */
	if (IS_ERR(watch) && !strcmp(watched->fs, "debugfs") && strcmp(bench_allocator(), "rust"))
		return 0;
	if (IS_ERR(watch))
		return PTR_ERR(watch);
	run->data = watch;
	return 0;
}

static void pair_teardown(struct bench_run *run)
{
	if (run->data)
		bench_watch_stop(run->data);
}

static int pair_worker_setup(struct bench_worker *w)
{
	w->data = kvzalloc_obj(struct latency, GFP_KERNEL);
	return w->data ? 0 : -ENOMEM;
}

static int pair_phase(struct bench_worker *w, unsigned int phase)
{
	return time_calls(w);
}

static void pair_report(struct bench_run *run)
{
	report_from(run, 0);
}

/* @files: an index of pair_watched. */
#define PAIR_LATENCY(files)								\
	.ops = 20000, .arg = (files), .setup = pair_setup, .teardown = pair_teardown,	\
	.worker_setup = pair_worker_setup, .worker_teardown = latency_teardown,		\
	.phase = pair_phase, .report = pair_report

const struct bench_case bench_latency_cases[] = {
	{ .name = "purge_latency", .ops = 20000, .min_threads = 2, .worker_setup = latency_setup,
	  .worker_teardown = latency_teardown, .phase = latency_phase, .untimed = latency_reset,
	  .report = latency_report },
	{ .name = "pair_latency", PAIR_LATENCY(0) },
	{ .name = "pair_latency_info", PAIR_LATENCY(1) },
	{ .name = "pair_latency_map", PAIR_LATENCY(2) },
	{ }
};
