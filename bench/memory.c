// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that one live area of one page takes, wherever it is: all slab caches
 * and percpu memory, so that nothing an allocator keeps is left out. What an
 * earlier case left in an allocator's caches would hide some of it: it is the
 * first thing to run after a boot, by itself.
 */
#include <linux/mm.h>
#include <linux/math64.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include <../mm/slab.h>

#include "bench.h"

/* Live areas at which it is looked at; they are added up, none is freed between. */
static const unsigned long steps[] = { 1000, 16000, 100000 };

#define MOST steps[ARRAY_SIZE(steps) - 1]

static u64 memory_need(const struct bench_case *c, unsigned int threads)
{
	return MOST * 512ULL;
}

#ifdef CONFIG_SLUB_DEBUG

#define MAX_CACHES 512

/* What the slab caches hold, in the order of their list. */
struct snapshot {
	unsigned int caches;
	u64 percpu;
	struct {
		struct kmem_cache *cache;
		u64 slabs;
		u64 objects;
	} at[MAX_CACHES];
};

static void list_caches(struct snapshot *s)
{
	struct kmem_cache *cache;

	s->caches = 0;
	mutex_lock(&slab_mutex);
	list_for_each_entry(cache, &slab_caches, list) {
		if (s->caches < MAX_CACHES)
			s->at[s->caches++].cache = cache;
	}
	mutex_unlock(&slab_mutex);
}

/*
 * Caches are destroyed with the module or file system that made them, and none
 * goes away while initcalls run: the pointers stay good without slab_mutex,
 * which cannot be held here.
 */
static void take(struct snapshot *s)
{
	struct slabinfo info;
	unsigned int i;

	/* What waits for a grace period or in a per-CPU list is not in use. */
	vm_unmap_aliases();
	rcu_barrier();
	list_caches(s);
	for (i = 0; i < s->caches; i++)
		kmem_cache_shrink(s->at[i].cache);

	s->percpu = pcpu_nr_pages() * PAGE_SIZE;
	for (i = 0; i < s->caches; i++) {
		get_slabinfo(s->at[i].cache, &info);
		s->at[i].slabs = (u64)info.num_slabs * (PAGE_SIZE << info.cache_order);
		s->at[i].objects = (u64)info.active_objs * s->at[i].cache->size;
	}
}

/* Bytes for each of @areas, in thousandths. WHAT_1000 for example is the metric. */
static void report_bytes(struct bench_run *run, const char *what, unsigned long areas, s64 bytes)
{
	char metric[64];

	snprintf(metric, sizeof(metric), "%s_%lu", what, areas);
	bench_report_one(run, metric, "mbytes", div_u64(max(bytes, 0LL) * 1000, areas), areas);
}

static void report(struct bench_run *run, const struct snapshot *before,
		   const struct snapshot *after, unsigned long areas)
{
	s64 slabs = after->percpu - before->percpu, objects = slabs;
	char what[48];
	unsigned int i;

	for (i = 0; i < min(before->caches, after->caches); i++) {
		s64 bytes = after->at[i].objects - before->at[i].objects;

		if (before->at[i].cache != after->at[i].cache)
			break;
		slabs += after->at[i].slabs - before->at[i].slabs;
		objects += bytes;
		/* The parts that matter: a byte for each area and more. */
		if (bytes >= (s64)areas) {
			snprintf(what, sizeof(what), "in_%s", after->at[i].cache->name);
			report_bytes(run, what, areas, bytes);
		}
	}
	report_bytes(run, "objects", areas, objects);
	report_bytes(run, "slabs", areas, slabs);
}

/* What is still held after all have been freed and purged, in whole slabs. */
static void report_left(struct bench_run *run, const struct snapshot *before,
			const struct snapshot *after)
{
	s64 slabs = after->percpu - before->percpu;
	unsigned int i;

	for (i = 0; i < min(before->caches, after->caches); i++)
		slabs += after->at[i].slabs - before->at[i].slabs;
	report_bytes(run, "left_after", MOST, slabs);
}

static int grow(struct bench_run *run, struct vm_struct **vms,
		const struct snapshot *before, struct snapshot *after)
{
	unsigned long live = 0;
	int step;

	for (step = 0; step < ARRAY_SIZE(steps); step++) {
		if (!bench_get_areas(vms + live, steps[step] - live, 1))
			return -ENOMEM;
		live = steps[step];
		take(after);
		report(run, before, after, steps[step]);
	}
	return 0;
}

static int memory_measure(struct bench_run *run)
{
	struct snapshot *before = kvmalloc_obj(*before, GFP_KERNEL);
	struct snapshot *after = kvmalloc_obj(*after, GFP_KERNEL);
	struct vm_struct **vms = kvcalloc(MOST, sizeof(*vms), GFP_KERNEL);
	int err = -ENOMEM;

	if (before && after && vms) {
		take(before);
		err = grow(run, vms, before, after);
		bench_free_areas(vms, MOST);
		take(after);
		if (!err)
			report_left(run, before, after);
	}
	kvfree(vms);
	kvfree(after);
	kvfree(before);
	return err;
}

#else /* CONFIG_SLUB_DEBUG */

static int memory_measure(struct bench_run *run)
{
	bench_skip(run, "the kernel is without CONFIG_SLUB_DEBUG", 0);
	return 0;
}

#endif /* CONFIG_SLUB_DEBUG */

const struct bench_case bench_memory_cases[] = {
	{ .name = "memory",
	  .what = "bytes for each of 1,000 to 100,000 live areas, and what is left",
	  .max_threads = 1, .need = memory_need, .measure = memory_measure },
	{ }
};
