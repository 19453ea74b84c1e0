// SPDX-License-Identifier: GPL-2.0
/*
 * A thread that reads files of /proc or debugfs without pause while a case is
 * measured. It reads to user memory, as a program does: kernel_read() takes no
 * file of debugfs.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/mount.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "bench.h"

/* What one call reads, at most. */
#define READ_BYTES SZ_64K

struct bench_watch {
	const struct bench_run *run;
	struct vfsmount *mnt;
	struct file *files[BENCH_WATCHED];
	unsigned int n;
	struct task_struct *task;
	/* It has begun to read, or has failed. */
	struct completion begun;
	/* How often all files were read to their end. */
	unsigned long rounds;
	int err;
};

/* The first round goes on to its end. */
static bool should_stop(struct bench_watch *watch)
{
	return watch->rounds && kthread_should_stop();
}

/* Reads one file from its beginning to its end. Returns 0 or an error. */
static int read_file(struct bench_watch *watch, struct file *file, char __user *buffer)
{
	loff_t pos = 0;
	ssize_t got;

	do {
		got = vfs_read(file, buffer, READ_BYTES, &pos);
		complete(&watch->begun);
		cond_resched();
	} while (got > 0 && !should_stop(watch));
	return got < 0 ? got : 0;
}

static int read_files(struct bench_watch *watch)
{
	unsigned long buffer = vm_mmap(NULL, 0, READ_BYTES, PROT_READ | PROT_WRITE,
				       MAP_ANONYMOUS | MAP_PRIVATE, 0);
	unsigned int i;
	int err = 0;

	if (IS_ERR_VALUE(buffer))
		return buffer;
	while (!should_stop(watch)) {
		for (i = 0; i < watch->n && !err; i++)
			err = read_file(watch, watch->files[i], (char __user *)buffer);
		if (err)
			return err;
		watch->rounds++;
	}
	return 0;
}

/* As kunit_attach_mm() and kunit_vm_mmap() do it. */
static int watch_thread(void *arg)
{
	struct bench_watch *watch = arg;
	struct mm_struct *mm = mm_alloc();

	if (!mm) {
		watch->err = -ENOMEM;
		complete_all(&watch->begun);
		return 0;
	}
	mm->task_size = TASK_SIZE;
	arch_pick_mmap_layout(mm, &current->signal->rlim[RLIMIT_STACK]);
	kthread_use_mm(mm);
	watch->err = read_files(watch);
	complete_all(&watch->begun);
	kthread_unuse_mm(mm);
	mmput(mm);
	return 0;
}

static int open_files(struct bench_watch *watch, const char *fs, const char *const *paths)
{
	struct file_system_type *type = get_fs_type(fs);
	unsigned int i;

	if (!type)
		return -ENODEV;
	watch->mnt = kern_mount(type);
	put_filesystem(type);
	if (IS_ERR(watch->mnt))
		return PTR_ERR(watch->mnt);
	for (i = 0; i < BENCH_WATCHED && paths[i]; i++) {
		struct file *file = file_open_root_mnt(watch->mnt, paths[i], O_RDONLY, 0);

		if (IS_ERR(file))
			return PTR_ERR(file);
		watch->files[watch->n++] = file;
	}
	return 0;
}

static int start_reader(struct bench_watch *watch)
{
	unsigned int cpu = watch->run->threads;
	struct task_struct *task = kthread_create(watch_thread, watch, "vmap_bench/watch");

	if (IS_ERR(task))
		return PTR_ERR(task);
	/* Not on the CPU of a worker, if there is another one. */
	if (cpu < nr_cpu_ids && cpu_online(cpu))
		kthread_bind(task, cpu);
	/* After an error it ends by itself. */
	watch->task = get_task_struct(task);
	wake_up_process(task);
	wait_for_completion(&watch->begun);
	return 0;
}

/**
 * bench_watch_start() - start to read files, one after the other, without pause
 * @run: its first CPU without a worker is that of the reader
 * @fs: type of the file system that has the files
 * @paths: up to BENCH_WATCHED of them, in @fs; a NULL ends them before
 *
 * Sleeps until the reader has begun.
 *
 * Return: what bench_watch_stop() takes, or an error pointer.
 */
struct bench_watch *bench_watch_start(const struct bench_run *run, const char *fs,
				      const char *const *paths)
{
	struct bench_watch *watch = kzalloc_obj(*watch, GFP_KERNEL);
	int err;

	if (!watch)
		return ERR_PTR(-ENOMEM);
	watch->run = run;
	init_completion(&watch->begun);
	err = open_files(watch, fs, paths) ?: start_reader(watch);
	if (!err)
		return watch;
	bench_watch_stop(watch);
	return ERR_PTR(err);
}

/* End the reader, after its first round. Reports if it failed. */
void bench_watch_stop(struct bench_watch *watch)
{
	if (watch->task) {
		kthread_stop_put(watch->task);
		if (watch->err)
			pr_err("error: case=%s threads=%u: the reader has read all files %lu times: %pe\n",
			       watch->run->c->name, watch->run->threads, watch->rounds,
			       ERR_PTR(watch->err));
	}
	while (watch->n)
		fput(watch->files[--watch->n]);
	if (!IS_ERR_OR_NULL(watch->mnt))
		kern_unmount(watch->mnt);
	kfree(watch);
}
