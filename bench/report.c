// SPDX-License-Identifier: GPL-2.0
/*
 * Lines for the log. After "vmap_bench: " they are
 *
 *   start allocator=rust release=7.3.4 cpus=1 page_size=4096 ...
 *   result case=area_pair threads=1 metric=cost unit=ns value=2003 min=2001
 *          max=2010 passes=5 ops=20000 (one line)
 *   skip case=memory threads=2 reason=works with 1 workers at most
 *   error ...
 *   end failed=0
 *
 * value is the middle of the passes, in thousandths of the unit if that is
 * "mns", thousandths of a nanosecond.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/printk.h>
#include <linux/sort.h>

#include "bench.h"

#ifdef CONFIG_VMAP_RUST
#include <linux/vmap_rust.h>

const char *bench_allocator(void)
{
	return vmap_rust_enabled() ? "rust" : "rbtree";
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
