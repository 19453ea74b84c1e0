// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_attack": callers that break the rules. The allocator reports
 * the call with its arguments, refuses it, and continues.
 */
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/vmap_rust.h>
#include <linux/workqueue.h>

#include "vmap_area_kunit.h"

#define NR_STORM	2000
#define NR_RACES	300

/* Returns an address at which no area can be freed. @win is free. */
static unsigned long foreign_addr(const struct vmap_win *win,
				  struct rnd_state *rnd, const void *object)
{
	unsigned long any = prandom_u32_state(rnd);

	any |= (unsigned long)prandom_u32_state(rnd) << (BITS_PER_LONG / 2);

	switch (prandom_u32_state(rnd) % 6) {
	case 0: /* user space and non-canonical addresses */
		return any % (VMALLOC_START / 2) + 1;
	case 1: /* memory of the slab allocator */
		return (unsigned long)object + any % SZ_1M;
	case 2: /* the last pages of the address space */
		return -(any % SZ_64K) - 1;
	case 3: /* not at the start of a page */
		return win->start + (any % (win->end - win->start) | 1);
	default:
		return (win->start + any % (win->end - win->start)) & PAGE_MASK;
	}
}

/*
 * Thousands of addresses without an area are freed by all functions that free.
 * Each call is refused with a warning, and a neighbouring area is unchanged. A
 * lookup of such an address does not warn.
 */
static void vmap_attack_foreign(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, VMAP_PAGES_OF(SZ_4M));
	void *object = vmap_array(test, 1, 64);
	struct vmap_win hole;
	struct rnd_state rnd;
	struct vm_struct *vm;
	unsigned int i;

	if (!IS_ENABLED(CONFIG_BUG))
		kunit_skip(test, "warnings need CONFIG_BUG");

	vmap_seed(test, &rnd);
	vm = vmap_area_need(test, &win, 16 * PAGE_SIZE, 1, 0);
	hole = (struct vmap_win){ vmap_end(vm), win.end };

	for (i = 0; i < NR_STORM; i++) {
		unsigned long addr = foreign_addr(&hole, &rnd, object);
		unsigned int expected = 1;

		/* Another user may have an area there. */
		if (find_vmap_area(addr))
			continue;

		kunit_warning_suppress(test) {
			switch (i % 3) {
			case 0:
				KUNIT_EXPECT_NULL_MSG(test, remove_vm_area((void *)addr), "%#lx",
						      addr);
				expected = !PAGE_ALIGNED(addr);
				break;
			case 1:
				vunmap((void *)addr);
				break;
			default:
				vfree((void *)addr);
			}
			KUNIT_EXPECT_GE_MSG(test, KUNIT_SUPPRESSED_WARNING_COUNT(), expected,
					    "warnings, %#lx", addr);
		}
	}

	/* With KASAN, vm_unmap_ram() writes KASAN shadow before the lookup. */
	if (!IS_ENABLED(CONFIG_KASAN_VMALLOC)) {
		kunit_warning_suppress(test) {
			vm_unmap_ram((void *)hole.start, BITS_PER_LONG + 1);
			KUNIT_EXPECT_GE(test, KUNIT_SUPPRESSED_WARNING_COUNT(), 1);
		}
	}

	vmap_area_is_sound(test, vm, &win, 1);
	vmap_area_put(test, vm);
	vmap_win_expect_free(test, &win);
}

struct racer {
	struct work_struct work;
	struct completion *go;
	void *addr;
	struct vm_struct *got;
};

static void race_free(struct work_struct *work)
{
	struct racer *r = container_of(work, struct racer, work);

	wait_for_completion(r->go);
	r->got = remove_vm_area(r->addr);
}

/*
 * Two CPUs free one area concurrently: exactly one of them succeeds. Areas in
 * a window of their own are in the tree, the others in blocks.
 */
