// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_tlb": no CPU uses a stale mapping.
 *
 * After a free, a TLB may still hold the addresses of an area. It must be
 * flushed before they are reused. So the cases read an address on every CPU,
 * free it, purge, and try to read it again on every CPU. Then they map another
 * page there and read that. A missing flush is visible, because emulated arm64
 * and x86 CPUs keep the translation, and UML keeps the mapping of its process.
 */
#include <linux/cpumask.h>
#include <linux/io.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include "../mapping/vmap_walk_kunit.h"
#include "vmap_area_kunit.h"

#define ROUNDS		24
#define OLD_STAMP	0x01dda7a5ULL
#define NEW_STAMP	0x4e3dda7aULL

/* Moves the case to @cpu and its TLB. */
static void run_on(struct kunit *test, int cpu)
{
	KUNIT_ASSERT_EQ_MSG(test, 0, set_cpus_allowed_ptr(current, cpumask_of(cpu)),
			    "moving to CPU %d", cpu);
}

/* Moves the case back to the CPU on which the round started. */
static void run_home(struct kunit *test)
{
	run_on(test, cpumask_first(cpu_online_mask));
}

/* Expects that every CPU reads @want at @addr; 0: that none reads the old page there. */
static bool all_cpus_read(struct kunit *test, unsigned long addr, u64 want, unsigned int round)
{
	bool good = true;
	int cpu;

	for_each_online_cpu(cpu) {
		u64 got = 0;

		run_on(test, cpu);
		if (want)
			got = READ_ONCE(*(u64 *)addr);
		else if (copy_from_kernel_nofault(&got, (void *)addr, sizeof(got)) ||
			 got != OLD_STAMP)
			continue;
		if (got == want)
			continue;
		KUNIT_FAIL(test, "round %u: CPU %d reads %#llx at %#lx, not %#llx%s",
			   round, cpu, got, addr, want,
			   got == OLD_STAMP ? ": the mapping that was freed" : "");
		good = false;
	}
	run_home(test);

	return good;
}

/* The same for the first, middle and last page of a mapping. */
static bool range_reads(struct kunit *test, unsigned long addr, unsigned long nr, u64 want,
			unsigned int round)
{
	return all_cpus_read(test, addr, want, round) &&
		all_cpus_read(test, addr + nr / 2 * PAGE_SIZE, want, round) &&
		all_cpus_read(test, addr + (nr - 1) * PAGE_SIZE, want, round);
}

/* Allocates two pages with different stamps. */
static struct page **old_and_new(struct kunit *test)
{
	struct page **pages = vmap_pages_get(test, 2);

	*(u64 *)page_address(pages[0]) = OLD_STAMP;
	*(u64 *)page_address(pages[1]) = NEW_STAMP;

	return pages;
}

/* Reserves the whole window and maps @page at its start. */
static struct vm_struct *map_window(struct kunit *test, const struct vmap_win *win,
				    struct page *page, unsigned int round)
{
	unsigned long size = win->end - win->start;
	struct vm_struct *vm;

	vm = vmap_area_need(test, win, size - PAGE_SIZE, 1, 0);
	KUNIT_ASSERT_EQ_MSG(test, 0,
			    vmap_pages_range(win->start, win->start + PAGE_SIZE,
					     PAGE_KERNEL, &page, PAGE_SHIFT),
			    "round %u: mapping %#lx", round, win->start);

	return vm;
}

/*
 * The window has room for one area, so its address is reused at once. In odd
 * rounds the case purges, and no CPU may reach the old page; in even rounds
 * the next request must purge.
 */
static void vmap_tlb_window(struct kunit *test)
{
	struct page **pages = old_and_new(test);
	const struct vmap_win win = vmap_win_get(test, 2 * PAGE_SIZE);
	unsigned int round;
	bool good = true;

	for (round = 0; good && round < ROUNDS; round++) {
		struct vm_struct *vm;

		vm = map_window(test, &win, pages[0], round);
		good &= all_cpus_read(test, win.start, OLD_STAMP, round);
		vmap_area_put(test, vm);
		if (round % 2) {
			vm_unmap_aliases();
			good &= all_cpus_read(test, win.start, 0, round);
		}

		vm = map_window(test, &win, pages[1], round);
		good &= all_cpus_read(test, win.start, NEW_STAMP, round);
		vmap_area_put(test, vm);
	}

	vmap_win_expect_free(test, &win);
}

/*
 * With vmap() in the whole vmalloc space, freed addresses cannot be read, and
 * a reused one shows the new page.
 */
