// SPDX-License-Identifier: GPL-2.0
/* Reading /proc/vmallocinfo, as cat does. */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/mount.h>
#include <linux/slab.h>

#include "bench.h"

/* Return a mount of proc, for kern_unmount(), or an error pointer. */
struct vfsmount *bench_mount_proc(void)
{
	struct file_system_type *type = get_fs_type("proc");

	return type ? kern_mount(type) : ERR_PTR(-ENODEV);
}

/**
 * bench_read_info() - open, read and close /proc/vmallocinfo
 * @proc: a mount of proc
 * @buffer: of BENCH_READ_BYTES
 *
 * Return: 0 or an error.
 */
int bench_read_info(struct vfsmount *proc, void *buffer)
{
	struct file *file = file_open_root_mnt(proc, "vmallocinfo", O_RDONLY, 0);
	loff_t pos = 0;
	ssize_t got;

	if (IS_ERR(file))
		return PTR_ERR(file);
	do {
		got = kernel_read(file, buffer, BENCH_READ_BYTES, &pos);
	} while (got > 0);
	__fput_sync(file);
	return got;
}

/* Every second of the areas is lazy while the file is read. */
static int info_passes(struct bench_run *run, struct vfsmount *proc, void *buffer,
		       struct vm_struct **vms)
{
	unsigned int areas = run->c->arg, i, pass;
	u64 values[BENCH_PASSES];

	for (pass = 0; pass <= BENCH_PASSES; pass++) {
		u64 start;
		int err;

		vm_unmap_aliases();
		for (i = 0; i < areas; i++) {
			vms[i] = vms[i] ?: get_vm_area(PAGE_SIZE, VM_MAP);
			if (!vms[i])
				return -ENOMEM;
		}
		for (i = 0; i < areas; i += 2) {
			free_vm_area(vms[i]);
			vms[i] = NULL;
		}
		start = ktime_get_ns();
		if (pass)
			bench_mark_begin(run->c->name, "", 1);
		err = bench_read_info(proc, buffer);
		if (pass)
			bench_mark_end();
		if (err)
			return err;
		if (pass)
			values[pass - 1] = (ktime_get_ns() - start) * 1000;
	}
	bench_report(run, "cost", "mns", values, BENCH_PASSES, 1);
	return 0;
}

static int info_measure(struct bench_run *run)
{
	struct vm_struct **vms = kvcalloc(run->c->arg, sizeof(*vms), GFP_KERNEL);
	void *buffer = kmalloc(BENCH_READ_BYTES, GFP_KERNEL);
	struct vfsmount *proc = bench_mount_proc();
	int err = -ENOMEM;

	if (IS_ERR(proc))
		err = PTR_ERR(proc);
	else if (vms && buffer)
		err = info_passes(run, proc, buffer, vms);
	if (!IS_ERR(proc))
		kern_unmount(proc);
	bench_free_areas(vms, run->c->arg);
	kfree(buffer);
	kvfree(vms);
	return err;
}

#define INFO(label, text, areas) \
	{ .name = label, .what = text, .arg = areas, .max_threads = 1, .measure = info_measure }

const struct bench_case bench_info_cases[] = {
	INFO("info_14", "read /proc/vmallocinfo with 14 more areas, every second one lazy", 14),
	INFO("info_1200", "read /proc/vmallocinfo with 1,200 more areas", 1200),
	INFO("info_10k", "read /proc/vmallocinfo with 10,000 more areas", 10000),
	{ }
};
