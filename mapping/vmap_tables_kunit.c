// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_tables": a purge frees the tables of PTEs that only free ranges
 * have used, and no others, while others read page tables. Areas are so large that
 * both allocators free their tables at once.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/kthread.h>
#include <linux/pagewalk.h>
#include <linux/set_memory.h>
#include <linux/vmap_rust.h>
#include <linux/vmstat.h>

#include "vmap_walk_kunit.h"

/* Whole PMDs of an area, from its start on, where pages are mapped. */
#define WHOLE		4
/* From the middle of a PMD to the middle of another one. */
#define LARGE		(PUD_SIZE + PMD_SIZE)
#define ROUNDS		10
/* So many tables count_tables() may miss: those that CPUs have counted by themselves. */
#define ROUGH		64

/* Returns a window of that many PMDs. Skips the case where page tables are never freed. */
static struct vmap_win pmd_win_get(struct kunit *test, unsigned long nr)
{
	struct vmap_win win;

	if (!IS_ENABLED(CONFIG_VMAP_FREE_TABLES))
		kunit_skip(test, "needs CONFIG_VMAP_FREE_TABLES");
	if (PUD_SIZE > SZ_1G)
		kunit_skip(test, "a PUD maps too much");
	win = vmap_win_get(test, (nr + 1) * PMD_SIZE);
	win.start = ALIGN(win.start, PMD_SIZE);
	return win;
}

/* Maps one page in an area. */
static void map_page(struct kunit *test, unsigned long addr, struct page *page)
{
	KUNIT_ASSERT_EQ_MSG(test, 0, vmap_pages_range(addr, addr + PAGE_SIZE, PAGE_KERNEL, &page,
						      PAGE_SHIFT),
			    "mapping %#lx", addr);
}

/* Tells whether there is a table for an address that is not mapped. */
static bool has_table(unsigned long addr)
{
	unsigned long span;

	return vmap_walk(addr, &span).level != VMAP_NONE || span == PAGE_SIZE;
}

/*
 * Waits until the tables that were taken are free, and returns how many are in use: a
 * worker, which may begin late on a busy machine, waits for a grace period.
 */
static long count_tables(void)
{
	long now = global_node_page_state(NR_PAGETABLE), before;
	int i;

	synchronize_rcu();
	synchronize_rcu();
	for (i = 0; i < 50; i++) {
		before = now;
		msleep(20);
		now = global_node_page_state(NR_PAGETABLE);
		if (now != before)
			i = 0;
	}
	return now;
}

/**
 * struct check - reads of one address by all CPUs
 * @addr: the address
 * @want: what they must read
 * @bad: number of CPUs that do not
 */
struct check {
	unsigned long addr;
	unsigned long want;
	atomic_t bad;
};

static void check_here(void *arg)
{
	struct check *c = arg;

	if (READ_ONCE(*(unsigned long *)c->addr) != c->want)
		atomic_inc(&c->bad);
}

/* Expects that all CPUs read @want, so that their TLBs have the address afterwards. */
static void all_cpus_read(struct kunit *test, unsigned long addr, unsigned long want)
{
	struct check c = { .addr = addr, .want = want };

	on_each_cpu(check_here, &c, 1);
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&c.bad), 0, "at %#lx, not %lu", addr, want);
}

/* Maps a page in each PMD of a large area up to WHOLE, and at its end. */
static void map_some(struct kunit *test, const struct vmap_win *win, struct page *page)
{
	unsigned int i;

	for (i = 0; i <= WHOLE; i++)
		map_page(test, win->start + i * PMD_SIZE, page);
	map_page(test, win->end - PAGE_SIZE, page);
}

/* Counts the whole PMDs of a large area that have a table. */
static unsigned int whole_tables(const struct vmap_win *win)
{
	unsigned int i, nr = 0;

	for (i = 1; i <= WHOLE; i++)
		nr += has_table(win->start + i * PMD_SIZE);
	return nr;
}