static void vmap_attack_race(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, VMAP_PAGES_OF(SZ_4M));
	const struct vmap_win std = vmap_std_win();
	unsigned int i, j, both = 0;

	for (i = 0; i < NR_RACES; i++) {
		DECLARE_COMPLETION_ONSTACK(go);
		struct racer r[2] = { };
		struct vm_struct *vm;

		vm = vmap_area_need(test, i % 3 ? &std : &win, 2 * PAGE_SIZE, 1, 0);
		for (j = 0; j < ARRAY_SIZE(r); j++) {
			r[j].go = &go;
			r[j].addr = (void *)vmap_start(vm);
			INIT_WORK_ONSTACK(&r[j].work, race_free);
			schedule_work_on(j ? cpumask_last(cpu_online_mask) :
					     cpumask_first(cpu_online_mask), &r[j].work);
		}
		complete_all(&go);
		for (j = 0; j < ARRAY_SIZE(r); j++) {
			flush_work(&r[j].work);
			destroy_work_on_stack(&r[j].work);
		}
		both += r[0].got && r[1].got;
		KUNIT_EXPECT_TRUE_MSG(test, r[0].got == vm || r[1].got == vm, "nobody got %#lx",
				      vmap_start(vm));
		kfree(vm);
	}
	KUNIT_EXPECT_EQ_MSG(test, 0, both, "freed by both, of %u", NR_RACES);
	vmap_win_expect_free(test, &win);
}

/* Arguments of vmap_rust_alloc() that differ. */
struct request {
	unsigned long size;
	unsigned long align;
	unsigned long vstart;
	unsigned long vend;
};

static struct vmap_area *ask(const struct request *req)
{
	return vmap_rust_alloc(req->size, req->align, req->vstart, req->vend, 0, NULL,
			       VMAP_GFP, NUMA_NO_NODE);
}

/* Expects that retire of @va is refused in its state. */
static void expect_refused(struct kunit *test, struct vmap_area *va)
{
	unsigned long start = va->va_start, end = va->va_end;

	kunit_warning_suppress(test)
		KUNIT_EXPECT_EQ_MSG(test, 0, vmap_rust_retire(va), "retired %#lx-%#lx",
				    start, end);
}

static void attack_area(struct kunit *test, unsigned int nr_pages)
{
	struct request req = {
		.size = nr_pages * PAGE_SIZE, .align = 1,
		.vstart = VMALLOC_START, .vend = VMALLOC_END,
	};
	struct vmap_area *va = ask(&req);
	unsigned long addr;

	KUNIT_ASSERT_FALSE(test, IS_ERR(va));
	addr = va->va_start;

	/* While it is busy. */
	expect_refused(test, va);
	KUNIT_EXPECT_PTR_EQ(test, va, vmap_rust_find(addr));

	/* Unlink at an inner address, and then once more. */
	KUNIT_EXPECT_PTR_EQ(test, va, vmap_rust_unlink(addr + req.size - 1));
	KUNIT_EXPECT_NULL(test, vmap_rust_unlink(addr));
	vmap_rust_retire(va);

	/* Not yet flushed, so the object has not been reused. */
	expect_refused(test, va);
	KUNIT_EXPECT_NULL(test, vmap_rust_find(addr));
}

/* Frees an area; expects that it fits its request. Returns 1. */
static unsigned int check_and_free(struct kunit *test, struct vmap_area *va,
				   const struct request *req)
{
	unsigned long start = va->va_start, end = va->va_end;

	KUNIT_EXPECT_TRUE_MSG(test,
			      req->size && PAGE_ALIGNED(req->size) && end - start == req->size &&
			      is_power_of_2(req->align) && IS_ALIGNED(start, req->align) &&
			      start >= req->vstart && end - 1 <= req->vend - 1,
			      "%#lx-%#lx for %#lx aligned to %#lx in %#lx-%#lx", start, end,
			      req->size, req->align, req->vstart, req->vend);
	KUNIT_EXPECT_PTR_EQ(test, va, vmap_rust_unlink(start));
	/* That of try_direct() did not come from kmalloc(). */
	va->vm = NULL;
	vmap_rust_retire(va);
	return 1;
}

