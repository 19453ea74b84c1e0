// SPDX-License-Identifier: GPL-2.0
/*
 * Loads that show what users have complained about. harness/bench/complaints.py
 * has the rows that "make complaints" prints, and where each was reported.
 */
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/set_memory.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/ucopysize.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>
#include <uapi/linux/sched/types.h>

#include "bench.h"

/*
 * Copies to user space out of one large buffer: with CONFIG_HARDENED_USERCOPY
 * each looks up the area of its address.
 */
#define COPIED_BYTES SZ_16M
#define COPY_BYTES 64

static int usercopy_setup(struct bench_run *run)
{
	run->data = vmalloc(COPIED_BYTES);
	return run->data ? 0 : -ENOMEM;
}

static void vfree_teardown(struct bench_run *run)
{
	vfree(run->data);
	run->data = NULL;
}

static int usercopy_phase(struct bench_worker *w, unsigned int nr)
{
	/* Nothing is checked if the compiler knows how much is copied. */
	unsigned long bytes = COPY_BYTES;
	u32 i;

	OPTIMIZER_HIDE_VAR(bytes);

	for (i = 0; i < w->ops; i++) {
		u32 at = prandom_u32_state(&w->rnd) % (COPIED_BYTES / COPY_BYTES);

		/* Ends in a panic if it finds that the range is in no area. */
		check_object_size(w->run->data + at * COPY_BYTES, bytes, true);
		if (!(i & 1023))
			cond_resched();
	}
	return 0;
}

/*
 * A timer of each CPU. With -icount, CPUs take turns up to the next timer: so
 * each gets one often, and what it waits for is not the turn of another.
 */
#define TICK_NS 10000
#define LOOKED_UP 61

struct ticker {
	struct hrtimer timer;
	u64 period;
	/* LOOKED_UP areas of which each interrupt looks one up, or NULL. */
	void **objects;
	unsigned long lookups;
	unsigned long refused;
	bool stop;
};

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	struct ticker *t = container_of(timer, struct ticker, timer);
	void **objects = READ_ONCE(t->objects);

	/* A lookup that waits for a lock, as find_vm_area(), would hang where this is refused. */
	if (objects)
		t->refused += !vmalloc_dump_obj(objects[t->lookups++ % LOOKED_UP]);
	if (READ_ONCE(t->stop))
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, t->period);
	return HRTIMER_RESTART;
}