static void vmap_tlb_vmap(struct kunit *test)
{
	struct page **pages = old_and_new(test);
	unsigned int round, reused = 0;
	bool good = true;

	for (round = 0; good && round < ROUNDS; round++) {
		unsigned long old;
		unsigned int nr = 0;
		void *mem[160];

		/* Each CPU has a block of its own: stay on one CPU. */
		vmap_drain(test);
		run_home(test);
		mem[0] = vmap(&pages[0], 1, VM_MAP, PAGE_KERNEL);
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[0], "round %u", round);
		old = (unsigned long)mem[0];
		good &= all_cpus_read(test, old, OLD_STAMP, round);
		vunmap(mem[0]);
		vm_unmap_aliases();
		/* UML retries a fault at such an address forever. */
		if (!IS_ENABLED(CONFIG_UML))
			good &= all_cpus_read(test, old, 0, round);

		do {
			mem[nr] = vmap(&pages[1], 1, VM_MAP, PAGE_KERNEL);
			KUNIT_ASSERT_NOT_NULL_MSG(test, mem[nr], "round %u, area %u", round, nr);
			if ((unsigned long)mem[nr] == old) {
				reused++;
				good &= all_cpus_read(test, old, NEW_STAMP, round);
			}
		} while ((unsigned long)mem[nr++] != old && nr < ARRAY_SIZE(mem));
		while (nr--)
			vunmap(mem[nr]);
	}

	kunit_info(test, "%u of %u addresses were reused soon\n", reused, round);
	KUNIT_EXPECT_GT(test, reused, 0);
}

/*
 * vm_unmap_aliases() also flushes freed parts of vmap blocks, while the areas of the
 * blocks stay busy. Each CPU has blocks of its own.
 */
static void vmap_tlb_map_ram(struct kunit *test)
{
	struct page **pages = old_and_new(test);
	void *keep[4], *mem[ARRAY_SIZE(keep)];
	unsigned int round, i, nr;
	bool good = true;
	int cpu;

	if (IS_ENABLED(CONFIG_UML))
		kunit_skip(test, "UML retries a fault in vmalloc space for ever");

	for (round = 0; good && round < ROUNDS; round++) {
		nr = 0;
		for_each_online_cpu(cpu) {
			if (nr == ARRAY_SIZE(keep))
				break;
			run_on(test, cpu);
			keep[nr] = vm_map_ram(&pages[1], 1, NUMA_NO_NODE);
			mem[nr] = vm_map_ram(&pages[0], 1, NUMA_NO_NODE);
			KUNIT_ASSERT_NOT_NULL_MSG(test, keep[nr], "round %u", round);
			KUNIT_ASSERT_NOT_NULL_MSG(test, mem[nr], "round %u", round);
			nr++;
		}
		for (i = 0; i < nr; i++)
			good &= all_cpus_read(test, (unsigned long)mem[i], OLD_STAMP, round);
		for (i = 0; i < nr; i++)
			vm_unmap_ram(mem[i], 1);
		vm_unmap_aliases();
		for (i = 0; i < nr; i++) {
			good &= all_cpus_read(test, (unsigned long)mem[i], 0, round);
			good &= all_cpus_read(test, (unsigned long)keep[i], NEW_STAMP, round);
			vm_unmap_ram(keep[i], 1);
		}
	}
	vm_unmap_aliases();
}

/*
 * vunmap_range() flushes all of a range, be it mapped by one PTE, a group of
 * them, or a PMD entry.
 */
static void vmap_tlb_unmap(struct kunit *test)
{
	const struct vmap_block block = vmap_block_get(test, 2);
	const unsigned long half = block.nr / 2, size = half * PAGE_SIZE;
	const unsigned long group = PFN_DOWN(1UL << vmap_group_shift());
	const unsigned long lengths[] = { 1, min(group, half), half };
	const struct vmap_win win = vmap_win_get(test, 2 * size);
	struct vm_struct *vm;
	unsigned long i, addr;
	bool good = true;

	if (IS_ENABLED(CONFIG_UML))
		kunit_skip(test, "UML retries a fault in vmalloc space for ever");
	for (i = 0; i < block.nr; i++)
		*(u64 *)page_address(block.page + i) = i < half ? OLD_STAMP : NEW_STAMP;
	vm = vmap_area_need(test, &win, size, size, VM_NO_GUARD);
	addr = vmap_start(vm);

	for (i = 0; good && i < ARRAY_SIZE(lengths); i++) {
		unsigned long end = addr + lengths[i] * PAGE_SIZE;

		KUNIT_EXPECT_EQ(test, 0,
				vmap_page_range(addr, end, page_to_phys(block.page),
						PAGE_KERNEL));
		good &= range_reads(test, addr, lengths[i], OLD_STAMP, i);
		vunmap_range(addr, end);
		good &= range_reads(test, addr, lengths[i], 0, i);

		KUNIT_EXPECT_EQ(test, 0,
				vmap_page_range(addr, end, page_to_phys(block.page + half),
						PAGE_KERNEL));
		good &= range_reads(test, addr, lengths[i], NEW_STAMP, i);
		vunmap_range(addr, end);
	}
	vmap_area_put(test, vm);
}

static struct kunit_case vmap_tlb_cases[] = {
	KUNIT_CASE(vmap_tlb_window),
	KUNIT_CASE(vmap_tlb_vmap),
	KUNIT_CASE(vmap_tlb_map_ram),
	KUNIT_CASE(vmap_tlb_unmap),
	{}
};

VMAP_SUITE(vmap_tlb);
