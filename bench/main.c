// SPDX-License-Identifier: GPL-2.0
/*
 * What vmap areas cost, with whichever allocator was booted.
 *
 * Runs at boot if the kernel command line has vmap_bench.run=, and whenever root writes
 * to /sys/module/vmap_bench/parameters/run, as tools/vmap-bench does:
 *
 *   vmap_bench.run=all                 all cases
 *   vmap_bench.run=area_pair,lookup_*  some; "*" at the end is any rest
 *   vmap_bench.run=all,-map_*          all but these
 *   vmap_bench.run=list                only what there is
 *   vmap_bench.threads=1,2,4           workers, each bound to a CPU of its own
 *   vmap_bench.scale=25                operations, in percent
 *   vmap_bench.seed=7                  of random orders, sizes and addresses
 *   vmap_bench.keep=1                  leave a mapping of each case of ../mapping/bench.c
 *   vmap_bench.restart=1               restart the machine at the end
 *
 * and prints lines for harness/bench/, which boots it often enough to say what
 * differs. See report.c for the lines.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/reboot.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/utsname.h>

#include "bench.h"

static char *run;
static int set_run(const char *value, const struct kernel_param *kp);
static const struct kernel_param_ops run_ops = {
	.set = set_run, .get = param_get_charp, .free = param_free_charp,
};
module_param_cb(run, &run_ops, &run, 0644);
MODULE_PARM_DESC(run, "Cases, separated by commas, \"all\", \"-\" before those to leave out, or \"list\"; nothing is measured without");

static char *threads = "1";
module_param(threads, charp, 0644);
MODULE_PARM_DESC(threads, "Numbers of workers, separated by commas; at most one for each CPU (default 1)");

static uint scale = 100;
module_param(scale, uint, 0644);
MODULE_PARM_DESC(scale, "Operations, in percent of what a case asks for, 1 to 10000 (default 100)");

static ullong seed = 1;
module_param(seed, ullong, 0644);
MODULE_PARM_DESC(seed, "Seed of random orders, sizes and addresses (default 1)");

static bool restart;
module_param(restart, bool, 0444);
MODULE_PARM_DESC(restart, "Restart the machine at the end, for guests: each boot ends so (default 0)");

static const struct bench_case *const tables[] = {
	bench_pair_cases, bench_mixed_cases, bench_lookup_cases, bench_info_cases,
	bench_purge_cases, bench_growth_cases, bench_aliases_cases, bench_memory_cases,
	bench_mapping_cases, bench_vread_cases, bench_latency_cases, bench_complaint_cases,
};

static bool leaves_out(const char *word)
{
	return word[0] == '-';
}

/* Does one word of run= name this case, be it to run it or to leave it out? */
static bool word_matches(const char *word, size_t length, const char *name)
{
	if (length && leaves_out(word)) {
		word++;
		length--;
	}
	if (length == 3 && !strncmp(word, "all", length))
		return true;
	if (length && word[length - 1] == '*')
		return !strncmp(word, name, length - 1);
	return strlen(name) == length && !strncmp(word, name, length);
}

static bool word_is_known(const char *word, size_t length)
{
	const struct bench_case *c;
	int i;

	for (i = 0; i < ARRAY_SIZE(tables); i++) {
		for (c = tables[i]; c->name; c++) {
			if (word_matches(word, length, c->name))
				return true;
		}
	}
	return false;
}

static bool is_wanted(const char *name)
{
	const char *word = run;
	bool wanted = false;

	for (;;) {
		size_t length = strcspn(word, ",");

		if (word_matches(word, length, name)) {
			if (leaves_out(word))
				return false;
			wanted = true;
		}
		if (!word[length])
			return wanted;
		word += length + 1;
	}
}

