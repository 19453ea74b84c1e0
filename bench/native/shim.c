// SPDX-License-Identifier: GPL-2.0
/* Spinlocks, slab and RCU of shim.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned int nr_cpu_ids = 1;
__thread unsigned int cpu_number;
__thread int cpu_work;
__thread int preempt_count;

void broken(const char *what)
{
	fprintf(stderr, "native: broken: %s\n", what);
	abort();
}

/* One instruction that changes memory each, as with the kernel's per-CPU counter. */
static __always_inline void preempt_disable(void)
{
	preempt_count++;
	barrier();
}

static __always_inline void preempt_enable(void)
{
	barrier();
	if (unlikely(--preempt_count < 0))
		broken("preempt_count");
}

/* The part of a CPU that others see. */
struct cpu {
	/* A waiter of a queued spinlock. */
	struct cpu *next_waiter;
	int may_go;
	/* RCU: &cpu_work, the last grace period that it has reported, and its callbacks. */
	bool online;
	int *work;
	unsigned long reported, waits_for;
	struct rcu_head *waiting, *fresh, **fresh_end;
} __attribute__((aligned(128)));

static struct cpu cpus[NR_CPUS];

#define LOCKED 1u
#define PENDING (1u << 8)
#define TAIL (~0u << 16)
#define ACQ __ATOMIC_ACQUIRE
#define REL __ATOMIC_RELEASE
#define RLX __ATOMIC_RELAXED

/*
 * queued_spin_lock_slowpath(): the first waiter sets the pending byte and waits
 * for the owner, the others queue, each waiting on a line of its own.
 */
static noinline void lock_slow(spinlock_t *lock, uint32_t val)
{
	struct cpu *me = &cpus[cpu_number], *next;
	uint32_t tail = (cpu_number + 1) << 16, old;

	if (val == PENDING)
		val = READ_ONCE(lock->val);
	if (!(val & ~0xffu)) {
		val = __atomic_fetch_or(&lock->val, PENDING, ACQ);
		if (!(val & ~0xffu)) {
			while (__atomic_load_n(&lock->locked, ACQ))
				cpu_relax();
			__atomic_store_n(&lock->locked_pending, LOCKED, RLX);
			return;
		}
		if (!(val & PENDING))
			__atomic_store_n(&lock->pending, 0, RLX);
	}

	me->may_go = 0;
	WRITE_ONCE(me->next_waiter, NULL);
	old = (uint32_t)__atomic_exchange_n(&lock->tail, tail >> 16, __ATOMIC_ACQ_REL) << 16;
	if (old) {
		__atomic_store_n(&cpus[(old >> 16) - 1].next_waiter, me, REL);
		while (!__atomic_load_n(&me->may_go, ACQ))
			cpu_relax();
	}
	while ((val = __atomic_load_n(&lock->val, ACQ)) & ~TAIL)
		cpu_relax();
	if (val == tail && __atomic_compare_exchange_n(&lock->val, &val, LOCKED, false, RLX, RLX))
		return;
	__atomic_store_n(&lock->locked, LOCKED, RLX);
	while (!(next = __atomic_load_n(&me->next_waiter, ACQ)))
		cpu_relax();
	__atomic_store_n(&next->may_go, 1, REL);
}

noinline void _raw_spin_lock(spinlock_t *lock)
{
	uint32_t val = 0;

	preempt_disable();
	if (unlikely(!__atomic_compare_exchange_n(&lock->val, &val, LOCKED, false, ACQ, RLX)))
		lock_slow(lock, val);
}

noinline bool _raw_spin_trylock(spinlock_t *lock)
{
	uint32_t val = READ_ONCE(lock->val);

	preempt_disable();
	if (!val && __atomic_compare_exchange_n(&lock->val, &val, LOCKED, false, ACQ, RLX))
		return true;
	preempt_enable();
	return false;
}

noinline void _raw_spin_unlock(spinlock_t *lock)
{
	__atomic_store_n(&lock->locked, 0, REL);
	preempt_enable();
}

/* Slab. A sheaf is a stack of free objects. */
struct sheaf {
	struct sheaf *next;
	unsigned int n;
	void *objects[];
};

static struct sheaf none;
static __thread struct { struct sheaf *main, *spare; } sheaves[NR_CACHES] = {
	[0 ... NR_CACHES - 1] = { &none, &none } };
static struct kmem_cache caches[NR_CACHES];
static unsigned int nr_caches;

struct kmem_cache *new_cache(unsigned int size)
{
	struct kmem_cache *cache = &caches[nr_caches];

	if (nr_caches == NR_CACHES)
		broken("NR_CACHES");
	cache->id = nr_caches++;
	cache->size = size;
	/* calculate_sheaf_capacity() in mm/slub.c. */
	cache->capacity = size >= PAGE_SIZE ? 4 : size >= 1024 ? 12 : size >= 256 ? 28 : 60;
	return cache;
}

