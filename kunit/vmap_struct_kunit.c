// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_struct": a vm_struct belongs to one area from its request to
 * its free, whoever frees it, also if it stays with the addresses for the next one.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/set_memory.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/vmap_rust.h>

#include "vmap_area_kunit.h"

/* Areas that are live together, more than half a block has of two pages. */
#define NR_AREAS	320
/* The most pages whose pointers are behind the vm_struct. */
#define MOST_PAGES	16

/* Does the allocator leave vm_structs with their addresses? */
static bool stays(void)
{
	return vmap_rust_enabled() && !IS_ENABLED(CONFIG_KASAN_VMALLOC);
}

/* Expects a vm_struct as a request sets it, with nothing of another area. */
static void expect_clean(struct kunit *test, const struct vm_struct *vm, unsigned long nr_pages,
			 unsigned long flags)
{
	unsigned long addr = vmap_start(vm);

	KUNIT_EXPECT_EQ(test, vm->size, (nr_pages + !(flags & VM_NO_GUARD)) * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, vm->flags, flags);
	KUNIT_EXPECT_NULL(test, vm->next);
	KUNIT_EXPECT_NULL(test, vm->pages);
	KUNIT_EXPECT_EQ(test, vm->nr_pages, 0);
	KUNIT_EXPECT_EQ(test, vm->phys_addr, 0);
	KUNIT_EXPECT_EQ(test, vm->requested_size, nr_pages * PAGE_SIZE);
	KUNIT_EXPECT_NOT_NULL(test, vm->caller);
#ifdef CONFIG_HAVE_ARCH_HUGE_VMALLOC
	KUNIT_EXPECT_EQ(test, vm->page_order, 0);
#endif
	KUNIT_EXPECT_PTR_EQ(test, find_vm_area((void *)addr), vm);
}

/* Writes to all fields that only the owner of an area uses. */
static void make_dirty(struct vm_struct *vm)
{
	vm->next = vm;
	vm->phys_addr = PAGE_SIZE;
	vm->caller = NULL;
	vm->requested_size = 1;
	vm->flags |= VM_USERMAP;
#ifdef CONFIG_HAVE_ARCH_HUGE_VMALLOC
	vm->page_order = 3;
#endif
}

/*
 * Whoever had the addresses before, an area has a vm_struct of its own with fields of
 * its own. With the allocator in Rust, some have that of the area before.
 */
static void vmap_struct_clean(struct kunit *test)
{
	static const unsigned long flags[] = { VM_MAP, VM_ALLOC, VM_IOREMAP, VM_MAP | VM_NO_GUARD };
	static const unsigned long sizes[] = { 1, 2, 3, 7, 8, MOST_PAGES, MOST_PAGES + 1 };
	struct vm_struct **vms = vmap_array(test, NR_AREAS, sizeof(*vms));
	struct vm_struct **before = vmap_array(test, NR_AREAS, sizeof(*before));
	unsigned long *starts = vmap_array(test, NR_AREAS, sizeof(*starts));
	const struct vmap_win std = vmap_std_win();
	unsigned int round, i, j, same = 0;

	for (round = 0; round < 3 * ARRAY_SIZE(sizes); round++) {
		for (i = 0; i < NR_AREAS; i++) {
			unsigned long nr = sizes[(round / 3 + i / 64) % ARRAY_SIZE(sizes)];
			unsigned long flag = flags[(round + i) % ARRAY_SIZE(flags)];

			/* The rb-trees would give such areas to vmap_drain(), and warn. */
			if (nr == 1)
				flag &= ~VM_NO_GUARD;
			/* Another alignment may give a slot of another size. */
			vms[i] = vmap_area_get(&std, nr * PAGE_SIZE, (1 + i % 2 * 3) * PAGE_SIZE,
					       flag, VMAP_GFP);
			KUNIT_ASSERT_NOT_NULL(test, vms[i]);
			expect_clean(test, vms[i], nr, flag);
			for (j = 0; round && j < NR_AREAS; j++)
				same += vmap_start(vms[i]) == starts[j] && vms[i] == before[j];
		}
		for (i = 0; i < NR_AREAS; i++) {
			KUNIT_EXPECT_PTR_EQ_MSG(test, find_vm_area(vms[i]->addr), vms[i],
						"area %u has no vm_struct of its own", i);
			starts[i] = vmap_start(vms[i]);
			before[i] = vms[i];
		}
		for (i = 0; i < NR_AREAS; i++) {
			make_dirty(vms[i]);
			free_vm_area(vms[i]);
		}
		vm_unmap_aliases();
	}
	if (stays())
		KUNIT_EXPECT_GT(test, same, NR_AREAS);
}