/*
 * A large area with areas before and after it, and a PMD entry that maps pages: only
 * the tables between go. They come back with what is mapped there next.
 */
static void vmap_tables_partial(struct kunit *test)
{
	const unsigned long half = PMD_SIZE / 2;
	const struct vmap_win win = pmd_win_get(test, LARGE / PMD_SIZE + 2);
	const struct vmap_win low = { win.start, win.start + half };
	const struct vmap_win mid = { low.end, low.end + LARGE };
	const struct vmap_win high = { mid.end, mid.end + half };
	const struct vmap_win huge = { high.end, high.end + PMD_SIZE };
	struct vm_struct *vm_low = vmap_area_need(test, &low, half, 1, VM_NO_GUARD);
	struct vm_struct *vm_high = vmap_area_need(test, &high, half, 1, VM_NO_GUARD);
	struct vm_struct *vm_huge = vmap_area_need(test, &huge, PMD_SIZE, PMD_SIZE, VM_NO_GUARD);
	struct page **pages = vmap_pages_get(test, 3);
	struct vm_struct *vm_mid;
	unsigned int i, round;
	unsigned long pfn;

	for (i = 0; i < 3; i++)
		*(unsigned long *)page_address(pages[i]) = i;
	map_page(test, low.start, pages[0]);
	map_page(test, high.start, pages[2]);
	/* Nobody reads it: memory where there is none does not matter. */
	pfn = round_down(page_to_pfn(pages[0]), PFN_DOWN(PMD_SIZE));
	KUNIT_ASSERT_EQ(test, 0, vmap_page_range(huge.start, huge.end, PFN_PHYS(pfn),
						 pgprot_noncached(PAGE_KERNEL)));

	for (round = 0; round < 8; round++) {
		vm_mid = vmap_area_need(test, &mid, LARGE, 1, VM_NO_GUARD);
		map_some(test, &mid, pages[1 + round % 2]);
		for (i = 0; i <= WHOLE; i++)
			all_cpus_read(test, mid.start + i * PMD_SIZE, 1 + round % 2);
		vmap_area_put(test, vm_mid);
		vm_unmap_aliases();
		KUNIT_EXPECT_EQ_MSG(test, whole_tables(&mid), 0, "round %u", round);
		KUNIT_ASSERT_TRUE(test, has_table(mid.start));
		KUNIT_ASSERT_TRUE(test, has_table(mid.end - PAGE_SIZE));
		all_cpus_read(test, low.start, 0);
		all_cpus_read(test, high.start, 2);
		if (vmap_io_max_shift() >= PMD_SHIFT)
			KUNIT_EXPECT_EQ(test, vmap_walk(huge.start, NULL).level, VMAP_PMD);
		KUNIT_EXPECT_EQ(test, vmap_walk(huge.start, NULL).pfn, pfn);
	}

	vmap_area_put(test, vm_low);
	vmap_area_put(test, vm_high);
	vmap_area_put(test, vm_huge);
	vm_unmap_aliases();
}

/* While page tables are dumped, they stay, for the next area and the next purge. */
static void vmap_tables_dumped(struct kunit *test)
{
	const struct vmap_win all = pmd_win_get(test, LARGE / PMD_SIZE);
	const struct vmap_win win = { all.start, all.start + LARGE };
	struct page *page = vmap_pages_get(test, 1)[0];
	struct vm_struct *vm;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		vm = vmap_area_need(test, &win, LARGE, 1, VM_NO_GUARD);
		map_some(test, &win, page);
		vmap_area_put(test, vm);
		if (i == 0) {
			mmap_write_lock(&init_mm);
			vm_unmap_aliases();
			mmap_write_unlock(&init_mm);
		}
		vm_unmap_aliases();
		KUNIT_EXPECT_EQ(test, whole_tables(&win), i == 0 ? WHOLE : 0);
	}
}

