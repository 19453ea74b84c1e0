// SPDX-License-Identifier: GPL-2.0
/*
 * Loses memory on purpose when it is loaded, for a test that asks kmemleak for
 * exactly that. It can be loaded once for each boot: nothing gives the memory
 * back.
 */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/slab.h>
#include <linux/stringify.h>
#include <linux/vmalloc.h>

/* Areas that are lost. */
#define LOST_SMALL	40	/* one page: a block of a CPU */
#define LOST_MEDIUM	10	/* 64 pages: a block that CPUs share */
#define LOST_LARGE	3	/* 1500 pages: a large block, on 32 bit the tree */
#define LOST_AREAS	(LOST_SMALL + LOST_MEDIUM + LOST_LARGE)
#define LOST_VMAP	5	/* kmemleak does not track what vmap() returns */
#define KEPT		20
#define CHURN		500
/* More free objects than the slab allocator keeps for a CPU and for its node. */
#define PARKED		8000
/* A vm_struct and its first page pointers are one object. */
#define VM_BYTES(pages)	(sizeof(struct vm_struct) + (pages) * sizeof(struct page *))
/* More areas of each size than slots in which a vm_struct of churn() may have stayed. */
static const struct {
	unsigned int pages;
	unsigned int count;
} fill[] = { { 1, 4 * CHURN }, { 64, CHURN }, { 1500, 40 } };
#define FILLED		(5 * CHURN + 40)

/* What qemu/load.sh compares the reports with. */
static unsigned int page_bytes = PAGE_SIZE;
module_param(page_bytes, uint, 0444);
MODULE_PARM_DESC(page_bytes, "Bytes in a page");
static unsigned int lost_areas = LOST_AREAS;
module_param(lost_areas, uint, 0444);
MODULE_PARM_DESC(lost_areas, "Areas that kmemleak has to report");
static char *lost = __stringify(LOST_SMALL) "-" __stringify(LOST_MEDIUM) "-"
		    __stringify(LOST_LARGE);
module_param(lost, charp, 0444);
MODULE_PARM_DESC(lost, "The same for areas of 1, 64 and 1500 pages");

static void *kept[KEPT];
static void **parked;
static struct page *page;

/* Give the ranges and the objects of the areas below a former life. */
static int churn(unsigned int pages, unsigned int count)
{
	void **mem = kvcalloc(count, sizeof(*mem), GFP_KERNEL);
	unsigned int i;

	if (!mem)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		mem[i] = vmalloc(pages * PAGE_SIZE);
	for (i = 0; i < count; i++)
		vfree(mem[i]);
	vm_unmap_aliases();
	/* The array must not refer to the next areas in the same places. */
	memset(mem, 0, count * sizeof(*mem));
	kvfree(mem);
	return 0;
}

static noinline int lose(unsigned int pages, unsigned int count)
{
	for (; count; count--) {
		if (!vmalloc(pages * PAGE_SIZE))
			return -ENOMEM;
	}
	return 0;
}

static noinline int lose_mappings(unsigned int count)
{
	for (; count; count--) {
		if (!vmap(&page, 1, VM_MAP, PAGE_KERNEL))
			return -ENOMEM;
	}
	return 0;
}

/* Take objects of the sizes of vm_structs from number @from on, and keep them. */
static int park(unsigned int from)
{
	unsigned int i;

	for (i = from; i < from + PARKED; i++) {
		parked[i] = kzalloc(VM_BYTES(i % 2 ? 2 : 16), GFP_KERNEL);
		if (!parked[i])
			return -ENOMEM;
	}
	return 0;
}

/*
 * Lose the areas. Their vm_structs come from new slabs, since all free objects
 * of these sizes are taken before, and all that have stayed with addresses: a
 * task that waits may have a pointer to a freed vm_struct on its stack, and
 * kmemleak counts a pointer to one as a reference to its area. It scans stacks
 * even with stack=off, as they are vmalloc() memory. It also scans the sheaves
 * of SLUB, which keep pointers to objects that were taken from them: so others
 * are taken afterwards.
 */
static int __init lose_all(void)
{
	static struct page *pages[1500];
	void **filled = kvcalloc(FILLED, sizeof(*filled), GFP_KERNEL);
	unsigned int i, j, n = 0;
	int err = 0;

	parked = kvcalloc(2 * PARKED, sizeof(*parked), GFP_KERNEL);
	if (!parked || !filled) {
		kvfree(filled);
		return -ENOMEM;
	}
	for (i = 0; i < ARRAY_SIZE(pages); i++)
		pages[i] = page;
	/* Free objects of other CPUs are not taken. */
	migrate_disable();
	for (i = 0; i < ARRAY_SIZE(fill); i++) {
		for (j = 0; !err && j < fill[i].count; j++) {
			filled[n] = vmap(pages, fill[i].pages, VM_MAP, PAGE_KERNEL);
			if (!filled[n++])
				err = -ENOMEM;
		}
	}
	err = err ?: park(0) ?: lose(1, LOST_SMALL) ?: lose(64, LOST_MEDIUM) ?:
	      lose(1500, LOST_LARGE) ?: lose_mappings(LOST_VMAP) ?: park(PARKED);
	migrate_enable();
	for (i = 0; i < FILLED; i++) {
		if (filled[i])
			vunmap(filled[i]);
	}
	memset(filled, 0, FILLED * sizeof(*filled));
	kvfree(filled);
	return err;
}

static int __init vmap_leak_init(void)
{
	unsigned int i;
	int err;

	page = alloc_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	err = churn(1, CHURN) ?: churn(64, CHURN / 20) ?: churn(1500, 4);
	for (i = 0; !err && i < KEPT; i++) {
		kept[i] = vmalloc(PAGE_SIZE);
		if (!kept[i])
			err = -ENOMEM;
	}
	err = err ?: lose_all() ?:
	      /* Overwrite pointers to lost areas that are left in caches. */
	      churn(1, CHURN) ?: churn(64, CHURN / 20);
	pr_info("%d small, %d medium, %d large areas and %d mappings lost: %d\n",
		LOST_SMALL, LOST_MEDIUM, LOST_LARGE, LOST_VMAP, err);
	return err;
}
module_init(vmap_leak_init);

MODULE_DESCRIPTION("Memory lost on purpose, for a test of kmemleak");
MODULE_LICENSE("GPL");
