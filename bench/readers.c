// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that read /proc/vmallocinfo and /proc/kcore without pause while a case
 * is measured.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/elf.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/sched/task.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "bench.h"

/* What one call reads. */
#define READ_BYTES SZ_16K

struct reader {
	struct bench_readers *readers;
	const char *path;
	struct file *file;
	void *buffer;
	struct task_struct *task;
};

struct bench_readers {
	const struct bench_run *run;
	struct vfsmount *proc;
	struct reader info;
	struct reader kcore;
	/* Where the vmalloc space begins in /proc/kcore. */
	loff_t vmalloc_start;
	/* Addresses to read; 0 is none. Others change them at any time. */
	const unsigned long *addresses;
	unsigned int n;
	int *err;
};

/* Reads at @pos. Returns the bytes, or a negative error that has been reported. */
static ssize_t read_some(struct reader *r, size_t bytes, loff_t *pos)
{
	const struct bench_run *run = r->readers->run;
	ssize_t got = kernel_read(r->file, r->buffer, bytes, pos);

	if (got < 0) {
		pr_err("error: case=%s threads=%u: cannot read /proc/%s: %pe\n", run->c->name,
		       run->threads, r->path, ERR_PTR(got));
		WRITE_ONCE(*r->readers->err, got);
	}
	return got;
}

/* Reads the whole file again and again. */
static int read_info(void *arg)
{
	struct reader *r = arg;
	ssize_t got = 0;

	while (!kthread_should_stop() && got >= 0) {
		loff_t pos = 0;

		do {
			got = read_some(r, READ_BYTES, &pos);
			cond_resched();
		} while (got > 0 && !kthread_should_stop());
	}
	return 0;
}

/* Reads memory behind one address after the other. */
static int read_kcore(void *arg)
{
	struct reader *r = arg;
	unsigned int i = 0;
	ssize_t got = 0;

	while (!kthread_should_stop() && got >= 0) {
		unsigned long addr = READ_ONCE(r->readers->addresses[i++ % r->readers->n]);
		loff_t pos = r->readers->vmalloc_start + (addr - VMALLOC_START);

		if (addr)
			got = read_some(r, READ_BYTES, &pos);
		cond_resched();
	}
	return 0;
}

/* Sets @vmalloc_start from the program headers, as a debugger does. */
static int find_vmalloc(struct bench_readers *readers)
{
	struct reader *r = &readers->kcore;
	struct elfhdr *header = r->buffer;
	loff_t pos = 0;
	ssize_t got = read_some(r, sizeof(*header), &pos);
	unsigned int i, n = header->e_phnum;

	if (got < (ssize_t)sizeof(*header))
		return got < 0 ? got : -ENXIO;
	pos = header->e_phoff;
	for (i = 0; i < n; i++) {
		struct elf_phdr *p = r->buffer;

		got = read_some(r, sizeof(*p), &pos);
		if (got < (ssize_t)sizeof(*p))
			break;
		if (p->p_type != PT_LOAD || p->p_vaddr > VMALLOC_START ||
		    VMALLOC_START - p->p_vaddr >= p->p_memsz)
			continue;
		readers->vmalloc_start = p->p_offset + (VMALLOC_START - p->p_vaddr);
		return 0;
	}
	return got < 0 ? got : -ENXIO;
}

static int reader_open(struct bench_readers *readers, struct reader *r, const char *path)
{
	struct file *file = file_open_root_mnt(readers->proc, path, O_RDONLY, 0);

	if (IS_ERR(file))
		return PTR_ERR(file);
	r->readers = readers;
	r->path = path;
	r->file = file;
	r->buffer = kmalloc(READ_BYTES, GFP_KERNEL);
	return r->buffer ? 0 : -ENOMEM;
}

static int reader_start(struct reader *r, int (*fn)(void *arg))
{
	struct task_struct *task = kthread_create(fn, r, "vmap_bench/%s", r->path);

	if (IS_ERR(task))
		return PTR_ERR(task);
	/* After an error it ends by itself. */
	r->task = get_task_struct(task);
	wake_up_process(task);
	return 0;
}

static void reader_stop(struct reader *r)
{
	if (r->task)
		kthread_stop_put(r->task);
	kfree(r->buffer);
	if (r->file)
		fput(r->file);
}