/* Tables of many small areas go with their blocks. */
static void vmap_tables_small(struct kunit *test)
{
	const struct vmap_win win = pmd_win_get(test, 1);
	struct page *page = vmap_pages_get(test, 1)[0];
	const unsigned int nr = 8192, pages = 15;
	struct vm_struct **vms;
	long before, most, after;
	unsigned int i;

	if (!vmap_rust_enabled())
		kunit_skip(test, "the rb-trees keep them");
	vmap_win_expect_free(test, &win);
	vms = kvcalloc(nr, sizeof(*vms), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, vms);
	before = count_tables();
	for (i = 0; i < nr; i++) {
		vms[i] = get_vm_area(pages * PAGE_SIZE, VM_MAP);
		KUNIT_ASSERT_NOT_NULL(test, vms[i]);
		map_page(test, vmap_start(vms[i]), page);
	}
	most = count_tables();
	for (i = 0; i < nr; i++)
		free_vm_area(vms[i]);
	kvfree(vms);
	/* Each one is something to flush. */
	for (i = 0; i < 160; i++) {
		vfree(vmalloc(PAGE_SIZE));
		vm_unmap_aliases();
	}
	after = count_tables();
	KUNIT_EXPECT_LE(test, after, before + ROUGH);
	kunit_info(test, "%ld tables, %ld, then %ld\n", before, most, after);
}

/* Areas that no block serves lose theirs at once, with the rb-trees from 1 GiB on. */
static void vmap_tables_tree(struct kunit *test)
{
	const struct vmap_win win = pmd_win_get(test, 1);
	struct page **pages = kvcalloc(VMAP_TREE_PAGES, sizeof(*pages), GFP_KERNEL);
	struct page *page = vmap_pages_get(test, 1)[0];
	unsigned long i, addr;
	void *mem;

	KUNIT_ASSERT_NOT_NULL(test, pages);
	vmap_win_expect_free(test, &win);
	for (i = 0; i < VMAP_TREE_PAGES; i++)
		pages[i] = page;
	mem = vmap(pages, VMAP_TREE_PAGES, VM_MAP, PAGE_KERNEL);
	KUNIT_EXPECT_NOT_NULL(test, mem);
	if (mem) {
		addr = ALIGN((unsigned long)kasan_reset_tag(mem), PMD_SIZE);
		vunmap(mem);
		vm_unmap_aliases();
		KUNIT_EXPECT_EQ(test, has_table(addr), !vmap_rust_enabled() || VMAP_IS_SMALL);
	}
	kvfree(pages);
}

static int touch_pte(pte_t *pte, unsigned long addr, void *data)
{
	return 0;
}

/* As BPF makes and closes arenas of 4 GiB, of which it makes all tables at first. */
static void vmap_tables_arenas(struct kunit *test)
{
	const unsigned long size = 2UL * SZ_2G;
	/* Those of the KASAN shadow stay. */
	const long most = IS_ENABLED(CONFIG_KASAN_VMALLOC) ? size / PMD_SIZE / 2 : ROUGH;
	const struct vmap_win win = pmd_win_get(test, 1);
	struct vm_struct *vm;
	unsigned int i;
	long before, left;

	if (PMD_SIZE > SZ_2M)
		kunit_skip(test, "few tables");
	vmap_win_expect_free(test, &win);
	vm_unmap_aliases();
	before = count_tables();
	for (i = 0; i < 10; i++) {
		vm = get_vm_area(size, VM_MAP);
		KUNIT_ASSERT_NOT_NULL(test, vm);
		KUNIT_EXPECT_EQ(test, 0, apply_to_page_range(&init_mm, vmap_start(vm), size,
							     touch_pte, NULL));
		free_vm_area(vm);
		vm_unmap_aliases();
	}
	left = count_tables() - before;
	KUNIT_EXPECT_LE(test, left, most);
	kunit_info(test, "%ld tables are left\n", left);
}

/**
 * struct reader - what reads page tables while tables go
 * @win: the range
 * @pfn: the page that is mapped there, if any is
 * @bad: number of entries with another page
 * @seen: number of tables that were read
 * @rounds: number of purges so far
 */
