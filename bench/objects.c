// SPDX-License-Identifier: GPL-2.0
/*
 * Objects of every kind that mm/vmalloc.c makes, for the case whole_api: how to
 * make one, write a pattern into it, and check and free it.
 *
 * The pattern of a word depends on its address and on a seed of the object, so a
 * page that is mapped twice, or at a wrong address, is noticed.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/gfp.h>
#include <linux/hash.h>
#include <linux/io.h>
#include <linux/kthread.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "bench.h"
#include "objects.h"

static char *corrupt = "";
module_param(corrupt, charp, 0444);
MODULE_PARM_DESC(corrupt, "To test whole_api: kind of object whose contents it changes, which it must notice");

/* Pages of an object; a huge one has SZ_2M bytes. */
#define MOST_PAGES 64
/* What is taken of each CPU for one page of a percpu object: at most 16 KiB. */
#define PERCPU_BYTES (SZ_16K / MOST_PAGES)
/* What a thread keeps on its stack. */
#define STACK_WORDS 32

struct kind;

struct object {
	struct objects *all;
	const struct kind *kind;
	unsigned long seed;
	/* Its share of all->pages. */
	unsigned long cost;
	unsigned long pages;
	void *p;
	/* Of kinds that map pages, NULL behind the last one. */
	struct page *page[];
};

struct kind {
	const char *label;
	/* Of a thousand objects. */
	unsigned int share;
	bool (*make)(struct object *o);
	/* Frees the object; 0 or an error that has been reported. */
	int (*end)(struct object *o);
};

/*
 * Writes the pattern of the address @was to the word @at, or compares the word
 * with it when @is_check.
 */
static int visit(const struct object *o, unsigned long *at, unsigned long was, bool is_check)
{
	unsigned long expected = (was ^ o->seed) * GOLDEN_RATIO_PRIME, found;
	struct objects *all = o->all;

	if (!is_check)
		WRITE_ONCE(*at, expected);
	found = READ_ONCE(*at);
	if (found == expected)
		return 0;
	/* Only the first one is reported. */
	if (!cmpxchg(&all->err, 0, -EIO))
		pr_err("error: case=%s threads=%u: %s at 0x%lx: found 0x%lx, expected 0x%lx\n",
		       all->run->c->name, all->run->threads, o->kind->label,
		       (unsigned long)at, found, expected);
	return -EIO;
}

/* Visits the first and the last word of each of @pages at @p, which were at @was. */
static int visit_pages(struct object *o, void *p, void *was, unsigned long pages, bool is_check)
{
	unsigned long i;
	int err = 0;

	for (i = 0; i < pages && !err; i++) {
		unsigned long first = i * PAGE_SIZE, last = first + PAGE_SIZE - sizeof(long);

		err = visit(o, p + first, (unsigned long)was + first, is_check) ?:
		      visit(o, p + last, (unsigned long)was + last, is_check);
	}
	return err;
}

static int visit_percpu(struct object *o, bool is_check)
{
	unsigned long last = o->pages * PERCPU_BYTES - sizeof(long);
	int cpu, err = 0;

	for_each_possible_cpu(cpu) {
		void *p = per_cpu_ptr((void __percpu *)o->p, cpu);

		err = err ?: visit(o, p, (unsigned long)p, is_check) ?:
		      visit(o, p + last, (unsigned long)p + last, is_check);
	}
	return err;
}

/* Does a test ask for a mismatch in this kind of object? */
static bool is_corrupt(const struct object *o)
{
	return !strcmp(corrupt, o->kind->label);
}

static bool vmalloc_make(struct object *o)
{
	o->p = vmalloc(o->pages * PAGE_SIZE);
	return o->p;
}

static bool huge_make(struct object *o)
{
	o->p = vmalloc_huge(o->pages * PAGE_SIZE, GFP_KERNEL);
	return o->p;
}

static int vmalloc_end(struct object *o)
{
	vfree(o->p);
	return 0;
}

