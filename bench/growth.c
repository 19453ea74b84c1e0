// SPDX-License-Identifier: GPL-2.0
/*
 * Page tables of a load of large areas of sizes that seldom come again, beside
 * small pairs and vm_unmap_aliases(), as set_memory_ro() and BPF make it. Page
 * tables of vmalloc space are never freed, so they show whether an allocator
 * goes to ever new addresses. It begins with one purge of many large areas. And
 * a count of the tables of PTEs, for loads that ran before.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/pagewalk.h>
#include <linux/pgtable.h>
#include <linux/slab.h>
#include <linux/vmstat.h>

#include "bench.h"

#define ROUNDS 4000
#define PURGED 40
#define PAIRS 30
/* Purges before tables are counted. */
#define LATER_PURGES 130
/* Pages of an area: those of the first purge, and those of a round. */
#define MIN_PURGED 1100
#define MAX_PURGED 5000
#define MIN_PAGES 1025
#define MAX_PAGES 8024

struct growth {
	struct rnd_state rnd;
	struct page *pages[MAX_PAGES];
	void *mem[PURGED];
};

static u64 growth_need(const struct bench_case *c, unsigned int threads)
{
	return SZ_64M;
}

/* KiB of all page tables. A worker, which may begin late, frees tables after a grace period. */
u64 bench_tables_kib(void)
{
	synchronize_rcu();
	synchronize_rcu();
	fsleep(10 * USEC_PER_MSEC);
	return global_node_page_state(NR_PAGETABLE) * (PAGE_SIZE / SZ_1K);
}

/* Maps one page again and again. */
static void *growth_map(struct growth *g, unsigned int min, unsigned int max)
{
	unsigned int pages = min + prandom_u32_state(&g->rnd) % (max - min + 1);

	return vmap(g->pages, pages, VM_MAP, PAGE_KERNEL);
}

/* With real-time priority: no purge comes before the last area is freed. */
static int growth_unmap_all(void *arg)
{
	struct growth *g = arg;
	int i;

	for (i = 0; i < PURGED; i++)
		vunmap(g->mem[i]);
	vm_unmap_aliases();
	return 0;
}

static int growth_round(struct growth *g)
{
	void *large = growth_map(g, MIN_PAGES, MAX_PAGES);
	int i, err = large ? 0 : -ENOMEM;

	for (i = 0; !err && i < PAIRS; i++) {
		void *small = vmalloc(PAGE_SIZE);

		err = small ? 0 : -ENOMEM;
		vfree(small);
	}
	vunmap(large);
	vm_unmap_aliases();
	cond_resched();
	return err;
}

static int growth_measure(struct bench_run *run)
{
	u64 rounds = max(1ULL, (u64)ROUNDS * run->scale / 100), before = bench_tables_kib();
	struct growth *g = kvzalloc_obj(*g);
	struct page *page = alloc_page(GFP_KERNEL);
	int i, err = g && page ? 0 : -ENOMEM;

	if (!err) {
		prandom_seed_state(&g->rnd, run->seed);
		for (i = 0; i < MAX_PAGES; i++)
			g->pages[i] = page;
	}
	for (i = 0; !err && i < PURGED; i++) {
		g->mem[i] = growth_map(g, MIN_PURGED, MAX_PURGED);
		err = g->mem[i] ? 0 : -ENOMEM;
	}
	if (g)
		err = bench_first_cpu(growth_unmap_all, g) ?: err;
	for (i = 0; !err && i < rounds; i++)
		err = growth_round(g);
	if (!err)
		bench_report_one(run, "page_tables", "KiB", bench_tables_kib() - before, rounds);
	if (page)
		__free_page(page);
	kvfree(g);
	return err;
}

struct tables {
	u64 all;
	u64 used;
};

static int count_table(pmd_t *pmd, unsigned long addr, unsigned long next, struct mm_walk *walk)
{
	struct tables *tables = walk->private;
	pte_t *pte;
	int i;

	if (pmd_leaf(pmdp_get(pmd)))
		return 0;
	tables->all++;
	pte = pte_offset_kernel(pmd, addr & PMD_MASK);
	for (i = 0; i < PTRS_PER_PTE; i++) {
		if (!pte_none(ptep_get(pte + i)))
			break;
	}
	tables->used += i < PTRS_PER_PTE;
	return 0;
}

static int tables_measure(struct bench_run *run)
{
	static const struct mm_walk_ops ops = { .pmd_entry = count_table };
	struct tables tables = {};
	int i, err;

	/* What purges keep for a while goes. */
	for (i = 0; i < LATER_PURGES; i++) {
		vfree(vmalloc(PAGE_SIZE));
		vm_unmap_aliases();
	}
	mmap_write_lock(&init_mm);
	err = walk_kernel_page_table_range(VMALLOC_START, VMALLOC_END, &ops, NULL, &tables);
	mmap_write_unlock(&init_mm);
	if (err)
		return err;
	bench_report_one(run, "all", "tables", tables.all, 1);
	bench_report_one(run, "used", "tables", tables.used, 1);
	return 0;
}

const struct bench_case bench_growth_cases[] = {
	{ .name = "growth",
	  .what = "page tables after 4,000 large areas beside small ones and purges",
	  .max_threads = 1, .need = growth_need, .measure = growth_measure },
	{ .name = "page_tables",
	  .what = "tables of PTEs in vmalloc space, and those with an entry",
	  .max_threads = 1, .measure = tables_measure },
	{ }
};
