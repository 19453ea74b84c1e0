// SPDX-License-Identifier: GPL-2.0
/*
 * Mapping of memory that is contiguous in parts: vmap() of pages of some orders,
 * ioremap(), vmalloc_huge(), and the mapping of the latter alone.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/pgtable.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "../bench/bench.h"

static bool keep;
module_param(keep, bool, 0444);
MODULE_PARM_DESC(keep, "Leave the first mapping of each case of vmap(), ioremap() and vmalloc_huge() in place, for a look at page tables");

/* Tells whether that mapping stays. Its memory stays, too. */
static bool is_kept(struct bench_worker *w, const void __iomem *p, unsigned long size)
{
	static const struct bench_case *last;
	unsigned long start = (unsigned long)p;

	if (!keep || last == w->run->c)
		return false;
	last = w->run->c;
	pr_info("kept case=%s start=%lx end=%lx\n", last->name, start, start + size);
	return true;
}

/* Whether a table of PTEs is there for an address that is mapped. */
static bool has_table(unsigned long addr)
{
	pud_t *pud = pud_offset(p4d_offset(pgd_offset_k(addr), addr), addr);
	pmd_t pmd;

	if (pud_leaf(*pud))
		return false;
	pmd = pmdp_get(pmd_offset(pud, addr));
	return !pmd_none(pmd) && !pmd_leaf(pmd);
}

/* Reports the bytes of the tables of PTEs below a mapping. */
static void report_tables(const struct bench_run *run, const void __iomem *p, unsigned long size)
{
	unsigned long start = (unsigned long)p, addr = start;
	u64 bytes = 0;

	for (; addr < start + size; addr = ALIGN_DOWN(addr, PMD_SIZE) + PMD_SIZE)
		bytes += has_table(addr) ? PAGE_SIZE : 0;
	bench_report_one(run, "tables", "B", bytes, 1);
}

/* @arg of a case of vmap(): its pages, and the order in which they come. */
#define ORDER_BITS 8
#define ARG(size, order) ((size) / PAGE_SIZE << ORDER_BITS | (order))
#define MIXED 255

static unsigned long arg_pages(const struct bench_case *c)
{
	return c->arg >> ORDER_BITS;
}

static unsigned int arg_order(const struct bench_case *c)
{
	return c->arg & ((1 << ORDER_BITS) - 1);
}

/* The order of the pages from number @nr on: that of the case, but no more than are left. */
static unsigned int order_at(const struct bench_case *c, unsigned long nr, unsigned int chunk)
{
	static const u8 mixed[] = { 6, 0, 4, 0, 0, 7, 2, 0, 8, 4, 9, 1 };
	unsigned int order = arg_order(c);

	if (order == MIXED)
		order = mixed[chunk % ARRAY_SIZE(mixed)];
	return min3(order, (unsigned int)MAX_PAGE_ORDER, (unsigned int)ilog2(arg_pages(c) - nr));
}

static void *vmap_once(struct bench_worker *w)
{
	return vmap(w->data, arg_pages(w->run->c), VM_MAP | VM_ALLOW_HUGE_VMAP, PAGE_KERNEL);
}

static void vmap_tables(struct bench_worker *w)
{
	void *p = vmap_once(w);

	if (!p)
		return;
	report_tables(w->run, (void __iomem __force *)p, arg_pages(w->run->c) * PAGE_SIZE);
	vunmap(p);
}

static void pages_teardown(struct bench_worker *w)
{
	const struct bench_case *c = w->run->c;
	struct page **pages = w->data;
	unsigned long nr, n = arg_pages(c);
	unsigned int chunk, order;

	if (!pages || keep)
		return;
	/* The last page of all is there only after a whole setup. */
	if (!w->index && pages[n - 1])
		vmap_tables(w);
	/* The first page of each chunk is kept once more, in the order of allocation. */
	for (nr = 0, chunk = 0; nr < n && pages[n + nr]; nr += 1UL << order, chunk++) {
		order = order_at(c, nr, chunk);
		__free_pages(pages[n + nr], order);
	}
	kvfree(pages);
	w->data = NULL;
}

/* Adds the pages of every second chunk to the array, from the first or the second one on. */
static unsigned long add_chunks(const struct bench_case *c, struct page **pages,
				unsigned long filled, unsigned int parity)
{
	unsigned long nr, i, n = arg_pages(c);
	unsigned int chunk, order;

	for (nr = 0, chunk = 0; nr < n; nr += 1UL << order, chunk++) {
		order = order_at(c, nr, chunk);
		for (i = 0; chunk % 2 == parity && i < 1UL << order; i++)
			pages[filled++] = pages[n + nr] + i;
	}
	return filled;
}

