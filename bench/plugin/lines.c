// SPDX-License-Identifier: GPL-2.0
/*
 * Plugin of QEMU: which cache lines move between the CPUs of a guest in the measured parts of the benchmark.
 *
 *   out=FILE     where the counts go when the guest ends
 *   begin=ADDR   bench_mark_begin(case, part, ops), in hexadecimal; end=ADDR: bench_mark_end()
 *   turn=ADDR    a function at which CPUs take turns, in random order; may be given often
 *   irq=ADDR     where an interrupt of the kernel begins; ret=ADDR: where it returns; switch=ADDR: another task goes on.
 *                Interrupts do not count.
 *   seed=N       of the order; workers=N: CPUs that take turns when all are there
 *
 * Lines of the file:
 *
 *   window N CASE PART OPS PASSES
 *   turns N FAIR                    turns that were chosen from all workers, as were those before
 *   miss N PC ADDR IS_WRITE TIMES FAIR
 *   end
 *
 * Each virtual CPU must have a host thread of its own, as with -accel tcg,thread=multi: one that waits for its turn sleeps
 * in this plugin. Without turns, a host with few CPUs would run thousands of operations of one virtual CPU before those of
 * the next, and hardly a line would move.
 */
#include <pthread.h>
#include <time.h>

#include "marks.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

#define MAX_CPUS 256
#define BUCKETS (1 << 20)
#define LINE 64
/* How long one CPU may have the turn: it may sleep, or wait for one that does not have it. */
#define TURN_NS 100000000l

/* What misses of one instruction at one address are. */
struct miss {
	struct miss *next;
	uint64_t pc, addr, times, fair;
	int window;
	bool is_write;
};

/* Which caches have a line, and which had it until another CPU wrote. */
struct line {
	struct line *next;
	uint64_t number;
	uint64_t have[MAX_CPUS / 64], lost[MAX_CPUS / 64];
	unsigned int owner; /* the CPU that has it modified or exclusive, plus one */
	struct miss *misses;
};

struct cpu {
	pthread_cond_t turn_comes;
	int window; /* 0 if no part is open here, else the window's number and 1 */
	bool in_irq, is_fair;
};

enum hook_kind { HOOK_BEGIN, HOOK_END, HOOK_TURN, HOOK_IRQ, HOOK_RET, HOOK_SWITCH };

static const char *const kinds[] = { "begin=", "end=", "turn=", "irq=", "ret=", "switch=" };

/* Protects all that follows. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct line *lines[BUCKETS];
static struct cpu cpus[MAX_CPUS];
/* The CPUs that wait for their turn; the one that has it, plus one; since when; and the one that flushes TLBs, plus one. */
static unsigned int waiting[MAX_CPUS], n_waiting, runs, flushes;
static uint64_t since_ns, random_state = 1;
/* Choices in a row from all workers. When one comes late, the others have more turns. */
static unsigned int n_complete, n_workers;
static uint64_t fair_turns[MAX_WINDOWS];
/* Also read without the mutex, by accesses outside of all parts. */
static volatile int open_parts;

static struct line *find_line(uint64_t number)
{
	struct line **bucket = &lines[(number ^ number >> 20) % BUCKETS], *l;

	for (l = *bucket; l; l = l->next) {
		if (l->number == number)
			return l;
	}
	l = zalloc(sizeof(*l));
	l->next = *bucket;
	l->number = number;
	*bucket = l;
	return l;
}

static void note_miss(struct line *l, unsigned int cpu, uint64_t pc, uint64_t addr, bool is_write)
{
	int window = cpus[cpu].window - 1;
	struct miss *m;

	if (window < 0 || cpus[cpu].in_irq)
		return;
	for (m = l->misses; m; m = m->next) {
		if (m->pc == pc && m->addr == addr && m->window == window && m->is_write == is_write)
			break;
	}
	if (!m) {
		m = zalloc(sizeof(*m));
		*m = (struct miss) { l->misses, pc, addr, 0, 0, window, is_write };
		l->misses = m;
	}
	m->times++;
	m->fair += cpus[cpu].is_fair;
}

