// SPDX-License-Identifier: GPL-2.0
/*
 * Lines for the log. After "vmap_bench: " they are
 *
 *   start format=1 allocator=rust release=7.3.4 cpus=1 page_size=4096 ...
 *   result case=area_pair threads=1 metric=cost unit=ns value=2003 min=2001
 *          max=2010 passes=5 ops=20000 (one line)
 *   hist case=latency threads=2 metric=alloc unit=ns buckets=1024:17,1088:3
 *   skip case=cross_cpu threads=1 reason=needs 2 workers or more
 *   error ...
 *   end failed=0
 *
 * value is the middle of the passes, in thousandths of the unit if that is
 * "mns", thousandths of a nanosecond.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitops.h>
#include <linux/math64.h>
#include <linux/printk.h>
#include <linux/sort.h>

#include "bench.h"

#ifdef CONFIG_VMAP_AREA_OPS
#include <linux/vmap_area_ops.h>

const char *bench_allocator(void)
{
	return vmap_area_ops_enabled() ? vmap_area_ops->name : "rbtree";
}
#else
const char *bench_allocator(void)
{
	return "rbtree";
}
#endif

static int compare_u64(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/**
 * bench_report() - report one metric of a run
 * @values: of each pass; sorted afterwards
 * @n: passes
 * @ops: operations of all workers in one pass
 */
void bench_report(const struct bench_run *run, const char *metric,
		  const char *unit, u64 *values, unsigned int n, u32 ops)
{
	sort(values, n, sizeof(values[0]), compare_u64, NULL);
	pr_info("result case=%s threads=%u metric=%s unit=%s value=%llu min=%llu max=%llu passes=%u ops=%u\n",
		run->c->name, run->threads, metric, unit, values[n / 2],
		values[0], values[n - 1], n, ops);
}

/* Report a metric that there is only one of. */
void bench_report_one(const struct bench_run *run, const char *metric,
		      const char *unit, u64 value, u32 ops)
{
	bench_report(run, metric, unit, &value, 1, ops);
}

/* Say why a case is not measured. @why may have one %llu for @number. */
void bench_skip(const struct bench_run *run, const char *why, u64 number)
{
	char reason[80];

	snprintf(reason, sizeof(reason), why, number);
	pr_info("skip case=%s threads=%u reason=%s\n", run->c->name, run->threads, reason);
}

/* The four bits below the highest one choose among the buckets of a power of two. */
static unsigned int hist_bucket(u64 ns)
{
	unsigned int top = fls64(ns);

	if (top <= 4)
		return ns;
	return (top - 4) * 16 + ((ns >> (top - 5)) & 15);
}

/* The smallest value that goes into a bucket. */
static u64 hist_floor(unsigned int bucket)
{
	unsigned int top = bucket / 16 + 4;

	if (bucket < 16)
		return bucket;
	return (16ULL + bucket % 16) << (top - 5);
}

void bench_hist_add(struct bench_hist *hist, u64 ns)
{
	hist->buckets[hist_bucket(ns)]++;
	hist->count++;
	hist->max = max(hist->max, ns);
}

void bench_hist_merge(struct bench_hist *into, const struct bench_hist *from)
{
	int i;

	for (i = 0; i < BENCH_HIST_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
	into->count += from->count;
	into->max = max(into->max, from->max);
}

/* The value that @permyriad of 10000 are not above. */
static u64 hist_percentile(const struct bench_hist *hist, u64 permyriad)
{
	u64 rank = DIV_ROUND_UP_ULL(hist->count * permyriad, 10000), seen = 0;
	int i;

	for (i = 0; i < BENCH_HIST_BUCKETS; i++) {
		seen += hist->buckets[i];
		if (seen >= rank)
			return hist_floor(i);
	}
	return hist->max;
}

/* Report percentiles as metrics WHAT_p50 ..., and the buckets in lines of a bounded length. */
void bench_hist_report(const struct bench_run *run, const char *what,
		       const struct bench_hist *hist)
{
	static const struct {
		const char *name;
		u64 permyriad;
	} marks[] = {
		{ "p50", 5000 }, { "p99", 9900 }, { "p99.9", 9990 },
	};
	char metric[32], line[400];
	int i, length = 0;

	if (!hist->count)
		return;
	for (i = 0; i < ARRAY_SIZE(marks); i++) {
		snprintf(metric, sizeof(metric), "%s_%s", what, marks[i].name);
		bench_report_one(run, metric, "ns", hist_percentile(hist, marks[i].permyriad),
				 hist->count);
	}
	snprintf(metric, sizeof(metric), "%s_max", what);
	bench_report_one(run, metric, "ns", hist->max, hist->count);

	for (i = 0; i < BENCH_HIST_BUCKETS; i++) {
		if (hist->buckets[i])
			length += scnprintf(line + length, sizeof(line) - length, "%s%llu:%u",
					    length ? "," : "", hist_floor(i), hist->buckets[i]);
		if (length > (int)sizeof(line) - 40 || (i == BENCH_HIST_BUCKETS - 1 && length)) {
			pr_info("hist case=%s threads=%u metric=%s unit=ns buckets=%s\n",
				run->c->name, run->threads, what, line);
			length = 0;
		}
	}
}