/*
 * The pages of the case, at w->data. Chunks that were allocated one after the other are often
 * contiguous: every second one comes first, and single pages are shuffled.
 */
static int pages_setup(struct bench_worker *w)
{
	const struct bench_case *c = w->run->c;
	unsigned long nr, i, n = arg_pages(c);
	struct page **pages = kvcalloc(2 * n, sizeof(*pages), GFP_KERNEL);
	unsigned int chunk, order;

	w->data = pages;
	if (!pages)
		return -ENOMEM;
	for (nr = 0, chunk = 0; nr < n; nr += 1UL << order, chunk++) {
		struct page *page;

		order = order_at(c, nr, chunk);
		page = alloc_pages(GFP_KERNEL | __GFP_NOWARN | (order ? __GFP_COMP : 0), order);
		if (!page)
			return -ENOMEM;
		pages[n + nr] = page;
	}
	add_chunks(c, pages, add_chunks(c, pages, 0, 0), 1);
	for (i = n; !arg_order(c) && i > 1; i--) {
		nr = prandom_u32_state(&w->rnd) % i;
		swap(pages[i - 1], pages[nr]);
	}
	return 0;
}

static u64 pages_need(const struct bench_case *c, unsigned int threads)
{
	return 2ULL * threads * arg_pages(c) * PAGE_SIZE;
}

static int vmap_phase(struct bench_worker *w, unsigned int nr)
{
	u32 i;

	for (i = 0; i < w->ops; i++) {
		void *p = vmap_once(w);

		if (!p)
			return -ENOMEM;
		if (!is_kept(w, (void __iomem __force *)p, arg_pages(w->run->c) * PAGE_SIZE))
			vunmap(p);
		cond_resched();
	}
	return 0;
}

/* Physical addresses that nothing uses, for ioremap() of @arg bytes; they are never accessed. */
static int hole_setup(struct bench_run *run)
{
	struct resource *hole = kzalloc_obj(*hole, GFP_KERNEL);
	int err;

	if (!hole)
		return -ENOMEM;
	hole->name = "vmap_bench";
	hole->flags = IORESOURCE_MEM;
	err = allocate_resource(&iomem_resource, hole, SZ_16M, SZ_256M, -1UL, SZ_16M, NULL, NULL);
	if (err)
		kfree(hole);
	else
		run->data = hole;
	return err;
}

static void hole_teardown(struct bench_run *run)
{
	struct resource *hole = run->data;
	void __iomem *p;

	if (!hole)
		return;
	p = keep ? NULL : ioremap(hole->start, run->c->arg);
	if (p) {
		report_tables(run, p, run->c->arg);
		iounmap(p);
	}
	release_resource(run->data);
	kfree(run->data);
	run->data = NULL;
}

static int ioremap_phase(struct bench_worker *w, unsigned int nr)
{
	struct resource *hole = w->run->data;
	u32 i;

	for (i = 0; i < w->ops; i++) {
		void __iomem *p = ioremap(hole->start, w->run->c->arg);

		if (!p)
			return -ENOMEM;
		if (!is_kept(w, p, w->run->c->arg))
			iounmap(p);
		cond_resched();
	}
	return 0;
}

static int huge_phase(struct bench_worker *w, unsigned int nr)
{
	u32 i;

	for (i = 0; i < w->ops; i++) {
		void *p = vmalloc_huge(w->run->c->arg, GFP_KERNEL);

		if (!p)
			return -ENOMEM;
		if (!is_kept(w, (void __iomem __force *)p, w->run->c->arg))
			vfree(p);
		cond_resched();
	}
	return 0;
}

static void huge_tables(struct bench_run *run)
{
	void *p = keep ? NULL : vmalloc_huge(run->c->arg, GFP_KERNEL);

	if (!p)
		return;
	report_tables(run, (void __iomem __force *)p, run->c->arg);
	vfree(p);
}

static u64 huge_need(const struct bench_case *c, unsigned int threads)
{
	return 4ULL * threads * c->arg;
}

/* The mapping of vmalloc_huge() alone: @arg of a case is in bytes. */
#define MAPS 32

struct maps {
	struct page *memory;
	struct page **pages;
	struct vm_struct *areas[MAPS];
};

static void map_teardown(struct bench_worker *w)
{
	struct maps *maps = w->data;
	int i;

	if (!maps)
		return;
	for (i = 0; i < MAPS && maps->areas[i]; i++)
		free_vm_area(maps->areas[i]);
	if (maps->memory)
		__free_pages(maps->memory, get_order(w->run->c->arg));
	kvfree(maps->pages);
	kfree(maps);
	w->data = NULL;
}

