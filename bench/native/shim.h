/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A kernel for two allocators in one program. A thread is a CPU; docs/bench.md,
 * "Natively", lists what differs from a kernel. The build includes this file
 * ahead of each C file.
 */
#ifndef _NATIVE_SHIM_H
#define _NATIVE_SHIM_H

#include <linux/compiler.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The compilers' atomics, so that ThreadSanitizer knows what may race. */
#undef READ_ONCE
#undef WRITE_ONCE
#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
#ifdef CHECK
/*
 * The machine of a test may do many other things, and a thread that is waited for may not run. If it does, it is
 * done soon: who yields at once gets the CPU back only after all the others.
 */
int sched_yield(void);
static inline void cpu_relax(void)
{
	static __thread unsigned int waited;

	__builtin_ia32_pause();
	if (++waited % 1024 == 0)
		sched_yield();
}
#else
#define cpu_relax() __builtin_ia32_pause()
#endif

#define NR_CPUS 1024
#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL
/* Those of x86-64 with four levels of page tables. */
#define VMALLOC_START 0xffffc90000000000UL
#define VMALLOC_END 0xffffe8ffffffffffUL

extern unsigned int nr_cpu_ids;
extern __thread unsigned int cpu_number;
#define raw_smp_processor_id() cpu_number

/* Says that something is broken, and ends the program. */
void broken(const char *what) __attribute__((noreturn, cold));

/* Queued spinlocks, as in kernel/locking/qspinlock.c with fewer than 16,384 CPUs. */
typedef struct spinlock {
	union {
		uint32_t val;
		struct { uint8_t locked, pending; };
		struct { uint16_t locked_pending, tail; };
	};
} spinlock_t;

/* Functions, as in a kernel that can be preempted. */
void _raw_spin_lock(spinlock_t *lock);
bool _raw_spin_trylock(spinlock_t *lock);
void _raw_spin_unlock(spinlock_t *lock);
#define spin_lock(lock) _raw_spin_lock(lock)
#define spin_unlock(lock) _raw_spin_unlock(lock)
#define spin_lock_init(lock) WRITE_ONCE((lock)->val, 0)
#define DEFINE_SPINLOCK(name) spinlock_t name

/* PREEMPT_RCU: a counter for readers, and grace periods that poll() reports. */
struct rcu_head {
	struct rcu_head *next;
	void (*func)(struct rcu_head *head);
};
void __rcu_read_lock(void);
void __rcu_read_unlock(void);
void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head));
/* A work item of Rust: a worker runs it, here the same CPU after its callbacks. */
struct native_work {
	struct native_work *next;
	void (*func)(struct native_work *work);
};
void queue_work(struct native_work *work);
void rcu_online(void);
void rcu_offline(void);
/* Runs what waits for a grace period. No CPU is online. */
void rcu_barrier(void);

/* SLUB's sheaves: two for each CPU and cache, the rest behind a lock. */
enum { CACHE_SMALLEST = 3, CACHE_LARGEST = 13, NR_CACHES = 18 };
struct sheaf;
struct kmem_cache {
	unsigned int id, size, capacity;
	spinlock_t lock;
	struct sheaf *full, *empty;
};
#define KMALLOC_ZERO 0x100u
struct kmem_cache *new_cache(unsigned int size);
void *kmem_cache_alloc_noprof(struct kmem_cache *cache, unsigned int gfp);
void kmem_cache_free(struct kmem_cache *cache, void *object);
void *kmalloc_noprof(size_t size, unsigned int gfp);
void kfree_sized(void *object, size_t size);

struct vm_struct {
	struct vm_struct *next;
	void *addr;
	unsigned long size, flags;
	void *pages;
	unsigned int page_order, nr_pages;
	unsigned long phys_addr;
	const void *caller;
	unsigned long requested_size;
};

/*
 * Work of this CPU: a grace period to report, or a purge that it has asked for.
 * Where a kernel looks at TIF_NEED_RESCHED, which interrupts set, this looks at
 * a flag after each operation.
 */
extern __thread int cpu_work;
void do_cpu_work(void);
static __always_inline void poll(void)
{
	if (unlikely(READ_ONCE(cpu_work)))
		do_cpu_work();
}

/* One side. A worker of a pass has its own state. */
struct worker;
enum run_case { AREA_PAIR, AREA_COLD, AREA_4, AREA_64, AREA_REMOTE, MIXED_1K, MIXED_1M, FIND_1K,
	FIND_1K_WRITER, PURGE_512, NR_CASES };
typedef void (*loop_fn)(struct worker *w);
struct side {
	const char *name;
	void (*init)(void);
	struct vm_struct *(*get)(unsigned long bytes);
	void (*put)(struct vm_struct *vm);
	struct vm_struct *(*find)(unsigned long addr);
	void (*purge)(bool drain);
	/* Calls broken() if an invariant does not hold, or if an area is left. */
	void (*check)(void);
	/* Calls @purge as a work item would. */
	unsigned long flushes;
	/* Loops of all cases: for the mean, and with each operation timed. */
	loop_fn loop[NR_CASES][2];
};
extern struct side side_rbtree, side_rust, side_calls;

/* Lets this CPU purge @side after its operation, unless a CPU does it already. */
struct purge_work {
	int pending;
	struct side *side;
};
void schedule_purge(struct purge_work *work);

/* lazy_max_pages() of mm/vmalloc.c. */
static inline unsigned long most_lazy_pages(void)
{
	return (32 - __builtin_clz(nr_cpu_ids)) * (32UL << 20 >> PAGE_SHIFT);
}

#endif