/* How an area begins and ends. */
struct holder {
	const char *name;
	void *(*get)(struct kunit *test, struct page **pages);
	/* Returns the vm_struct if the caller is to free it. */
	struct vm_struct *(*put)(void *mem);
};

static void *get_vmalloc(struct kunit *test, struct page **pages)
{
	return vmalloc(3 * PAGE_SIZE);
}

static void *get_one(struct kunit *test, struct page **pages)
{
	return vmalloc(PAGE_SIZE);
}

static void *get_reset(struct kunit *test, struct page **pages)
{
	void *mem = vmalloc(2 * PAGE_SIZE);

	if (mem)
		set_vm_flush_reset_perms(mem);
	return mem;
}

static void *get_map(struct kunit *test, struct page **pages)
{
	return vmap(pages, 4, VM_MAP, PAGE_KERNEL);
}

/* The area has an array of its own, and frees it and the pages. */
static void *get_given(struct kunit *test, struct page **pages)
{
	struct page **given = kcalloc(2, sizeof(*given), GFP_KERNEL);
	void *mem = NULL;

	if (given)
		given[0] = alloc_page(GFP_KERNEL);
	if (given && given[0])
		given[1] = alloc_page(GFP_KERNEL);
	if (given && given[1])
		mem = vmap(given, 2, VM_MAP | VM_MAP_PUT_PAGES, PAGE_KERNEL);
	if (!mem && given) {
		if (given[0])
			__free_page(given[0]);
		if (given[1])
			__free_page(given[1]);
		kfree(given);
	}
	return mem;
}

static void *get_area(struct kunit *test, struct page **pages)
{
	struct vm_struct *vm = get_vm_area(2 * PAGE_SIZE, VM_IOREMAP);
	unsigned long addr;

	if (!vm)
		return NULL;
	addr = vmap_start(vm);
	KUNIT_EXPECT_EQ(test, 0, vmap_page_range(addr, addr + PAGE_SIZE, page_to_phys(pages[0]),
						 PAGE_KERNEL));
	return vm->addr;
}

static struct vm_struct *put_vfree(void *mem)
{
	vfree(mem);
	return NULL;
}

static struct vm_struct *put_vfree_atomic(void *mem)
{
	vfree_atomic(mem);
	return NULL;
}

static struct vm_struct *put_vunmap(void *mem)
{
	vunmap(mem);
	return NULL;
}

static struct vm_struct *put_area(void *mem)
{
	free_vm_area(find_vm_area(mem));
	return NULL;
}

/* As iounmap() of x86 and of nios2. */
static struct vm_struct *put_remove(void *mem)
{
	return remove_vm_area(mem);
}

static const struct holder holders[] = {
	{ "vfree", get_vmalloc, put_vfree },
	{ "vfree of a page", get_one, put_vfree },
	{ "vfree_atomic", get_vmalloc, put_vfree_atomic },
	{ "vfree that resets permissions", get_reset, put_vfree },
	{ "vfree of a mapping", get_given, put_vfree },
	{ "vunmap", get_map, put_vunmap },
	{ "free_vm_area", get_area, put_area },
	{ "remove_vm_area", get_area, put_remove },
	{ "remove_vm_area of a mapping", get_map, put_remove },
};

/*
 * Whoever frees an area, what had its vm_struct is not used again: the areas that
 * follow, of all kinds, have vm_structs that no live area and no caller has.
 */
static void vmap_struct_holders(struct kunit *test)
{
	struct page **pages = vmap_pages_get(test, 4);
	struct vm_struct *removed[64] = { };
	void *mem[64];
	unsigned int i, j, round;

	for (round = 0; round < 4 * ARRAY_SIZE(holders); round++) {
		for (i = 0; i < ARRAY_SIZE(mem); i++) {
			const struct holder *h = &holders[(round + i / 8) % ARRAY_SIZE(holders)];

			mem[i] = h->get(test, pages);
			KUNIT_ASSERT_NOT_NULL_MSG(test, mem[i], "%s", h->name);
			for (j = 0; round && j < ARRAY_SIZE(mem); j++)
				KUNIT_EXPECT_PTR_NE_MSG(test, find_vm_area(mem[i]), removed[j],
							"%s", h->name);
		}
		for (i = 0; i < ARRAY_SIZE(mem); i++) {
			struct vm_struct *vm = find_vm_area(mem[i]);

			KUNIT_ASSERT_NOT_NULL(test, vm);
			KUNIT_EXPECT_EQ(test, vmap_start(vm),
					(unsigned long)kasan_reset_tag(mem[i]));
			for (j = 0; j < i; j++)
				KUNIT_EXPECT_PTR_NE(test, vm, find_vm_area(mem[j]));
		}
		for (i = 0; i < ARRAY_SIZE(removed); i++) {
			/* It was the caller's all the time. */
			if (removed[i])
				KUNIT_EXPECT_PTR_EQ(test, removed[i]->caller, &removed[i]);
			kfree(removed[i]);
			removed[i] = NULL;
		}
		for (i = 0; i < ARRAY_SIZE(mem); i++) {
			const struct holder *h = &holders[(round + i / 8) % ARRAY_SIZE(holders)];

			removed[i] = h->put(mem[i]);
			KUNIT_EXPECT_EQ_MSG(test, !!removed[i], h->put == put_remove, "%s",
					    h->name);
			if (removed[i])
				removed[i]->caller = &removed[i];
		}
		vm_unmap_aliases();
	}
	for (i = 0; i < ARRAY_SIZE(removed); i++)
		kfree(removed[i]);
}