/* Resizes it first: what both sizes have must still be there. */
static int vrealloc_end(struct object *o)
{
	unsigned long pages = 1 + o->seed % MOST_PAGES;
	void *p = vrealloc(o->p, pages * PAGE_SIZE, GFP_KERNEL);
	int err;

	if (!p) {
		vfree(o->p);
		return -ENOMEM;
	}
	if (is_corrupt(o))
		*(long *)p = 0;
	err = visit_pages(o, p, o->p, min(pages, o->pages), true);
	vfree(p);
	return err;
}

static void put_pages(struct object *o)
{
	unsigned long i;

	for (i = 0; i < o->pages && o->page[i]; i++)
		__free_page(o->page[i]);
}

static bool get_pages(struct object *o)
{
	unsigned long i;

	for (i = 0; i < o->pages; i++) {
		o->page[i] = alloc_page(GFP_KERNEL);
		if (!o->page[i])
			return false;
	}
	return true;
}

static bool vmap_make(struct object *o)
{
	o->p = get_pages(o) ? vmap(o->page, o->pages, VM_MAP, PAGE_KERNEL) : NULL;
	if (!o->p)
		put_pages(o);
	return o->p;
}

static int vmap_end(struct object *o)
{
	vunmap(o->p);
	put_pages(o);
	return 0;
}

static bool map_ram_make(struct object *o)
{
	o->p = get_pages(o) ? vm_map_ram(o->page, o->pages, NUMA_NO_NODE) : NULL;
	if (!o->p)
		put_pages(o);
	return o->p;
}

static int map_ram_end(struct object *o)
{
	vm_unmap_ram(o->p, o->pages);
	put_pages(o);
	return 0;
}

/*
 * What ioremap() does after its checks, which refuse memory: only memory of its
 * own can be written and compared on any machine.
 */
static bool ioremap_make(struct object *o)
{
	unsigned int order = min(ilog2(o->pages), PAGE_ALLOC_COSTLY_ORDER);
	unsigned long size = PAGE_SIZE << order, addr;
	struct page *page = alloc_pages(GFP_KERNEL, order);
	struct vm_struct *vm = get_vm_area(size, VM_IOREMAP);

	o->pages = 1UL << order;
	o->page[0] = page;
	addr = vm ? (unsigned long)vm->addr : 0;
	if (page && vm &&
	    !ioremap_page_range(addr, addr + size, page_to_phys(page), PAGE_KERNEL)) {
		o->p = vm->addr;
		return true;
	}
	if (vm)
		free_vm_area(vm);
	if (page)
		__free_pages(page, order);
	return false;
}

static int ioremap_end(struct object *o)
{
	vunmap(o->p);
	__free_pages(o->page[0], ilog2(o->pages));
	return 0;
}

static bool percpu_make(struct object *o)
{
	o->p = (void __force *)__alloc_percpu(o->pages * PERCPU_BYTES, sizeof(long));
	return o->p;
}

static int percpu_end(struct object *o)
{
	free_percpu((void __percpu *)o->p);
	return 0;
}

