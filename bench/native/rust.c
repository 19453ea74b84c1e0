// SPDX-License-Identifier: GPL-2.0
/*
 * The allocator in Rust, by its C functions, as mm/vmalloc.c with the series area
 * calls it. Compiled twice: with SIDE=calls, each helper of C that Rust uses is a
 * function, as without CONFIG_RUST_INLINE_HELPERS.
 */
#include <limits.h>

#define NAME2(side, name) side##_##name
#define NAME1(side, name) NAME2(side, name)
#define NAME(name) NAME1(SIDE, name)
#define TEXT1(side) #side
#define TEXT(side) TEXT1(side)
#define THIS NAME1(side, SIDE)

/* struct vmap_area up to what only the rb-trees need. */
struct vmap_area {
	unsigned long va_start, va_end;
	struct vm_struct *vm;
	unsigned long flags;
};
int NAME(start)(struct vm_struct *vms, unsigned long vstart, unsigned long vend);
struct vmap_area *NAME(alloc)(unsigned long size, unsigned long align, unsigned long vstart,
			      unsigned long vend, unsigned long va_flags, struct vm_struct *vm,
			      unsigned int gfp, int node);
struct vmap_area *NAME(alloc_current)(unsigned long size, unsigned long align, struct vm_struct *vm);
struct vmap_area *NAME(reuse_current)(unsigned long size, unsigned long align, unsigned long flags,
				      const void *caller, unsigned long requested_size);
unsigned long NAME(purge)(unsigned long start, unsigned long end, bool drain);
struct vmap_area *NAME(find)(unsigned long addr);
struct vmap_area *NAME(unlink)(unsigned long addr);
unsigned long NAME(retire)(struct vmap_area *va);
/* The number of live areas, or -1 if an invariant does not hold. */
long NAME(census)(void);

static spinlock_t purge_lock;
static struct kmem_cache *area_cache;

/* Functions of mm/vmap_rust.c. Slab memory stays areas: no grace period. */
void *NAME(cache_alloc)(void)
{
	return kmem_cache_alloc_noprof(area_cache, 0);
}

void NAME(cache_free)(void *va)
{
	kmem_cache_free(area_cache, va);
}

void NAME(free_vm)(void *vm)
{
	kfree_sized(vm, sizeof(struct vm_struct));
}

unsigned long NAME(flush_tlb)(void)
{
	THIS.flushes++;
	return 0;
}

static void init(void)
{
	area_cache = new_cache(sizeof(struct vmap_area));
	if (NAME(start)(NULL, VMALLOC_START, VMALLOC_END))
		broken("the allocator in Rust does not start");
}

static void purge(bool drain)
{
	spin_lock(&purge_lock);
	NAME(purge)(ULONG_MAX, 0, drain);
	spin_unlock(&purge_lock);
}

static struct vmap_area *alloc_once(unsigned long size, struct vm_struct *vm)
{
	struct vmap_area *va = NAME(alloc)(size, 1, VMALLOC_START, VMALLOC_END, 0, vm, 0xcc0, -1);

	return (unsigned long)va >= -4095UL ? NULL : va;
}

/* alloc_vmap_area() */
static noinline struct vmap_area *alloc_slow(unsigned long size, struct vm_struct *vm)
{
	struct vmap_area *va = alloc_once(size, vm);

	if (!va) {
		purge(true);
		va = alloc_once(size, vm);
	}
	return va;
}

/* get_vm_area() and free_vm_area(), without page tables and page pointers. */
static noinline struct vm_struct *get(unsigned long bytes)
{
	struct vmap_area *va;
	struct vm_struct *vm;

	va = NAME(reuse_current)(bytes + PAGE_SIZE, 1, 2, __builtin_return_address(0), bytes);
	if (va)
		return va->vm;
	vm = kmalloc_noprof(sizeof(*vm), KMALLOC_ZERO);
	vm->flags = 2;
	vm->caller = __builtin_return_address(0);
	vm->requested_size = bytes;
	va = NAME(alloc_current)(bytes + PAGE_SIZE, 1, vm);
	if (unlikely(!va))
		va = alloc_slow(bytes + PAGE_SIZE, vm);
	if (unlikely(!va)) {
		kfree_sized(vm, sizeof(*vm));
		return NULL;
	}
	return vm;
}

static struct purge_work work = { .side = &THIS };

static noinline void note_lazy_area(unsigned long nr_lazy)
{
	if (unlikely(nr_lazy > most_lazy_pages()))
		schedule_purge(&work);
}

static noinline void put(struct vm_struct *vm)
{
	struct vmap_area *va = NAME(unlink)((unsigned long)vm->addr);
	unsigned long nr_lazy;

	if (unlikely(!va || !va->vm))
		broken("a live area is not found");
	nr_lazy = NAME(retire)(va);
	if (unlikely(nr_lazy))
		note_lazy_area(nr_lazy);
}

static noinline struct vm_struct *find(unsigned long addr)
{
	struct vmap_area *va = NAME(find)(addr);

	return va ? va->vm : NULL;
}

static void check(void)
{
	long live = NAME(census)();

	if (live)
		broken(live < 0 ? "an invariant of the allocator in Rust" :
		       "the allocator in Rust has areas that were freed");
}

#include "cases.h"

struct side THIS = { TEXT(SIDE), init, get, put, find, purge, check, 0, SIDE_LOOPS };