/*
 * vmalloc() gets pages of its own whatever the array of pages had before: sizes that
 * take the bulk allocator, which fills only empty elements, and sizes that do not.
 */
static void vmap_struct_pages(struct kunit *test)
{
	static const unsigned int sizes[] = { 1, 2, 3, 5, 7, 11, MOST_PAGES - 1, MOST_PAGES,
					      MOST_PAGES + 1 };
	void *mem[ARRAY_SIZE(sizes)][24];
	unsigned int round, s, i;

	for (round = 0; round < 4; round++) {
		for (i = 0; i < ARRAY_SIZE(mem[0]); i++) {
			for (s = 0; s < ARRAY_SIZE(sizes); s++) {
				mem[s][i] = vmalloc(sizes[s] * PAGE_SIZE);
				KUNIT_ASSERT_NOT_NULL(test, mem[s][i]);
				vmap_pages_fill(mem[s][i], sizes[s], s * 100 + i);
			}
		}
		for (i = 0; i < ARRAY_SIZE(mem[0]); i++) {
			for (s = 0; s < ARRAY_SIZE(sizes); s++) {
				const struct vm_struct *vm = find_vm_area(mem[s][i]);

				vmap_pages_expect(test, mem[s][i], sizes[s], s * 100 + i);
				KUNIT_EXPECT_EQ(test, vm->nr_pages, sizes[s]);
				KUNIT_EXPECT_EQ(test, page_ref_count(vm->pages[sizes[s] - 1]), 1);
				vfree(mem[s][i]);
			}
		}
		vm_unmap_aliases();
	}
}

/* vrealloc() changes the vm_struct of its area; the next area there has another size. */
static void vmap_struct_resized(struct kunit *test)
{
	void *mem[64];
	unsigned int round, i;

	for (round = 0; round < 4; round++) {
		for (i = 0; i < ARRAY_SIZE(mem); i++) {
			mem[i] = vmalloc(8 * PAGE_SIZE);
			KUNIT_ASSERT_NOT_NULL(test, mem[i]);
			KUNIT_EXPECT_EQ(test, find_vm_area(mem[i])->nr_pages, 8);
			KUNIT_EXPECT_EQ(test, find_vm_area(mem[i])->requested_size, 8 * PAGE_SIZE);
			vmap_pages_fill(mem[i], 8, i);
			mem[i] = vrealloc(mem[i], (1 + i % 8) * PAGE_SIZE, GFP_KERNEL);
			KUNIT_ASSERT_NOT_NULL(test, mem[i]);
		}
		for (i = 0; i < ARRAY_SIZE(mem); i++) {
			vmap_pages_expect(test, mem[i], 1 + i % 8, i);
			vfree(mem[i]);
		}
		vm_unmap_aliases();
	}
}

#define NR_MANY	8192

/*
 * Returns the pages of slabs once there are less than @limit, or no fewer after five
 * more seconds: a work item frees blocks after a grace period, and as fast as a busy
 * machine lets it.
 */
static long slab_pages(long limit)
{
	long pages, least = LONG_MAX;
	int i;

	for (i = 0; i < 25 && least >= limit; i++) {
		rcu_barrier();
		msleep(200);
		rcu_barrier();
		pages = global_node_page_state_pages(NR_SLAB_UNRECLAIMABLE_B);
		if (pages < least) {
			least = pages;
			i = 0;
		}
	}
	return least;
}