static long start_ticker(void *arg)
{
	struct ticker *t = arg;

	t->period = (u64)TICK_NS * num_online_cpus();
	hrtimer_setup(&t->timer, tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	hrtimer_start(&t->timer, t->period, HRTIMER_MODE_REL_PINNED_HARD);
	return 0;
}

/* Returns nr_cpu_ids tickers, which run, or NULL. */
static struct ticker *start_tickers(void)
{
	struct ticker *tickers = kcalloc(nr_cpu_ids, sizeof(*tickers), GFP_KERNEL);
	unsigned int cpu;

	for_each_online_cpu(cpu) {
		if (tickers)
			work_on_cpu(cpu, start_ticker, &tickers[cpu]);
	}
	return tickers;
}

static void stop_tickers(struct ticker *tickers)
{
	unsigned int cpu;

	for_each_online_cpu(cpu) {
		if (!tickers)
			break;
		WRITE_ONCE(tickers[cpu].stop, true);
		hrtimer_cancel(&tickers[cpu].timer);
	}
	kfree(tickers);
}

/* A profiler looks addresses up in interrupts, while their CPU uses vmalloc(). */
struct profiled {
	struct ticker *tickers;
	void *objects[LOOKED_UP];
	int loglevel;
};

static int profiled_setup(struct bench_run *run)
{
	struct profiled *p = kzalloc_obj(*p, GFP_KERNEL);
	int i, err = 0;

	run->data = p;
	if (!p)
		return -ENOMEM;
	/* What is found is printed; for the log, not for the console. */
	p->loglevel = default_message_loglevel;
	default_message_loglevel = LOGLEVEL_DEBUG;
	for (i = 0; i < LOOKED_UP; i++) {
		p->objects[i] = vmalloc(PAGE_SIZE);
		err = p->objects[i] ? err : -ENOMEM;
	}
	p->tickers = start_tickers();
	return p->tickers ? err : -ENOMEM;
}

static void profiled_teardown(struct bench_run *run)
{
	struct profiled *p = run->data;
	unsigned long lookups = 0, refused = 0;
	unsigned int cpu;
	int i;

	if (!p)
		return;
	for_each_online_cpu(cpu) {
		lookups += p->tickers ? p->tickers[cpu].lookups : 0;
		refused += p->tickers ? p->tickers[cpu].refused : 0;
	}
	stop_tickers(p->tickers);
	default_message_loglevel = p->loglevel;
	if (lookups)
		bench_report_one(run, "refused", "per 1,000", refused * 1000 / lookups, lookups);
	for (i = 0; i < LOOKED_UP; i++)
		vfree(p->objects[i]);
	kfree(p);
	run->data = NULL;
}

static int profiled_phase(struct bench_worker *w, unsigned int nr)
{
	struct profiled *p = w->run->data;
	struct ticker *own = &p->tickers[w->index];
	int err = 0;
	u32 i;

	/* Each CPU begins with another one. */
	own->lookups = own->lookups ?: w->index;
	WRITE_ONCE(own->objects, p->objects);
	for (i = 0; !err && i < w->ops; i++) {
		struct vm_struct *vm = get_vm_area(PAGE_SIZE, VM_ALLOC);

		err = vm ? 0 : -ENOMEM;
		if (vm)
			free_vm_area(vm);
	}
	WRITE_ONCE(own->objects, NULL);
	return err;
}

/* The longest vmalloc() and vfree() of a page on a CPU while another one does @arg. */
enum { PURGES, LISTS, READS };

struct wait {
	struct bench_run *run;
	struct vm_struct **vms;
	unsigned long areas;
	void *buffer;
	struct vfsmount *proc;
	bool is_watched;
	struct completion begins;
	u64 longest;
	u64 sum;
	u64 pairs;
};

static int wait_thread(void *arg)
{
	struct wait *wait = arg;

	sched_set_fifo(current);
	while (!kthread_should_stop()) {
		bool counts = READ_ONCE(wait->is_watched);
		u64 start;

		if (counts)
			complete(&wait->begins);
		start = ktime_get_ns();
		vfree(vmalloc(PAGE_SIZE));
		if (counts) {
			u64 took = ktime_get_ns() - start;

			wait->longest = max(wait->longest, took);
			wait->sum += took;
			wait->pairs++;
		}
		/* With one CPU the other one must go on. */
		usleep_range(10, 20);
	}
	return 0;
}

/* As a debugger does by /proc/kcore: a page of each area. */
static int read_areas(struct wait *wait)
{
	unsigned long i;
	int err = 0;

	for (i = 0; !err && i < wait->areas; i++) {
		err = bench_read_page(wait->vms[i]->addr, wait->buffer);
		if (!(i & 1023))
			cond_resched();
	}
	return err;
}

static int wait_action(void *arg)
{
	struct wait *wait = arg;
	int err = 0;

	WRITE_ONCE(wait->is_watched, true);
	/* However short the action is, one pair counts: it begins now, too. */
	wait_for_completion(&wait->begins);
	switch (wait->run->c->arg) {
	case PURGES:
		bench_free_areas(wait->vms, wait->areas);
		vm_unmap_aliases();
		break;
	case LISTS:
		err = bench_read_info(wait->proc, wait->buffer);
		break;
	case READS:
		err = read_areas(wait);
		break;
	}
	WRITE_ONCE(wait->is_watched, false);
	return err;
}

static int wait_beside(struct wait *wait)
{
	struct ticker *tickers = start_tickers();
	struct task_struct *task;
	int err;

	if (!tickers)
		return -ENOMEM;
	task = kthread_run_on_cpu(wait_thread, wait, num_online_cpus() - 1, "vmap_bench_wait/%u");
	err = PTR_ERR_OR_ZERO(task);
	if (!err) {
		err = bench_first_cpu(wait_action, wait);
		kthread_stop(task);
	}
	stop_tickers(tickers);
	if (!err) {
		bench_report_one(wait->run, "longest", "ns", wait->longest, wait->pairs);
		bench_report_one(wait->run, "mean", "ns", div64_u64(wait->sum, wait->pairs),
				 wait->pairs);
	}
	return err;
}

static int wait_measure(struct bench_run *run)
{
	struct wait wait = { .run = run, .areas = run->workers[0].ops, .proc = bench_mount_proc() };
	int err = -ENOMEM;

	init_completion(&wait.begins);
	wait.vms = kvcalloc(wait.areas, sizeof(*wait.vms), GFP_KERNEL);
	wait.buffer = kmalloc(max(BENCH_READ_BYTES, PAGE_SIZE), GFP_KERNEL);
	if (IS_ERR(wait.proc))
		err = PTR_ERR(wait.proc);
	else if (wait.vms && wait.buffer && bench_get_areas(wait.vms, wait.areas, 1))
		err = wait_beside(&wait);
	if (!IS_ERR(wait.proc))
		kern_unmount(wait.proc);
	bench_free_areas(wait.vms, wait.areas);
	kvfree(wait.vms);
	kfree(wait.buffer);
	return err;
}

#ifdef CONFIG_64BIT
/* BPF arenas: 4 GiB, of which all page tables are made. One after the other. */
static int nothing(pte_t *pte, unsigned long addr, void *data)
{
	return 0;
}

static int arena_measure(struct bench_run *run)
{
	u64 before = bench_tables_kib();
	u32 i, arenas = run->workers[0].ops;
	int err = 0;

	for (i = 0; !err && i < arenas; i++) {
		struct vm_struct *vm = get_vm_area(SZ_4G, VM_SPARSE | VM_USERMAP);

		if (!vm)
			return -ENOSPC;
		err = apply_to_page_range(&init_mm, (unsigned long)vm->addr, SZ_4G, nothing, NULL);
		free_vm_area(vm);
		vm_unmap_aliases();
		rcu_barrier();
		cond_resched();
	}
	if (!err)
		bench_report_one(run, "page_tables", "KiB",
				 max_t(s64, bench_tables_kib() - before, 0), arenas);
	return err;
}
#endif

/* More threads than CPUs, each of which replaces its own areas at random. */
#define CROWD 64
#define CROWD_LIVE 8
#define CROWD_PAGES 16

struct crowd {
	struct bench_run *run;
	atomic_t absent;
	struct completion all_there;
	u64 start;
	struct crowd_thread {
		struct work_struct work;
		struct crowd *crowd;
		struct rnd_state rnd;
		int err;
	} threads[CROWD];
};

static void crowd_work(struct work_struct *work)
{
	struct crowd_thread *t = container_of(work, struct crowd_thread, work);
	struct crowd *crowd = t->crowd;
	u32 i, ops = crowd->run->workers[0].ops / CROWD;
	void *live[CROWD_LIVE] = {};

	if (atomic_dec_and_test(&crowd->absent)) {
		crowd->start = ktime_get_ns();
		complete_all(&crowd->all_there);
	}
	wait_for_completion(&crowd->all_there);
	for (i = 0; !t->err && i < ops; i++) {
		void **mem = &live[prandom_u32_state(&t->rnd) % CROWD_LIVE];

		vfree(*mem);
		*mem = vmalloc((1 + prandom_u32_state(&t->rnd) % CROWD_PAGES) * PAGE_SIZE);
		t->err = *mem ? 0 : -ENOMEM;
	}
	for (i = 0; i < CROWD_LIVE; i++)
		vfree(live[i]);
}

static int crowd_measure(struct bench_run *run)
{
	struct crowd *crowd = kvzalloc_obj(*crowd);
	u32 ops = run->workers[0].ops;
	int i, err = 0;

	if (!crowd)
		return -ENOMEM;
	crowd->run = run;
	atomic_set(&crowd->absent, CROWD);
	init_completion(&crowd->all_there);
	for (i = 0; i < CROWD; i++) {
		struct crowd_thread *t = &crowd->threads[i];

		t->crowd = crowd;
		prandom_seed_state(&t->rnd, run->seed * CROWD + i);
		INIT_WORK(&t->work, crowd_work);
		/* Each gets a thread of its own, as the queue has no limit for a CPU. */
		queue_work(system_dfl_wq, &t->work);
	}
	for (i = 0; i < CROWD; i++) {
		flush_work(&crowd->threads[i].work);
		err = err ?: crowd->threads[i].err;
	}
	if (!err)
		bench_report_one(run, "cost", "ns", div_u64(ktime_get_ns() - crowd->start, ops),
				 ops);
	kvfree(crowd);
	return err;
}

/*
 * A small space in use: areas of 1 to 64 pages replace each other at random, then
 * those of 64 are reserved until one cannot be had. In vmalloc space of 64 bits all
 * SPACE_MOST can.
 */
#define SPACE_USED 400
#define SPACE_PAGES 64
#define SPACE_MOST 65536

/* For space_measure(): which space. */
#define SPACE_MODULES 0
#define SPACE_VMALLOC 1

static struct vm_struct *space_get(struct bench_run *run, unsigned long pages)
{
	if (run->c->arg == SPACE_MODULES)
		return bench_get_in_window(pages);
	return get_vm_area(pages * PAGE_SIZE, VM_ALLOC);
}

static int space_measure(struct bench_run *run)
{
	struct vm_struct **vms = kvcalloc(SPACE_MOST, sizeof(*vms), GFP_KERNEL);
	unsigned long i, rounds = run->workers[0].ops, pages = 0;
	struct rnd_state rnd;
	int err = vms ? 0 : -ENOMEM;

	prandom_seed_state(&rnd, run->seed);
	for (i = 0; !err && i < rounds; i++) {
		unsigned long nr = prandom_u32_state(&rnd) % SPACE_USED;

		if (vms[nr])
			free_vm_area(vms[nr]);
		vms[nr] = space_get(run, 1 + prandom_u32_state(&rnd) % SPACE_PAGES);
		err = vms[nr] ? 0 : -ENOSPC;
		if (!(i & 1023))
			cond_resched();
	}
	for (i = 0; !err && i < SPACE_MOST; i++) {
		vms[i] = vms[i] ?: space_get(run, SPACE_PAGES);
		if (!vms[i])
			break;
		pages += get_vm_area_size(vms[i]) / PAGE_SIZE;
		cond_resched();
	}
	if (!err)
		bench_report_one(run, "reserved", "KiB", pages * (PAGE_SIZE / SZ_1K), i);
	bench_free_areas(vms, SPACE_MOST);
	kvfree(vms);
	return err;
}

/* As file systems map pages for compression: 4 to 64 pages, one in 100 for long. */
#define RAM_PAGES 64
#define RAM_HELD 128
#define RAM_SELDOM 100

struct ram {
	struct page *pages[RAM_PAGES];
	struct {
		void *mem;
		unsigned int pages;
	} held[RAM_HELD];
};

static int ram_setup(struct bench_worker *w)
{
	struct ram *ram = kzalloc_obj(*ram, GFP_KERNEL);

	w->data = ram;
	return ram && bench_get_pages(ram->pages, RAM_PAGES) ? 0 : -ENOMEM;
}

static void ram_teardown(struct bench_worker *w)
{
	struct ram *ram = w->data;
	int i;

	if (!ram)
		return;
	for (i = 0; i < RAM_HELD; i++) {
		if (ram->held[i].mem)
			vm_unmap_ram(ram->held[i].mem, ram->held[i].pages);
	}
	bench_free_pages(ram->pages, RAM_PAGES);
	kfree(ram);
	w->data = NULL;
}

static int ram_phase(struct bench_worker *w, unsigned int nr)
{
	struct ram *ram = w->data;
	u32 i;

	for (i = 0; i < w->ops; i++) {
		unsigned int pages = 4 + prandom_u32_state(&w->rnd) % (RAM_PAGES - 3);
		void *mem = vm_map_ram(ram->pages, pages, NUMA_NO_NODE);

		if (!mem)
			return -ENOMEM;
		if (i % RAM_SELDOM == 0) {
			u32 at = prandom_u32_state(&w->rnd) % RAM_HELD;

			swap(mem, ram->held[at].mem);
			swap(pages, ram->held[at].pages);
		}
		if (mem)
			vm_unmap_ram(mem, pages);
		if (!(i & 1023))
			cond_resched();
	}
	return 0;
}

/* A page that becomes read-only, and is freed: as each BPF program, and each text of a module. */
static int set_memory_phase(struct bench_worker *w, unsigned int nr)
{
	int err = 0;
	u32 i;

	for (i = 0; !err && i < w->ops; i++) {
		void *mem = vmalloc(PAGE_SIZE);

		if (!mem)
			return -ENOMEM;
		err = set_memory_ro((unsigned long)mem, 1) ?: set_memory_rw((unsigned long)mem, 1);
		vfree(mem);
		cond_resched();
	}
	return err;
}

/*
 * Memory runs out: areas of 1 to 16 pages are allocated until that fails, and
 * freed, again and again. What does not come back?
 */
#define FILLS 4
#define FILL_PAGES 16

static unsigned long free_kib(void)
{
	vm_unmap_aliases();
	bench_settle();
	return global_zone_page_state(NR_FREE_PAGES) * (PAGE_SIZE / SZ_1K);
}

static void fill(struct bench_run *run, struct rnd_state *rnd, void **mem, unsigned long most)
{
	/* All of it with vmap_bench.scale=100. */
	long rest = totalram_pages() / 100 * run->scale;
	unsigned long i;

	for (i = 0; i < most && rest > 0; i++) {
		unsigned int pages = 1 + prandom_u32_state(rnd) % FILL_PAGES;

		mem[i] = __vmalloc(pages * PAGE_SIZE, GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);
		if (!mem[i])
			break;
		rest -= pages;
		cond_resched();
	}
	for (i = 0; i < most; i++) {
		vfree(mem[i]);
		mem[i] = NULL;
		cond_resched();
	}
}

static int fill_measure(struct bench_run *run)
{
	unsigned long most = totalram_pages() / 4, before, after;
	u64 tables;
	void **mem = kvcalloc(most, sizeof(*mem), GFP_KERNEL);
	struct rnd_state rnd;
	int i;

	if (!mem)
		return -ENOMEM;
	prandom_seed_state(&rnd, run->seed);
	before = free_kib();
	tables = bench_tables_kib();
	for (i = 0; i < FILLS; i++)
		fill(run, &rnd, mem, most);
	after = free_kib();
	tables = bench_tables_kib() - tables;
	bench_report_one(run, "kept", "KiB", before > after ? before - after : 0, FILLS);
	bench_report_one(run, "page_tables", "KiB", max_t(s64, tables, 0), FILLS);
	kvfree(mem);
	return 0;
}

/* What a boot has left. By itself: other cases leave tables, too. */
static int boot_measure(struct bench_run *run)
{
	bench_report_one(run, "page_tables", "KiB", bench_tables_kib(), 1);
	return 0;
}

#define WAIT(label, text, areas, action) \
	{ .name = label, .what = text, .ops = areas, .arg = action, .max_threads = 1, \
	  .need = bench_areas_need, .measure = wait_measure }

const struct bench_case bench_complaint_cases[] = {
	{ .name = "usercopy",
	  .what = "the check of a hardened copy of 64 bytes to user space, out of 16 MiB",
	  .ops = 20000, .setup = usercopy_setup, .teardown = vfree_teardown,
	  .phase = usercopy_phase },
	{ .name = "irq_lookup",
	  .what = "get_vm_area() pair of a page, while interrupts look addresses up",
	  .ops = 20000, .setup = profiled_setup, .teardown = profiled_teardown,
	  .phase = profiled_phase },
	WAIT("wait_purge", "longest vmalloc() and vfree() while 200,000 areas are freed and purged",
	     200000, PURGES),
	WAIT("wait_info", "longest vmalloc() and vfree() while 100,000 areas are listed",
	     100000, LISTS),
	WAIT("wait_kcore",
	     "longest vmalloc() and vfree() while a page of each of 100,000 areas is read",
	     100000, READS),
	{ .name = "crowd",
	  .what = "vmalloc() and vfree() of 1 to 16 pages by 64 threads, on any number of CPUs",
	  .ops = 128000, .max_threads = 1, .measure = crowd_measure },
#ifdef CONFIG_64BIT
	{ .name = "arena",
	  .what = "page tables after ten areas of 4 GiB with all their tables",
	  .ops = 10, .max_threads = 1, .measure = arena_measure },
#endif
	{ .name = "module_space",
	  .what = "KiB that can be reserved where modules are, after 20,000 replacements",
	  .ops = 20000, .arg = SPACE_MODULES, .max_threads = 1, .measure = space_measure },
	{ .name = "vmalloc_space",
	  .what = "KiB that can be reserved in vmalloc space, after 20,000 replacements",
	  .ops = 20000, .arg = SPACE_VMALLOC, .max_threads = 1, .measure = space_measure },
	{ .name = "ram_mix",
	  .what = "vm_map_ram() of 4 to 64 pages, one in 100 for long",
	  .ops = 4000, .worker_setup = ram_setup, .worker_teardown = ram_teardown,
	  .phase = ram_phase },
	{ .name = "set_memory",
	  .what = "vmalloc(), set_memory_ro(), set_memory_rw() and vfree() of a page",
	  .ops = 400, .phase = set_memory_phase },
	{ .name = "boot",
	  .what = "page tables at the end of all initcalls",
	  .max_threads = 1, .measure = boot_measure },
	{ .name = "fill_memory",
	  .what = "memory that is missing after all of it was allocated and freed four times",
	  .max_threads = 1, .measure = fill_measure },
	{ }
};
