// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_read": vread_iter(), which /proc/kcore reads memory with.
 */
#include <linux/io.h>
#include <linux/uio.h>

#include "vmap_area_kunit.h"

/* What a buffer has before it is read to. */
#define UNREAD	0xee

static long vread(void *to, unsigned long from, size_t len)
{
	struct kvec vec = { .iov_base = to, .iov_len = len };
	struct iov_iter iter;

	iov_iter_kvec(&iter, ITER_DEST, &vec, 1, len);

	return vread_iter(&iter, (const char *)from, len);
}

/* Expects that a read gives what is wanted, and writes nothing behind it. */
static void expect_read(struct kunit *test, unsigned long from, size_t len, const u8 *want,
			u8 *buffer)
{
	memset(buffer, UNREAD, len + 1);
	KUNIT_EXPECT_EQ_MSG(test, vread(buffer, from, len), len, "%zu bytes from %#lx", len, from);
	KUNIT_EXPECT_EQ_MSG(test, 0, memcmp(buffer, want, len), "%zu bytes from %#lx", len, from);
	KUNIT_EXPECT_EQ_MSG(test, buffer[len], UNREAD, "after %zu bytes from %#lx", len, from);
}

/*
 * From any address, it reads the contents of areas in ascending order, and zeroes
 * for guard pages, free ranges, and freed or unmapped areas.
 */
static void vmap_read_areas(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 64 * PAGE_SIZE);
	const size_t len = win.end - win.start;
	u8 *want = vmap_array(test, len, 1), *got = vmap_array(test, len + 1, 1);
	struct vm_struct *reserved;
	unsigned long offset;
	void *mem[6];
	int i;

	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		mem[i] = vmap_mem_need(test, &win, 1 + i % 3, i);
		memset(mem[i], 0x11 * (i + 1), (1 + i % 3) * PAGE_SIZE);
	}
	reserved = vmap_area_need(test, &win, 5 * PAGE_SIZE, 1, 0);
	vfree(mem[2]);
	mem[2] = NULL;

	for (i = 0; i < ARRAY_SIZE(mem); i++)
		if (mem[i])
			memcpy(want + ((unsigned long)kasan_reset_tag(mem[i]) - win.start),
			       mem[i], (1 + i % 3) * PAGE_SIZE);

	for (offset = 0; offset < len; offset += 3 * PAGE_SIZE / 2)
		expect_read(test, win.start + offset, len - offset, want + offset, got);

	for (i = 0; i < ARRAY_SIZE(mem); i++)
		vfree(mem[i]);
	vmap_area_put(test, reserved);
	vmap_win_expect_free(test, &win);
}

/*
 * Reads up to around the end of the pages of an area, and of its guard page. Returns
 * whether the guard page had a neighbour, which such reads reach.
 */
static bool read_ends(struct kunit *test, const struct vmap_win *win)
{
	static const int diffs[] = { -(int)PAGE_SIZE, -9, -1, 0, 1, 9, PAGE_SIZE };
	u8 *got = vmap_array(test, 4 * PAGE_SIZE + 1, 1);
	u8 *want = vmap_array(test, 4 * PAGE_SIZE, 1);
	u8 *mem = vmap_mem_need(test, win, 2, 1);
	u8 *next = vmap_mem_need(test, win, 1, 2);
	const unsigned long start = (unsigned long)kasan_reset_tag(mem);
	const bool neighbours = (unsigned long)kasan_reset_tag(next) == start + 3 * PAGE_SIZE;
	unsigned long from, to;
	unsigned int i;

	memset(mem, 0x5a, 2 * PAGE_SIZE);
	memset(next, 0xa5, PAGE_SIZE);
	memcpy(want, mem, 2 * PAGE_SIZE);
	memcpy(want + 3 * PAGE_SIZE, next, PAGE_SIZE);

	for (from = 0; from < 2 * PAGE_SIZE; from += PAGE_SIZE - 5) {
		for (i = 0; i < ARRAY_SIZE(diffs); i++) {
			to = 2 * PAGE_SIZE + diffs[i];
			if (to > from)
				expect_read(test, start + from, to - from, want + from, got);
			to += PAGE_SIZE;
			if (neighbours || to <= 3 * PAGE_SIZE)
				expect_read(test, start + from, to - from, want + from, got);
		}
	}
	expect_read(test, start, 0, want, got);
	expect_read(test, start + 2 * PAGE_SIZE, PAGE_SIZE, want + 2 * PAGE_SIZE, got);

	vfree(next);
	vfree(mem);
	return neighbours;
}

