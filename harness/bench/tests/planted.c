// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel for test_cachelines.py: functions whose cache misses are known, and the
 * variables that machine.py sets.
 */
#define LINE 64
#define ALIGNED __attribute__((aligned(LINE)))

unsigned int nr_cpu_ids, __num_online_cpus, __num_possible_cpus;
unsigned long __cpu_possible_mask[8], __cpu_online_mask[8], __cpu_present_mask[8], __cpu_active_mask[8];
unsigned long __per_cpu_offset[256];
__attribute__((section(".data..percpu"))) long hits = 1;

/* Counters in one line, and in lines of their own. */
ALIGNED volatile long together[LINE / sizeof(long)] = { 1, 1 };
ALIGNED struct { volatile long count; char padding[LINE - sizeof(long)]; } apart[LINE] = { { 1 } };
ALIGNED volatile long total = 1;
ALIGNED volatile int lock;

void count_together(int which) { together[which]++; }
void count_apart(int which) { apart[which].count++; }

/* Its own variable of each CPU. */
long count_percpu(void)
{
	unsigned long offset;

	__asm__ volatile("mrs %0, tpidr_el1" : "=r"(offset));
	return ++*(volatile long *)((char *)&hits + offset);
}

long read_total(void) { return total; }
void prefetch_total(void) { __builtin_prefetch((const void *)&total, 1); }

/* One read-modify-write, and a barrier. */
void add_total(void)
{
	long value;
	int failed;

	__asm__ volatile("1:	ldxr %0, %2\n	add %0, %0, #1\n	stxr %w1, %0, %2\n	cbnz %w1, 1b\n	dmb ish"
			 : "=&r"(value), "=&r"(failed), "+Q"(total) : : "memory");
}

void _raw_spin_lock(volatile int *l)
{
	int value, failed;

	__asm__ volatile("1:	ldaxr %w0, %2\n	cbnz %w0, 1b\n	stxr %w1, %w3, %2\n	cbnz %w1, 1b"
			 : "=&r"(value), "=&r"(failed), "+Q"(*l) : "r"(1) : "memory");
}

/* Takes a lock of all, and releases it. */
void locked(void)
{
	_raw_spin_lock(&lock);
	__asm__ volatile("stlr wzr, %0" : "=Q"(lock) : : "memory");
}

/* Replaced by a stub, and neither executed nor replaced. */
long stub(long value)
{
	__asm__ volatile("" : "+r"(value));
	return value;
}

void forbidden(void) { lock = 0; }
long call_stub(long value) { return stub(value) + 1; }
void call_forbidden(void) { forbidden(); }

/* Makes the emulator ask for zeroing by whole lines: machine.py must say that it is prohibited. */
long zero_lines(void)
{
	long value;

	__asm__ volatile("mrs %0, dczid_el0" : "=r"(value));
	return value;
}
