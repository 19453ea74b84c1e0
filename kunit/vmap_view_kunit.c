// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite "vmap_view": areas in /proc/vmallocinfo, and mem_dump_obj().
 */
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/mman.h>
#include <linux/mount.h>
#include <linux/uaccess.h>

#include "vmap_area_kunit.h"

#define TEXT_SIZE	SZ_1M

/*
 * Returns a file as a string; its file system need not be mounted. Reads to user
 * memory: kernel_read() takes no file of debugfs.
 */
static char *read_text(struct kunit *test, const char *filesystem, const char *path)
{
	struct file_system_type *type = get_fs_type(filesystem);
	char *text = vmap_array(test, TEXT_SIZE, 1);
	ssize_t got, len = 0;
	struct vfsmount *mnt;
	unsigned long user;
	struct file *file;

	if (!type)
		kunit_skip(test, "there is no %s", filesystem);
	user = kunit_vm_mmap(test, NULL, 0, TEXT_SIZE, PROT_READ | PROT_WRITE,
			     MAP_ANONYMOUS | MAP_PRIVATE, 0);
	KUNIT_ASSERT_TRUE_MSG(test, user && !IS_ERR_VALUE(user), "user memory");

	mnt = kern_mount(type);
	put_filesystem(type);
	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(mnt), "mounting %s: %ld", filesystem, PTR_ERR(mnt));
	file = file_open_root_mnt(mnt, path, O_RDONLY, 0);
	if (!IS_ERR(file)) {
		loff_t pos = 0;

		do {
			got = vfs_read(file, (char __user *)user + len, TEXT_SIZE - 1 - len, &pos);
			len += max(got, 0);
		} while (got > 0);
		fput(file);
	}
	kern_unmount(mnt);

	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(file), "opening %s: %ld", path, PTR_ERR(file));
	KUNIT_ASSERT_GT_MSG(test, len, 0, "length of %s, %zd", path, got);
	KUNIT_ASSERT_EQ(test, 0, copy_from_user(text, (char __user *)user, len));

	return text;
}

/*
 * Returns the number of lines of @text with @size in the second column and
 * @word after it. Addresses are hashed, so unusual sizes identify areas.
 */
static unsigned int count_lines(const char *text, unsigned long size, const char *word)
{
	unsigned int nr = 0;
	char column[32];
	const char *at;

	snprintf(column, sizeof(column), " %7lu", size);
	for (at = strstr(text, column); at; at = strstr(at + 1, column)) {
		const char *end = strchrnul(at, '\n');
		const char *found = strstr(at, word);

		nr += found && found < end;
	}

	return nr;
}

/*
 * Every busy area has exactly one line with its size and kind, also those of
 * vm_map_ram(), in a block and in the tree. A freed area has at most one line as
 * unpurged before the purge, and none after it.
 */
static void vmap_view_vmallocinfo(struct kunit *test)
{
	const unsigned int nr[] = { 1237, 1249, 1259, VMAP_TREE_PAGES + 29 };
	static const char * const words[] = {
		" pages=1237 vmalloc", " vmap", " vm_map_ram", " vm_map_ram",
	};
	const unsigned int max = max(nr[2], nr[3]);
	struct page **pages = vmap_pages_get(test, 1);
	struct page **same = vmap_array(test, max, sizeof(*same));
	unsigned long size[ARRAY_SIZE(nr)];
	unsigned int i, round;
	void *mem[ARRAY_SIZE(nr)];
	char *text;

	for (i = 0; i < max; i++)
		same[i] = pages[0];

	mem[0] = vmalloc(nr[0] * PAGE_SIZE);
	mem[1] = vmap(same, nr[1], VM_MAP, PAGE_KERNEL);
	for (i = 2; i < ARRAY_SIZE(mem); i++)
		mem[i] = vm_map_ram(same, nr[i], NUMA_NO_NODE);

	text = read_text(test, "proc", "vmallocinfo");
	for (i = 0; i < ARRAY_SIZE(mem); i++) {
		KUNIT_ASSERT_NOT_NULL_MSG(test, mem[i], "%u pages", nr[i]);
		/* Areas of vm_map_ram() have no guard page. */
		size[i] = (nr[i] + (i < 2)) * PAGE_SIZE;
		KUNIT_EXPECT_EQ_MSG(test, 1, count_lines(text, size[i], words[i]),
				    "lines of %u pages, %s", nr[i], words[i]);
	}

	vfree(mem[0]);
	vunmap(mem[1]);
	for (i = 2; i < ARRAY_SIZE(mem); i++)
		vm_unmap_ram(mem[i], nr[i]);

	/* Before the purge and after it. */
	for (round = 0; round < 2; round++) {
		text = read_text(test, "proc", "vmallocinfo");
		for (i = 0; i < ARRAY_SIZE(mem); i++) {
			unsigned int lines = count_lines(text, size[i], "");

			KUNIT_EXPECT_EQ_MSG(test, lines,
					    count_lines(text, size[i], " unpurged vm_area"),
					    "lines of the freed area of %u pages", nr[i]);
			KUNIT_EXPECT_LE_MSG(test, lines, round ? 0 : 1,
					    "unpurged lines of %u pages, round %u", nr[i], round);
		}
		vm_unmap_aliases();
	}
}

/* mem_dump_obj() reports a busy area by its start, and no freed area. */
static void vmap_view_dump_obj(struct kunit *test)
{
	const struct vmap_win win = vmap_win_get(test, SZ_1M);
	bool known = false;
	int tries = 100;
	void *mem;

	if (!IS_ENABLED(CONFIG_PRINTK))
		kunit_skip(test, "needs CONFIG_PRINTK");

	mem = vmap_mem_need(test, &win, 7, 0);
	/* It does not wait for locks, so it may miss the area. */
	while (!known && --tries) {
		pr_info("vmap_area:");
		known = vmalloc_dump_obj(mem);
	}
	KUNIT_EXPECT_TRUE_MSG(test, known, "%#lx is not known", (unsigned long)mem);

	vfree(mem);
	pr_info("vmap_area:");
	known = vmalloc_dump_obj(mem);
	KUNIT_EXPECT_FALSE_MSG(test, known, "%#lx is known after vfree()", (unsigned long)mem);
	vmap_win_expect_free(test, &win);
}

static struct kunit_case vmap_view_cases[] = {
	KUNIT_CASE(vmap_view_vmallocinfo),
	KUNIT_CASE(vmap_view_dump_obj),
	{}
};

VMAP_SUITE(vmap_view);