struct reader {
	struct vmap_win win;
	unsigned long pfn;
	unsigned long bad;
	unsigned long seen;
	const unsigned long *rounds;
};

/* As readers do, reads the entry once, then the table: slowly. */
static int read_table(pmd_t *pmd, unsigned long addr, unsigned long next, struct mm_walk *walk)
{
	struct reader *r = walk->private;
	pmd_t val = pmdp_get(pmd);
	pte_t *pte;
	int i;

	if (!pmd_present(val) || pmd_leaf(val))
		return 0;
	pte = pte_offset_kernel(&val, addr & PMD_MASK);
	for (i = 0; i < PTRS_PER_PTE; i++) {
		pte_t entry = ptep_get(pte + i);

		if (!pte_none(entry) && (!pte_present(entry) || pte_pfn(entry) != r->pfn))
			WRITE_ONCE(r->bad, r->bad + 1);
		if (i % 128 == 0)
			mdelay(1);
	}
	WRITE_ONCE(r->seen, r->seen + 1);
	return 0;
}

static const struct mm_walk_ops read_ops = { .pmd_entry = read_table };

/* Any address, as KASAN, perf and reports of faults do: without a lock. */
static int read_lockless(void *arg)
{
	struct reader *r = arg;
	unsigned long addr;

	while (!kthread_should_stop()) {
		for (addr = r->win.start; addr < r->win.end; addr += PMD_SIZE) {
			scoped_guard(rcu) {
				struct page *page = vmalloc_to_page((void *)addr);

				if (page && page_to_pfn(page) != r->pfn)
					WRITE_ONCE(r->bad, r->bad + 1);
				walk_kernel_page_table_range_lockless(addr, addr + PMD_SIZE,
								      &read_ops, NULL, r);
			}
			cond_resched();
		}
	}
	return 0;
}

/* As the one before, but sleeps, so that grace periods end meanwhile. */
static int read_table_late(pmd_t *pmd, unsigned long addr, unsigned long next,
			   struct mm_walk *walk)
{
	struct reader *r = walk->private;
	pmd_t val = pmdp_get(pmd);

	if (addr > r->win.start + PMD_SIZE)
		return 0;
	msleep(100);
	/* The owner may make a table meanwhile. */
	if (pmd_present(val) && pmd_val(pmdp_get(pmd)) != pmd_val(val))
		WRITE_ONCE(r->bad, r->bad + 1);
	return read_table(&val, addr, next, walk);
}

static const struct mm_walk_ops late_ops = { .pmd_entry = read_table_late };

/* As ptdump does: no grace period waits for it. A whole round is between two dumps. */
static int read_locked(void *arg)
{
	struct reader *r = arg;

	while (!kthread_should_stop()) {
		unsigned long rounds;

		mmap_write_lock(&init_mm);
		walk_kernel_page_table_range(r->win.start, r->win.end, &late_ops, NULL, r);
		mmap_write_unlock(&init_mm);
		rounds = READ_ONCE(*r->rounds);
		while (!kthread_should_stop() && READ_ONCE(*r->rounds) - rounds < 2)
			msleep(20);
	}
	return 0;
}

/* Owners of ranges beside it use their tables, and make new ones. */
static int use_neighbour(void *arg)
{
	struct reader *r = arg;
	unsigned long addr;
	void *mem;

	while (!kthread_should_stop()) {
		if (apply_to_page_range(&init_mm, r->win.start, r->win.end - r->win.start,
					touch_pte, NULL))
			WRITE_ONCE(r->bad, r->bad + 1);
		mem = vmalloc(3 * PAGE_SIZE);
		if (mem) {
			addr = (unsigned long)kasan_reset_tag(mem);
			set_memory_ro(addr, 3);
			set_memory_rw(addr, 3);
		}
		vfree(mem);
		WRITE_ONCE(r->seen, r->seen + 1);
		usleep_range(500, 1000);
	}
	return 0;
}