/* One CPU reads or writes a line. MESI, with caches that evict nothing. */
static void access_line(struct line *l, unsigned int cpu, uint64_t pc, uint64_t addr, bool is_write)
{
	uint64_t bit = 1ull << (cpu % 64);
	unsigned int word = cpu / 64, i;
	bool is_held = l->have[word] & bit, others = false;

	if (is_held && l->owner == cpu + 1)
		return;
	for (i = 0; i < MAX_CPUS / 64; i++)
		others |= (l->have[i] & ~(i == word ? bit : 0)) != 0;
	if (is_write) {
		if (others)
			note_miss(l, cpu, pc, addr, true);
		for (i = 0; i < MAX_CPUS / 64; i++) {
			l->lost[i] |= l->have[i];
			l->have[i] = 0;
		}
		l->owner = cpu + 1;
	} else if (!is_held) {
		if (others && (l->owner || l->lost[word] & bit))
			note_miss(l, cpu, pc, addr, false);
		l->owner = others ? 0 : cpu + 1;
	}
	l->have[word] |= bit;
	l->lost[word] &= ~bit;
}

/* @data: address of the instruction, and 1 if it is a load-exclusive, which asks for the line as a write does. */
static void memory_accessed(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t addr, void *data)
{
	uint64_t pc = (uintptr_t)data & ~1ul, end = addr + (1ull << qemu_plugin_mem_size_shift(info));
	bool is_write = (uintptr_t)data & 1 || qemu_plugin_mem_is_store(info);

	if (!open_parts)
		return;
	pthread_mutex_lock(&mutex);
	for (; addr < end; addr = (addr / LINE + 1) * LINE)
		access_line(find_line(addr / LINE), cpu, pc, addr, is_write);
	pthread_mutex_unlock(&mutex);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void give_turn(unsigned int cpu)
{
	runs = cpu + 1;
	since_ns = now_ns();
	pthread_cond_signal(&cpus[cpu].turn_comes);
}

/* A waiting CPU at random, or @cpu itself, which then goes on waiting in its place; @n: how many to choose from. */
static void choose_turn(unsigned int cpu, unsigned int n)
{
	unsigned int at;

	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	at = (random_state >> 33) % n;
	n_complete = n == n_workers ? n_complete + 1 : 0;
	if (at == n_waiting) {
		give_turn(cpu);
		return;
	}
	give_turn(waiting[at]);
	waiting[at] = waiting[--n_waiting];
}

static void wait_for_turn(unsigned int cpu)
{
	struct timespec until;
	unsigned int i;

	waiting[n_waiting++] = cpu;
	while (runs != cpu + 1 && !flushes) {
		uint64_t ns = since_ns + TURN_NS;

		if (now_ns() >= ns)
			break;
		until = (struct timespec) { ns / 1000000000, ns % 1000000000 };
		pthread_cond_timedwait(&cpus[cpu].turn_comes, &mutex, &until);
	}
	for (i = 0; i < n_waiting && waiting[i] != cpu; i++)
		;
	if (i < n_waiting)
		waiting[i] = waiting[--n_waiting];
	if (runs != cpu + 1)
		n_complete = 0;
	if (!flushes)
		give_turn(cpu);
}

static void turn_ends(unsigned int cpu)
{
	int window = cpus[cpu].window - 1;

	cpus[cpu].is_fair = false;
	if (flushes == cpu + 1)
		flushes = 0;
	if (flushes)
		return;
	if (!runs || runs == cpu + 1)
		choose_turn(cpu, n_waiting + 1);
	if (runs != cpu + 1)
		wait_for_turn(cpu);
	if (window < 0)
		return;
	cpus[cpu].is_fair = n_complete > n_workers;
	fair_turns[window] += cpus[cpu].is_fair;
}

/* Called ahead of an instruction that flushes the TLBs of all CPUs: QEMU waits until none of them runs. */
static void tlbi_runs(unsigned int cpu, void *data)
{
	unsigned int i;

	pthread_mutex_lock(&mutex);
	flushes = n_waiting ? cpu + 1 : 0;
	n_complete = 0;
	for (i = 0; i < n_waiting; i++)
		pthread_cond_signal(&cpus[waiting[i]].turn_comes);
	pthread_mutex_unlock(&mutex);
}

/* The flush is done. */
static void dsb_runs(unsigned int cpu, void *data)
{
	if (flushes != cpu + 1)
		return;
	pthread_mutex_lock(&mutex);
	flushes = 0;
	pthread_mutex_unlock(&mutex);
}

static void part_begins(unsigned int cpu)
{
	cpus[cpu].window = window_begins() + 1;
	open_parts++;
}

static void part_ends(unsigned int cpu)
{
	cpus[cpu].window = 0;
	open_parts--;
	if (runs != cpu + 1)
		return;
	runs = 0;
	if (n_waiting)
		choose_turn(cpu, n_waiting);
}

/* Called when the first instruction of a hooked function runs. */
static void hook_runs(unsigned int cpu, void *data)
{
	struct hook *hook = data;

	if (!open_parts && hook->kind != HOOK_BEGIN && hook->kind != HOOK_TURN)
		return;
	pthread_mutex_lock(&mutex);
	switch (hook->kind) {
	case HOOK_BEGIN:
		part_begins(cpu);
		break;
	case HOOK_END:
		part_ends(cpu);
		break;
	case HOOK_TURN:
		turn_ends(cpu);
		break;
	case HOOK_IRQ:
		cpus[cpu].in_irq = true;
		break;
	case HOOK_RET:
	case HOOK_SWITCH:
		cpus[cpu].in_irq = false;
		break;
	}
	pthread_mutex_unlock(&mutex);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t i, n = qemu_plugin_tb_n_insns(tb);

	for (i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t addr = qemu_plugin_insn_vaddr(insn);
		uint32_t word = 0;

		qemu_plugin_insn_data(insn, &word, sizeof(word));
		qemu_plugin_register_vcpu_mem_cb(insn, memory_accessed, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
						 (void *)(addr | ((word & 0x3fc00000) == 0x08400000)));
		if (is_tlbi(word))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, tlbi_runs, QEMU_PLUGIN_CB_NO_REGS, NULL);
		else if (is_dsb(word))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, dsb_runs, QEMU_PLUGIN_CB_NO_REGS, NULL);
		register_hooks(insn, hook_runs);
	}
}