static struct sheaf *new_sheaf(struct kmem_cache *cache)
{
	return calloc(1, sizeof(struct sheaf) + cache->capacity * sizeof(void *));
}

/* Get a full sheaf for the empty one of this CPU. New memory is never given back. */
static noinline void refill(struct kmem_cache *cache, struct sheaf **main, struct sheaf **spare)
{
	struct sheaf *empty = *main;
	char *slab;

	if ((*spare)->n) {
		*main = *spare;
		*spare = empty;
		return;
	}
	spin_lock(&cache->lock);
	if (cache->full) {
		*main = cache->full;
		cache->full = (*main)->next;
		if (empty != &none) {
			empty->next = cache->empty;
			cache->empty = empty;
		}
	}
	spin_unlock(&cache->lock);
	if (*main != empty)
		return;
	if (empty == &none)
		*main = new_sheaf(cache);
	slab = aligned_alloc(PAGE_SIZE, (cache->capacity * cache->size | (PAGE_SIZE - 1)) + 1);
	for (unsigned int i = cache->capacity; i--;)
		(*main)->objects[(*main)->n++] = memset(slab + i * cache->size, 0, cache->size);
}

/* Get an empty sheaf for the full one of this CPU. */
static noinline void drain(struct kmem_cache *cache, struct sheaf **main, struct sheaf **spare)
{
	struct sheaf *full = *main;

	if (*spare != &none && !(*spare)->n) {
		*main = *spare;
		*spare = full;
		return;
	}
	spin_lock(&cache->lock);
	*main = cache->empty;
	if (*main)
		cache->empty = (*main)->next;
	if (full != &none) {
		full->next = cache->full;
		cache->full = full;
	}
	spin_unlock(&cache->lock);
	if (!*main)
		*main = new_sheaf(cache);
}

noinline void *kmem_cache_alloc_noprof(struct kmem_cache *cache, unsigned int gfp)
{
	struct sheaf *sheaf;
	void *object;

	preempt_disable();
	sheaf = sheaves[cache->id].main;
	if (unlikely(!sheaf->n)) {
		refill(cache, &sheaves[cache->id].main, &sheaves[cache->id].spare);
		sheaf = sheaves[cache->id].main;
	}
	object = sheaf->objects[--sheaf->n];
	preempt_enable();
	return gfp & KMALLOC_ZERO ? memset(object, 0, cache->size) : object;
}

noinline void kmem_cache_free(struct kmem_cache *cache, void *object)
{
	struct sheaf *sheaf;

	preempt_disable();
	sheaf = sheaves[cache->id].main;
	if (unlikely(sheaf == &none || sheaf->n == cache->capacity)) {
		drain(cache, &sheaves[cache->id].main, &sheaves[cache->id].spare);
		sheaf = sheaves[cache->id].main;
	}
	sheaf->objects[sheaf->n++] = object;
	preempt_enable();
}

/* kmalloc-8 to kmalloc-8k, and the two that are no power of two. */
static struct kmem_cache *by_order[CACHE_LARGEST + 1], *of_96, *of_192;

static __attribute__((constructor)) void kmalloc_init(void)
{
	for (int order = CACHE_SMALLEST; order <= CACHE_LARGEST; order++)
		by_order[order] = new_cache(1u << order);
	of_96 = new_cache(96);
	of_192 = new_cache(192);
}

static __always_inline struct kmem_cache *cache_for(size_t size)
{
	if (size > 64 && size <= 96)
		return of_96;
	if (size > 128 && size <= 192)
		return of_192;
	return size > 1u << CACHE_LARGEST ? NULL : by_order[size <= 8 ? 3 : 64 - __builtin_clzl(size - 1)];
}

noinline void *kmalloc_noprof(size_t size, unsigned int gfp)
{
	struct kmem_cache *cache = cache_for(size);

	if (likely(cache))
		return kmem_cache_alloc_noprof(cache, gfp);
	size = (size | (PAGE_SIZE - 1)) + 1;
	return memset(aligned_alloc(PAGE_SIZE, size), 0, size);
}

noinline void kfree_sized(void *object, size_t size)
{
	struct kmem_cache *cache = cache_for(size);

	if (likely(cache))
		kmem_cache_free(cache, object);
	else
		free(object);
}

/* RCU. */
static __thread int rcu_nesting, rcu_special;
static struct {
	spinlock_t lock;
	/* The newest grace period, the last that ended, and the last that somebody waits for. */
	unsigned long newest, ended, wanted;
	/* CPUs that have not reported the newest one. */
	unsigned int missing;
} rcu;

