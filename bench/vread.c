// SPDX-License-Identifier: GPL-2.0
/* vread_iter() of a page, as /proc/kcore reads vmalloc space. */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "bench.h"

/* What is read; @arg of a case. */
enum { MEMORY, WINDOW, UNMAPPED, HOLE };
/* Pages of the area that is freed to make a hole. */
#define HOLE_PAGES 64

struct vread {
	const char *addr;
	void *buffer;
	void *memory;
	struct vm_struct *area;
	struct page *page;
};

static void vread_teardown(struct bench_run *run)
{
	struct vread *v = run->data;

	if (!v)
		return;
	if (v->area) {
		unsigned long addr = (unsigned long)v->area->addr;

		vunmap_range(addr, addr + PAGE_SIZE);
		free_vm_area(v->area);
	}
	if (v->page)
		__free_page(v->page);
	vfree(v->memory);
	kfree(v->buffer);
	kfree(v);
	run->data = NULL;
}

/* One page that is mapped in the window of modules. */
static int map_in_window(struct vread *v)
{
	unsigned long addr;

	v->area = bench_get_in_window(1);
	v->page = alloc_page(GFP_KERNEL);
	if (!v->area || !v->page)
		return -ENOMEM;
	addr = (unsigned long)v->area->addr;
	return vmap_pages_range(addr, addr + PAGE_SIZE, PAGE_KERNEL, &v->page, PAGE_SHIFT);
}

static int vread_setup(struct bench_run *run)
{
	struct vread *v = kzalloc_obj(*v, GFP_KERNEL);
	int err = 0;

	run->data = v;
	if (!v)
		return -ENOMEM;
	v->buffer = kmalloc(PAGE_SIZE, GFP_KERNEL);
	if (!v->buffer)
		return -ENOMEM;
	switch (run->c->arg) {
	case MEMORY:
		v->memory = vmalloc(PAGE_SIZE);
		v->addr = v->memory;
		break;
	case WINDOW:
		err = map_in_window(v);
		break;
	case UNMAPPED:
		v->area = get_vm_area(PAGE_SIZE, VM_ALLOC);
		break;
	case HOLE:
		v->area = get_vm_area(HOLE_PAGES * PAGE_SIZE, VM_ALLOC);
		break;
	}
	if (v->area)
		v->addr = v->area->addr;
	if (v->area && run->c->arg == HOLE) {
		free_vm_area(v->area);
		v->area = NULL;
		vm_unmap_aliases();
	}
	if (!err && !v->addr)
		err = -ENOMEM;
	return err;
}

/**
 * bench_read_page() - read a page of vmalloc space, which is what /proc/kcore reads at a time
 * @addr: of the page
 * @buffer: of PAGE_SIZE
 *
 * Return: 0 or an error.
 */
int bench_read_page(const char *addr, void *buffer)
{
	struct kvec kvec = { buffer, PAGE_SIZE };
	struct iov_iter iter;

	iov_iter_kvec(&iter, ITER_DEST, &kvec, 1, PAGE_SIZE);
	return vread_iter(&iter, addr, PAGE_SIZE) == PAGE_SIZE ? 0 : -EIO;
}

static int vread_phase(struct bench_worker *w, unsigned int nr)
{
	struct vread *v = w->run->data;
	int err = 0;
	u32 i;

	for (i = 0; !err && i < w->ops; i++) {
		err = bench_read_page(v->addr, v->buffer);
		if (!(i & 1023))
			cond_resched();
	}
	return err;
}

#define VREAD(label, text, kind) \
	{ .name = label, .what = text, .ops = 2000, .arg = kind, .max_threads = 1, \
	  .setup = vread_setup, .teardown = vread_teardown, .phase = vread_phase }

const struct bench_case bench_vread_cases[] = {
	VREAD("vread_page", "vread_iter() of a page of vmalloc()", MEMORY),
	VREAD("vread_window", "vread_iter() of a page in the module window", WINDOW),
	VREAD("vread_unmapped", "vread_iter() of a page of an area that maps nothing", UNMAPPED),
	VREAD("vread_hole", "vread_iter() of a page that is in no area", HOLE),
	{ }
};
