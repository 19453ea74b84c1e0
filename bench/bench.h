/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of the benchmark share.
 *
 * A case is one thing that is measured: what one worker does in one pass, how
 * often, and what has to be there before. run.c runs it on a number of workers,
 * each a kernel thread bound to a CPU of its own, and reports what one
 * operation costs.
 */
#ifndef _VMAP_BENCH_H
#define _VMAP_BENCH_H

#include <linux/pgtable.h>
#include <linux/prandom.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <linux/vmalloc.h>
/* MODULES_VADDR of riscv64 needs it. */
#include <asm/sections.h>

/* Workers of one run, at most: one for each CPU. */
#define BENCH_MAX_THREADS 64
/* Parts of a pass that are timed each on its own. */
#define BENCH_MAX_PHASES 2
/* Measured passes; one more goes first and is not counted. */
#define BENCH_PASSES 5

struct bench_run;

/**
 * struct bench_worker - one thread of a run
 * @run: the run it belongs to
 * @index: 0 to @run->threads - 1; also the CPU it is bound to
 * @rnd: its own random numbers, from the seed of the boot
 * @ops: operations in one phase
 * @start: when the last phase began, in ns of the monotonic clock
 * @end: when it ended
 * @data: of the case
 * @err: 0 or a negative error number; a worker that failed ends the case
 */
struct bench_worker {
	struct bench_run *run;
	unsigned int index;
	struct rnd_state rnd;
	u32 ops;
	u64 start;
	u64 end;
	void *data;
	int err;
};

/**
 * struct bench_case - one thing that is measured
 * @name: as in vmap_bench.run=
 * @what: for people
 * @ops: operations of all workers together in one phase of one pass
 * @max_threads: refused with more workers; 0 is any number
 * @phases: names of the timed parts of a pass; none is one part named "cost"
 * @arg: for @setup, @worker_setup and @phase: a number of pages, of areas ...
 * @need: bytes of memory it takes with @threads workers, NULL is next to none
 * @setup: makes what the workers share, once; may sleep
 * @teardown: takes it away, also after a setup that failed
 * @worker_setup: the same for one worker
 * @worker_teardown: as @teardown
 * @phase: all operations of phase @nr; 0 or an error
 * @measure: instead of all that: measures by itself and reports; 0 or an error
 *
 * All of them run in process context and may sleep.
 */
struct bench_case {
	const char *name;
	const char *what;
	u32 ops;
	unsigned int max_threads;
	const char *phases[BENCH_MAX_PHASES];
	unsigned long arg;
	u64 (*need)(const struct bench_case *c, unsigned int threads);
	int (*setup)(struct bench_run *run);
	void (*teardown)(struct bench_run *run);
	int (*worker_setup)(struct bench_worker *w);
	void (*worker_teardown)(struct bench_worker *w);
	int (*phase)(struct bench_worker *w, unsigned int nr);
	int (*measure)(struct bench_run *run);
};

/**
 * struct bench_run - one case on a number of workers
 * @c: the case
 * @threads: workers
 * @scale: operations in percent of what the case asks for
 * @seed: of the boot
 * @data: of the case
 */
struct bench_run {
	const struct bench_case *c;
	unsigned int threads;
	unsigned int scale;
	u64 seed;
	void *data;
	struct bench_worker workers[BENCH_MAX_THREADS];
};

/* The cases; each table ends with an entry without a name. */
extern const struct bench_case bench_pair_cases[];
extern const struct bench_case bench_mixed_cases[];
extern const struct bench_case bench_lookup_cases[];
extern const struct bench_case bench_purge_cases[];
extern const struct bench_case bench_info_cases[];
extern const struct bench_case bench_growth_cases[];
extern const struct bench_case bench_aliases_cases[];
extern const struct bench_case bench_memory_cases[];
extern const struct bench_case bench_mapping_cases[];
extern const struct bench_case bench_vread_cases[];
extern const struct bench_case bench_latency_cases[];
extern const struct bench_case bench_complaint_cases[];

/* run.c */
void bench_mark_begin(const char *name, const char *part, u32 ops);
void bench_mark_end(void);
int bench_run_case(struct bench_run *run);
bool bench_get_areas(struct vm_struct **vms, unsigned long n, unsigned long pages);
void bench_free_areas(struct vm_struct **vms, unsigned long n);
u64 bench_areas_need(const struct bench_case *c, unsigned int threads);
bool bench_get_pages(struct page **pages, unsigned long n);
void bench_free_pages(struct page **pages, unsigned long n);
void bench_settle(void);
int bench_first_cpu(int (*fn)(void *arg), void *arg);

/* info.c: what one call reads of a file */
#define BENCH_READ_BYTES SZ_16K
struct vfsmount;
struct vfsmount *bench_mount_proc(void);
int bench_read_info(struct vfsmount *proc, void *buffer);

/* vread.c */
int bench_read_page(const char *addr, void *buffer);

/* growth.c */
u64 bench_tables_kib(void);

/* report.c */
const char *bench_allocator(void);
void bench_report(const struct bench_run *run, const char *metric,
		  const char *unit, u64 *values, unsigned int n, u32 ops);
void bench_report_one(const struct bench_run *run, const char *metric,
		      const char *unit, u64 value, u32 ops);
void bench_skip(const struct bench_run *run, const char *why, u64 number);

#ifndef MODULES_VADDR
/* Modules are in vmalloc space. */
#define MODULES_VADDR VMALLOC_START
#define MODULES_END VMALLOC_END
#endif

/* Reserve an area of @pages where modules are loaded. Returns NULL if there is no room. */
static inline struct vm_struct *bench_get_in_window(unsigned long pages)
{
	return __get_vm_area_caller(pages * PAGE_SIZE, VM_ALLOC, MODULES_VADDR, MODULES_END,
				    __builtin_return_address(0));
}

#endif /* _VMAP_BENCH_H */