/* Keeps a pattern on its stack until somebody ends it. */
static int stack_thread(void *arg)
{
	struct object *o = arg;
	unsigned long words[STACK_WORDS];
	int i, err = 0;

	for (i = 0; i < STACK_WORDS; i++)
		visit(o, &words[i], (unsigned long)&words[i], false);
	if (is_corrupt(o))
		WRITE_ONCE(words[STACK_WORDS / 2], 0);
	for (;;) {
		set_current_state(TASK_IDLE);
		if (kthread_should_stop())
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	for (i = 0; i < STACK_WORDS && !err; i++)
		err = visit(o, &words[i], (unsigned long)&words[i], true);
	return err;
}

static bool stack_make(struct object *o)
{
	struct task_struct *task = kthread_run(stack_thread, o, "vmap_bench/stack");

	o->p = IS_ERR(task) ? NULL : task;
	return o->p;
}

static int stack_end(struct object *o)
{
	int err = kthread_stop(o->p);

	/* It may be ended before it has run. */
	return err == -EINTR ? 0 : err;
}

/*
 * Threads and vrealloc() have small shares: starting a thread waits for other
 * threads, and in QEMU each page that vrealloc() cuts off stops all CPUs for a
 * TLB flush. Larger shares would hide the cost of areas.
 */
static const struct kind kinds[] = {
	{ "vmalloc", 500, vmalloc_make, vmalloc_end },
	{ "vrealloc", 10, vmalloc_make, vrealloc_end },
	{ "vmap", 190, vmap_make, vmap_end },
	{ "vm_map_ram", 190, map_ram_make, map_ram_end },
	{ "ioremap", 85, ioremap_make, ioremap_end },
	{ "percpu", 10, percpu_make, percpu_end },
	{ "stack", 5, stack_make, stack_end },
	{ "vmalloc_huge", 10, huge_make, vmalloc_end },
};

static int visit_object(struct object *o, bool is_check)
{
	if (o->kind->make == stack_make)
		return 0;
	if (o->kind->make == percpu_make)
		return visit_percpu(o, is_check);
	return visit_pages(o, o->p, o->p, o->pages, is_check);
}

static void corrupt_object(const struct object *o)
{
	/* Those two do it themselves. */
	if (!is_corrupt(o) || o->kind->make == stack_make || o->kind->end == vrealloc_end)
		return;
	if (o->kind->make == percpu_make)
		*(long *)per_cpu_ptr((void __percpu *)o->p, 0) = 0;
	else
		*(long *)(o->p + (o->pages - 1) * PAGE_SIZE) = 0;
}

/**
 * object_make() - make an object of a random kind and size and write its pattern
 * @all: whose memory it counts in
 * @rnd: of the thread
 *
 * Return: the object, NULL if the objects have all the memory they may have, or
 * an error pointer.
 */
struct object *object_make(struct objects *all, struct rnd_state *rnd)
{
	u32 random = prandom_u32_state(rnd);
	unsigned int share = random % 1000;
	/* Small ones are frequent: at most 1, 2, 4 ... MOST_PAGES, each as often. */
	unsigned int most = 1 << ((random >> 10) % (ilog2(MOST_PAGES) + 1));
	unsigned long pages = 1 + (random >> 16) % most;
	const struct kind *kind = kinds;
	struct object *o;

	while (share >= kind->share)
		share -= (kind++)->share;
	if (kind->make == huge_make)
		pages = SZ_2M / PAGE_SIZE;
	o = kzalloc_flex(*o, page, min(pages, MOST_PAGES), GFP_KERNEL);
	if (!o)
		return ERR_PTR(-ENOMEM);
	o->all = all;
	o->kind = kind;
	o->pages = pages;
	o->seed = prandom_u32_state(rnd);
	o->cost = max(pages, pages * num_possible_cpus() * PERCPU_BYTES / PAGE_SIZE);
	if (atomic_long_add_return(o->cost, &all->pages) > all->max_pages) {
		atomic_long_sub(o->cost, &all->pages);
		kfree(o);
		return NULL;
	}
	if (!kind->make(o)) {
		kfree(o);
		return ERR_PTR(-ENOMEM);
	}
	visit_object(o, false);
	corrupt_object(o);
	return o;
}

/* Checks and frees an object. Returns 0 or an error. */
int object_end(struct object *o)
{
	struct objects *all = o->all;
	int err = visit_object(o, true);

	err = o->kind->end(o) ?: err;
	atomic_long_sub(o->cost, &all->pages);
	kfree(o);
	return err;
}

/* Returns where an object is in vmalloc space, 0 if it is not there. */
unsigned long object_addr(const struct object *o)
{
	return is_vmalloc_addr(o->p) ? (unsigned long)o->p : 0;
}

/* Reports a wrong vmap_bench.corrupt=. Returns 0 or an error. */
int objects_check_parameter(const struct bench_run *run)
{
	bool is_known = !*corrupt;
	int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		is_known |= !strcmp(corrupt, kinds[i].label);
	if (is_known)
		return 0;
	pr_err("error: case=%s threads=%u: corrupt=%s is no kind of object\n", run->c->name,
	       run->threads, corrupt);
	return -EINVAL;
}