/* Nothing is read too much or too little where an area ends. */
static void vmap_read_ends(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 64 * PAGE_SIZE);

	KUNIT_EXPECT_TRUE(test, read_ends(test, &win));
	vmap_win_expect_free(test, &win);
#ifdef MODULES_VADDR
	read_ends(test, &(struct vmap_win){ MODULES_VADDR, MODULES_END });
#endif
}

/* An area of which only the first byte is in the range is read, in a window and in a block. */
static void vmap_read_first_byte(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, 64 * PAGE_SIZE);
	u8 *mem[] = { vmap_mem_need(test, &win, 1, 1), vmalloc(PAGE_SIZE) };
	u8 *got = vmap_array(test, 3 * PAGE_SIZE, 1);
	unsigned long below;
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, mem[1]);
	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		const unsigned long start = (unsigned long)kasan_reset_tag(mem[i]);

		memset(mem[i], 0x5a, PAGE_SIZE);
		for (below = 0; below <= 2 * PAGE_SIZE; below += PAGE_SIZE / 2) {
			/* In a block it is memory of others, of which KASAN poisons the rest. */
			if (IS_ENABLED(CONFIG_KASAN_HW_TAGS) && i && below > PAGE_SIZE)
				break;
			memset(got, UNREAD, 3 * PAGE_SIZE);
			KUNIT_EXPECT_EQ(test, vread(got, start - below, below + 1), below + 1);
			KUNIT_EXPECT_EQ_MSG(test, got[below], 0x5a, "area %u, from %lu below", i,
					    below);
			KUNIT_EXPECT_EQ(test, got[below + 1], UNREAD);
		}
		vfree(mem[i]);
	}
	vmap_win_expect_free(test, &win);
}

/* Memory of devices, and areas and ranges without pages, are zeroes. */
static void vmap_read_zeroes(struct kunit *test)
{
	static const unsigned long flags[] = { 0, VM_IOREMAP };
	const struct vmap_win win = vmap_win_get(test, 64 * PAGE_SIZE);
	u8 *got = vmap_array(test, 8 * PAGE_SIZE + 1, 1);
	u8 *want = vmap_array(test, 8 * PAGE_SIZE, 1);
	struct page **pages = vmap_pages_get(test, 1);
	unsigned int i, nr;

	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		struct vm_struct *vm = vmap_area_need(test, &win, 4 * PAGE_SIZE, 1, flags[i]);
		unsigned long start = vmap_start(vm);

		if (flags[i])
			KUNIT_EXPECT_EQ(test, 0, vmap_page_range(start, start + PAGE_SIZE,
								 page_to_phys(pages[0]),
								 PAGE_KERNEL));
		for (nr = 1; nr <= 8; nr++)
			expect_read(test, start, nr * PAGE_SIZE, want, got);
		vmap_area_put(test, vm);
	}
	expect_read(test, win.start, 8 * PAGE_SIZE, want, got);
	vmap_win_expect_free(test, &win);
}

/* Mappings of vm_map_ram() that are neighbours, and which pages they have. */
static const unsigned int nr_pages[] = { 4, 8, 2, 2 };
static const unsigned int first_page[] = { 0, 4, 12, 14 };

#define RAM_PAGES	16