/* Reuses pages that were just freed, with what looks like entries. */
static void reuse_pages(void)
{
	struct page *pages[64];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(pages); i++) {
		pages[i] = alloc_page(GFP_KERNEL | __GFP_NOWARN);
		if (pages[i])
			memset(page_address(pages[i]), 0xff, PAGE_SIZE);
	}
	for (i = 0; i < ARRAY_SIZE(pages); i++)
		if (pages[i])
			__free_page(pages[i]);
}

static void vmap_tables_readers(struct kunit *test)
{
	static int (*const work[])(void *) = { read_lockless, read_locked, use_neighbour };
	const struct vmap_win win = pmd_win_get(test, LARGE / PMD_SIZE + 1);
	const struct vmap_win mid = { win.start + PMD_SIZE / 2,
				      win.start + PMD_SIZE / 2 + LARGE };
	const struct vmap_win low = { mid.start - PMD_SIZE / 2, mid.start };
	struct vm_struct *vm_low = vmap_area_need(test, &low, PMD_SIZE / 2, 1, VM_NO_GUARD);
	struct page *page = vmap_pages_get(test, 1)[0];
	struct reader readers[ARRAY_SIZE(work)] = {};
	struct task_struct *tasks[ARRAY_SIZE(work)];
	unsigned long taken = 0, rounds = 0, deadline;
	unsigned int i;

	map_page(test, low.start, page);
	for (i = 0; i < ARRAY_SIZE(work); i++) {
		readers[i].win = work[i] == use_neighbour ? low : mid;
		if (work[i] != use_neighbour)
			readers[i].win.end = mid.start + (WHOLE + 1) * PMD_SIZE;
		readers[i].pfn = page_to_pfn(page);
		readers[i].rounds = &rounds;
		tasks[i] = kthread_run(work[i], &readers[i], "vmap_tables/%u", i);
		KUNIT_EXPECT_NOT_ERR_OR_NULL(test, tasks[i]);
	}

	/* On a busy machine the lock may be held all of this time. */
	deadline = jiffies + 3 * HZ;
	while (rounds < ROUNDS || time_before(jiffies, deadline) ||
	       (!taken && time_before(jiffies, deadline + 60 * HZ))) {
		struct vm_struct *vm = vmap_area_need(test, &mid, mid.end - mid.start, 1,
						      VM_NO_GUARD);

		map_some(test, &mid, page);
		vmap_area_put(test, vm);
		vm_unmap_aliases();
		taken += WHOLE - whole_tables(&mid);
		/* The worker frees tables meanwhile, if no grace period is waited for. */
		usleep_range(100, 200);
		reuse_pages();
		WRITE_ONCE(rounds, rounds + 1);
	}

	for (i = 0; i < ARRAY_SIZE(work); i++) {
		if (IS_ERR(tasks[i]))
			continue;
		kthread_stop(tasks[i]);
		KUNIT_EXPECT_EQ_MSG(test, readers[i].bad, 0, "reader %u", i);
		KUNIT_EXPECT_GT_MSG(test, readers[i].seen, 0, "reader %u", i);
	}
	/* While the tables are read with the lock held, they stay. */
	KUNIT_EXPECT_GT(test, taken, 0);
	kunit_info(test, "%lu of %lu tables were taken\n", taken, rounds * WHOLE);
	vmap_area_put(test, vm_low);
	vm_unmap_aliases();
}

static struct kunit_case vmap_tables_cases[] = {
	KUNIT_CASE(vmap_tables_partial),
	KUNIT_CASE(vmap_tables_dumped),
	KUNIT_CASE(vmap_tables_small),
	KUNIT_CASE(vmap_tables_tree),
	KUNIT_CASE(vmap_tables_arenas),
	KUNIT_CASE_SLOW(vmap_tables_readers),
	{}
};

VMAP_SUITE(vmap_tables);