/* What the largest entry that vmalloc_huge() would use maps. */
static unsigned int map_shift(const struct bench_case *c)
{
	if (!IS_ENABLED(CONFIG_HAVE_ARCH_HUGE_VMALLOC))
		return PAGE_SHIFT;
	if (arch_vmap_pmd_supported(PAGE_KERNEL) && c->arg >= PMD_SIZE)
		return PMD_SHIFT;
	return arch_vmap_pte_supported_shift(c->arg);
}

static int map_setup(struct bench_worker *w)
{
	const struct bench_case *c = w->run->c;
	struct maps *maps = kzalloc_obj(*maps, GFP_KERNEL);
	unsigned long i;

	w->data = maps;
	if (!maps)
		return -ENOMEM;
	maps->pages = kvcalloc(c->arg / PAGE_SIZE, sizeof(*maps->pages), GFP_KERNEL);
	maps->memory = alloc_pages(GFP_KERNEL | __GFP_COMP, get_order(c->arg));
	if (!maps->pages || !maps->memory)
		return -ENOMEM;
	for (i = 0; i < c->arg / PAGE_SIZE; i++)
		maps->pages[i] = maps->memory + i;
	for (i = 0; i < MAPS; i++) {
		/* VM_IOREMAP aligns the area to its size. */
		maps->areas[i] = get_vm_area(c->arg, VM_IOREMAP);
		if (!maps->areas[i])
			return -ENOMEM;
	}
	return 0;
}

static int map_phase(struct bench_worker *w, unsigned int nr)
{
	const struct bench_case *c = w->run->c;
	struct maps *maps = w->data;
	u32 i;

	/* With vmap_bench.scale above 100. */
	if (w->ops > MAPS)
		return -EINVAL;
	for (i = 0; i < w->ops; i++) {
		unsigned long addr = (unsigned long)maps->areas[i]->addr;
		int err;

		if (nr) {
			vunmap_range(addr, addr + c->arg);
			continue;
		}
		err = vmap_pages_range(addr, addr + c->arg, PAGE_KERNEL, maps->pages, map_shift(c));
		if (err)
			return err;
	}
	return 0;
}

#define VMAP(label, text, size, order, n) \
	{ .name = label, .what = text, .ops = n, .arg = ARG(size, order), .need = pages_need, \
	  .worker_setup = pages_setup, .worker_teardown = pages_teardown, .phase = vmap_phase }
/* As many operations as areas: each is mapped once and unmapped once in a pass. */
#define MAP(label, text, size) \
	{ .name = label, .what = text, .ops = MAPS, .max_threads = 1, .arg = size, \
	  .need = huge_need, .phases = { "map", "unmap" }, .worker_setup = map_setup, \
	  .worker_teardown = map_teardown, .phase = map_phase }

const struct bench_case bench_mapping_cases[] = {
	VMAP("vmap_1m_order8", "vmap() of 1 MiB in pages of order 8", SZ_1M, 8, 400),
	VMAP("vmap_1m_order4", "vmap() of 1 MiB in pages of order 4", SZ_1M, 4, 400),
	VMAP("vmap_1m_mixed", "vmap() of 1 MiB in pages of mixed orders", SZ_1M, MIXED, 400),
	VMAP("vmap_1m_order0", "vmap() of 1 MiB in shuffled pages", SZ_1M, 0, 200),
	VMAP("vmap_100m_order9", "vmap() of 100 MiB in pages of order 9", 100UL * SZ_1M, 9, 6),
	VMAP("vmap_100m_order8", "vmap() of 100 MiB in pages of order 8", 100UL * SZ_1M, 8, 6),
	VMAP("vmap_100m_order0", "vmap() of 100 MiB in shuffled pages", 100UL * SZ_1M, 0, 2),
	{ .name = "ioremap_mapped_1m", .what = "ioremap() and iounmap() of 1 MiB that nothing uses",
	  .ops = 500, .arg = SZ_1M, .setup = hole_setup, .teardown = hole_teardown,
	  .phase = ioremap_phase },
	{ .name = "huge_1m", .what = "vmalloc_huge() and vfree() of 1 MiB", .ops = 200,
	  .arg = SZ_1M, .need = huge_need, .phase = huge_phase, .teardown = huge_tables },
	MAP("map_1m", "mapping alone, as vmalloc_huge() of 1 MiB; unmapping", SZ_1M),
	MAP("map_2m", "mapping alone, as vmalloc_huge() of 2 MiB; unmapping", SZ_2M),
	{ }
};