/* Returns 1 if the request was served. */
static unsigned int try_request(struct kunit *test, const struct request *req)
{
	struct vmap_area *va = ask(req);

	return IS_ERR(va) ? 0 : check_and_free(test, va, req);
}

/* Returns 1 if the direct call served the request. */
static unsigned int try_direct(struct kunit *test, const struct request *req)
{
	struct vm_struct vm = { };
	struct vmap_area *va = vmap_rust_alloc_current(req->size, req->align, &vm);

	if (!va)
		return 0;
	KUNIT_EXPECT_PTR_EQ(test, va->vm, &vm);
	KUNIT_EXPECT_EQ(test, va->va_start, (unsigned long)vm.addr);
	KUNIT_EXPECT_EQ(test, req->size, vm.size);
	return check_and_free(test, va, req);
}

/* All combinations of these values. Few of them are valid. */
static void attack_requests(struct kunit *test)
{
	static const unsigned long sizes[] = {
		0, PAGE_SIZE, PAGE_SIZE + 1, SZ_1M, 1UL << (BITS_PER_LONG - 1),
		-2 * PAGE_SIZE, -PAGE_SIZE,
	};
	static const unsigned long aligns[] = {
		0, 1, 3, PAGE_SIZE - 1, SZ_1M, 1UL << (BITS_PER_LONG - 1),
		ULONG_MAX,
	};
	const unsigned long bounds[] = {
		0, PAGE_SIZE, VMALLOC_START, VMALLOC_START + PAGE_SIZE,
		VMALLOC_END, -PAGE_SIZE, ULONG_MAX,
	};
	const unsigned int nr = ARRAY_SIZE(sizes) * ARRAY_SIZE(aligns) *
				ARRAY_SIZE(bounds) * ARRAY_SIZE(bounds);
	unsigned int i, served = 0;

	for (i = 0; i < nr; i++) {
		unsigned int n = i;
		struct request req;

		req.size = sizes[n % ARRAY_SIZE(sizes)];
		n /= ARRAY_SIZE(sizes);
		req.align = aligns[n % ARRAY_SIZE(aligns)];
		n /= ARRAY_SIZE(aligns);
		req.vstart = bounds[n % ARRAY_SIZE(bounds)];
		req.vend = bounds[n / ARRAY_SIZE(bounds)];
		/* A purge flushes what is served, which must be kernel addresses. */
		if (req.vstart < req.vend && (req.vstart < VMALLOC_START ||
					      req.vend > VMALLOC_END))
			continue;
		served += try_request(test, &req);
	}
	KUNIT_EXPECT_GT_MSG(test, served, 0, "of %u requests", nr);
	KUNIT_EXPECT_LT_MSG(test, served, nr, "of %u requests", nr);

	for (i = 0, served = 0; i < ARRAY_SIZE(sizes) * ARRAY_SIZE(aligns); i++) {
		struct request req = {
			.size = sizes[i % ARRAY_SIZE(sizes)],
			.align = aligns[i / ARRAY_SIZE(sizes)],
			.vstart = VMALLOC_START, .vend = VMALLOC_END,
		};

		/* It leaves the CPU a block that may serve the direct call. */
		try_request(test, &req);
		served += try_direct(test, &req);
	}
	KUNIT_EXPECT_GT(test, served, 0);
	KUNIT_EXPECT_LT(test, served, i);
}

/*
 * Functions of the allocator are called in the wrong order, twice, and with
 * invalid arguments.
 */
static void vmap_attack_ops(struct kunit *test)
{
	if (!vmap_rust_enabled())
		kunit_skip(test, "the rb-trees have no such functions");

	/* In a block of a CPU, in one that CPUs share, and in the tree. */
	attack_area(test, 2);
	attack_area(test, 100);
	attack_area(test, VMAP_TREE_PAGES);
	attack_requests(test);
	vm_unmap_aliases();
}

static struct kunit_case vmap_attack_cases[] = {
	KUNIT_CASE(vmap_attack_foreign),
	KUNIT_CASE(vmap_attack_race),
	KUNIT_CASE(vmap_attack_ops),
	{}
};

VMAP_SUITE(vmap_attack);