static bool map_ram(struct page **pages, void **mem)
{
	unsigned int i;
	bool good = true;

	/* Each CPU has blocks of its own. */
	migrate_disable();
	for (i = 0; i < ARRAY_SIZE(nr_pages); i++) {
		mem[i] = vm_map_ram(pages + first_page[i], nr_pages[i], NUMA_NO_NODE);
		good &= mem[i] && kasan_reset_tag(mem[i]) ==
			kasan_reset_tag(mem[0]) + first_page[i] * PAGE_SIZE;
	}
	migrate_enable();

	return good;
}

static void unmap_ram(void **mem)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(nr_pages); i++)
		if (mem[i])
			vm_unmap_ram(mem[i], nr_pages[i]);
}

/*
 * In a block of vm_map_ram(), a read from any address gives the pages of the mappings
 * there, and zeroes where one was unmapped.
 */
static void vmap_read_ram(struct kunit *test)
{
	static const unsigned int unmapped[] = { 1, 0, 2 };
	struct page **pages = vmap_pages_get(test, RAM_PAGES);
	const size_t len = RAM_PAGES * PAGE_SIZE;
	u8 *want = vmap_array(test, len, 1), *got = vmap_array(test, len + 1, 1);
	void *mem[ARRAY_SIZE(nr_pages)];
	unsigned long from, start;
	unsigned int i, tries = 2 * BITS_PER_LONG;

	/* Those at the end of a block may not be neighbours. */
	while (!map_ram(pages, mem) && --tries)
		unmap_ram(mem);
	KUNIT_ASSERT_GT_MSG(test, tries, 0, "mappings that are neighbours");
	start = (unsigned long)kasan_reset_tag(mem[0]);
	for (i = 0; i < RAM_PAGES; i++)
		memset(page_address(pages[i]), 0x10 + i, PAGE_SIZE);
	for (i = 0; i < ARRAY_SIZE(nr_pages); i++)
		memcpy(want + first_page[i] * PAGE_SIZE, mem[i], nr_pages[i] * PAGE_SIZE);

	for (i = 0; i <= ARRAY_SIZE(unmapped); i++) {
		for (from = 0; from < len; from += PAGE_SIZE / 2) {
			expect_read(test, start + from, len - from, want + from, got);
			expect_read(test, start + from, PAGE_SIZE / 2, want + from, got);
			if (len - from >= 3 * PAGE_SIZE)
				expect_read(test, start + from, 3 * PAGE_SIZE, want + from, got);
		}
		if (i == ARRAY_SIZE(unmapped))
			break;
		vm_unmap_ram(mem[unmapped[i]], nr_pages[unmapped[i]]);
		mem[unmapped[i]] = NULL;
		memset(want + first_page[unmapped[i]] * PAGE_SIZE, 0,
		       nr_pages[unmapped[i]] * PAGE_SIZE);
	}
	unmap_ram(mem);
}

/* A mapping of vm_map_ram() that is too large for a block is read like other areas. */
static void vmap_read_ram_area(struct kunit *test)
{
	const unsigned int nr = BITS_PER_LONG + 1;
	struct page **pages = vmap_pages_get(test, nr);
	const size_t len = nr * PAGE_SIZE;
	u8 *want = vmap_array(test, len, 1), *got = vmap_array(test, len + 1, 1);
	void *mem = vm_map_ram(pages, nr, NUMA_NO_NODE);
	unsigned long start = (unsigned long)kasan_reset_tag(mem), from;

	KUNIT_ASSERT_NOT_NULL(test, mem);
	memcpy(want, mem, len);
	for (from = 0; from < len; from += 33 * PAGE_SIZE / 2)
		expect_read(test, start + from, len - from, want + from, got);
	vm_unmap_ram(mem, nr);
}

static struct kunit_case vmap_read_cases[] = {
	KUNIT_CASE(vmap_read_areas),
	KUNIT_CASE(vmap_read_ends),
	KUNIT_CASE(vmap_read_first_byte),
	KUNIT_CASE(vmap_read_zeroes),
	KUNIT_CASE(vmap_read_ram),
	KUNIT_CASE(vmap_read_ram_area),
	{}
};

VMAP_SUITE(vmap_read);