static void cpu_begins(qemu_plugin_id_t id, unsigned int number)
{
	static const char *const names[] = { "x0", "x1", "x2" };
	struct qemu_plugin_register **handles[] = { &args[0], &args[1], &args[2] };

	if (number >= MAX_CPUS)
		fail("more CPUs than there can be");
	find_registers(names, handles, 3);
	pthread_cond_init(&cpus[number].turn_comes, NULL);
}

static void write_counts(qemu_plugin_id_t id, void *data)
{
	FILE *out = begin_file();
	struct line *l;
	struct miss *m;
	int i;

	for (i = 0; i < n_windows; i++) {
		write_window(out, i);
		fprintf(out, "turns %d %" PRIu64 "\n", i, fair_turns[i]);
	}
	for (i = 0; i < BUCKETS; i++) {
		for (l = lines[i]; l; l = l->next) {
			for (m = l->misses; m; m = m->next)
				fprintf(out, "miss %d %" PRIx64 " %" PRIx64 " %d %" PRIu64 " %" PRIu64 "\n", m->window,
					m->pc, m->addr, m->is_write, m->times, m->fair);
		}
	}
	end_file(out);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
					   int argc, char **argv)
{
	bool is_good = !strcmp(info->target_name, "aarch64");
	int i;

	for (i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "seed=", 5))
			random_state = strtoull(argv[i] + 5, NULL, 10);
		else if (!strncmp(argv[i], "workers=", 8))
			n_workers = strtoul(argv[i] + 8, NULL, 10);
		else
			is_good &= add_argument(argv[i], kinds, sizeof(kinds) / sizeof(kinds[0]));
	}
	if (!is_good || !out_path || !n_workers) {
		fprintf(stderr, "lines: error: wrong arguments; see bench/plugin/lines.c\n");
		return -1;
	}
	qemu_plugin_register_vcpu_init_cb(id, cpu_begins);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, write_counts, NULL);
	return 0;
}