/* Everything that is wrong with the parameters is said, and nothing measured then. */
static int check_parameters(uint *counts, int *n)
{
	const char *word = run;
	char *rest = threads;
	int most = min(num_online_cpus(), BENCH_MAX_THREADS);

	for (;;) {
		size_t length = strcspn(word, ",");

		if (!word_is_known(word, length)) {
			pr_err("error: unknown case \"%.*s\" in run=; run=list prints them\n",
			       (int)length, word);
			return -EINVAL;
		}
		if (!word[length])
			break;
		word += length + 1;
	}

	for (*n = 0;;) {
		int count, more = get_option(&rest, &count);

		/* 1 is the last number, 2 one with more behind it. */
		if ((more != 1 && more != 2) || count < 1 || count > most || (more == 1 && *rest)) {
			pr_err("error: threads=%s: each must be a number from 1 to %d (CPUs)\n",
			       threads, most);
			return -EINVAL;
		}
		if (*n == BENCH_MAX_THREADS) {
			pr_err("error: threads=: more than %d numbers\n", BENCH_MAX_THREADS);
			return -EINVAL;
		}
		counts[(*n)++] = count;
		if (more == 1)
			break;
	}

	if (!scale || scale > 10000) {
		pr_err("error: scale=%u is not from 1 to 10000\n", scale);
		return -EINVAL;
	}
	return 0;
}

static bool fits(const struct bench_case *c, uint count)
{
	return !c->max_threads || count <= c->max_threads;
}

/* Is there a number of workers that the case can run with? If not, say so once. */
static void skip_unless_one_fits(struct bench_run *r, const uint *counts, int n)
{
	int t;

	for (t = 0; t < n; t++) {
		if (fits(r->c, counts[t]))
			return;
	}
	bench_skip(r, "works with %llu workers at most", r->c->max_threads);
}

static void list_cases(void)
{
	const struct bench_case *c;
	int i;

	for (i = 0; i < ARRAY_SIZE(tables); i++) {
		for (c = tables[i]; c->name; c++)
			pr_info("case %s: %s\n", c->name, c->what);
	}
}

static int run_cases(void)
{
	const struct bench_case *c;
	uint *counts, failed = 0;
	struct bench_run *r;
	int i, t, n;

	if (!run || !*run)
		return 0;
	if (!strcmp(run, "list")) {
		list_cases();
		return 0;
	}

	counts = kmalloc_array(BENCH_MAX_THREADS, sizeof(*counts), GFP_KERNEL);
	r = kzalloc_obj(*r, GFP_KERNEL);
	if (!counts || !r) {
		pr_err("error: no memory to begin with\n");
		failed = 1;
		goto out;
	}
	if (check_parameters(counts, &n)) {
		failed = 1;
		goto out;
	}

	pr_info("start allocator=%s release=%s cpus=%u page_size=%lu scale=%u seed=%llu\n",
		bench_allocator(), init_utsname()->release, num_online_cpus(),
		PAGE_SIZE, scale, seed);
	for (t = 0; t < n; t++) {
		for (i = 0; i < ARRAY_SIZE(tables); i++) {
			for (c = tables[i]; c->name; c++) {
				if (!is_wanted(c->name))
					continue;
				memset(r, 0, sizeof(*r));
				r->c = c;
				r->threads = counts[t];
				r->scale = scale;
				r->seed = seed;
				if (!fits(c, counts[t])) {
					if (!t)
						skip_unless_one_fits(r, counts, n);
					continue;
				}
				if (bench_run_case(r))
					failed++;
				/* What it left behind is not the next one's cost. */
				vm_unmap_aliases();
			}
		}
	}
	pr_info("end failed=%u\n", failed);
out:
	kfree(r);
	kfree(counts);
	if (restart)
		kernel_restart(NULL);
	return failed ? -EINVAL : 0;
}

static bool is_booted;

/* Up to the end of the boot only keeps the words. The parameters have a lock: one at a time. */
static int set_run(const char *value, const struct kernel_param *kp)
{
	int err = param_set_charp(value, kp);

	if (!err && is_booted) {
		strim(run);
		err = run_cases();
	}
	return err;
}

static int __init vmap_bench_init(void)
{
	is_booted = true;
	return run_cases();
}

/* After test_vmalloc, a late_initcall, too: the case page_tables shows what that leaves. */
late_initcall_sync(vmap_bench_init);