static void get_and_put_many(struct kunit *test, struct vm_struct **vms)
{
	unsigned int i;

	for (i = 0; i < NR_MANY; i++) {
		vms[i] = get_vm_area(PAGE_SIZE, VM_MAP);
		KUNIT_ASSERT_NOT_NULL(test, vms[i]);
	}
	for (i = 0; i < NR_MANY; i++)
		free_vm_area(vms[i]);
	vm_unmap_aliases();
}

/* The vm_structs of freed areas are given back when memory is short. */
static void vmap_struct_drained(struct kunit *test)
{
	struct vm_struct **vms = vmap_array(test, NR_MANY, sizeof(*vms));
	const long limit = NR_MANY * sizeof(**vms) / PAGE_SIZE / 2;
	long before, after;

	if (IS_ENABLED(CONFIG_KASAN_GENERIC))
		kunit_skip(test, "the KASAN quarantine keeps freed memory");
	/* With pages of 64 KiB: a slab of eight, which anybody may have made. */
	if (limit < 8)
		kunit_skip(test, "one slab is more than what is looked for");

	/* What stays anyway, such as parts of the directory. */
	get_and_put_many(test, vms);
	vmap_drain(test);
	before = slab_pages(0);
	get_and_put_many(test, vms);
	vmap_drain(test);
	after = slab_pages(before + limit);
	KUNIT_EXPECT_LT_MSG(test, after - before, limit, "slab pages: %ld before, %ld after",
			    before, after);
}

/* A request without memory gets NULL, and its addresses stay free. */
static void vmap_struct_no_memory(struct kunit *test)
{
	/* More than the vacant slots of a current block, which drains leave. */
	struct vm_struct **vm = vmap_array(test, NR_MANY, sizeof(*vm));
	unsigned int i, failed = 0;

	vmap_fault_need(test);
	vmap_drain(test);
	for (i = 0; i < NR_MANY; i++) {
		vmap_fault_arm(1);
		vm[i] = vmap_area_get(&(struct vmap_win){ VMALLOC_START, VMALLOC_END },
				      PAGE_SIZE, 1, VM_MAP, VMAP_GFP_FAILING);
		if (vmap_fault_disarm()) {
			/* Else it was memory of the checker, which does without. */
			failed += !vm[i];
			vm[i] = vm[i] ?: get_vm_area(PAGE_SIZE, VM_MAP);
		}
		KUNIT_ASSERT_NOT_NULL(test, vm[i]);
		KUNIT_EXPECT_EQ(test, vm[i]->flags, VM_MAP);
	}
	KUNIT_EXPECT_GT(test, failed, 0);
	for (i = 0; i < NR_MANY; i++)
		free_vm_area(vm[i]);
}

/* Reads the memory of areas all the time. */
static int read_all(void *data)
{
	unsigned long *addrs = data, i = 0;
	u64 word;

	while (!kthread_should_stop()) {
		struct kvec vec = { .iov_base = &word, .iov_len = sizeof(word) };
		struct iov_iter iter;

		iov_iter_kvec(&iter, ITER_DEST, &vec, 1, sizeof(word));
		vread_iter(&iter, (const char *)READ_ONCE(addrs[i++ % 16]), sizeof(word));
		cond_resched();
	}
	return 0;
}

/* Readers of areas that others free and reuse see either one. */
static void vmap_struct_readers(struct kunit *test)
{
	unsigned long *addrs = vmap_array(test, 16, sizeof(*addrs));
	struct task_struct *task;
	unsigned int i, n;
	void *mem[16];

	for (i = 0; i < ARRAY_SIZE(mem); i++)
		addrs[i] = VMALLOC_START;
	task = kthread_run(read_all, addrs, "vmap_struct");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task));
	for (n = 0; n < 300; n++) {
		for (i = 0; i < ARRAY_SIZE(mem); i++) {
			mem[i] = vmalloc((1 + i % 4) * PAGE_SIZE);
			if (mem[i])
				WRITE_ONCE(addrs[i], (unsigned long)kasan_reset_tag(mem[i]));
		}
		for (i = 0; i < ARRAY_SIZE(mem); i++)
			vfree(mem[i]);
		if (n % 8 == 0)
			vm_unmap_aliases();
		cond_resched();
	}
	kthread_stop(task);
}

static struct kunit_case vmap_struct_cases[] = {
	KUNIT_CASE(vmap_struct_clean),
	KUNIT_CASE(vmap_struct_holders),
	KUNIT_CASE(vmap_struct_pages),
	KUNIT_CASE(vmap_struct_resized),
	KUNIT_CASE(vmap_struct_drained),
	KUNIT_CASE(vmap_struct_no_memory),
	KUNIT_CASE(vmap_struct_readers),
	{}
};

VMAP_SUITE(vmap_struct);