/**
 * bench_readers_start() - start to read /proc/vmallocinfo and /proc/kcore
 * @run: named by reports of errors
 * @addresses: where /proc/kcore is read, 0 is nowhere; may change at any time
 * @n: how many
 * @err: set to the negative error of a reader that failed
 *
 * Return: what bench_readers_stop() takes, or an error pointer.
 */
struct bench_readers *bench_readers_start(const struct bench_run *run,
					  const unsigned long *addresses,
					  unsigned int n, int *err)
{
	struct bench_readers *readers = kzalloc_obj(*readers, GFP_KERNEL);
	struct file_system_type *type = get_fs_type("proc");
	int failed;

	if (!readers || !type) {
		failed = readers ? -ENODEV : -ENOMEM;
		goto out;
	}
	readers->run = run;
	readers->addresses = addresses;
	readers->n = n;
	readers->err = err;
	readers->proc = kern_mount(type);
	if (IS_ERR(readers->proc)) {
		failed = PTR_ERR(readers->proc);
		goto out;
	}
	failed = reader_open(readers, &readers->info, "vmallocinfo") ?:
		 reader_open(readers, &readers->kcore, "kcore") ?:
		 find_vmalloc(readers) ?:
		 reader_start(&readers->info, read_info) ?:
		 reader_start(&readers->kcore, read_kcore);
	if (!failed)
		return readers;
	bench_readers_stop(readers);
	return ERR_PTR(failed);
out:
	kfree(readers);
	return ERR_PTR(failed);
}

/* Opens /proc/vmallocinfo, reads all of it, and closes it, as cat does. 0 or an error. */
static int read_info_once(struct reader *r)
{
	loff_t pos = 0;
	ssize_t got;

	r->file = file_open_root_mnt(r->readers->proc, r->path, O_RDONLY, 0);
	if (IS_ERR(r->file))
		return PTR_ERR(r->file);
	do {
		got = read_some(r, READ_BYTES, &pos);
	} while (got > 0);
	__fput_sync(r->file);
	return got;
}

/* Every second of the areas is lazy while the file is read. */
static int info_passes(struct bench_run *run, struct reader *r, struct vm_struct **vms)
{
	unsigned int areas = run->c->arg, i, pass;
	u64 values[BENCH_PASSES];
	int err = 0;

	for (pass = 0; !err && pass <= BENCH_PASSES; pass++) {
		u64 start;

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
		err = read_info_once(r);
		if (pass)
			bench_mark_end();
		if (pass)
			values[pass - 1] = (ktime_get_ns() - start) * 1000;
	}
	if (!err)
		bench_report(run, "cost", "mns", values, BENCH_PASSES, 1);
	return err;
}

static int info_measure(struct bench_run *run)
{
	struct file_system_type *type = get_fs_type("proc");
	int err = 0, ignored = 0;
	struct bench_readers readers = { .run = run, .err = &ignored };
	struct reader r = { .readers = &readers, .path = "vmallocinfo" };
	struct vm_struct **vms = kvcalloc(run->c->arg, sizeof(*vms), GFP_KERNEL);

	r.buffer = kmalloc(READ_BYTES, GFP_KERNEL);
	if (type && vms && r.buffer) {
		readers.proc = kern_mount(type);
		err = PTR_ERR_OR_ZERO(readers.proc);
		if (!err) {
			err = info_passes(run, &r, vms);
			kern_unmount(readers.proc);
		}
		bench_free_areas(vms, run->c->arg);
	} else {
		err = type ? -ENOMEM : -ENODEV;
	}
	kfree(r.buffer);
	kvfree(vms);
	return err;
}

const struct bench_case bench_info_cases[] = {
	{ .name = "info_14", .arg = 14, .max_threads = 1, .measure = info_measure },
	{ .name = "info_1200", .arg = 1200, .max_threads = 1, .measure = info_measure },
	{ .name = "info_10k", .arg = 10000, .max_threads = 1, .measure = info_measure },
	{ }
};

/* End the readers of bench_readers_start(). */
void bench_readers_stop(struct bench_readers *readers)
{
	reader_stop(&readers->info);
	reader_stop(&readers->kcore);
	kern_unmount(readers->proc);
	kfree(readers);
}