/* As __rcu_read_lock() and __rcu_read_unlock() in kernel/rcu/tree_plugin.h. */
noinline void __rcu_read_lock(void)
{
	*(volatile int *)&rcu_nesting = *(volatile int *)&rcu_nesting + 1;
	barrier();
}

noinline void __rcu_read_unlock(void)
{
	barrier();
	*(volatile int *)&rcu_nesting = *(volatile int *)&rcu_nesting - 1;
	if (!rcu_nesting && unlikely(*(volatile int *)&rcu_special))
		broken("rcu_special");
}

noinline void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	struct cpu *cpu = &cpus[cpu_number];

	head->func = func;
	head->next = NULL;
	if (!cpu->fresh)
		cpu->fresh_end = &cpu->fresh;
	*cpu->fresh_end = head;
	cpu->fresh_end = &head->next;
	WRITE_ONCE(cpu_work, 1);
}

static void rcu_kick(bool all)
{
	for (unsigned int i = 0; i < nr_cpu_ids; i++)
		if (cpus[i].online && (all || cpus[i].waiting))
			WRITE_ONCE(*cpus[i].work, 1);
}

/* This CPU reads nothing. */
static void rcu_report(struct cpu *cpu)
{
	if (rcu_nesting)
		broken("a reader reports a grace period");
	if (cpu->online && cpu->reported != rcu.newest) {
		cpu->reported = rcu.newest;
		if (!--rcu.missing) {
			rcu.ended = rcu.newest;
			rcu_kick(false);
		}
	}
}

static void rcu_start(void)
{
	if (rcu.newest != rcu.ended || rcu.wanted <= rcu.newest)
		return;
	rcu.newest++;
	for (unsigned int i = 0; i < nr_cpu_ids; i++)
		rcu.missing += cpus[i].online;
	if (!rcu.missing)
		rcu.ended = rcu.newest;
	rcu_kick(true);
}

static __thread struct native_work *works;

void queue_work(struct native_work *work)
{
	work->next = works;
	works = work;
}

static void rcu_run(struct rcu_head *head)
{
	struct rcu_head *next;
	struct native_work *work;

	for (; head; head = next) {
		next = head->next;
		head->func(head);
	}
	while ((work = works)) {
		works = work->next;
		work->func(work);
	}
}

static noinline void rcu_work(void)
{
	struct cpu *cpu = &cpus[cpu_number];
	struct rcu_head *ready = NULL;

	spin_lock(&rcu.lock);
	rcu_report(cpu);
	if (cpu->waiting && cpu->waits_for <= rcu.ended) {
		ready = cpu->waiting;
		cpu->waiting = NULL;
	}
	if (!cpu->waiting && cpu->fresh) {
		cpu->waiting = cpu->fresh;
		cpu->fresh = NULL;
		/* Readers that began before the callback may have missed the newest one. */
		cpu->waits_for = rcu.newest + 1;
		if (rcu.wanted < cpu->waits_for)
			rcu.wanted = cpu->waits_for;
	}
	rcu_start();
	spin_unlock(&rcu.lock);
	rcu_run(ready);
}

void rcu_online(void)
{
	struct cpu *cpu = &cpus[cpu_number];

	spin_lock(&rcu.lock);
	cpu->work = &cpu_work;
	cpu->reported = rcu.newest;
	cpu->online = true;
	if (cpu->waiting || cpu->fresh)
		WRITE_ONCE(cpu_work, 1);
	spin_unlock(&rcu.lock);
}

void rcu_offline(void)
{
	spin_lock(&rcu.lock);
	rcu_report(&cpus[cpu_number]);
	cpus[cpu_number].online = false;
	rcu_start();
	spin_unlock(&rcu.lock);
}

void rcu_barrier(void)
{
	bool found;

	do {
		found = false;
		for (unsigned int i = 0; i < nr_cpu_ids; i++) {
			struct rcu_head *waiting = cpus[i].waiting, *fresh = cpus[i].fresh;

			cpus[i].waiting = cpus[i].fresh = NULL;
			rcu_run(waiting);
			rcu_run(fresh);
			found |= waiting || fresh;
		}
	} while (found);
}

/* Work of this CPU. */
static __thread struct purge_work *purge_asked;

void schedule_purge(struct purge_work *work)
{
	if (!READ_ONCE(work->pending) && !__atomic_exchange_n(&work->pending, 1, __ATOMIC_ACQ_REL)) {
		purge_asked = work;
		WRITE_ONCE(cpu_work, 1);
	}
}

noinline void do_cpu_work(void)
{
	struct purge_work *asked = purge_asked;

	WRITE_ONCE(cpu_work, 0);
	rcu_work();
	if (asked) {
		purge_asked = NULL;
		/* As with a work item: it may be queued again from here on. */
		__atomic_store_n(&asked->pending, 0, REL);
		asked->side->purge(false);
	}
}
